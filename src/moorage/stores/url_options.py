"""URL options that several kinds of stores share."""

from __future__ import annotations

from moorage.core.errors import InvalidField


def whole_number(name: str, value: str, most: int) -> int:
    """Return a positive whole number."""
    if not value.isdecimal() or not 1 <= int(value) <= most:
        raise InvalidField("url", f"has {name}={value!r}; give a whole number from 1 to {most}")
    return int(value)


def seconds(name: str, value: str) -> float:
    """Return a timeout in seconds."""
    try:
        found = float(value)
    except ValueError:
        found = 0.0
    if not 0.05 <= found <= 86_400:
        raise InvalidField("url", f"has {name}={value!r}; give seconds, from 0.05 to 86400")
    return found
