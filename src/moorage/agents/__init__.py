"""Agents: their definitions, their jobs from the launcher, and the agents that run inside it."""
