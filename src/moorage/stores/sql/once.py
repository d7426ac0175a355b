"""Requests that run once, and the deletion of expired ones."""

from __future__ import annotations

from datetime import datetime

from moorage.core.once import KEPT_FOR, Once
from moorage.stores.rows import instant, micros
from moorage.stores.sql import documents, records
from moorage.stores.sql.db import Db

_FIND = "SELECT digest, ref, at FROM moor.once WHERE owner = ? AND operation = ? AND key = ?"
_NOTE = (
    "INSERT INTO moor.once (owner, operation, key, digest, ref, at) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT "
    "(owner, operation, key) DO UPDATE SET digest = excluded.digest, ref = excluded.ref, at = excluded.at"
)
_OLD = (
    "SELECT owner, operation, key FROM moor.once INDEXED BY once_by_time WHERE at <= ? ORDER BY at LIMIT ? "
    "FOR UPDATE SKIP LOCKED"
)


async def find(db: Db, owner: str, operation: str, key: str, at: datetime) -> Once | None:
    """Return the request that was made under a key and is still valid."""
    row = await db.one(_FIND, (owner, operation, key))
    if row is None:
        return None
    kept = Once(operation, key, row[0], row[1], instant(row[2]))
    return kept if kept.lives(at) else None


async def check(db: Db, owner: str, once: Once) -> None:
    """Raise AlreadyDone or KeyReused if a request was made under this key. Call it before any write."""
    kept = await find(db, owner, once.operation, once.key, once.at)
    if kept is not None:
        kept.check_repeats(once)


async def write(db: Db, new: list[tuple[str, Once]]) -> None:
    """Write requests with their owners, in place of expired ones."""
    rows = [(owner, one.operation, one.key, one.digest, one.ref, micros(one.at)) for owner, one in new]
    await db.many(_NOTE, rows)


async def purge(db: Db, at: datetime, limit: int) -> int:
    """Delete some old requests and expired documents; return how many."""
    sql = f"DELETE FROM moor.once WHERE (owner, operation, key) IN ({_OLD})"
    gone = await db.run(sql, (micros(at - KEPT_FOR), limit))
    return gone + await documents.purge(db, micros(at), limit) + await records.purge(db, at, limit)
