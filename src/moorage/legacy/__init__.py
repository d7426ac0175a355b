"""Databases of older orchestrators: imported in place into a SQLite store."""
