"""The feed: events of all sessions of an owner, in the order of commits. And full-text search, which follows it.

Entries are indexed off the write path: the index stores its progress in the feed per owner and catches up in small
chunks. Results are joined with the log, so deleted entries are never found. `search` of each dialect indexes words.
"""

from __future__ import annotations

from contextlib import suppress

from moorage.core.entry import Entry, Event, Hit, Kind, event_of, searchable_text, snippet_of, text_of
from moorage.core.errors import SessionCorrupt
from moorage.stores import SEALED
from moorage.stores.rows import ENTRY, ENTRY_OF_E, TOMBSTONE_OF_T, Row, entry_of, readable, tombstone_of
from moorage.stores.sql.db import FEED_ROOM, Db, Query

_FEED = Query("feed", entry=ENTRY_OF_E, tombstone=TOMBSTONE_OF_T)
_ENTRY_ENDS = 4 + len(ENTRY.split(", "))


async def feed(db: Db, owner: str, after: int, limit: int) -> list[Event]:
    if (base := await db.feed_start(owner)) is None:
        return []
    position, events = base + after, list[Event]()
    while len(events) < limit and (rows := await db.all(_FEED(db), (owner, position, base + FEED_ROOM, limit))):
        events += [event for row in rows if (event := _event(db, row, base)) is not None and event.id > after]
        position = rows[-1][0]  # these may be partly read, or of deleted sessions: read on until there is enough
    return events[:limit]


def _event(db: Db, row: Row, base: int) -> Event | None:
    feed_id, last, session_id, task = row[:4]
    entry_columns, tombstone_columns = row[4:_ENTRY_ENDS], row[_ENTRY_ENDS:]
    if last == 0:
        is_there = tombstone_columns[0] is not None
        return tombstone_of(tombstone_columns).event(feed_id - base) if is_there else None
    if entry_columns[0] is None:
        return None
    try:
        entry = entry_of(entry_columns, session_id, task, db.opener)
    except SessionCorrupt:  # reading its session reports the damage; the stream of the others continues
        return None
    return event_of(entry, session_id, feed_id - base - (last - entry.number))


# Search -----------------------------------------------------------------------------------------

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
    return readable(await db.all(_FOUND(db), (owner, match, limit)), lambda row: _hit(db, row, words))


def _hit(db: Db, row: Row, words: list[str]) -> Hit:
    entry = entry_of(row[:-1], row[-1], "", db.opener)
    snippet = snippet_of(text_of(entry.content) or searchable_text(entry), [word.rstrip("*") for word in words])
    return Hit(session_id=row[-1], number=entry.number, kind=entry.kind, role=entry.role, at=entry.at, snippet=snippet)
