"""A plot of columns over time, drawn with characters: as many as fit, the newest if not all do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

BLOCKS = " ▁▂▃▄▅▆▇█"
PLAIN = " .:-=+*%#"  # for a terminal that has no blocks
HEIGHT = 4  # lines
WIDEST = 6  # characters of one column, with the gap after it
GUTTER = 6  # characters for numbers at the left


class Point(Struct, frozen=True):
    """One column of a plot: an hour, a day or a week."""

    start: datetime
    height: int
    share: float | None = None  # from 0 to 1; None if there is nothing to divide


def columns_of(title: str, share_title: str, points: Sequence[Point], *, width: int, levels: str = BLOCKS) -> list[str]:
    """Return lines that show the points as columns, and below them their shares."""
    shown = points[-room_in(width) :]
    top = max((point.height for point in shown), default=0)
    wide = max(1, min(WIDEST, room_in(width) // max(1, len(shown))))

    def line(number: object, filled: Iterable[int]) -> str:
        return f"{number:>{GUTTER}} {'│' if levels is BLOCKS else '|'}{_cells(filled, wide, levels)}".rstrip()

    lines = [title]
    for row in reversed(range(HEIGHT)):
        number = _scale(top) if row == HEIGHT - 1 else 0 if row == 0 else ""
        lines.append(line(number, [_level(point.height, top, row) for point in shown]))
    if any(point.share is not None for point in shown):
        lines += [share_title, line("", [0 if p.share is None else 1 + round(p.share * 7) for p in shown])]
    return lines


def room_in(width: int) -> int:
    """Return how many columns fit into the given number of characters."""
    return max(1, width - GUTTER - 2)


def _scale(number: int) -> str:
    return str(number) if number < 10**GUTTER else f"{number / 1e6:.4g}M"


def _level(height: int, top: int, row: int) -> int:
    """Return how much of a line a column fills, in eighths; the lowest line shows even the smallest value."""
    filled = max(1, round(height * HEIGHT * 8 / top)) if height else 0
    return min(8, max(0, filled - row * 8))


def _cells(filled: Iterable[int], wide: int, levels: str) -> str:
    if wide == 1:
        return "".join(levels[level] for level in filled)
    return "".join(levels[level] * (wide - 1) + " " for level in filled)


def without_gaps(points: Iterable[Point], step: timedelta, most: int) -> list[Point]:
    """Return the newest points in order, with an empty one for each gap."""
    known = {point.start: point for point in points}
    if not known:
        return []
    last = max(known)
    number = min(most, (last - min(known)) // step + 1)
    starts = (last - step * back for back in reversed(range(number)))
    return [known.get(start) or Point(start, 0) for start in starts]
