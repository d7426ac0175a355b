"""The answer for people: tables that fit a terminal, and below them why a figure is missing or doubtful."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from bench.measure import OURS
from bench.run import Line

DASH = "–"


def render(lines: Sequence[Line], peers: Sequence[str]) -> str:
    """All sections that have lines, then the notes."""
    by_section: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_section[line.section].append(line)
    parts = [_main(by_section["works"], peers), _growth(by_section["growth"]), _startup(by_section["startup"])]
    parts += [_size(by_section["size"]), _notes(lines)]
    return "\n\n".join(part for part in parts if part)


def _main(lines: Sequence[Line], peers: Sequence[str]) -> str:
    head = ["work", "floor", "moorage", "target", "ok", "A/A", *peers]
    rows = [
        [*_judged(line, _seconds(line.base)), *(_figure(line, peer, line.peers.get(peer)) for peer in peers)]
        for line in lines
    ]
    return _table(head, rows)


def _growth(lines: Sequence[Line]) -> str:
    head = ["growth", "small", "moorage", "limit", "ok", "A/A", "floor"]
    return _table(head, [[*_judged(line, _seconds(line.base)), _times(line.floor)] for line in lines])


def _startup(lines: Sequence[Line]) -> str:
    head = ["start-up", "python", "moorage", "target", "ok", "A/A"]
    return _table(head, [_judged(line, _seconds(line.base)) for line in lines])


def _size(lines: Sequence[Line]) -> str:
    head = ["size", "floor", "moorage", "limit", "ok"]
    rows = [[line.title, _bytes(line.base), _bytes(line.ours), _bytes(line.target), _ok(line)] for line in lines]
    return _table(head, rows)


def _judged(line: Line, base: str) -> list[str]:
    figure = _figure(line, OURS, line.ours)
    return [line.title, base, figure, _times(line.target), _ok(line), _times(line.again)]


def _notes(lines: Sequence[Line]) -> str:
    """Each reason once, with the lines it concerns."""
    concerned: dict[tuple[str, str], list[str]] = defaultdict(list)
    for line in lines:
        for who, reason in line.notes.items():
            concerned[who, reason].append(line.name)
    return "\n".join(f"{who}: {reason} [{', '.join(names)}]" for (who, reason), names in concerned.items())


def _figure(line: Line, who: str, value: float | None) -> str:
    """A figure whose owner lost or refused something on the way carries a mark."""
    return _times(value) + ("!" if value is not None and who in line.notes else "")


def _ok(line: Line) -> str:
    if line.kept is None or line.ours is None:
        return DASH
    return "yes" if line.kept else "NO"


def _times(value: float | None) -> str:
    if value is None:
        return DASH
    return f"{value:,.0f}×" if value >= 100 else f"{value:.1f}×" if value >= 10 else f"{value:.2f}×"


def _seconds(value: float | None) -> str:
    if value is None:
        return DASH
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e9:.0f} ns"


def _bytes(value: float | None) -> str:
    return DASH if value is None else f"{value / 1024:.2f} KiB"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    ruler = ["-" * width for width in widths]
    return "\n".join(_row(row, widths) for row in (head, ruler, *rows))


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = zip(cells, widths, strict=True)
    return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]).rstrip()
