"""Reading approvals."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from moorage.core.approval import Approval
from moorage.core.errors import ApprovalNotFound
from moorage.stores.rows import approval_of, micros
from moorage.stores.sql.db import Db
from moorage.stores.sql.lookup import key_of, may_be_ref

_SELECT = (
    "SELECT body, id, (SELECT s.id FROM moor.sessions s WHERE s.owner = t.owner AND s.pk = t.session) "
    "FROM moor.approvals t"
)
_ONE = f"{_SELECT} WHERE owner = ? AND id = ?"
_DUE = (
    f"{_SELECT} WHERE owner = ? AND state = 'pending' AND expires_at IS NOT NULL "
    "AND expires_at <= ? ORDER BY expires_at LIMIT ?"
)


async def approvals(
    db: Db, owner: str, *, ref: str | None = None, pending_only: bool = True, limit: int = 100
) -> list[Approval]:
    """Return approvals, oldest first."""
    where, values, index = ["owner = ?"], list[Any]((owner,)), ""
    if ref is not None:
        index = "INDEXED BY approvals_by_session"
        where.append("session = ?")
        values.append((await key_of(db, owner, ref)).pk)
    if pending_only:
        where.append("state = 'pending'")
    if pending_only and ref is None:  # the condition of PostgreSQL's index
        where.append("(state = 'pending') IS TRUE")
    sql = f"{_SELECT} {index} WHERE {' AND '.join(where)} ORDER BY n LIMIT ?"
    return [approval_of(row, db.opener) for row in await db.all(sql, (*values, limit))]


async def approval(db: Db, owner: str, approval_id: str, *, of_session: int | None = None) -> Approval:
    """Return one approval by its id; of one session, if its key is given."""
    sql, values = (_ONE, ()) if of_session is None else (f"{_ONE} AND session = ?", (of_session,))
    row = await db.one(sql, (owner, approval_id, *values)) if may_be_ref(approval_id) else None
    if row is None:
        raise ApprovalNotFound(approval_id)
    return approval_of(row, db.opener)


async def due_approvals(db: Db, owner: str, at: datetime, limit: int = 100) -> list[Approval]:
    """Return pending approvals that are overdue."""
    return [approval_of(row, db.opener) for row in await db.all(_DUE, (owner, micros(at), limit))]
