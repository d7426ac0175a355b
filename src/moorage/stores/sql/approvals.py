"""Reading approvals."""

from __future__ import annotations

from typing import Any

from moorage.core.approval import Approval
from moorage.core.errors import ApprovalNotFound, SessionCorrupt
from moorage.stores.rows import Row, approval_of
from moorage.stores.sql.db import Db
from moorage.stores.sql.lookup import OF_SESSION, key_of, may_be_ref

_ONE = "SELECT body, id FROM moor.approvals WHERE owner = ? AND id = ?"
_PENDING = (
    "SELECT body, id FROM moor.approvals INDEXED BY approvals_by_session "
    "WHERE owner = ? AND session = ? AND state = 'pending' ORDER BY n"
)
_DUE = (
    "SELECT body, id FROM moor.approvals WHERE owner = ? AND state = 'pending' AND expires_at IS NOT NULL "
    "AND expires_at <= ? ORDER BY expires_at LIMIT ?"
)
_WHOSE = f"SELECT s.id FROM moor.approvals t {OF_SESSION} WHERE t.owner = ? AND t.id = ?"


async def approvals(db: Db, owner: str, ref: str | None, pending_only: bool, limit: int) -> list[Approval]:
    """Return approvals, oldest first."""
    where, values, index = ["owner = ?"], list[Any]((owner,)), ""
    if ref is not None:
        index = "INDEXED BY approvals_by_session"
        where.append("session = ?")
        values.append((await key_of(db, owner, ref)).pk)
    if pending_only:
        where.append("state = 'pending'")
    if pending_only and ref is None:  # the words of PostgreSQL's index
        where.append("(state = 'pending') IS TRUE")
    sql = f"SELECT body, id FROM moor.approvals {index} WHERE {' AND '.join(where)} ORDER BY n LIMIT ?"
    return [await _read(db, owner, row) for row in await db.all(sql, (*values, limit))]


async def approval(db: Db, owner: str, approval_id: str) -> Approval:
    """Return one approval by its id."""
    row = await db.one(_ONE, (owner, approval_id)) if may_be_ref(approval_id) else None
    if row is None:
        raise ApprovalNotFound(approval_id)
    return await _read(db, owner, row)


async def approval_of_session(db: Db, owner: str, pk: int, approval_id: str) -> Approval:
    """Return one approval of a session by its id."""
    row = await db.one(f"{_ONE} AND session = ?", (owner, approval_id, pk)) if may_be_ref(approval_id) else None
    if row is None:
        raise ApprovalNotFound(approval_id)
    return await _read(db, owner, row)


async def pending_approvals(db: Db, owner: str, pk: int) -> tuple[Approval, ...]:
    """Return the approvals that a session waits for."""
    return tuple([await _read(db, owner, row) for row in await db.all(_PENDING, (owner, pk))])


async def due_approvals(db: Db, owner: str, at: int, limit: int) -> list[Approval]:
    """Return pending ones whose time has run out."""
    return [await _read(db, owner, row) for row in await db.all(_DUE, (owner, at, limit))]


async def _read(db: Db, owner: str, row: Row) -> Approval:
    """Return an approval from its body and id; raise SessionCorrupt if they make none."""
    try:
        return approval_of(row, db.opener)
    except ValueError as error:  # it is not JSON, or does not open
        found = await db.one(_WHOSE, (owner, row[1])) or ("?",)
        raise SessionCorrupt(found[0], f"approval {row[1]}: {error}") from error
