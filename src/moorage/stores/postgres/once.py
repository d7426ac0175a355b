"""Requests that are done once, and what is forgotten after a while. The SQL function `note_once` writes them."""

from __future__ import annotations

from datetime import timedelta

from moorage.core.once import KEPT_FOR, Once
from moorage.stores.postgres import documents
from moorage.stores.postgres.connection import Connection
from moorage.stores.rows import instant

_MICROSECOND = timedelta(microseconds=1)
_FIND = "SELECT digest, ref, at FROM moor.once WHERE owner = ? AND operation = ? AND key = ?"


async def find(db: Connection, owner: str, operation: str, key: str, at: int) -> Once | None:
    """The request that was made under a key and still counts."""
    row = await db.one(_FIND, (owner, operation, key))
    if row is None:
        return None
    kept = Once(operation, key, row[0], row[1], instant(row[2]))
    return kept if kept.lives(instant(at)) else None


_OLD = """
DELETE FROM moor.once WHERE (owner, operation, key) IN (
    SELECT owner, operation, key FROM moor.once WHERE at <= ? ORDER BY at LIMIT ? FOR UPDATE SKIP LOCKED
)
"""


async def purge(db: Connection, at: int, limit: int) -> int:
    """Delete some old requests and expired documents; return how many."""
    gone = await db.run(_OLD, (at - KEPT_FOR // _MICROSECOND, limit))
    return gone + await documents.purge(db, at, limit)
