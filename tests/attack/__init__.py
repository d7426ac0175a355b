"""Attacks on a running server: each failed to be refused once, and must be refused for ever."""
