"""Full-text search, indexed off the write path.

The index follows the feed: it remembers per owner how far it has come and catches up in
small chunks. Results are joined with the log, so what was deleted is never found; its
words are purged from the index later.
"""

from __future__ import annotations

from contextlib import suppress

from moorage.core.entry import Kind, searchable_text, text_of
from moorage.core.errors import SessionCorrupt
from moorage.core.event import Hit, snippet_of
from moorage.stores import SEALED
from moorage.stores.rows import ENTRY, ENTRY_OF_E, Row, entry_of
from moorage.stores.sqlite.connection import Connection
from moorage.stores.sqlite.cursors import feed_base, feed_end_id

CHUNK_ROWS = 200  # of the feed, each some entries: the write lock is held for milliseconds
SEARCHED_KINDS = (Kind.MESSAGE.value, Kind.SUMMARY.value)
PURGE_CHUNK = 500
_DATA = ENTRY.split(", ").index("data")

_UNINDEXED = f"""
SELECT f.id, e.id, {ENTRY_OF_E}
FROM (SELECT * FROM feed WHERE id > ?1 AND id < ?2 ORDER BY id LIMIT ?3) f
LEFT JOIN entries e ON f.last > 0 AND e.segment = f.subject AND e.number > f.last - f.count AND e.number <= f.last
ORDER BY f.id
"""


def is_behind(db: Connection, owner: str, upto: int) -> bool:
    """Whether there is something to index up to that cursor of the feed, or to purge."""
    number = db.owner_no(owner)
    if number is None:
        return False
    row = db.one(
        "SELECT EXISTS (SELECT 1 FROM feed WHERE id > ? AND id <= ?) OR EXISTS (SELECT 1 FROM search_purges)",
        (_mark(db, number)[0], feed_base(number) + upto),
    )
    return bool(row and row[0])


def catch_up(db: Connection, owner: str) -> None:
    """Index one chunk of what is new, purge some of what is gone."""
    _purge(db)
    number = db.new_owner_no(owner)
    feed, newest = _mark(db, number)
    rows = db.all(_UNINDEXED, (feed, feed_end_id(number), CHUNK_ROWS))
    if rows:
        documents = _documents(db, rows)
        db.executemany("INSERT INTO search (rowid, text) VALUES (?, ?)", documents)
        newest = max([newest, *(entry_id for entry_id, _ in documents)])
        db.execute("INSERT OR REPLACE INTO search_marks VALUES (?, ?, ?)", (number, rows[-1][0], newest))


def _mark(db: Connection, owner_no: int) -> tuple[int, int]:
    """How far the index has come, in the feed and in the log."""
    row = db.one("SELECT feed, entry FROM search_marks WHERE owner = ?", (owner_no,))
    return (row[0], row[1]) if row else (feed_base(owner_no), 0)


def _documents(db: Connection, rows: list[Row]) -> list[tuple[int, str]]:
    found = []
    for _, entry_id, *columns in rows:
        if entry_id is None:
            continue
        if str(columns[_DATA]).startswith(SEALED):  # from a time when this store was sealed: it stays so
            continue
        with suppress(SessionCorrupt):  # reading its session says so; the index goes on
            entry = entry_of(tuple(columns), "", "", db.opener)
            if entry.kind in SEARCHED_KINDS:
                found.append((entry_id, searchable_text(entry)))
    return found


def _purge(db: Connection) -> None:
    doomed = db.all("SELECT id FROM search_purges ORDER BY id LIMIT ?", (PURGE_CHUNK,))
    db.executemany("DELETE FROM search WHERE rowid = ?", doomed)
    db.executemany("DELETE FROM search_purges WHERE id = ?", doomed)


# A segment outlives its session when a fork needs it: then the fork is where it is found.
_FOUND = f"""
SELECT {ENTRY_OF_E}, coalesce(s.id, f.id)
FROM search JOIN entries e ON e.id = search.rowid
LEFT JOIN sessions s ON s.pk = e.segment
LEFT JOIN sessions f ON s.pk IS NULL AND f.pk = (
    SELECT l.session FROM lineage l WHERE l.segment = e.segment AND l.upto >= e.number ORDER BY l.session LIMIT 1
)
WHERE search MATCH ?1 AND coalesce(s.owner, f.owner) = ?2
ORDER BY search.rank, e.at DESC LIMIT ?3
"""


def search(db: Connection, owner: str, words: list[str], limit: int) -> list[Hit]:
    """Entries with all words, best first."""
    if not words:
        return []
    hits: list[Hit] = []
    for row in db.all(_FOUND, (_match(words), owner, limit)):
        with suppress(SessionCorrupt):
            hits.append(_hit(db, row, words))
    return hits


def _match(words: list[str]) -> str:
    """Words as an FTS5 expression: each quoted, so that nothing in them is syntax."""
    return " AND ".join(f'"{word.rstrip("*")}"{"*" if word.endswith("*") else ""}' for word in words)


def _hit(db: Connection, row: Row, words: list[str]) -> Hit:
    entry = entry_of(row[:-1], row[-1], "", db.opener)
    text = text_of(entry.content) or searchable_text(entry)
    return Hit(
        session_id=row[-1],
        number=entry.number,
        kind=entry.kind,
        role=entry.role,
        at=entry.at,
        snippet=snippet_of(text, [word.rstrip("*") for word in words]),
    )
