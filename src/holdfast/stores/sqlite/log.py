"""The log and the feed. Appending is the hot path: four statements, whatever the history."""

from __future__ import annotations

from holdfast.core.entry import Entry, Kind, Message
from holdfast.core.errors import HoldLost, KeyReused, SessionClosed
from holdfast.core.event import Event, deletion_event, event_of
from holdfast.core.session import FINAL_STATES, HOLD_FOR, Stamp, State, message_entries
from holdfast.stores.sqlite import heads
from holdfast.stores.sqlite.connection import Connection
from holdfast.stores.sqlite.rows import (
    ENTRY,
    TOMBSTONE,
    Row,
    entry_of,
    first_id,
    micros,
    stored_kinds,
    tombstone_of,
)

_APPEND_HEAD = "SELECT pk, id, task, state, last_entry, hold_token FROM sessions WHERE owner = ? AND id = ?"
_ADVANCE = "UPDATE sessions SET last_entry = ?, last_activity_at = ?, updated_at = ? WHERE pk = ?"


def append(
    db: Connection, owner: str, ref: str, messages: list[Message], stamp: Stamp, token: str | None
) -> list[Entry]:
    """Add messages; those whose client key was seen come back as the entries they became."""
    row = db.one(_APPEND_HEAD, (owner, ref))
    if row is None:
        row = db.one(_APPEND_HEAD, (owner, heads.key_of(db, owner, ref)[1]))
        assert row is not None
    pk, session_id, task, state, last, hold_token = row
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
        db.execute("UPDATE sessions SET hold_until = ? WHERE pk = ?", (micros(stamp.at + HOLD_FOR), pk))
    heads.add_entries(db, pk, owner, entries)
    return list(entries) if not seen else _in_order(messages, seen, list(entries))


def _seen(db: Connection, pk: int, session_id: str, task: str, messages: list[Message]) -> dict[str | None, Entry]:
    seen: dict[str | None, Entry] = {}
    for message in messages:
        if message.client_key is None:
            continue
        sql = f"SELECT {ENTRY} FROM entries WHERE id >> 32 = ? AND client_key = ?"
        row = db.one(sql, (pk, message.client_key))
        if row is not None:
            seen[message.client_key] = _same(entry_of(row, session_id, task), message)
    return seen


def _same(entry: Entry, message: Message) -> Entry:
    if entry.role != message.role or entry.content != message.content:
        raise KeyReused(str(message.client_key))
    return entry


def _in_order(messages: list[Message], seen: dict[str | None, Entry], fresh: list[Entry]) -> list[Entry]:
    rest = iter(fresh)
    return [seen[message.client_key] if message.client_key in seen else next(rest) for message in messages]


# Reading ----------------------------------------------------------------------------------------


def log(
    db: Connection,
    owner: str,
    ref: str,
    after: int,
    before: int | None,
    limit: int,
    kinds: tuple[str, ...] | None,
    newest_first: bool,
) -> list[Entry]:
    """Entries between two numbers, from one end."""
    pk, session_id, task, shared_upto = heads.key_of(db, owner, ref)
    last = (1 << 32) - 1 if before is None else before - 1
    ranges = [(pk, max(after, shared_upto), last)]
    if after < shared_upto:
        ranges = [
            (segment, max(start, after), min(end, last))
            for segment, start, end in heads.shared_segments(db, pk, min(last, shared_upto))
        ] + ranges
    rows: list[Row] = []
    for segment, start, end in reversed(ranges) if newest_first else ranges:
        if len(rows) < limit and start < end:
            rows += _range(db, segment, start, end, limit - len(rows), kinds, newest_first)
    return [entry_of(row, session_id, task) for row in rows]


def _range(
    db: Connection,
    segment: int,
    after: int,
    upto: int,
    limit: int,
    kinds: tuple[str, ...] | None,
    newest_first: bool,
) -> list[Row]:
    base, order = first_id(segment), "DESC" if newest_first else "ASC"
    if kinds is None:
        sql = f"SELECT {ENTRY} FROM entries WHERE id > ? AND id <= ? ORDER BY id {order} LIMIT ?"
        return db.all(sql, (base + after, base + upto, limit))
    stored = stored_kinds(kinds)
    marks = ", ".join("?" * len(stored))
    if Kind.MESSAGE.value in stored:
        sql = f"SELECT {ENTRY} FROM entries WHERE id > ? AND id <= ? AND kind IN ({marks}) ORDER BY id {order} LIMIT ?"
        return db.all(sql, (base + after, base + upto, *stored, limit))
    rows: list[Row] = []
    for kind in stored:  # one look into the index each; rare kinds are found without reading messages
        sql = (
            f"SELECT {ENTRY} FROM entries WHERE id >> 32 = ? AND kind = ? AND kind <> 'message' "
            f"AND id > ? AND id <= ? ORDER BY id {order} LIMIT ?"
        )
        rows += db.all(sql, (segment, kind, base + after, base + upto, limit))
    return sorted(rows, key=lambda row: int(row[0]), reverse=newest_first)[:limit]


def pinned(db: Connection, owner: str, ref: str, limit: int) -> list[Entry]:
    """System messages and the newest summary, in order."""
    pk, session_id, task, _ = heads.key_of(db, owner, ref)
    last = (1 << 32) - 1
    systems: list[Row] = []
    summary: list[Row] = []
    for segment, start, end in reversed(heads.shared_segments(db, pk, last)):
        if len(systems) < limit:
            systems += _range(db, segment, start, end, limit - len(systems), ("system",), True)
        if not summary:
            summary = _range(db, segment, start, end, 1, (Kind.SUMMARY.value,), True)
    entries = [entry_of(row, session_id, task) for row in systems + summary]
    return sorted(entries, key=lambda entry: entry.number)


# The feed ---------------------------------------------------------------------------------------

_FEED = f"""
SELECT f.seq, f.subject, f.last, f.count, s.id, s.task, {", ".join(f"e.{column}" for column in ENTRY.split(", "))}
FROM (SELECT * FROM feed WHERE owner = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3) f
LEFT JOIN sessions s ON f.last > 0 AND s.pk = f.subject
LEFT JOIN entries e ON s.pk IS NOT NULL AND e.id > (f.subject << 32) + f.last - f.count
    AND e.id <= (f.subject << 32) + f.last
ORDER BY f.seq, e.id
"""


def feed(db: Connection, owner: str, after: int, limit: int) -> list[Event]:
    """Events after a cursor, deletions among them; what belonged to deleted sessions is left out."""
    while True:
        rows = db.all(_FEED, (owner, after, limit))
        events = [event for row in rows if (event := _feed_event(db, row)) is not None and event.id > after]
        if events or not rows:
            return events[:limit]
        after = rows[-1][0]  # all of these are of deleted sessions: look further


def _feed_event(db: Connection, row: Row) -> Event | None:
    seq, subject, last, _, session_id, task, *columns = row
    if last == 0:
        stone = db.one(f"SELECT {TOMBSTONE} FROM tombstones WHERE n = ?", (subject,))
        return None if stone is None else deletion_event(tombstone_of(stone[1:]), seq)
    if columns[0] is None:
        return None
    entry = entry_of(tuple(columns), session_id, task)
    return event_of(entry, session_id, seq - (last - entry.number))


def feed_end(db: Connection, owner: str) -> int:
    """The newest cursor."""
    row = db.one("SELECT max(seq) FROM feed WHERE owner = ?", (owner,))
    return 0 if row is None or row[0] is None else int(row[0])
