"""The launcher: takes turns, starts agents, reports their output and their end."""
