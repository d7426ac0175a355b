"""Durations as configuration and definitions write them (45s, 30m, 24h, 7d), times to live, and times to wait."""

from __future__ import annotations

import re
from datetime import timedelta

from moorage.core.errors import InvalidField

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
MIN_TTL = timedelta(microseconds=1)
MAX_TTL = timedelta(days=3650)
_SHORTEST, _LONGEST = MIN_TTL.total_seconds(), MAX_TTL.total_seconds()


def duration(name: str, value: object) -> timedelta:
    """Read a duration from configuration: 45s, 30m, 24h, 7d."""
    if isinstance(value, timedelta):
        return value
    match = re.fullmatch(r"(\d{1,8}(?:\.\d+)?)([smhdw])", value.strip()) if isinstance(value, str) else None
    if match is None:
        raise InvalidField(name, f"is {value!r}; write a duration such as 30m, 24h or 7d")
    return timedelta(seconds=float(match[1]) * _UNITS[match[2]])


def duration_text(value: timedelta) -> str:
    """Return a duration as text that `duration` reads, in the largest unit that gives a whole number."""
    seconds = value.total_seconds()
    for unit in ("d", "h", "m"):
        if seconds and seconds % _UNITS[unit] == 0:
            return f"{int(seconds // _UNITS[unit])}{unit}"
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"


def check_ttl(ttl: object, name: str = "ttl") -> timedelta | None:
    """Read a time to live, in seconds or as timedelta: a microsecond or more, at most ten years."""
    if ttl is None:
        return None
    lifetime = ttl
    if isinstance(ttl, (int, float)) and not isinstance(ttl, bool) and _SHORTEST <= ttl <= _LONGEST:
        lifetime = timedelta(seconds=ttl)
    if isinstance(lifetime, timedelta) and MIN_TTL <= lifetime <= MAX_TTL:
        return lifetime
    raise InvalidField(name, f"is {ttl!r}; give seconds above 0 and up to {int(_LONGEST)}, or nothing")


def check_wait(value: object, name: str) -> float | None:
    """Read how long a caller waits, in seconds or as timedelta; None is no limit."""
    if value is None:
        return None
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and 0 <= seconds <= _LONGEST:
        return float(seconds)
    raise InvalidField(name, f"is {value!r}; give seconds from 0 to {int(_LONGEST)}, or nothing")
