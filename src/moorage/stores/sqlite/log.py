"""The log and the feed. Appending is the hot path: four statements, whatever the history."""

from __future__ import annotations

from moorage.core.entry import Entry, Message
from moorage.core.errors import HoldLost, KeyReused, SessionClosed, SessionCorrupt
from moorage.core.event import Event, deletion_event, event_of
from moorage.core.session import FINAL_STATES, HOLD_FOR, Stamp, State, message_entries
from moorage.stores.rows import (
    ENTRY,
    ENTRY_OF_E,
    TOMBSTONE_OF_T,
    Row,
    entry_of,
    micros,
    tombstone_of,
)
from moorage.stores.sql import lookup
from moorage.stores.sqlite import heads
from moorage.stores.sqlite.connection import Connection
from moorage.stores.sqlite.cursors import feed_base, feed_end_id
from moorage.stores.sqlite.driven import Driven, drive

_APPEND_HEAD = "SELECT pk, id, task, state, last_entry, hold_token FROM sessions WHERE owner = ? AND id = ?"
_RENEW = "UPDATE sessions SET hold_until = ? WHERE pk = ? AND live_turn IS NULL"  # a live turn's ends with its lease
_ADVANCE = "UPDATE sessions SET last_entry = ?, last_activity_at = ?, updated_at = ? WHERE pk = ?"


def append(
    db: Connection,
    owner: str,
    ref: str,
    messages: list[Message],
    stamp: Stamp,
    token: str | None,
    expected: int | None = None,
) -> list[Entry]:
    """Add messages; those whose client key was seen come back as the entries they became."""
    row = db.one(_APPEND_HEAD, (owner, ref)) if lookup.may_be_ref(ref) else None
    if row is None:
        row = db.one(_APPEND_HEAD, (owner, heads.key_of(db, owner, ref)[1]))
        assert row is not None
    pk, session_id, task, state, last, hold_token = row
    if expected is not None:
        drive(lookup.check_version(Driven(db), owner, pk, expected))
    if state in FINAL_STATES:
        raise SessionClosed(session_id, state)
    if token is not None and token != hold_token:
        raise HoldLost(session_id)
    seen = _seen(db, pk, session_id, task, messages)
    fresh = [message for message in messages if message.client_key not in seen] if seen else messages
    if not fresh:
        return [seen[str(message.client_key)] for message in messages]
    at = micros(stamp.at)
    entries = message_entries(fresh, stamp, last + 1, session_id, task)
    db.execute(_ADVANCE, (last + len(entries), at, at, pk))
    if state == State.CREATED:
        db.execute("UPDATE sessions SET state = 'active' WHERE pk = ?", (pk,))
    if token is not None:
        db.execute(_RENEW, (micros(stamp.at + HOLD_FOR), pk))
    heads.add_entries(db, pk, owner, entries)
    return entries if not seen else _in_order(messages, seen, entries)


def _seen(db: Connection, pk: int, session_id: str, task: str, messages: list[Message]) -> dict[str | None, Entry]:
    seen: dict[str | None, Entry] = {}
    for message in messages:
        if message.client_key is None:
            continue
        sql = f"SELECT {ENTRY} FROM entries WHERE segment = ? AND client_key = ? ORDER BY number DESC LIMIT 1"
        row = db.one(sql, (pk, message.client_key))
        if row is not None:
            seen[message.client_key] = _same(entry_of(row, session_id, task, db.opener), message)
    return seen


def _same(entry: Entry, message: Message) -> Entry:
    if entry.role != message.role or entry.content != message.content:
        raise KeyReused(str(message.client_key))
    return entry


def _in_order(messages: list[Message], seen: dict[str | None, Entry], fresh: list[Entry]) -> list[Entry]:
    rest = iter(fresh)
    return [seen[message.client_key] if message.client_key in seen else next(rest) for message in messages]


# The feed ---------------------------------------------------------------------------------------

# Rows stand for several events each: as many rows are read as hold `limit` events, and no more.
_FEED = f"""
SELECT f.id, f.last, s.id, s.task, {ENTRY_OF_E}, {TOMBSTONE_OF_T}
FROM (
    SELECT *, sum(count) OVER (ORDER BY id) - count AS ahead
    FROM (SELECT * FROM feed WHERE id > ?1 AND id < ?2 ORDER BY id LIMIT ?3)
) f
LEFT JOIN sessions s ON f.last > 0 AND s.pk = f.subject
LEFT JOIN entries e ON e.segment = s.pk AND e.number > f.last - f.count AND e.number <= f.last
LEFT JOIN tombstones t ON f.last = 0 AND t.n = f.subject
WHERE f.ahead <= ?3
ORDER BY f.id, e.number
"""
_ENTRY_ENDS = 4 + len(ENTRY.split(", "))


def feed(db: Connection, owner: str, after: int, limit: int) -> list[Event]:
    """Events after a cursor, deletions among them; what belonged to deleted sessions is left out."""
    number = db.owner_no(owner)
    if number is None:
        return []
    base, end = feed_base(number), feed_end_id(number)
    position, events = base + after, list[Event]()
    while len(events) < limit and (rows := db.all(_FEED, (position, end, limit))):
        events += [event for row in rows if (event := _feed_event(db, row, base)) is not None and event.id > after]
        position = rows[-1][0]  # these may be half seen, or of deleted sessions: look further until there is enough
    return events[:limit]


def _feed_event(db: Connection, row: Row, base: int) -> Event | None:
    feed_id, last, session_id, task = row[:4]
    entry_columns, stone_columns = row[4:_ENTRY_ENDS], row[_ENTRY_ENDS:]
    if last == 0:
        return None if stone_columns[0] is None else deletion_event(tombstone_of(stone_columns), feed_id - base)
    if entry_columns[0] is None:
        return None
    try:
        entry = entry_of(entry_columns, session_id, task, db.opener)
    except SessionCorrupt:  # reading its session says so; the stream of all others goes on
        return None
    return event_of(entry, session_id, feed_id - base - (last - entry.number))


def feed_end(db: Connection, owner: str) -> int:
    """The newest cursor."""
    db.check_file()  # a server's health is asked by this
    number = db.owner_no(owner)
    if number is None:
        return 0
    row = db.one("SELECT max(id) FROM feed WHERE id < ?", (feed_end_id(number),))
    return max(0, (row[0] or 0) - feed_base(number)) if row else 0
