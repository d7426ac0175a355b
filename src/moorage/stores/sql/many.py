"""Reads of many sessions at once."""

from __future__ import annotations

from moorage.core.session import Session
from moorage.stores.session_rows import sessions_of
from moorage.stores.sql.db import Db
from moorage.stores.sql.lookup import HEAD, may_be_ref

_BY_IDS = f"SELECT {HEAD} FROM moor.sessions WHERE owner = ? AND id IN LIST(?::text)"


async def get_many(db: Db, owner: str, session_ids: list[str]) -> list[Session | None]:
    """Return the sessions with these ids; None for those that are gone or damaged."""
    rows = await db.all(_BY_IDS, (owner, db.listed([each for each in session_ids if may_be_ref(each)])))
    found = {session.session_id: session for session in sessions_of(rows, db.opener)}
    return [found.get(session_id) for session_id in session_ids]
