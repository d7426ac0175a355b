"""Places in lists ordered by time, and the rows of such lists.

A place is a time and, among rows of the same time, a key.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict

from moorage.core.delegation import Delegation, Span
from moorage.core.errors import InvalidCursor
from moorage.core.query import MAX_POSITION, make_cursor, read_cursor
from moorage.stores.rows import Row, instant, micros

DELEGATION = "id, at, resumed, reason, agent, task, project_dir, session, host"

SortPlace = tuple[int, int]  # a time as stored, and a key


def delegation_of(row: Row) -> Delegation:
    """Return a delegation from the columns of DELEGATION, which are in the order of its fields, and a key."""
    fields = dict(zip(Delegation.__struct_fields__, row[:-1], strict=True))
    return Delegation(**{**fields, "at": instant(fields["at"]), "resumed": bool(fields["resumed"])})


def delegation_row(delegation: Delegation) -> Row:
    """Return the columns of DELEGATION."""
    return tuple({**asdict(delegation), "at": micros(delegation.at)}.values())


def by_time(span: Span, at: str, key: str, place: SortPlace) -> tuple[list[str], list[Any]]:
    """Return a span from a place on, as conditions on these columns and `agent` and `task`.

    The place includes the span's beginning: with two lower bounds SQLite may walk from the wrong one.
    """
    wanted = (
        (f"({at}, {key}) > (?, ?)", place),
        (f"{at} < ?", None if span.created_before is None else (micros(span.created_before),)),
        ("agent = ?", None if span.agent is None else (span.agent,)),
        ("task = ?", None if span.task_id is None else (span.task_id,)),
    )
    given = [(condition, values) for condition, values in wanted if values is not None]
    return [condition for condition, _ in given], [value for _, values in given for value in values]


def start(span: Span, cursor: str | None, mark: int) -> SortPlace:
    """Return where a list begins: after the cursor's place, else at the beginning of the span."""
    if cursor is None:
        return (-MAX_POSITION if span.created_after is None else micros(span.created_after)), -1
    text, _, rest = str(cursor).rpartition(".")
    key = read_cursor(rest, mark)
    try:
        at = int(text, 16)
    except ValueError:
        raise InvalidCursor from None
    if text != f"{at:x}" or not -MAX_POSITION < at < MAX_POSITION:
        raise InvalidCursor
    return at, key


def cursor_at(place: SortPlace, mark: int) -> str:
    """Return a cursor for a page that ended here."""
    at, key = place
    return f"{at:x}.{make_cursor(key, mark)}"
