"""The log: appending to it, reading it from either end, and the feed over all of an owner's sessions.

Entries are read from the requested end, in parts of the requested size. Rare entries (all but plain messages) are found
through an index, so that no call reads a whole history.
"""

from __future__ import annotations

from asyncio import gather
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from moorage.core.entry import Entry, Event, Kind, Message, event_of
from moorage.core.errors import NotFound, SessionCorrupt
from moorage.core.query import OLDEST, LogQuery
from moorage.core.session import HOLD_FOR, Stamp, message_entries
from moorage.ports import Tail
from moorage.stores.redis import heads
from moorage.stores.redis.base import Base
from moorage.stores.redis.db import Op, RedisDb
from moorage.stores.redis.keys import Keys
from moorage.stores.redis.values import Lineage, entry_body, entry_of, label_of
from moorage.stores.redis.writes import entry_keys
from moorage.stores.rows import micros
from moorage.stores.seam import Loaded

SPARE = 8  # entries read in addition: a history has others between its messages
MOST = 500  # entries read at once
LAST = 1 << 40  # no entry has a higher number
_SYSTEM = "system"

StreamItem = tuple[bytes, list[bytes]]


class RedisLog(Base):
    """Reads entries from either end, and the feed."""

    async def log(self, owner: str, ref: str, query: LogQuery = OLDEST) -> list[Entry]:
        loaded = await heads.head_loaded(self.db, owner, ref)
        log = SessionLog(self.db, owner, loaded)
        kinds, limit, newest_first = query.kinds, query.limit, query.newest_first
        low, high = max(query.after, 0) + 1, loaded.session.last_entry
        high = high if query.before is None else min(query.before - 1, high)
        if kinds is not None and Kind.MESSAGE not in kinds:
            labels = [kind for kind in kinds if kind != _SYSTEM]
            numbers = await log.rare(labels, low, high, limit, newest_first=newest_first)
            entries = await log.by_number(numbers)
            return [entries[number] for number in numbers if number in entries]
        found: list[Entry] = []
        count = min(limit if kinds is None else limit + SPARE, MOST)
        async for entry in log.walk(low, high, count, newest_first=newest_first):
            if kinds is None or entry.kind in kinds:
                found.append(entry)
                if len(found) == limit:
                    break
        return found

    async def tail(self, owner: str, ref: str, limit: int, pins: int = 100, *, with_session: bool = False) -> Tail:
        """Return the newest items. A session that is no fork takes one call, and another for its pinned entries."""
        loaded, newest, pinned_numbers = await _tail_parts(self.db, owner, ref, limit, pins)
        log = SessionLog(self.db, owner, loaded)
        entries = await log.by_number(pinned_numbers) if pinned_numbers else {}
        pinned = sorted(entries.values(), key=lambda entry: entry.number)
        upto = max((entry.data["upto"] for entry in pinned if entry.kind == Kind.SUMMARY and entry.data), default=0)
        messages: list[Entry] = []
        async for entry in log.walk_on(newest, limit):
            if entry.number <= upto or len(messages) == limit:
                break
            if entry.is_message:
                messages.append(entry)
        return Tail(pinned, messages, loaded.head() if with_session else None)

    async def tails(
        self, owner: str, session_ids: list[str], limit: int, pins: int = 100, *, before: int | None = None
    ) -> list[Tail]:
        async def one(session_id: str) -> Tail:
            try:
                if before is None:
                    return await self.tail(owner, session_id, limit, pins)
                query = LogQuery(before=before, limit=limit, kinds=(Kind.MESSAGE.value,), newest_first=True)
                return Tail([], await self.log(owner, session_id, query))
            except (NotFound, SessionCorrupt):
                return Tail([], [])

        return list(await gather(*map(one, session_ids)))

    async def feed(self, owner: str, after: int, limit: int) -> list[Event]:
        key, events = self.db.keys(owner)("feed"), list[Event]()
        while len(events) < limit:
            items = await self.db.one("XRANGE", key, f"{max(after, 0) + 1}-0", "+", "COUNT", limit)
            told = [told_of(item) for item in items]
            if not told:
                break
            events += await _events(self.db, owner, told, after, limit - len(events))
            after = told[-1].cursor
            if len(items) < limit:
                break
        return events[:limit]

    async def feed_end(self, owner: str) -> int:
        return int(await self.db.one("HGET", self.db.keys(owner)("meta"), "feed") or 0)


class SegmentPart(NamedTuple):
    """Entries of one segment that are part of a session's log."""

    serial: int
    log: str  # the name of its stream
    first: int
    last: int


def shared_up_to(found: Loaded, upto: int) -> Lineage:
    """Return where the entries of a session up to a number are stored."""
    shared: Lineage = []
    for part in parts_of(found):
        shared.append((part.serial, part.log, min(part.last, upto)))
        if upto <= part.last:
            break
    return shared


def parts_of(loaded: Loaded) -> list[SegmentPart]:
    """Return where the entries of a session are stored, oldest first."""
    parts, first = [], 1
    for serial, log, upto in (*loaded.guard.lineage, (loaded.guard.serial, loaded.session_id, LAST)):
        parts.append(SegmentPart(serial, log, first, upto))
        first = upto + 1
    return parts


def _append_keys(keys: Keys, session_id: str) -> list[str]:
    """Return the keys of the script `append`."""
    client_keys, idle = keys.of("k", session_id), keys.list("idle")
    states = keys.list("state", "created"), keys.list("state", "active")
    lock = keys.of("t", session_id)
    return [keys.of("h", session_id), *entry_keys(keys, session_id), client_keys, idle, *states, lock]


async def append_quickly(
    db: RedisDb,
    owner: str,
    session_id: str,
    messages: list[Message],
    stamp: Stamp,
    token: str | None,
    expected: int | None,
) -> list[Entry] | None:
    """Append with one script call; return None if the rules must decide."""
    drafts = message_entries(messages, stamp, 0, "", "")
    said = [(label_of(e), entry_body(db, e, 0), e.client_key or "") for e in drafts]
    arguments = [
        str(micros(stamp.at)), token or "", str(micros(stamp.at + HOLD_FOR)), "" if expected is None else str(expected),
        session_id, *chain.from_iterable(said),
    ]  # fmt: skip
    done = await db.append(_append_keys(db.keys(owner), session_id), arguments)
    return None if done is None else message_entries(messages, stamp, done[0], session_id, done[1])


class SessionLog:
    """Reads the log of a loaded session: its own segment, and those that a fork shares."""

    def __init__(self, db: RedisDb, owner: str, loaded: Loaded) -> None:
        self._db, self._keys, self._loaded, self._parts = db, db.keys(owner), loaded, parts_of(loaded)

    async def seen(self, names: Sequence[str]) -> dict[str, Entry]:
        """Return the entries that were written with these client keys."""
        if not names:
            return {}
        numbers = await self._db.one("HMGET", self._keys.of("k", self._loaded.session_id), *names)
        known = {name: int(number) for name, number in zip(names, numbers, strict=True) if number is not None}
        entries = await self.by_number(known.values())
        return {name: entries[number] for name, number in known.items() if number in entries}

    async def newest_checkpoint(self, upto: int) -> int | None:
        """Return the number of the newest checkpoint up to an entry."""
        found = await self.rare((Kind.CHECKPOINT.value,), 1, upto, 1, newest_first=True)
        return found[0] if found else None

    async def by_number(self, numbers: Iterable[int]) -> dict[int, Entry]:
        """Return entries by their numbers."""
        places = [(next(part for part in self._parts if number <= part.last), number) for number in numbers]
        found = await self._db.read(*(_range(self._keys, part.log, n, n, 1, newest_first=False) for part, n in places))
        read = zip(places, found, strict=True)
        return {number: self._entry(items[0], part.serial) for (part, number), items in read if items}

    async def walk(self, low: int, high: int, count: int, *, newest_first: bool) -> AsyncIterator[Entry]:
        """Yield entries from one end, read in parts of about `count`."""
        for part in reversed(self._parts) if newest_first else self._parts:
            first, last = max(low, part.first), min(high, part.last)
            while first <= last:
                op = _range(self._keys, part.log, first, last, count, newest_first=newest_first)
                [items] = await self._db.read(op)
                for item in items:
                    yield self._entry(item, part.serial)
                if len(items) < count:
                    break
                end = int(items[-1][0].partition(b"-")[0])
                first, last = (first, end - 1) if newest_first else (end + 1, last)

    async def walk_on(self, newest: list[StreamItem], limit: int) -> AsyncIterator[Entry]:
        """Yield entries newest first: those that were already read, then the rest."""
        last = self._loaded.session.last_entry
        for item in newest:
            entry = self._entry(item, self._loaded.guard.serial)
            last = entry.number - 1
            yield entry
        async for entry in self.walk(1, last, min(limit + SPARE, MOST), newest_first=True):
            yield entry

    async def rare(self, labels: Iterable[str], low: int, high: int, limit: int, *, newest_first: bool) -> list[int]:
        """Return the numbers of entries with these labels, from one end."""
        command, ops = "ZREVRANGEBYLEX" if newest_first else "ZRANGEBYLEX", list[Op]()
        for part in self._parts:
            first, last = max(low, part.first), min(high, part.last)
            for label in labels if first <= last else ():
                ends = (f"[{label}:{first:010d}", f"[{label}:{last:010d}")[:: -1 if newest_first else 1]
                ops.append((command, self._keys.of("e", part.log), *ends, "LIMIT", 0, limit))
        found = [int(name.rpartition(b":")[2]) for names in await self._db.read(*ops) for name in names]
        return sorted(found, reverse=newest_first)[:limit]

    def _entry(self, item: StreamItem, serial: int) -> Entry:
        return entry_of(self._db, item, self._loaded.session_id, self._loaded.session.task_id, serial)


def _range(keys: Keys, log: str, low: int, high: int, count: int, *, newest_first: bool) -> Op:
    ends = (f"{high}-0", f"{low}-0") if newest_first else (f"{low}-0", f"{high}-0")
    return ("XREVRANGE" if newest_first else "XRANGE", keys.of("l", log), *ends, "COUNT", count)


async def _tail_parts(
    db: RedisDb, owner: str, ref: str, limit: int, pins: int
) -> tuple[Loaded, list[StreamItem], list[int]]:
    """Return a session, the newest items of its own log, and the numbers of its pinned entries."""
    keys, count = db.keys(owner), min(limit + SPARE, MOST)

    def ops(session_id: str) -> list[Op]:
        index = keys.of("e", session_id)
        return [
            _range(keys, session_id, 1, LAST, count, newest_first=True),
            ("ZREVRANGEBYLEX", index, f"({Kind.SUMMARY};", f"[{Kind.SUMMARY}:", "LIMIT", 0, 1),
            ("ZREVRANGEBYLEX", index, f"({_SYSTEM};", f"[{_SYSTEM}:", "LIMIT", 0, pins),
        ]

    loaded, (newest, summaries, systems) = await heads.found(db, owner, ref, heads.head_ops, ops)
    pinned = [int(name.rpartition(b":")[2]) for name in (*summaries, *systems)]
    if loaded.guard.lineage:
        log, high = SessionLog(db, owner, loaded), loaded.session.last_entry
        pinned = await log.rare((Kind.SUMMARY.value,), 1, high, 1, newest_first=True)
        pinned += await log.rare((_SYSTEM,), 1, high, pins, newest_first=True)
    return loaded, newest, pinned


# The feed ---------------------------------------------------------------------------------------


class _Told(NamedTuple):
    cursor: int  # of the last of these entries
    session_id: str
    last: int  # 0 for a deletion
    events: int


async def _events(db: RedisDb, owner: str, told: list[_Told], after: int, limit: int) -> list[Event]:
    keys = db.keys(owner)
    ops: list[Op] = [("HMGET", keys.of("h", each.session_id), "serial", "task") for each in told]
    ops += [_told_op(keys, each, after, limit) for each in told]
    answers = await db.read(*ops)
    found = zip(told, answers[: len(told)], answers[len(told) :], strict=True)
    return list(chain.from_iterable(_event(db, each, head, read) for each, head, read in found))


def _told_op(keys: Keys, each: _Told, after: int, limit: int) -> Op:
    if not each.last:
        return ("HGET", keys("dead"), each.session_id)
    first = max(each.last - each.events + 1, each.last - (each.cursor - after) + 1)
    return _range(keys, each.session_id, first, each.last, limit, newest_first=False)


def _event(db: RedisDb, each: _Told, head: list[bytes | None], read: Any) -> list[Event]:
    if not each.last:
        return [] if read is None else [heads.read_tombstone(read).event(each.cursor)]
    if head[0] is None:  # it was deleted, and the feed reports that instead
        return []
    entries = [entry_of(db, item, each.session_id, None, int(head[0])) for item in read]
    return [event_of(entry, each.session_id, each.cursor - each.last + entry.number) for entry in entries]


def told_of(item: StreamItem) -> _Told:
    id_, (_, session_id, _, last, _, count) = item
    return _Told(int(id_.partition(b"-")[0]), session_id.decode(), int(last), int(count))
