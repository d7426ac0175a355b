"""Reads of many sessions at once. In SQLite, a statement per session costs little compared with a switch of threads."""

from __future__ import annotations

from moorage.core.approval import Approval
from moorage.core.entry import Kind
from moorage.core.errors import NotFound, SessionCorrupt
from moorage.core.query import LogQuery
from moorage.core.session import Session
from moorage.ports import Tail
from moorage.stores.rows import approval_of
from moorage.stores.session_rows import sessions_of
from moorage.stores.sql import history
from moorage.stores.sql.db import Db
from moorage.stores.sql.lookup import HEAD, may_be_ref
from moorage.stores.sql.query import Query

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
    found = []
    for session_id in session_ids:
        try:
            found.append(await tail(db, owner, session_id, limit, pins, before))
        except (NotFound, SessionCorrupt):  # a deleted or damaged session must not hide others
            found.append(Tail([], []))
    return found


async def tail(db: Db, owner: str, session_id: str, limit: int, pins: int, before: int | None) -> Tail:
    """Return the end of one conversation, or the part before a number."""
    if before is None:
        return await history.tail(db, owner, session_id, limit, pins)
    said = (Kind.MESSAGE.value,)
    return Tail(
        [],
        await history.log(db, owner, session_id, LogQuery(before=before, limit=limit, kinds=said, newest_first=True)),
    )


_APPROVALS = Query("approvals_of_many")


async def approvals_of(
    db: Db, owner: str, session_ids: list[str], *, pending_only: bool = True, limit: int = 100
) -> list[list[Approval]]:
    """Return the approvals of each session, oldest first."""
    ids = db.listed([each for each in session_ids if may_be_ref(each)])
    found: dict[str, list[Approval]] = {}
    damaged: set[str] = set()
    for row in await db.all(_APPROVALS(db), (owner, ids, pending_only, limit)):
        try:
            found.setdefault(row[-1], []).append(approval_of(row, db.opener))
        except SessionCorrupt:  # a damaged session must not hide others
            damaged.add(row[-1])
    return [[] if each in damaged else found.get(each, []) for each in session_ids]
