"""Hooks: a coding agent's host calls them before it delegates, when an agent stops, and when it starts and ends."""
