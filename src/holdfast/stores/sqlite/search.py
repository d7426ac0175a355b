"""Full-text search, indexed off the write path.

The index follows the feed: it remembers per owner how far it has come and catches up in
small chunks. Results are joined with the log, so what was deleted is never found; its
words are purged from the index later.
"""

from __future__ import annotations

from holdfast.core.entry import Kind, searchable_text, text_of
from holdfast.core.event import Hit, snippet_of
from holdfast.stores.sqlite.connection import Connection
from holdfast.stores.sqlite.rows import (
    ENTRY_OF_E,
    Row,
    end_id,
    entry_of,
    feed_base,
    feed_end_id,
    first_id,
    instant,
    number_of,
)

CHUNK_ROWS = 200  # of the feed, each some entries: the write lock is held for milliseconds
SEARCHED_KINDS = (Kind.MESSAGE.value, Kind.SUMMARY.value)
PURGE_CHUNK = 20

_UNINDEXED = f"""
SELECT f.id, {ENTRY_OF_E}
FROM (SELECT * FROM feed WHERE id > ?1 AND id < ?2 ORDER BY id LIMIT ?3) f
LEFT JOIN entries e ON f.last > 0 AND e.id > (f.subject << 32) + f.last - f.count AND e.id <= (f.subject << 32) + f.last
ORDER BY f.id
"""


def is_behind(db: Connection, owner: str) -> bool:
    """Whether there is something to index or to purge."""
    number = db.owner_no(owner)
    if number is None:
        return False
    row = db.one(
        "SELECT EXISTS (SELECT 1 FROM feed WHERE id > ? AND id < ?) OR EXISTS (SELECT 1 FROM search_purges)",
        (_mark(db, number), feed_end_id(number)),
    )
    return bool(row and row[0])


def catch_up(db: Connection, owner: str) -> None:
    """Index one chunk of what is new, purge some of what is gone."""
    _purge(db)
    number = db.new_owner_no(owner)
    rows = db.all(_UNINDEXED, (_mark(db, number), feed_end_id(number), CHUNK_ROWS))
    if rows:
        db.executemany("INSERT INTO search (rowid, text) VALUES (?, ?)", _documents(rows))
        db.execute("INSERT OR REPLACE INTO search_marks VALUES (?, ?)", (number, rows[-1][0]))


def _mark(db: Connection, owner_no: int) -> int:
    row = db.one("SELECT id FROM search_marks WHERE owner = ?", (owner_no,))
    return row[0] if row else feed_base(owner_no)


def _documents(rows: list[Row]) -> list[tuple[int, str]]:
    found = []
    for _, *columns in rows:
        if columns[0] is None:
            continue
        entry = entry_of(tuple(columns), "", "")
        if entry.kind in SEARCHED_KINDS:
            found.append((columns[0], searchable_text(entry)))
    return found


def _purge(db: Connection) -> None:
    for (segment,) in db.all("SELECT segment FROM search_purges LIMIT ?", (PURGE_CHUNK,)):
        db.execute(
            "DELETE FROM search WHERE rowid IN (SELECT d.id FROM search_docsize d LEFT JOIN entries e ON e.id = d.id "
            "WHERE d.id > ? AND d.id < ? AND e.id IS NULL)",
            (first_id(segment), end_id(segment)),
        )
        db.execute("DELETE FROM search_purges WHERE segment = ?", (segment,))


# A segment outlives its session when a fork needs it: then the fork is where it is found.
_FOUND = f"""
SELECT {ENTRY_OF_E}, coalesce(s.id, f.id)
FROM search JOIN entries e ON e.id = search.rowid
LEFT JOIN sessions s ON s.pk = e.id >> 32
LEFT JOIN sessions f ON s.pk IS NULL AND f.pk = (
    SELECT l.session FROM lineage l WHERE l.segment = e.id >> 32 AND l.upto >= e.id & 0xFFFFFFFF
    ORDER BY l.session LIMIT 1
)
WHERE search MATCH ?1 AND coalesce(s.owner, f.owner) = ?2
ORDER BY search.rank, e.at DESC LIMIT ?3
"""


def search(db: Connection, owner: str, words: list[str], limit: int) -> list[Hit]:
    """Entries with all words, best first."""
    if not words:
        return []
    return [_hit(row, words) for row in db.all(_FOUND, (_match(words), owner, limit))]


def _match(words: list[str]) -> str:
    """Words as an FTS5 expression: each quoted, so that nothing in them is syntax."""
    return " AND ".join(f'"{word.rstrip("*")}"{"*" if word.endswith("*") else ""}' for word in words)


def _hit(row: Row, words: list[str]) -> Hit:
    entry = entry_of(row[:-1], row[-1], "")
    text = text_of(entry.content) or searchable_text(entry)
    return Hit(
        session_id=row[-1],
        number=number_of(row[0]),
        kind=entry.kind,
        role=entry.role,
        at=instant(row[2]),
        snippet=snippet_of(text, [word.rstrip("*") for word in words]),
    )
