"""Servers side by side: what `python -m bench.http` starts, and what it loads them with."""
