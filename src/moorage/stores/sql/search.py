"""Full-text search, indexed off the write path.

The index follows the feed: it stores its progress per owner and catches up in small chunks. Results are
joined with the log, so deleted entries are never found. How words are indexed is in `search` of each dialect.
"""

from __future__ import annotations

from contextlib import suppress

from moorage.core.entry import Entry, Kind, searchable_text, text_of
from moorage.core.errors import SessionCorrupt
from moorage.core.event import Hit, snippet_of
from moorage.stores import SEALED
from moorage.stores.rows import ENTRY, ENTRY_OF_E, Row, entry_of
from moorage.stores.sql.db import FEED_ROOM, Db
from moorage.stores.sql.query import Query

CHUNK_ROWS = 200  # of the feed, each for some entries: SQLite's write lock is held for milliseconds
_SEARCHED_KINDS = (Kind.MESSAGE.value, Kind.SUMMARY.value)
_COLUMNS = len(ENTRY.split(", "))
_DATA = ENTRY.split(", ").index("data") - _COLUMNS
_UNINDEXED = Query("unindexed", entry=ENTRY_OF_E)
# A segment outlives its session when a fork needs it: then it is found in the fork.
_FOUND = Query("found_entries", entry=ENTRY_OF_E)


async def unindexed(db: Db, owner: str, mark: int) -> tuple[int, list[tuple[Row, Entry]]] | None:
    """Return the end of the next chunk of the feed after a mark, and its entries with their places in the log.

    None if there is nothing new.
    """
    base = await db.feed_start(owner) or 0
    rows = await db.all(_UNINDEXED(db), (owner, mark, base + FEED_ROOM, CHUNK_ROWS))
    found = []
    for row in rows:
        if row[1] is None or str(row[_DATA]).startswith(SEALED):  # deleted or sealed, which is final
            continue
        with suppress(SessionCorrupt):  # reading its session reports the damage; the index continues
            entry = entry_of(tuple(row[-_COLUMNS:]), "", "", db.opener)
            if entry.kind in _SEARCHED_KINDS:
                found.append((tuple(row[1:-_COLUMNS]), entry))
    return (rows[-1][0], found) if rows else None


async def search(db: Db, owner: str, words: list[str], match: str, limit: int) -> list[Hit]:
    """Return entries with all words, best first; `match` has them in the syntax of the index."""
    hits: list[Hit] = []
    for row in await db.all(_FOUND(db), (owner, match, limit)):
        with suppress(SessionCorrupt):
            hits.append(_hit(db, row, words))
    return hits


def _hit(db: Db, row: Row, words: list[str]) -> Hit:
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
