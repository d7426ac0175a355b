"""Databases of older orchestrators: brought in place into a SQLite store."""
