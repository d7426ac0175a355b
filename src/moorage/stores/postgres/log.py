"""The log and the feed. Appending is the hot path: whatever waits is committed by one statement, in one round trip."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from moorage.core.entry import Entry, Message
from moorage.core.errors import HoldLost, KeyReused, SessionClosed, SessionCorrupt
from moorage.core.event import Event, deletion_event, event_of
from moorage.core.session import FINAL_STATES, HOLD_FOR, Session, Stamp, View, message_entries
from moorage.stores.postgres import heads, writes
from moorage.stores.postgres.connection import Connection
from moorage.stores.rows import (
    ENTRY,
    ENTRY_OF_E,
    TOMBSTONE_OF_T,
    Row,
    entries_of,
    entry_of,
    micros,
    tombstone_of,
)
from moorage.stores.sql import lookup

# Appending --------------------------------------------------------------------------------------

# For each session once: it is locked in the order of keys, so that two of these never wait in a circle; refused where
# it is final or the token is not the hold's. What is not answered here is told why by `append`.
_APPEND = """
WITH asked AS (
    SELECT * FROM unnest(?1::text[], ?2::text[], ?3::bigint[], ?4::bigint[], ?5::text[], ?6::bigint[], ?7::boolean[])
        WITH ORDINALITY a (owner, id, count, at, token, hold_until, has_pins, place)
), locked AS (
    SELECT s.pk, a.* FROM asked a JOIN moor.sessions s ON s.owner = a.owner AND s.id = a.id
    ORDER BY s.owner, s.pk FOR NO KEY UPDATE OF s
), moved AS (
    UPDATE moor.sessions s SET
        last_entry = s.last_entry + a.count, last_activity_at = a.at, updated_at = a.at,
        state = CASE s.state WHEN 'created' THEN 'active' ELSE s.state END,
        hold_until = CASE WHEN a.token IS NULL OR s.live_turn IS NOT NULL THEN s.hold_until ELSE a.hold_until END,
        has_pins = s.has_pins OR a.has_pins, revision = s.revision + 1
    FROM locked a
    WHERE s.owner = a.owner AND s.pk = a.pk AND s.state NOT IN ('completed', 'failed', 'abandoned')
        AND (a.token IS NULL OR a.token = s.hold_token)
    RETURNING a.place, s.owner, s.pk, coalesce(s.root, s.pk) AS root, s.last_entry, a.count, s.task
), said AS (
    INSERT INTO moor.entries (owner, root, segment, number, kind, at, role, content, data, by, interface)
    SELECT m.owner, m.root, m.pk, m.last_entry - m.count + e.step, e.kind, e.at, e.role, e.content, e.data, e.by,
        e.interface
    FROM unnest(?8::bigint[], ?9::bigint[], ?10::text[], ?11::bigint[], ?12::text[], ?13::text[], ?14::text[],
        ?15::text[], ?16::text[]) e (place, step, kind, at, role, content, data, by, interface)
    JOIN moved m ON m.place = e.place
), told AS (
    INSERT INTO moor.arrivals (owner, subject, root, last, count) SELECT owner, pk, root, last_entry, count FROM moved
)
SELECT place, last_entry - count, task FROM moved
"""


class Appending:
    """Somebody's messages on their way into a session."""

    __slots__ = ("messages", "owner", "ref", "stamp", "token", "weight")

    def __init__(self, owner: str, ref: str, messages: list[Message], stamp: Stamp, token: str | None) -> None:
        self.owner, self.ref, self.messages, self.stamp, self.token = owner, ref, messages, stamp, token
        self.weight = sum([message.size for message in messages])

    @property
    def is_plain(self) -> bool:
        """Whether it can go with others: nothing has to be looked up before."""
        return lookup.may_be_ref(self.ref) and all(message.client_key is None for message in self.messages)


_encode = msgspec.json.Encoder().encode
# The same for one session, without a plan for many.
_APPEND_ONE = """
WITH moved AS (
    UPDATE moor.sessions s SET
        last_entry = s.last_entry + ?3::bigint, last_activity_at = ?4::bigint, updated_at = ?4::bigint,
        state = CASE s.state WHEN 'created' THEN 'active' ELSE s.state END,
        hold_until = CASE WHEN ?5::text IS NULL OR s.live_turn IS NOT NULL THEN s.hold_until ELSE ?6::bigint END,
        has_pins = s.has_pins OR ?7::boolean, revision = s.revision + 1
    WHERE s.owner = ?1::text AND s.id = ?2::text AND s.state NOT IN ('completed', 'failed', 'abandoned')
        AND (?5::text IS NULL OR ?5::text = s.hold_token)
    RETURNING s.owner, s.pk, coalesce(s.root, s.pk) AS root, s.last_entry, s.task
), said AS (
    INSERT INTO moor.entries (owner, root, segment, number, kind, at, role, content, data, by, interface)
    SELECT m.owner, m.root, m.pk, m.last_entry - ?3 + (e ->> 0)::bigint, e ->> 1, (e ->> 2)::bigint, e ->> 3, e ->> 4,
        e ->> 5, e ->> 6, e ->> 7
    FROM moved m CROSS JOIN jsonb_array_elements(?8::jsonb) e
), told AS (
    INSERT INTO moor.arrivals (owner, subject, root, last, count) SELECT owner, pk, root, last_entry, ?3 FROM moved
)
SELECT last_entry - ?3, task FROM moved
"""


async def append_all(db: Connection, group: Sequence[Appending]) -> list[list[Entry] | None]:
    """Add plain messages to several sessions, all different; None for those that were refused."""
    if len(group) == 1:
        return [await append_one(db, group[0])]
    asked = [_asked(one) for one in group]
    entries = [(place, *row) for place, one in enumerate(group, 1) for row in _rows(db, one)]
    db.changes = len(group)
    rows = await db.commit_one(_APPEND, (*zip(*asked, strict=True), *zip(*entries, strict=True)))
    done: list[list[Entry] | None] = [None] * len(group)
    for place, last, task in rows:
        one = group[place - 1]
        done[place - 1] = message_entries(one.messages, one.stamp, last + 1, one.ref, task)
    return done


async def append_one(db: Connection, one: Appending) -> list[Entry] | None:
    """Add plain messages to a session; None if they were refused."""
    rows = await db.commit_one(_APPEND_ONE, (*_asked(one), _encode(_rows(db, one)).decode()))
    return message_entries(one.messages, one.stamp, rows[0][0] + 1, one.ref, rows[0][1]) if rows else None


def _asked(one: Appending) -> Row:
    """Whose messages they are, how many, and what they do to their session."""
    hold_until = None if one.token is None else micros(one.stamp.at + HOLD_FOR)
    has_pins = any(message.role == "system" for message in one.messages)
    return one.owner, one.ref, len(one.messages), micros(one.stamp.at), one.token, hold_until, has_pins


def _rows(db: Connection, one: Appending) -> list[Row]:
    """Messages as entries, numbered from 1."""
    return [writes.row_of(entry, db)[:8] for entry in message_entries(one.messages, one.stamp, 1, one.ref, "")]


async def append(
    db: Connection,
    owner: str,
    ref: str,
    messages: list[Message],
    stamp: Stamp,
    token: str | None,
    expected: int | None = None,
) -> list[Entry]:
    """Add messages; those whose client key was seen come back as the entries they became."""
    pk, revision, session = await heads.load(db, owner, ref)
    session.check_version(expected)
    if session.state in FINAL_STATES:
        raise SessionClosed(session.session_id, session.state.value)
    if token is not None and (session.hold is None or session.hold.token != token):
        raise HoldLost(session.session_id)
    seen = await _seen(db, owner, pk, session, messages)
    fresh = [message for message in messages if message.client_key not in seen] if seen else messages
    if not fresh:
        return [seen[str(message.client_key)] for message in messages]
    change = session.append(fresh, stamp, token=token)
    await writes.commit(db, owner, [writes.changed(db, pk, revision, View(session), change)])
    entries = list(change.entries)
    return entries if not seen else _in_order(messages, seen, entries)


_BY_KEY = f"""
SELECT DISTINCT ON (client_key) {ENTRY} FROM moor.entries
WHERE owner = ? AND root = ? AND segment = ? AND client_key = ANY(?::text[]) ORDER BY client_key, number DESC
"""


async def _seen(
    db: Connection, owner: str, pk: int, session: Session, messages: list[Message]
) -> dict[str | None, Entry]:
    keys = [message.client_key for message in messages if message.client_key is not None]
    if not keys:
        return {}
    root = (await lookup.key_of(db, owner, session.session_id)).root
    rows = await db.all(_BY_KEY, (owner, root, pk, keys))
    found = {entry.client_key: entry for entry in entries_of(rows, session.session_id, session.task_id, db.opener)}
    return {
        message.client_key: _same(found[message.client_key], message)
        for message in messages
        if message.client_key in found
    }


def _same(entry: Entry, message: Message) -> Entry:
    if entry.role != message.role or entry.content != message.content:
        raise KeyReused(str(message.client_key))
    return entry


def _in_order(messages: list[Message], seen: dict[str | None, Entry], fresh: list[Entry]) -> list[Entry]:
    rest = iter(fresh)
    return [seen[message.client_key] if message.client_key in seen else next(rest) for message in messages]


# Reading ----------------------------------------------------------------------------------------

# The feed ---------------------------------------------------------------------------------------

# Rows stand for several events each: as many rows are read as hold `limit` events, and no more.
_FEED = f"""
SELECT f.id, f.last, s.id, s.task, {ENTRY_OF_E}, {TOMBSTONE_OF_T}
FROM (
    SELECT *, sum(count) OVER (ORDER BY id) - count AS ahead
    FROM (SELECT * FROM moor.feed WHERE owner = ?1 AND id > ?2 ORDER BY id LIMIT ?3) page
) f
LEFT JOIN moor.sessions s ON f.last > 0 AND s.owner = ?1 AND s.pk = f.subject
LEFT JOIN moor.entries e ON e.owner = ?1 AND e.root = f.root AND e.segment = s.pk AND e.number > f.last - f.count
    AND e.number <= f.last
LEFT JOIN moor.tombstones t ON f.last = 0 AND t.owner = ?1 AND t.n = f.subject
WHERE f.ahead <= ?3
ORDER BY f.id, e.number
"""
_ENTRY_ENDS = 4 + len(ENTRY.split(", "))


async def has_arrivals(db: Connection, owner: str) -> bool:
    """Whether something has yet to get its cursor."""
    return await db.one("SELECT 1 FROM moor.arrivals WHERE owner = ? LIMIT 1", (owner,)) is not None


async def number(db: Connection, owner: str) -> None:
    """Give what has arrived its cursors. What is committed later gets later ones, whenever it began."""
    while True:
        row = await db.one("SELECT moor.number_feed(?)", (owner,))
        if row is None or not row[0]:
            return


async def feed(db: Connection, owner: str, after: int, limit: int) -> list[Event]:
    """Events after a cursor, deletions among them; what belonged to deleted sessions is left out."""
    position, events = after, list[Event]()
    while len(events) < limit and (rows := await db.all(_FEED, (owner, position, limit))):
        events += [event for row in rows if (event := _feed_event(db, row)) is not None and event.id > after]
        position = rows[-1][0]  # these may be half seen, or of deleted sessions: look further until there is enough
    return events[:limit]


def _feed_event(db: Connection, row: Row) -> Event | None:
    feed_id, last, session_id, task = row[:4]
    entry_columns, stone_columns = row[4:_ENTRY_ENDS], row[_ENTRY_ENDS:]
    if last == 0:
        return None if stone_columns[0] is None else deletion_event(tombstone_of(stone_columns), feed_id)
    if entry_columns[0] is None:
        return None
    try:
        entry = entry_of(entry_columns, session_id, task, db.opener)
    except SessionCorrupt:  # reading its session says so; the stream of all others goes on
        return None
    return event_of(entry, session_id, feed_id - (last - entry.number))


async def feed_end(db: Connection, owner: str) -> int:
    """The newest cursor."""
    row = await db.one("SELECT feed_end FROM moor.owners WHERE name = ?", (owner,))
    return int(row[0]) if row else 0
