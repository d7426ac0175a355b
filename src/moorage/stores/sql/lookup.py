"""Finding sessions: by id, else by open name, else the newest that had the name; and the next expiry."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from moorage.core.errors import NotFound, SessionCorrupt, SessionGone, SessionNotFound, StoreCorrupt
from moorage.core.ids import looks_like_ref
from moorage.core.session import Session
from moorage.stores.rows import Row, instant, instant_or_none
from moorage.stores.session_rows import head_columns, session_of, sessions_of
from moorage.stores.sql.db import Db

HEAD, HEAD_OF_S = head_columns(schema="moor."), head_columns("s", "moor.")
KEY = "SELECT pk, id, task, shared_upto, has_pins, coalesce(root, pk) FROM moor.sessions"
OF_SESSION = "ORDERED JOIN moor.sessions s ON s.owner = t.owner AND s.pk = t.session"
_PK = "SELECT pk FROM moor.sessions WHERE owner = ? AND id = ?"
_TOMBSTONE = "SELECT deleted_at, deleted_by, reason FROM moor.tombstones WHERE owner = ? AND id = ?"


class _Select:
    """How to read columns of a session: by its id, else by its open name, else of the newest that had the name."""

    def __init__(self, select: str) -> None:
        self.by_id = f"{select} WHERE owner = ? AND id = ?"
        self.by_open_name = f"{select} WHERE owner = ? AND name = ? AND finalized_at IS NULL"
        self.by_name = f"{select} WHERE owner = ? AND name = ? ORDER BY pk DESC LIMIT 1"


_KEY = _Select(KEY)
_LOAD = {  # by whether it is PostgreSQL; SQLite keeps no revisions
    is_postgres: _Select(f"SELECT shared_upto, has_pins, coalesce(root, pk), {revision}, {HEAD} FROM moor.sessions")
    for is_postgres, revision in ((False, "0"), (True, "revision"))
}


class SessionColumns(NamedTuple):
    """The columns of a session that reading its log needs."""

    pk: int
    session_id: str
    task_id: str
    shared_upto: int = 0
    has_pins: bool = False
    root: int = 0
    revision: int = 0  # if it was loaded with its head


async def key_of(db: Db, owner: str, ref: str) -> SessionColumns:
    """Return the key of a session."""
    return SessionColumns(*await _found(db, _KEY, owner, ref))


async def pk_of(db: Db, owner: str, session_id: str) -> int:
    """Return the key of the session with exactly this id; -1 if there is none."""
    row = await db.one(_PK, (owner, session_id)) if may_be_ref(session_id) else None
    return row[0] if row else -1


async def get(db: Db, owner: str, ref: str) -> Session:
    row = await _found(db, _LOAD[db.is_postgres], owner, ref)
    return session_of(row[4:], db.opener)


async def load(db: Db, owner: str, ref: str) -> tuple[Session, SessionColumns]:
    """Return a session, and the columns needed to read its log or to change it."""
    row = await _found(db, _LOAD[db.is_postgres], owner, ref)
    session = session_of(row[4:], db.opener)
    return session, SessionColumns(row[-1], session.session_id, session.task_id, *row[:4])


async def _found(db: Db, select: _Select, owner: str, ref: str) -> Row:
    """Return the columns of a session. Raises SessionNotFound, SessionGone, or SessionCorrupt."""
    lock = db.lock()
    try:
        if may_be_ref(ref) and (row := await db.one(f"{select.by_id}{lock}" if lock else select.by_id, (owner, ref))):
            return row
        if not looks_like_ref(ref):
            raise SessionNotFound(ref)
        for sql in (select.by_open_name, select.by_name):
            if row := await db.one(f"{sql}{lock}", (owner, ref)):
                return row
    except StoreCorrupt as error:
        raise SessionCorrupt(ref, "a text of it is not UTF-8") from error
    await check_not_spent(db, owner, ref)
    raise SessionNotFound(ref)


def may_be_ref(ref: object) -> bool:
    """Return whether a database can look it up; `looks_like_ref` checks more and takes five times as long."""
    return isinstance(ref, str) and ref.isascii() and "\0" not in ref


async def existing(db: Db, sql: str, values: Sequence[Any], missing: type[NotFound]) -> Row:
    """Return the row that a statement finds by an id, its last value. Raises `missing` if there is none."""
    row = await db.one(sql, values) if may_be_ref(values[-1]) else None
    if row is None:
        raise missing(values[-1])
    return row


async def check_not_spent(db: Db, owner: str, session_id: str) -> None:
    """Raise SessionGone if a session of that id was deleted."""
    if tombstone := await db.one(_TOMBSTONE, (owner, session_id)):
        raise SessionGone(session_id, at=instant(tombstone[0]), by=tombstone[1], why=tombstone[2])


_BY_IDS = f"SELECT {HEAD} FROM moor.sessions WHERE owner = ? AND id IN LIST(?::text)"


async def get_many(db: Db, owner: str, session_ids: list[str]) -> list[Session | None]:
    rows = await db.all(_BY_IDS, (owner, db.listed([each for each in session_ids if may_be_ref(each)])))
    found = {session.session_id: session for session in sessions_of(rows, db.opener)}
    return [found.get(session_id) for session_id in session_ids]


async def match(db: Db, owner: str, prefix: str, limit: int) -> list[str]:
    sql = "SELECT id FROM moor.sessions WHERE owner = ? AND id >= ? AND id < ? ORDER BY id LIMIT ?"
    return [row[0] for row in await db.all(sql, (owner, prefix, prefix + "\x7f", limit))]


# Here and not in a file: every hook runs it, and loads this module anyway.
_NEXT_EXPIRY = """
SELECT min(at) FROM (
    SELECT min(expires_at) AS at FROM moor.sessions WHERE owner = ?1 AND expires_at IS NOT NULL
    UNION ALL
    SELECT min(expires_at) FROM moor.approvals WHERE owner = ?1 AND state = 'pending' AND expires_at IS NOT NULL
    UNION ALL
    SELECT min(expires_at) FROM moor.runs WHERE owner = ?1 AND expires_at IS NOT NULL
) ends
"""


async def next_expiry(db: Db, owner: str) -> datetime | None:
    row = await db.one(_NEXT_EXPIRY, (owner,))
    return None if row is None else instant_or_none(row[0])
