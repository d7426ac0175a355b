"""Reads of many sessions at once. In SQLite, a statement per session costs little compared with a switch of threads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from moorage.core.approval import Approval, ApprovalQuery
from moorage.core.entry import Kind
from moorage.core.errors import NotFound, SessionCorrupt
from moorage.core.query import LogQuery
from moorage.core.session import Session
from moorage.ports import Tail
from moorage.stores.session_rows import sessions_of
from moorage.stores.sql import approvals, history
from moorage.stores.sql.db import Db, T
from moorage.stores.sql.lookup import HEAD, may_be_ref

_BY_IDS = f"SELECT {HEAD} FROM moor.sessions WHERE owner = ? AND id IN LIST(?::text)"


async def get_many(db: Db, owner: str, session_ids: list[str]) -> list[Session | None]:
    """Return the sessions with these ids; None for deleted or damaged ones."""
    rows = await db.all(_BY_IDS, (owner, db.listed([each for each in session_ids if may_be_ref(each)])))
    found = {session.session_id: session for session in sessions_of(rows, db.opener)}
    return [found.get(session_id) for session_id in session_ids]


async def tails(
    db: Db, owner: str, session_ids: list[str], limit: int, pins: int = 100, *, before: int | None = None
) -> list[Tail]:
    """Return the end of each conversation, or the part before a number."""
    return [await _or_else(Tail([], []), tail, db, owner, each, limit, pins, before) for each in session_ids]


async def tail(db: Db, owner: str, session_id: str, limit: int, pins: int, before: int | None) -> Tail:
    """Return the end of one conversation, or the part before a number."""
    if before is None:
        return await history.tail(db, owner, session_id, limit, pins)
    said = (Kind.MESSAGE.value,)
    return Tail(
        [],
        await history.log(db, owner, session_id, LogQuery(before=before, limit=limit, kinds=said, newest_first=True)),
    )


async def approvals_of(
    db: Db, owner: str, session_ids: list[str], *, pending_only: bool = True, limit: int = 100
) -> list[list[Approval]]:
    """Return the approvals of each session, oldest first."""

    queries = [ApprovalQuery(session_id=each, pending_only=pending_only, limit=limit) for each in session_ids]
    return [await _or_else([], approvals.approvals, db, owner, query) for query in queries]


async def _or_else(nothing: T, read: Callable[..., Awaitable[T]], *values: object) -> T:
    """Read one session, or return `nothing`: a deleted or damaged session must not hide others."""
    try:
        return await read(*values)
    except (NotFound, SessionCorrupt):
        return nothing
