"""Requests that are done once, and what is forgotten after a while. Each function runs inside a transaction."""

from __future__ import annotations

from datetime import timedelta

from moorage.core.once import KEPT_FOR, Once
from moorage.stores.rows import instant, micros
from moorage.stores.sqlite import documents
from moorage.stores.sqlite.connection import Connection

_MICROSECOND = timedelta(microseconds=1)
_FIND = "SELECT digest, ref, at FROM once WHERE owner = ? AND operation = ? AND key = ?"
_NOTE = """
INSERT INTO once (owner, operation, key, digest, ref, at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (owner, operation, key) DO UPDATE SET digest = excluded.digest, ref = excluded.ref, at = excluded.at
"""


def find(db: Connection, owner: str, operation: str, key: str, at: int) -> Once | None:
    """The request that was made under a key and still counts."""
    row = db.one(_FIND, (owner, operation, key))
    if row is None:
        return None
    kept = Once(operation, key, row[0], row[1], instant(row[2]))
    return kept if kept.lives(instant(at)) else None


def check(db: Connection, owner: str, once: Once) -> None:
    """Raise AlreadyDone or KeyReused if a request was made under this key. Nothing is written before this."""
    kept = find(db, owner, once.operation, once.key, micros(once.at))
    if kept is not None:
        kept.check_repeats(once)


def note(db: Connection, owner: str, once: Once) -> None:
    """What a request became; in the place of one that no longer counts."""
    db.execute(_NOTE, (owner, once.operation, once.key, once.digest, once.ref, micros(once.at)))


_OLD = """
DELETE FROM once WHERE (owner, operation, key) IN (
    SELECT owner, operation, key FROM once INDEXED BY once_by_time WHERE at <= ? ORDER BY at LIMIT ?
)
"""


def purge(db: Connection, at: int, limit: int) -> int:
    """Delete some old requests and expired documents; return how many."""
    before = db.raw.total_changes()
    db.execute(_OLD, (at - KEPT_FOR // _MICROSECOND, limit))
    documents.purge(db, at, limit)
    return db.raw.total_changes() - before
