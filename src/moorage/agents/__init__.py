"""Agents: what they are called, what the launcher hands them, and those that live inside it."""
