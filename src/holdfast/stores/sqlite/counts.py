"""What is counted: delegations, and the facts that analytics are made of."""

from __future__ import annotations

from typing import Any
from zlib import crc32

from holdfast.core.delegation import Delegation, Span
from holdfast.core.query import Page, make_cursor, read_cursor
from holdfast.stores.sqlite.connection import Connection
from holdfast.stores.sqlite.rows import Row, instant, micros

_DELEGATIONS = crc32(b"delegations")
_COLUMNS = "id, at, resumed, reason, agent, task, project_dir, session, host"


def record_delegation(db: Connection, owner: str, delegation: Delegation) -> bool:
    """Remember it; False if it is known already."""
    if db.one("SELECT 1 FROM delegations WHERE owner = ? AND id = ?", (owner, delegation.delegation_id)):
        return False
    db.execute(
        f"INSERT INTO delegations (owner, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            owner, delegation.delegation_id, micros(delegation.at), int(delegation.resumed), delegation.reason,
            delegation.agent_name, delegation.task_id, delegation.project_dir, delegation.session_id,
            delegation.host_session_id,
        ),
    )  # fmt: skip
    return True


def delegations(db: Connection, owner: str, span: Span, limit: int, cursor: str | None) -> Page[Delegation]:
    """Delegations of a span, in the order they were recorded."""
    conditions, values = within(span, "at")
    after = 0 if cursor is None else read_cursor(cursor, _DELEGATIONS)
    where = " AND ".join(["owner = ?", "n > ?", *conditions])
    sql = f"SELECT {_COLUMNS}, n FROM delegations WHERE {where} ORDER BY n LIMIT ?"
    rows = db.all(sql, (owner, after, *values, limit + 1))
    more = len(rows) > limit
    return Page(
        [_delegation_of(row) for row in rows[:limit]], make_cursor(rows[limit - 1][-1], _DELEGATIONS) if more else None
    )


def within(span: Span, at: str) -> tuple[list[str], list[Any]]:
    """A span as conditions on the columns agent, task and the one with the time."""
    wanted = (
        ("agent = ?", span.agent),
        ("task = ?", span.task),
        (f"{at} >= ?", None if span.after is None else micros(span.after)),
        (f"{at} < ?", None if span.before is None else micros(span.before)),
    )
    given = [(condition, value) for condition, value in wanted if value is not None]
    return [condition for condition, _ in given], [value for _, value in given]


def _delegation_of(row: Row) -> Delegation:
    delegation_id, at, resumed, reason, agent, task, project_dir, session, host, _ = row
    return Delegation(
        delegation_id=delegation_id,
        at=instant(at),
        resumed=bool(resumed),
        reason=reason,
        agent_name=agent,
        task_id=task,
        project_dir=project_dir,
        session_id=session,
        host_session_id=host,
    )
