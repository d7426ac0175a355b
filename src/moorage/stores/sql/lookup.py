"""Finding sessions: by id, else by open name, else the newest that had the name; and which of them is due next."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from moorage.core.errors import SessionCorrupt, SessionGone, SessionNotFound, StoreCorrupt, VersionConflict
from moorage.core.ids import looks_like_ref
from moorage.core.session import Session
from moorage.stores.rows import Row, instant, instant_or_none
from moorage.stores.session_rows import head_columns, session_of
from moorage.stores.sql.db import Db

HEAD, HEAD_OF_S = head_columns(schema="moor."), head_columns("s", "moor.")
KEY = "SELECT pk, id, task, shared_upto, has_pins, coalesce(root, pk) FROM moor.sessions"
_TO_READ = f"SELECT coalesce(root, pk), shared_upto, has_pins, {HEAD} FROM moor.sessions"
OF_SESSION = "ORDERED JOIN moor.sessions s ON s.owner = t.owner AND s.pk = t.session"
_BY_ID = "WHERE owner = ? AND id = ?"
_BY_OPEN_NAME = "WHERE owner = ? AND name = ? AND finalized_at IS NULL"
_BY_NAME = "WHERE owner = ? AND name = ? ORDER BY pk DESC LIMIT 1"
_TOMBSTONE = "SELECT deleted_at, deleted_by, reason FROM moor.tombstones WHERE owner = ? AND id = ?"


class Key(NamedTuple):
    """What reading a session's log takes, without the rest of its head."""

    pk: int
    session_id: str
    task_id: str
    shared_upto: int
    has_pins: bool
    root: int


async def key_of(db: Db, owner: str, ref: str) -> Key:
    """Return the key of a session."""
    return Key(*await found(db, KEY, owner, ref))


async def load_to_read(db: Db, owner: str, ref: str) -> tuple[Session, Key]:
    """Return a session, and what reading its log takes."""
    try:
        row = await found(db, _TO_READ, owner, ref)
    except StoreCorrupt as error:
        raise SessionCorrupt(ref, "a text of it is not UTF-8") from error
    session = session_of(row[3:], db.opener)
    return session, Key(row[-1], session.session_id, session.task_id, row[1], row[2], row[0])


async def found(db: Db, select: str, owner: str, ref: str) -> Row:
    """Return what `select` reads of a session. Raises SessionNotFound or SessionGone."""
    if may_be_ref(ref) and (row := await db.one(f"{select} {_BY_ID}{db.lock()}", (owner, ref))):
        return row
    return await named(db, select, owner, ref)


async def named(db: Db, select: str, owner: str, name: str) -> Row:
    """Return what `select` reads of the session with a name. Raises SessionNotFound or SessionGone."""
    if not looks_like_ref(name):
        raise SessionNotFound(name)
    for where in (_BY_OPEN_NAME, _BY_NAME):
        if row := await db.one(f"{select} {where}{db.lock()}", (owner, name)):
            return row
    await check_not_spent(db, owner, name)
    raise SessionNotFound(name)


def may_be_ref(ref: object) -> bool:
    """Whether a database can be asked for it; `looks_like_ref` says more and takes five times as long."""
    return isinstance(ref, str) and ref.isascii() and "\0" not in ref


async def check_not_spent(db: Db, owner: str, session_id: str) -> None:
    """Raise SessionGone if a session of that id was deleted."""
    if stone := await db.one(_TOMBSTONE, (owner, session_id)):
        raise SessionGone(session_id, at=instant(stone[0]), by=stone[1], why=stone[2])


async def check_version(db: Db, owner: str, pk: int, expected: int | None) -> None:
    """Raise VersionConflict if a session is at another version than the one named."""
    if expected is None:
        return
    row = await db.one("SELECT id, version FROM moor.sessions WHERE owner = ? AND pk = ?", (owner, pk))
    if row is not None and row[1] != expected:
        raise VersionConflict(row[0], expected, row[1])


async def id_of(db: Db, owner: str, pk: int) -> str:
    """Return a session's id, by its key."""
    row = await db.one("SELECT id FROM moor.sessions WHERE owner = ? AND pk = ?", (owner, pk))
    return str(pk) if row is None else str(row[0])


async def match(db: Db, owner: str, prefix: str, limit: int) -> list[str]:
    """Return ids that begin with a prefix."""
    sql = "SELECT id FROM moor.sessions WHERE owner = ? AND id >= ? AND id < ? ORDER BY id LIMIT ?"
    return [row[0] for row in await db.all(sql, (owner, prefix, prefix + "\x7f", limit))]


# Here and not in a file: every hook asks for it, and loads this module anyway.
_NEXT_EXPIRY = """
SELECT min(at) FROM (
    SELECT min(expires_at) AS at FROM moor.sessions WHERE owner = ?1 AND expires_at IS NOT NULL
    UNION ALL
    SELECT min(expires_at) FROM moor.approvals WHERE owner = ?1 AND state = 'pending' AND expires_at IS NOT NULL
) ends
"""


async def next_expiry(db: Db, owner: str) -> datetime | None:
    """Return when the next TTL or pending approval ends, or ended."""
    row = await db.one(_NEXT_EXPIRY, (owner,))
    return None if row is None else instant_or_none(row[0])
