"""Reading approvals."""

from __future__ import annotations

from typing import Any

from moorage.core.approval import PENDING, Approval, ApprovalQuery
from moorage.core.errors import ApprovalNotFound
from moorage.stores.rows import approval_of, micros
from moorage.stores.sql.db import Db
from moorage.stores.sql.lookup import existing, pk_of

_SELECT = (
    "SELECT body, id, (SELECT s.id FROM moor.sessions s WHERE s.owner = t.owner AND s.pk = t.session) "
    "FROM moor.approvals t"
)


async def approvals(db: Db, owner: str, query: ApprovalQuery = PENDING) -> list[Approval]:
    """Return approvals, oldest first; overdue ones in the order of their deadlines."""
    where, values, index, order = ["owner = ?"], list[Any]((owner,)), "", "n"
    if query.session_id is not None:
        index = "INDEXED BY approvals_by_session"
        where.append("session = ?")
        values.append(await pk_of(db, owner, query.session_id))
    if query.due_at is not None:
        where.append("state = 'pending' AND expires_at IS NOT NULL AND expires_at <= ?")
        values.append(micros(query.due_at))
        order = "expires_at"
    elif query.pending_only:
        where.append("state = 'pending'")
        if query.session_id is None:  # the condition of PostgreSQL's index
            where.append("(state = 'pending') IS TRUE")
    sql = f"{_SELECT} {index} WHERE {' AND '.join(where)} ORDER BY {order} LIMIT ?"
    return [approval_of(row, db.opener) for row in await db.all(sql, (*values, query.limit))]


async def approval(db: Db, owner: str, approval_id: str) -> Approval:
    """Return one approval by its id."""
    sql = f"{_SELECT} WHERE owner = ? AND id = ?"
    return approval_of(await existing(db, sql, (owner, approval_id), ApprovalNotFound), db.opener)
