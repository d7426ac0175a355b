"""The launcher: takes turns, starts agents, reports what they say and how they end."""
