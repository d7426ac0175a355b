"""The log and the feed. Appending is the hot path: four statements, whatever the history."""

from __future__ import annotations

from moorage.core.entry import Entry, Kind, Message
from moorage.core.errors import HoldLost, KeyReused, SessionClosed, SessionCorrupt
from moorage.core.event import Event, deletion_event, event_of
from moorage.core.session import FINAL_STATES, HOLD_FOR, Session, Stamp, State, message_entries
from moorage.ports import Tail
from moorage.stores.rows import (
    ENTRY,
    ENTRY_OF_E,
    RARE,
    TOMBSTONE_OF_T,
    Row,
    entries_of,
    entry_of,
    micros,
    stored_kinds,
    tombstone_of,
)
from moorage.stores.sql import lookup
from moorage.stores.sqlite import heads
from moorage.stores.sqlite.connection import Connection
from moorage.stores.sqlite.cursors import feed_base, feed_end_id
from moorage.stores.sqlite.driven import Driven, drive

_APPEND_HEAD = "SELECT pk, id, task, state, last_entry, hold_token FROM sessions WHERE owner = ? AND id = ?"
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
        db.execute("UPDATE sessions SET hold_until = ? WHERE pk = ?", (micros(stamp.at + HOLD_FOR), pk))
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


# Reading ----------------------------------------------------------------------------------------


Segment = tuple[int, int, int]  # a segment, and the numbers of it that count: after, upto
_NO_END = (1 << 32) - 1


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
    pk, session_id, task, shared_upto, *_ = heads.key_of(db, owner, ref)
    upto = _NO_END if before is None else min(before - 1, _NO_END)  # beyond it other sessions' entries begin
    segments = _segments(db, pk, shared_upto, after, upto) if after < upto else []
    rows = _read(db, segments, limit, None if kinds is None else stored_kinds(kinds), newest_first)
    return entries_of(rows, session_id, task, db.opener)


def _segments(db: Connection, pk: int, shared_upto: int, after: int, upto: int) -> list[Segment]:
    """Where the entries between two numbers are, oldest first."""
    if after >= shared_upto:
        return [(pk, after, upto)]
    return [
        (segment, max(start, after), end) for segment, start, end in heads.shared_segments(db, pk, upto) if end > after
    ]


def _read(
    db: Connection, segments: list[Segment], limit: int, kinds: tuple[str, ...] | None, newest_first: bool
) -> list[Row]:
    rows: list[Row] = []
    for segment, after, upto in reversed(segments) if newest_first else segments:
        if len(rows) < limit:
            rows += _range(db, segment, after, upto, limit - len(rows), kinds, newest_first)
    return rows


def _range(
    db: Connection,
    segment: int,
    after: int,
    upto: int,
    limit: int,
    kinds: tuple[str, ...] | None,
    newest_first: bool,
) -> list[Row]:
    order = "DESC" if newest_first else "ASC"
    between = f"SELECT {ENTRY} FROM entries WHERE segment = ? AND number > ? AND number <= ?"
    if kinds is None:
        return db.all(f"{between} ORDER BY number {order} LIMIT ?", (segment, after, upto, limit))
    if Kind.MESSAGE.value in kinds:
        marks = ", ".join("?" * len(kinds))
        sql = f"{between} AND kind IN ({marks}) ORDER BY number {order} LIMIT ?"
        return db.all(sql, (segment, after, upto, *kinds, limit))
    rows: list[Row] = []
    for kind in kinds:
        source = f"{between} AND number = 1" if kind == Kind.CREATED else f"{_by_kind(between)} AND {RARE}"
        sql = f"{source} AND kind = ? ORDER BY number {order} LIMIT ?"
        rows += db.all(sql, (segment, after, upto, kind, limit))
    return sorted(rows, key=lambda row: int(row[0]), reverse=newest_first)[:limit]


def _by_kind(select: str) -> str:
    """The same by the index of rare kinds: SQLite itself would rather read all messages in between."""
    return select.replace("FROM entries", "FROM entries INDEXED BY entries_by_kind")


# One statement, so that it is of one instant without the price of a transaction.
_PINNED = f"SELECT {ENTRY}, 0 FROM entries WHERE segment = ?1 AND {RARE}"
_TAIL = f"""
SELECT * FROM ({_PINNED} AND kind = 'summary' ORDER BY number DESC LIMIT 1)
UNION ALL
SELECT * FROM ({_PINNED} AND kind = 'system' ORDER BY number DESC LIMIT ?2)
UNION ALL
SELECT * FROM (
    SELECT {ENTRY}, 1 FROM entries WHERE segment = ?1 AND kind IN ('message', 'system') ORDER BY number DESC LIMIT ?3
)
"""
_NEWEST = f"SELECT {ENTRY} FROM entries WHERE segment = ? AND kind = 'message' ORDER BY number DESC LIMIT ?"


def tail(db: Connection, owner: str, ref: str, limit: int, pins: int, with_session: bool) -> Tail:
    """What a window is made of."""
    session: Session | None = None
    if with_session:
        session, pk, shared_upto, has_pins = heads.load_to_read(db, owner, ref)
        session_id, task = session.session_id, session.task_id
    else:
        pk, session_id, task, shared_upto, has_pins, _ = heads.key_of(db, owner, ref)
    if not has_pins:
        return Tail([], entries_of(db.all(_NEWEST, (pk, limit)), session_id, task, db.opener), session)
    rows = _tail_of_fork(db, pk, shared_upto, limit, pins) if shared_upto else db.all(_TAIL, (pk, pins, limit))
    split = next((place for place, row in enumerate(rows) if row[-1]), len(rows))
    entries = entries_of([row[:-1] for row in rows], session_id, task, db.opener)
    pinned, messages = entries[:split], entries[split:]
    if pinned:
        pinned.sort(key=lambda entry: entry.number)
        upto = max((entry.data["upto"] for entry in pinned if entry.data), default=0)
        messages = [entry for entry in messages if entry.number > upto]
    return Tail(pinned, messages, session)


def _tail_of_fork(db: Connection, pk: int, shared_upto: int, limit: int, pins: int) -> list[Row]:
    segments = _segments(db, pk, shared_upto, 0, _NO_END)
    kept = _read(db, segments, 1, (Kind.SUMMARY.value,), True) + _read(db, segments, pins, ("system",), True)
    messages = _read(db, segments, limit, stored_kinds((Kind.MESSAGE.value,)), True)
    return [(*row, 0) for row in kept] + [(*row, 1) for row in messages]


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
