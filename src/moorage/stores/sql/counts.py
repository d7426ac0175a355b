"""Delegations: their count, and their list in order of time. Counts of sessions are in `facts`."""

from __future__ import annotations

from moorage.core.delegation import Delegation, Span
from moorage.core.query import Page
from moorage.stores.places import DELEGATION, by_time, cursor_at, delegation_of, delegation_row, start
from moorage.stores.sql.db import Db

_RECORD = (
    f"INSERT INTO moor.delegations (owner, {DELEGATION}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (owner, id) DO NOTHING"
)


async def record_delegation(db: Db, owner: str, delegation: Delegation) -> bool:
    """Write a delegation; return False if it is known already."""
    return bool(await db.run(_RECORD, (owner, *delegation_row(delegation))))


async def write(db: Db, new: list[tuple[str, Delegation]]) -> None:
    """Write delegations with their owners."""
    await db.many(_RECORD, [(owner, *delegation_row(delegation)) for owner, delegation in new])


async def delegations(db: Db, owner: str, span: Span, limit: int, cursor: str | None = None) -> Page[Delegation]:
    """Return the delegations of a span, oldest first."""
    mark = span.fingerprint("delegations")
    conditions, values = by_time(span, "at", "n", start(span, cursor, mark))
    where = " AND ".join(["owner = ?", *conditions])
    table = "moor.delegations INDEXED BY delegations_by_time"
    sql = f"SELECT {DELEGATION}, n FROM {table} WHERE {where} ORDER BY at, n LIMIT ?"
    rows = await db.all(sql, (owner, *values, limit + 1))
    end = rows[limit - 1] if len(rows) > limit else None
    return Page(
        [delegation_of(row) for row in rows[:limit]], None if end is None else cursor_at((end[1], end[-1]), mark)
    )
