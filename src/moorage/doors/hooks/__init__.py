"""Hooks: what a coding agent's host calls before it delegates, when an agent stops, and when it starts and ends."""
