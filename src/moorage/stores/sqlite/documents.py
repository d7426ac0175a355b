"""Documents. Each function runs inside a transaction."""

from __future__ import annotations

from moorage.core.document import Document, DocumentKind
from moorage.ports import DocumentDecision
from moorage.stores.rows import Row, instant_or_none, micros_or_none
from moorage.stores.sqlite.connection import Connection

_FIND = "SELECT body, expires_at FROM documents WHERE kind = ? AND key = ?"
_LIST = "SELECT kind, key, body, expires_at FROM documents WHERE kind = ? AND key > ? ORDER BY key LIMIT ?"
_PUT = """
INSERT INTO documents (kind, key, body, expires_at) VALUES (?, ?, ?, ?)
ON CONFLICT (kind, key) DO UPDATE SET body = excluded.body, expires_at = excluded.expires_at
"""
_DELETE = "DELETE FROM documents WHERE kind = ? AND key = ?"
_PURGE = """
DELETE FROM documents WHERE (kind, key) IN (
    SELECT kind, key FROM documents WHERE expires_at IS NOT NULL AND expires_at <= ? ORDER BY expires_at LIMIT ?
)
"""


def document_of(row: Row) -> Document:
    """Return the document that a row holds."""
    return Document(row[0], row[1], row[2], instant_or_none(row[3]))


def find(db: Connection, kind: str, key: str) -> Document | None:
    """Return one document, or None."""
    row = db.one(_FIND, (kind, key))
    return None if row is None else Document(kind, key, row[0], instant_or_none(row[1]))


def some(db: Connection, kind: str, after: str, limit: int) -> list[Document]:
    """Return documents of a kind behind a key, in the order of their keys."""
    return [document_of(row) for row in db.all(_LIST, (kind, after, limit))]


def put(db: Connection, kind: str, key: str, decide: DocumentDecision) -> Document | None:
    """Write or delete what `decide` makes of a document."""
    known = find(db, kind, key)
    new = decide(known)
    if new is None:
        db.execute(_DELETE, (kind, key))
    elif new != known:
        write(db, [new])
    return new


def write(db: Connection, new: list[Document]) -> None:
    """Write documents as they are."""
    db.executemany(_PUT, [(one.kind, one.key, one.body, micros_or_none(one.expires_at)) for one in new])


def purge(db: Connection, at: int, limit: int) -> None:
    """Delete some that have expired, the oldest first."""
    db.execute(_PURGE, (at, limit))


# What the store notes of itself -----------------------------------------------------------------


def note(db: Connection, name: str) -> str | None:
    """Return the body of a note."""
    found = find(db, DocumentKind.STORE, name)
    return None if found is None else found.body


def set_note(db: Connection, name: str, body: str | None) -> None:
    """Write a note, or delete it."""
    put(db, DocumentKind.STORE, name, lambda _: None if body is None else Document(DocumentKind.STORE, name, body))
