"""Content negotiation: which of the available representations a request prefers (RFC 9110, sections 12.4 and 12.5).

Names are compared case-insensitively. The most specific range that matches a type gives its quality, and the type of
the highest quality wins. Of two types with the same quality, the more specific match wins, then the first offered one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Range = tuple[bytes, float]  # a name or a wildcard, and its quality


def preferred(accept: bytes, *offered: bytes) -> bytes:
    """Return the offered media type that `Accept` prefers; the first one if it allows none of them, or is empty."""
    ranges = list(_ranges(accept))
    return max(offered, key=lambda kind: _rank(kind, ranges))  # of equals, the first


def names(accept: bytes, kind: bytes) -> bool:
    """Return whether `Accept` names exactly this media type and does not exclude it."""
    return any(name == kind and quality > 0 for name, quality in _ranges(accept))


def _rank(kind: bytes, ranges: list[Range]) -> tuple[float, int]:
    """Return the quality of a media type and how exactly it is named."""
    family = kind.partition(b"/")[0] + b"/*"
    for exactness, name in ((2, kind), (1, family), (0, b"*/*")):
        qualities = [quality for each, quality in ranges if each == name]
        if qualities:
            quality = max(qualities)
            return (quality, exactness) if quality > 0 else (0.0, 0)
    return 0.0, 0


def takes_coding(accept_encoding: bytes, coding: bytes) -> bool:
    """Return whether `Accept-Encoding` names a content coding and does not exclude it."""
    ranges = dict(_ranges(accept_encoding))
    return ranges.get(coding, ranges.get(b"*", 0.0)) > 0


def _ranges(header: bytes) -> Iterator[Range]:
    for part in header.lower().split(b","):
        name, *parameters = (each.strip() for each in part.split(b";"))
        if name:
            yield name, _quality(parameters)


def _quality(parameters: Iterable[bytes]) -> float:
    """Return the value of `q`: 1 without it, and 0 if it is invalid."""
    for parameter in parameters:
        name, _, value = parameter.partition(b"=")
        if name.strip() == b"q":
            text = value.strip()
            is_number = text.replace(b".", b"", 1).isdigit()
            return min(float(text), 1.0) if is_number else 0.0
    return 1.0
