"""What is counted: delegations, listed along the index of their times. What is counted of sessions is in `facts`."""

from __future__ import annotations

from moorage.core.delegation import Delegation, Span
from moorage.core.query import Page
from moorage.stores.places import DELEGATION, by_time, cursor_at, delegation_of, start
from moorage.stores.rows import micros
from moorage.stores.sqlite.connection import Connection


def record_delegation(db: Connection, owner: str, delegation: Delegation) -> bool:
    """Remember it; False if it is known already."""
    if db.one("SELECT 1 FROM delegations WHERE owner = ? AND id = ?", (owner, delegation.delegation_id)):
        return False
    db.execute(
        f"INSERT INTO delegations (owner, {DELEGATION}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            owner, delegation.delegation_id, micros(delegation.at), int(delegation.resumed), delegation.reason,
            delegation.agent_name, delegation.task_id, delegation.project_dir, delegation.session_id,
            delegation.host_session_id,
        ),
    )  # fmt: skip
    return True


def delegations(db: Connection, owner: str, span: Span, limit: int, cursor: str | None) -> Page[Delegation]:
    """Delegations of a span, oldest first."""
    mark = span.fingerprint("delegations")
    conditions, values = by_time(span, "at", "n", start(span, cursor, mark))
    where = " AND ".join(["owner = ?", *conditions])
    table = "delegations INDEXED BY delegations_by_time"
    sql = f"SELECT {DELEGATION}, n FROM {table} WHERE {where} ORDER BY at, n LIMIT ?"
    rows = db.all(sql, (owner, *values, limit + 1))
    end = rows[limit - 1] if len(rows) > limit else None
    return Page(
        [delegation_of(row) for row in rows[:limit]], None if end is None else cursor_at((end[1], end[-1]), mark)
    )
