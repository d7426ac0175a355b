"""Usage: how many tokens models have read and written, as agents tell.

A session's metadata keep the sum under `usage`. Invalid counts are
skipped, so that they cannot spoil the others.
"""

from __future__ import annotations

from collections.abc import Mapping

MOST_TOKENS = 10**12  # of one session; a larger number is an error
NAMES = ("input_tokens", "output_tokens", "total_tokens")

Usage = dict[str, float]


def count_of(value: object) -> float | None:
    """A number of tokens; None for whatever is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if 0 <= value <= MOST_TOKENS else None


def usage_of(told: Mapping[str, object]) -> Usage:
    """The counts in what an agent tells of one call; the total is their sum, unless it is told as well."""
    counts = {name: count for name in NAMES if (count := count_of(told.get(name))) is not None}
    if counts and "total_tokens" not in counts:
        counts["total_tokens"] = sum(counts.values())
    return counts


def summed(one: Usage, other: Usage) -> Usage:
    """Both together."""
    known = [name for name in NAMES if name in one or name in other]
    return {name: min(one.get(name, 0) + other.get(name, 0), MOST_TOKENS) for name in known}


def added(kept: Mapping[str, object], more: Usage) -> dict[str, object]:
    """A usage as metadata have it, with more added; what else it says stays."""
    return {**kept, **summed(usage_of(kept), more)}
