"""Delegations, in order of time. Counts of sessions are in `facts`."""

from __future__ import annotations

from typing import Any

from msgspec.structs import astuple

from moorage.core.policy import Delegation, Span
from moorage.core.query import Page
from moorage.stores.rows import Row, SortPlace, cursor_at, instant, micros, micros_or_none, start
from moorage.stores.sql.db import Db

DELEGATION = "id, at, resumed, reason, agent, task, project_dir, session, host"
_RECORD = (
    f"INSERT INTO moor.delegations (owner, {DELEGATION}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (owner, id) DO NOTHING"
)


async def record_delegation(db: Db, owner: str, delegation: Delegation) -> bool:
    return bool(await db.run(_RECORD, (owner, *delegation_row(delegation))))


async def write(db: Db, new: list[tuple[str, Delegation]]) -> None:
    """Write delegations with their owners."""
    await db.many(_RECORD, [(owner, *delegation_row(delegation)) for owner, delegation in new])


async def delegations(db: Db, owner: str, span: Span, limit: int, cursor: str | None = None) -> Page[Delegation]:
    mark = span.fingerprint("delegations")
    where, values = by_time(owner, span, "at", "n", start(span, cursor, mark))
    table = "moor.delegations INDEXED BY delegations_by_time"
    sql = f"SELECT {DELEGATION}, n FROM {table} WHERE {where} ORDER BY at, n LIMIT ?"
    rows = await db.all(sql, (*values, limit + 1))
    end = rows[limit - 1] if len(rows) > limit else None
    found = [delegation_of(row) for row in rows[:limit]]
    return Page(found, None if end is None else cursor_at((end[1], end[-1]), mark))


def delegation_of(row: Row) -> Delegation:
    """Return a delegation from the columns of DELEGATION, which are in the order of its fields, and a key."""
    fields = dict(zip(Delegation.__struct_fields__, row[:-1], strict=True))
    return Delegation(**{**fields, "at": instant(fields["at"]), "resumed": bool(fields["resumed"])})


def delegation_row(delegation: Delegation) -> Row:
    """Return the columns of DELEGATION."""
    id_, at, *others = astuple(delegation)
    return id_, micros(at), *others


def by_time(owner: str, span: Span, at: str, key: str, place: SortPlace) -> tuple[str, list[Any]]:
    """Return a span from a place on, as a condition on these columns and `agent` and `task`, with its values.

    The place includes the span's beginning: with two lower bounds SQLite may walk from the wrong one.
    """
    filters = {"owner = ?": owner, f"{at} < ?": micros_or_none(span.created_before)}
    filters |= {"agent = ?": span.agent, "task = ?": span.task_id}
    given = {condition: value for condition, value in filters.items() if value is not None}
    return " AND ".join([f"({at}, {key}) > (?, ?)", *given]), [*place, *given.values()]
