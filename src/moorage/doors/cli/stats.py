"""Analytics on the command line: a table of measures and targets, and a plot over time."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import asdict

from moorage.doors.cli import arguments
from moorage.doors.cli.app import App, command
from moorage.doors.cli.output import NOTHING, fields, hint, is_terminal, note, say
from moorage.doors.cli.tables import table
from moorage.doors.cli.terminal import columns
from moorage.doors.cli.wording import counted
from moorage.service.analytics import ENOUGH_SESSIONS, GROUPINGS, LENGTHS, UNITS, Analytics, Counts, Measure, start_of

TARGETS = "Targets are goals that Moorage sets itself, the same in every installation; nothing fails if one is missed."
HOURS_UPTO = timedelta(days=2)  # of a plot by hours; longer ones are by days or weeks


@command(
    "stats",
    "moorage stats",
    "moorage stats --agent reviewer --since 7d",
    "moorage stats --by day --since 2026-01-01 --until 2026-02-01",
    "moorage stats --by agent | head",
    "moorage --json stats --task-id T001",
)
@click.option("--agent", metavar="NAME", help="Only sessions of this agent.")
@click.option("--task-id", metavar="ID", help="Only sessions of this task.")
@click.option("--since", type=arguments.INSTANT, help="Start: 2026-01-31, 2026-01-31T09:30:00Z, or 7d.")
@click.option("--until", type=arguments.INSTANT, help="End, likewise.")
@arguments.choice("--by", GROUPINGS, "Group by this.", metavar="|".join(GROUPINGS))
@click.option("--plot/--no-plot", default=None, help="Draw sessions over time; by default on a terminal.")
def stats(
    app: App, /, since: datetime | None, until: datetime | None, by: str | None, plot: bool | None, **of: Any
) -> None:
    """Count sessions, resumed work, durations and errors.

    Some measures have a target, which Moorage sets and which is the same everywhere. Sessions count by their time of
    creation, delegations by the time at which they were made. Hours, days and weeks are those of UTC. Piped, one line
    for each measure: name, value, target, whether it is met, separated by tabs; with --by, one line for each group.
    """
    count = partial(app.moor.stats, created_after=since, created_before=until, **of)
    drawn = not app.as_json and (is_terminal() and by in (None, *UNITS) if plot is None else plot)
    is_short = since is not None and (until or datetime.now(UTC)) - since <= HOURS_UPTO
    unit = "hour" if is_short else "day"
    found = count(by=unit if drawn and by is None else by)  # one pass for both the table and the plot
    app.show(found, lambda: _show(found, by))
    if drawn:
        _draw(found if found.by in UNITS else count(by=unit), folding=by is None)


# Tables and lines -------------------------------------------------------------------------------


def _show(found: Analytics, by: str | None) -> None:
    if by is not None:
        _show_groups(found, by)
    elif is_terminal():
        table(("measure", "value", "target", "met"), [(_label(name), *_cells(each)) for name, each in _rows(found)])
        hint(TARGETS)
        if found.storage.sessions is not None and found.storage.sessions < ENOUGH_SESSIONS:
            told = f"Bytes for each session are judged from {ENOUGH_SESSIONS:,} sessions on"
            hint(f"{told}: a new store has an overhead.")
    else:
        for name, each in _rows(found):
            say(fields(name, _short(each.value), each.target, _yes_or_no(each.met)))


def _rows(found: Analytics) -> Iterator[tuple[str, Measure]]:
    """Yield the measures by name; a plain number is one without a target and a unit."""
    for name, value in _numbers(found):
        yield name, value if isinstance(value, Measure) else Measure(value=value, unit="", target="", met=None)


def _numbers(found: Analytics) -> Iterator[tuple[str, float | Measure]]:
    total, storage = found.total, found.storage
    yield "sessions", total.sessions
    yield from ((f"sessions.{state}", count) for state, count in total.states.items())
    yield from ((name, getattr(total, name)) for name in ("delegations", "resumed", "resume_rate", "resume_success"))
    yield "resume_success.still_open", total.resumed_open
    yield from ((name, getattr(total, name)) for name in ("duration_median", "duration_p95", "error_rate"))
    callbacks = asdict(total.callbacks)
    yield "callbacks", sum(callbacks.values())
    yield from ((f"callbacks.{name}", count) for name, count in callbacks.items())
    if total.tokens is not None:
        yield "input_tokens", total.tokens.input
        yield "output_tokens", total.tokens.output
    if storage.bytes is not None:
        yield "storage", Measure(value=storage.bytes, unit="bytes", target="", met=None)
        yield "storage.per_session", storage.bytes_per_session


def _label(name: str) -> str:
    """Return a name for people; a part of another number is indented."""
    whole, _, part = name.partition(".")
    return f"  {part}".replace("_", " ") if part else whole.replace("_", " ")


def _cells(measure: Measure) -> tuple[str, str, str]:
    shown = _readable(measure.value, measure.unit)
    if not measure.target:
        return shown, " ", " "  # a dash would mean that there is nothing to measure
    return shown, measure.target, _yes_or_no(measure.met) or NOTHING


def _yes_or_no(met: bool | None) -> str | None:
    return None if met is None else "yes" if met else "no"


def _show_groups(found: Analytics, by: str) -> None:
    if not is_terminal():
        for group in found.groups:
            say(_line(group))
        return
    if not found.groups:
        note("Nothing to count.")
        return
    aims = zip(("resumed", "success", "median", "p95", "errors"), _measures(found.total), strict=True)
    names = (by, "sessions", "delegations", *(f"{name} {measure.target}" for name, measure in aims))
    rows = [_cells_of(_group_name(group, by), group) for group in found.groups]
    resumed, success, median, p95, errors = names[3:]
    table(names, [*rows, _cells_of("in all", found.total)], spare=(p95, median, success, errors, resumed))
    if any(measure.met is False for group in found.groups for measure in _measures(group)):
        note(f"! misses its target. {TARGETS}")
    if found.groups_left_out:
        note(f"{counted(found.groups_left_out, 'more group')} not shown; --since, --agent or --task-id narrow it down.")


def _line(group: Counts) -> str:
    measured = (_short(measure.value) for measure in _measures(group))
    tokens = (None, None) if group.tokens is None else (group.tokens.input, group.tokens.output)
    callbacks = asdict(group.callbacks).values()
    return fields(group.key, group.sessions, group.delegations, group.resumed, *measured, *tokens, *callbacks)


def _group_name(group: Counts, by: str) -> str:
    if by not in UNITS or group.key is None:
        return group.key or NOTHING
    return _time_text(datetime.fromisoformat(group.key), by)


def _cells_of(name: str, group: Counts) -> tuple[str, ...]:
    marked = (f"{_readable(each.value, each.unit)}{' !' if each.met is False else ''}" for each in _measures(group))
    return name, f"{group.sessions:,}", f"{group.delegations:,}", *marked


def _measures(group: Counts) -> tuple[Measure, ...]:
    return group.resume_rate, group.resume_success, group.duration_median, group.duration_p95, group.error_rate


# Numbers for people -----------------------------------------------------------------------------


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _readable(value: float | None, unit: str) -> str:
    if value is None:
        return NOTHING
    if unit == "share":
        return f"{value * 100:.1f} %"
    if unit == "seconds":
        return _duration(value)
    return _size(value) if unit == "bytes" else f"{value:,}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _size(size: float) -> str:
    for unit in ("B", "KB", "MB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GB"


def _time_text(at: datetime, unit: str) -> str:
    return f"{at:%Y-%m-%d %H:%M}" if unit == "hour" else f"{at:%Y-%m-%d}"


# The plot ---------------------------------------------------------------------------------------


def _draw(found: Analytics, *, folding: bool) -> None:
    """Draw sessions over time as columns, newest at the right; as weeks if the days do not fit."""
    width, unit = columns(), str(found.by)
    if folding and unit == "day" and len(_points(found, unit, room_in(width) + 1)) > room_in(width):
        unit = "week"
    points = _points(found, unit, room_in(width))
    if not points:
        return
    ends = [_time_text(point.start, unit) for point in (points[0], points[-1])]
    title = f"sessions {'an' if unit == 'hour' else 'a'} {unit}, {' to '.join(dict.fromkeys(ends))} UTC"
    levels = BLOCKS if _has_blocks() else PLAIN
    for line in ["", *columns_of(title, "share of delegations resumed", points, width=width, levels=levels)]:
        say(line)


def _points(found: Analytics, unit: str, most: int) -> list[Point]:
    """Return the points of the plot: one for each hour, day or week, including empty ones."""
    sums: dict[datetime, tuple[int, int, int]] = {}
    for group in found.groups:
        at = start_of(unit, datetime.fromisoformat(str(group.key)))
        made, asked, resumed = sums.get(at, (0, 0, 0))
        sums[at] = made + group.sessions, asked + group.delegations, resumed + group.resumed
    points = (Point(at, made, resumed / asked if asked else None) for at, (made, asked, resumed) in sums.items())
    return without_gaps(points, LENGTHS[unit], most)


def _has_blocks() -> bool:
    try:
        "█│".encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True


# Drawing ------------------------------------------------------------------------------------------

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
    highest = str(top) if top < 10**GUTTER else f"{top / 1e6:.4g}M"
    wide = max(1, min(WIDEST, room_in(width) // max(1, len(shown))))

    def line(number: object, filled: Iterable[int]) -> str:
        bars = (levels[level] * max(1, wide - 1) + " " * (wide > 1) for level in filled)
        return f"{number:>{GUTTER}} {'│' if levels is BLOCKS else '|'}{''.join(bars)}".rstrip()

    lines = [title]
    for row in reversed(range(HEIGHT)):
        number = highest if row == HEIGHT - 1 else 0 if row == 0 else ""
        lines.append(line(number, [_level(point.height, top, row) for point in shown]))
    if any(point.share is not None for point in shown):
        lines += [share_title, line("", [0 if p.share is None else 1 + round(p.share * 7) for p in shown])]
    return lines


def room_in(width: int) -> int:
    return max(1, width - GUTTER - 2)


def _level(height: int, top: int, row: int) -> int:
    """Return how much of a line a column fills, in eighths; the lowest line shows even the smallest value."""
    filled = max(1, round(height * HEIGHT * 8 / top)) if height else 0
    return min(8, max(0, filled - row * 8))


def without_gaps(points: Iterable[Point], step: timedelta, most: int) -> list[Point]:
    """Return the newest points in order, with an empty one for each gap."""
    known = {point.start: point for point in points}
    if not known:
        return []
    last = max(known)
    number = min(most, (last - min(known)) // step + 1)
    starts = (last - step * back for back in reversed(range(number)))
    return [known.get(start) or Point(start, 0) for start in starts]
