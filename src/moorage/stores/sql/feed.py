"""The feed: events of all sessions of an owner, in the order of commits."""

from __future__ import annotations

from moorage.core.errors import SessionCorrupt
from moorage.core.event import Event, deletion_event, event_of
from moorage.stores.rows import ENTRY, ENTRY_OF_E, TOMBSTONE_OF_T, Row, entry_of, tombstone_of
from moorage.stores.sql.db import FEED_ROOM, Db
from moorage.stores.sql.query import Query

_FEED = Query("feed", entry=ENTRY_OF_E, tombstone=TOMBSTONE_OF_T)
_ENTRY_ENDS = 4 + len(ENTRY.split(", "))


async def feed(db: Db, owner: str, after: int, limit: int) -> list[Event]:
    """Return events after a cursor, including deletions; other events of deleted sessions are left out."""
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
        return deletion_event(tombstone_of(tombstone_columns), feed_id - base) if is_there else None
    if entry_columns[0] is None:
        return None
    try:
        entry = entry_of(entry_columns, session_id, task, db.opener)
    except SessionCorrupt:  # reading its session reports the damage; the stream of the others continues
        return None
    return event_of(entry, session_id, feed_id - base - (last - entry.number))
