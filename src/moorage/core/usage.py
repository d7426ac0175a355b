"""Usage: how many tokens models have read and written, as agents report.

A session's metadata has the sum under `usage`. Invalid counts are
skipped, so that they cannot spoil the others.
"""

from __future__ import annotations

from collections.abc import Mapping

MOST_TOKENS = 10**12  # of one session; a larger number is an error
NAMES = ("input_tokens", "output_tokens", "total_tokens")

Usage = dict[str, float]


def count_of(value: object) -> float | None:
    """Return a number of tokens; None for any other value."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if 0 <= value <= MOST_TOKENS else None


def usage_of(told: Mapping[str, object]) -> Usage:
    """Return the counts in an agent's report of one call; the total is their sum, unless it is reported."""
    counts = {name: count for name in NAMES if (count := count_of(told.get(name))) is not None}
    if counts and "total_tokens" not in counts:
        counts["total_tokens"] = sum(counts.values())
    return counts


def summed(one: Usage, other: Usage) -> Usage:
    """Return the sum of two usages."""
    known = [name for name in NAMES if name in one or name in other]
    return {name: min(one.get(name, 0) + other.get(name, 0), MOST_TOKENS) for name in known}


def added(kept: Mapping[str, object], more: Usage) -> dict[str, object]:
    """Return the usage in metadata with more added; its other fields stay."""
    return {**kept, **summed(usage_of(kept), more)}
