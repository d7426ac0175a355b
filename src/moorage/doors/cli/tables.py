"""Lists: tables for people, the same rows as lines for pipes, and pages of them.

If a table is wider than the terminal, its texts are cut, with an ellipsis. If that is not enough, columns are left out
and listed below the table. Ids and times are never cut. `--wide` shows everything, however long the lines become.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

from moorage.core.errors import utc_text
from moorage.core.query import Page, pages
from moorage.core.session import Session
from moorage.doors.cli import arguments
from moorage.doors.cli.app import App
from moorage.doors.cli.output import NOTHING, fields, hint, is_terminal, note, page_of, printable, say
from moorage.doors.cli.terminal import STATE_STYLES, cut, paint, width_of
from moorage.doors.cli.terminal import columns as terminal_columns
from moorage.doors.cli.wording import ago, command_line, short_ids

T = TypeVar("T")
ROWS = 50  # of a table, without --limit
GAP = 2  # blanks between columns
LONGEST_NAME = 24  # columns of a session's name in a table of other things
LEAST = 8  # columns that a text is cut to at most
TEXTS = frozenset(  # columns whose cells may be cut
    "name agent question content description checkpoint value found prompt answer "
    "purpose because by scopes task why".split()
)
IDS = ("session", "approval", "run", "item", "launcher", "went with", "key id")
STATES = ("state", "status", "result")

TableRow = Sequence[object]


def _keep_wide(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    ctx.meta["moorage.wide"] = wanted


_WIDE = "Show whole ids and texts, however long the lines become."
wide_option = click.option("--wide", is_flag=True, expose_value=False, callback=_keep_wide, help=_WIDE)


def is_wide() -> bool:
    ctx = click.get_current_context(silent=True)
    return ctx is not None and bool(ctx.meta.get("moorage.wide"))


def show_rows(
    columns: Sequence[str],
    rows: Iterable[TableRow],
    *,
    lines: Iterable[TableRow] | None = None,
    without: str | None = None,
    spare: Sequence[str] = (),
    nothing: str = "",
) -> None:
    """Print rows as a table on a terminal, else as lines; on a terminal, `nothing` stands for no rows.

    `lines` are the rows for a pipe, if they differ. Only the rows that are printed are computed. The table is `without`
    a column that would tell nothing.
    """
    if not is_terminal():
        for line in rows if lines is None else lines:
            say(fields(*line))
    elif shown := list(rows):
        kept = [place for place, name in enumerate(columns) if name != without]
        table([columns[place] for place in kept], [[row[place] for place in kept] for row in shown], spare=spare)
    elif nothing:
        hint(nothing)


def table(columns: Sequence[str], rows: Iterable[TableRow], *, spare: Sequence[str] = ()) -> None:
    """Print a table; `spare` are the columns to leave out on a narrow terminal, in that order."""
    cells = [[NOTHING if cell in (None, "") else printable(str(cell)) for cell in row] for row in rows]
    if not is_wide():
        cells = _with_short_ids(columns, cells)
    full = {
        name: max(width_of(name), *(width_of(row[place]) for row in cells), 0) for place, name in enumerate(columns)
    }
    widths = full if is_wide() else _fitted(full, spare, terminal_columns())
    for line in _lines(columns, cells, widths):
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
    if hidden := [column for column in spare if column in full and column not in widths]:
        hint(f"Not shown: {', '.join(hidden)}. --wide shows everything.")


def _with_short_ids(columns: Sequence[str], cells: list[list[str]]) -> list[list[str]]:
    for place, name in enumerate(columns):
        if name in IDS:
            short = short_ids(row[place] for row in cells)
            cells = [[*row[:place], short[row[place]], *row[place + 1 :]] for row in cells]
    return cells


def _fitted(full: Mapping[str, int], spare: Sequence[str], room: int) -> dict[str, int]:
    """Return the columns that fit into the width: first cut texts, then leave columns out."""
    least = {name: min(width, LEAST) if name in TEXTS else width for name, width in full.items()}
    for column in spare:
        if _total(least) <= room:
            break
        least.pop(column, None)
    return _grown(least, full, room)


def _grown(least: Mapping[str, int], full: Mapping[str, int], room: int) -> dict[str, int]:
    """Give the remaining width to the narrowest texts first, so that none is cut for a longer one."""
    widths, free = dict(least), room - _total(least)
    while free > 0 and (short := [name for name in widths if widths[name] < full[name]]):
        name = min(short, key=lambda name: widths[name])
        widths[name] += 1
        free -= 1
    return widths


def _total(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1)


def _lines(columns: Sequence[str], cells: list[list[str]], widths: Mapping[str, int]) -> Iterable[str]:
    shown = [(place, name) for place, name in enumerate(columns) if name in widths]
    yield (" " * GAP).join(_cell(name.upper(), widths[name], "bold") for _, name in shown).rstrip()
    for row in cells:
        yield (" " * GAP).join(_cell(row[at], widths[name], _style(name, row[at])) for at, name in shown).rstrip()


def _cell(text: str, width: int, style: str | None) -> str:
    short = cut(text, width)
    return paint(short, style) + " " * (width - width_of(short))


def _style(column: str, text: str) -> str | None:
    if column in STATES:
        return STATE_STYLES.get(text)
    return "dim" if column in IDS or text == NOTHING else "bold" if column == "name" else None


def named(name: str | None, session_id: str) -> str:
    """Return the cell of a session in a table of other things: its name, cut if it is long, else its id."""
    return session_id if name is None else name if is_wide() else cut(name, LONGEST_NAME)


# Pages ------------------------------------------------------------------------------------------


_MOST = f"Show at most N; by default {ROWS} in a table, all in a pipe."
page_options = arguments.all_of(
    click.option("--limit", type=click.IntRange(min=1), metavar="N", help=_MOST),
    click.option("--cursor", metavar="CURSOR", help="Continue from the `next` of an earlier --json answer."),
)


def show_list(
    app: App,
    ask: Callable[..., Page[T]],
    show: Callable[[Sequence[T]], None],
    *,
    limit: int | None,
    cursor: str | None,
    nothing: str,
    by: str = "cursor",
    document: Callable[[T], Any] = lambda item: item,
) -> None:
    """Print a list: all of it in a pipe, some rows on a terminal, one JSON document for a program.

    `by` is the parameter of `ask` that takes the cursor; `document` makes an item of the JSON document.
    """
    if not app.as_json and not is_terminal():
        for page in pages(ask, cursor, limit=limit, by=by):
            show(page.items)
        return
    items, following = list[T](), None
    for page in pages(ask, cursor, limit=limit if app.as_json else limit or ROWS, by=by):
        items, following = items + page.items, page.next
    app.show(page_of([document(item) for item in items], following), lambda: show(items) if items else hint(nothing))
    if following is not None and not app.as_json:
        words = click.get_current_context().command_path.split()[1:]
        note(f"There are more: --limit N shows N of them, `{command_line(*words)} | cat` all.")


# Sessions ---------------------------------------------------------------------------------------

SESSION_COLUMNS = ("name", "session", "status", "phase", "agent", "updated")
SPARE_COLUMNS = ("phase", "agent", "updated", "status")


def session_fields(session: Session) -> TableRow:
    about = (session.session_id, session.status, session.phase, session.agent_name, session.session_name)
    return *about, utc_text(session.updated_at)


def show_sessions(sessions: Sequence[Session], nothing: str = "") -> None:
    rows, lines = map(_session_cells, sessions), map(session_fields, sessions)
    show_rows(SESSION_COLUMNS, rows, lines=lines, spare=SPARE_COLUMNS, nothing=nothing)


def _session_cells(session: Session) -> tuple[object, ...]:
    status = session.status.replace("_", " ")
    about = (session.session_name, session.session_id, status, session.phase, session.agent_name)
    return *about, ago(session.updated_at)
