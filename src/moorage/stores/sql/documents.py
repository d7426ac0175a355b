"""Documents, and requests that run once.

A decision reads a document without a lock. The statement that writes compares the stored document with the one that was
read, and is refused if it has changed. Then the decision is repeated, with the row locked.
"""

from __future__ import annotations

from datetime import datetime

from moorage.core.document import Document, DocumentKind
from moorage.core.once import KEPT_FOR, Once
from moorage.ports import DocumentDecision
from moorage.stores import Stale, sql
from moorage.stores.rows import Row, instant, instant_or_none, micros, micros_or_none
from moorage.stores.sql.db import Db

_FIND = "SELECT kind, key, body, expires_at FROM moor.documents WHERE kind = ? AND key = ?"
_LIST = "SELECT kind, key, body, expires_at FROM moor.documents WHERE kind = ? AND key > ? ORDER BY key LIMIT ?"
_INSERT = "INSERT INTO moor.documents (kind, key, body, expires_at) VALUES (?, ?, ?, ?)"
_REPLACE = f"{_INSERT} ON CONFLICT (kind, key) DO UPDATE SET body = excluded.body, expires_at = excluded.expires_at"
_AS_READ = "kind = ?1 AND key = ?2 AND body = ?3 AND expires_at IS NOT DISTINCT FROM ?4"
_UPDATE = f"UPDATE moor.documents SET body = ?5, expires_at = ?6 WHERE {_AS_READ}"
_DELETE = f"DELETE FROM moor.documents WHERE {_AS_READ}"


def document_of(row: Row) -> Document:
    """Return the document in a row."""
    return Document(row[0], row[1], row[2], instant_or_none(row[3]))


async def find(db: Db, kind: str, key: str) -> Document | None:
    """Return one document, or None."""
    row = await db.one(f"{_FIND}{db.lock()}", (kind, key))
    return None if row is None else document_of(row)


async def some(db: Db, kind: str, *, after: str = "", limit: int = 1000) -> list[Document]:
    """Return documents of a kind after a key, in the order of their keys."""
    return [document_of(row) for row in await db.all(_LIST, (kind, after, limit))]


async def put(db: Db, kind: str, key: str, decide: DocumentDecision) -> Document | None:
    """Write or delete a document as `decide` says. Raises Stale if a concurrent change won."""
    known = await find(db, kind, key)
    new = decide(known)
    if new == known:
        return new
    if known is None:
        assert new is not None
        done = await db.run(f"{_INSERT} ON CONFLICT DO NOTHING", _values(new))
    elif new is None:
        done = await db.run(_DELETE, _values(known))
    else:
        done = await db.run(_UPDATE, (*_values(known), *_values(new)[2:]))
    if not done:
        raise Stale("the document has changed")
    return new


async def write(db: Db, new: list[Document]) -> None:
    """Write documents unchanged."""
    await db.many(_REPLACE, [_values(one) for one in new])


def _values(document: Document) -> tuple[str, str, str, int | None]:
    return document.kind, document.key, document.body, micros_or_none(document.expires_at)


# Notes of the store about itself ----------------------------------------------------------------


async def note(db: Db, name: str) -> str | None:
    """Return the body of a note."""
    row = await db.one(_FIND, (DocumentKind.STORE, name))
    return None if row is None else row[2]


async def set_note(db: Db, name: str, body: str | None) -> None:
    """Write a note, or delete it."""
    if body is None:
        await db.run("DELETE FROM moor.documents WHERE kind = ? AND key = ?", (DocumentKind.STORE, name))
    else:
        await write(db, [Document(DocumentKind.STORE, name, body)])


# Requests that run once -------------------------------------------------------------------------

_FIND_ONCE = "SELECT digest, ref, at FROM moor.once WHERE owner = ? AND operation = ? AND key = ?"
_NOTE_ONCE = (
    "INSERT INTO moor.once (owner, operation, key, digest, ref, at) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT "
    "(owner, operation, key) DO UPDATE SET digest = excluded.digest, ref = excluded.ref, at = excluded.at"
)


async def find_once(db: Db, owner: str, operation: str, key: str, at: datetime) -> Once | None:
    """Return the request that was made under a key and is still valid."""
    row = await db.one(_FIND_ONCE, (owner, operation, key))
    if row is None:
        return None
    kept = Once(operation, key, row[0], row[1], instant(row[2]))
    return kept if kept.lives(at) else None


async def check_once(db: Db, owner: str, once: Once) -> None:
    """Raise AlreadyDone or KeyReused if a request was made under this key. Call it before any write."""
    kept = await find_once(db, owner, once.operation, once.key, once.at)
    if kept is not None:
        kept.check_repeats(once)


async def write_once(db: Db, new: list[tuple[str, Once]]) -> None:
    """Write requests with their owners, in place of expired ones."""
    rows = [(owner, one.operation, one.key, one.digest, one.ref, micros(one.at)) for owner, one in new]
    await db.many(_NOTE_ONCE, rows)


_PURGE_ONCE = (
    "DELETE FROM moor.once WHERE (owner, operation, key) IN (SELECT owner, operation, key FROM moor.once "
    "INDEXED BY once_by_time WHERE at <= ? ORDER BY at LIMIT ? FOR UPDATE SKIP LOCKED)"
)
_PURGE_DOCUMENTS = (
    "DELETE FROM moor.documents WHERE (kind, key) IN (SELECT kind, key FROM moor.documents "
    "WHERE expires_at IS NOT NULL AND expires_at <= ? ORDER BY expires_at LIMIT ? FOR UPDATE SKIP LOCKED)"
)


async def purge(db: Db, at: datetime, limit: int) -> int:
    """Delete some old requests, and expired documents and records; return how many."""
    gone = await db.run(_PURGE_ONCE, (micros(at - KEPT_FOR), limit))
    gone += await db.run(_PURGE_DOCUMENTS, (micros(at), limit))
    return gone + await sql.records.purge(db, at, limit)
