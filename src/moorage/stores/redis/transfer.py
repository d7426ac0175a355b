"""Copy all data of the store out and in as records, owner by owner."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from itertools import groupby
from typing import Any

from msgspec.json import Decoder
from msgspec.structs import replace

from moorage.core import dump as dumps
from moorage.core.approval import Approval
from moorage.core.codec import encode_text
from moorage.core.document import LOAD_MARK, NOT_COPIED, Document, DocumentKind
from moorage.core.dump import DumpKind, DumpRecord
from moorage.core.family import Tombstone
from moorage.core.inbox import Item, ItemState
from moorage.core.once import Once
from moorage.core.policy import Delegation
from moorage.core.query import Page
from moorage.core.record import PutRecord, Record
from moorage.core.run import Run
from moorage.core.session import Change
from moorage.stores.redis import heads
from moorage.stores.redis.books import Book, text_of, write_ops
from moorage.stores.redis.counting import delegation_ops, read_delegation
from moorage.stores.redis.db import Op, RedisDb, pairs, scored
from moorage.stores.redis.keys import Keys
from moorage.stores.redis.lists import items_of, walk
from moorage.stores.redis.log import told_of
from moorage.stores.redis.records import RedisRecords, every_document, load_documents
from moorage.stores.redis.values import APPROVALS, RUNS, TURNS, HeadGuard, Rows, entry_body, entry_of, label_of
from moorage.stores.rows import micros
from moorage.stores.seam import Backend, Loaded, Unit, Value

PART = 500
SOME = 20  # records per page; they may be large
_read_once = Decoder(Once).decode

PlacedRecords = AsyncIterator[tuple[Any, DumpRecord]]  # a place to continue from, and a record


class RedisTransfer(RedisRecords):
    """Copies sessions and whole stores unchanged."""

    async def dump(self, kind: DumpKind, limit: int, cursor: str | None = None) -> Page[DumpRecord]:
        return await _page(self.db, await self.known_owners(), kind, limit, cursor)

    async def load(self, records: list[DumpRecord], mark: str | None) -> None:
        """Write one commit for each owner, which stores the mark; then the mark of the whole store.

        An interrupted load is repeated with the same records; it skips the owners that have them.
        """
        db = self.db
        await load_documents(db, [each.document for each in records if isinstance(each, dumps.DumpedDocument)])
        owned = [each for each in records if not isinstance(each, dumps.DumpedDocument)]
        for owner, group in groupby(sorted(owned, key=_owner), key=_owner):
            if mark is None or await db.one("HGET", db.keys(owner)("meta"), "loaded") != mark.encode():
                await _load_owner(db, self, owner, list(group), mark)
        noted = None if mark is None else Document(DocumentKind.STORE, LOAD_MARK, mark)
        await self.put_document(DocumentKind.STORE, LOAD_MARK, lambda _: noted)


# Out --------------------------------------------------------------------------------------------


async def _page(db: RedisDb, owners: list[str], kind: DumpKind, limit: int, cursor: str | None) -> Page[DumpRecord]:
    """Return a page of records."""
    owner, place = (None, None) if cursor is None else json.loads(cursor)
    found: list[tuple[str, Any, DumpRecord]] = []
    for each in [""] if kind is DumpKind.DOCUMENT else sorted(owners):
        if owner is not None and each < owner:
            continue
        async for at, record in _READERS[kind](db, each, place if each == owner else None):
            found.append((each, at, record))
            if len(found) > limit:
                last = found[limit - 1]
                return Page([one for _, _, one in found[:limit]], json.dumps(last[:2]))
    return Page([one for _, _, one in found])


async def _sessions(db: RedisDb, owner: str, after: Any) -> PlacedRecords:
    async for at, id_ in walk(db, db.keys(owner).list("sessions"), after, PART, newest_first=False):
        found = await heads.head_loaded(db, owner, id_)
        lineage = tuple((serial, upto) for serial, _, upto in found.guard.lineage)
        yield at, dumps.DumpedSession(found.guard.serial, found.session.as_kept(), lineage)


async def _entries(db: RedisDb, owner: str, after: Any) -> PlacedRecords:
    keys = db.keys(owner)
    serial, number = after or (0, 0)
    async for at, log in walk(db, keys.list("segments"), serial - 1, PART, newest_first=False):
        first = number + 1 if at == serial else 1
        while items := await db.one("XRANGE", keys.of("l", log), f"{first}-0", "+", "COUNT", PART):
            for item in items:
                entry = replace(entry_of(db, item, log, None, at), session_id=None)
                yield (at, entry.number), dumps.DumpedEntry(owner, at, entry)
                first = entry.number + 1


async def _records(db: RedisDb, owner: str, after: Any) -> PlacedRecords:
    """Yield the owner's own records (number 0), then those of sessions."""
    keys = db.keys(owner)
    serial, seen = after or (0, "")
    if not serial:
        async for name, record in _book(db, Book(keys), seen):
            yield (0, name), dumps.DumpedRecord(owner, None, record)
    async for at, id_ in walk(db, keys.list("sessions"), serial - 1, PART, newest_first=False):
        async for name, record in _book(db, Book(keys, id_, at), seen if at == serial else ""):
            yield (at, name), dumps.DumpedRecord(owner, id_, record)


async def _book(db: RedisDb, book: Book, seen: str) -> AsyncIterator[tuple[str, Record]]:
    while True:
        [flat] = await db.read(book.op(None, "RANGE", f"({seen}", "+", SOME, False))
        for record in book.read(db, flat):
            seen = text_of(record.name)
            yield seen, record
        if len(flat) < 3 * SOME:
            return


def _listed(
    where: str, make: Callable[[RedisDb, str, str, bytes], DumpRecord]
) -> Callable[[RedisDb, str, Any], PlacedRecords]:
    """Return how to read a hash in the order of its list; `make` gets the owner, the id and the stored value."""

    async def read(db: RedisDb, owner: str, after: Any) -> PlacedRecords:
        keys = db.keys(owner)
        async for at, id_ in walk(db, keys.list(where), after, PART, newest_first=False):
            yield at, make(db, owner, id_, await db.one("HGET", keys(where), id_))

    return read


def _values(where: str, read: Callable[[bytes], dumps.OwnedValue]) -> Callable[[RedisDb, str, Any], PlacedRecords]:
    return _listed(where, lambda _, owner, __, text: dumps.DumpedValue(owner, read(text)))


def _rows(rows: Rows[Any], make: Callable[[str, int, Any], DumpRecord]) -> Callable[[RedisDb, str, Any], PlacedRecords]:
    return _listed(rows.where, lambda db, owner, id_, text: make(owner, *rows.value(db, id_, text)))


async def _items(db: RedisDb, owner: str, after: Any) -> PlacedRecords:
    keys, above = db.keys(owner), after or 0
    lists = [keys.list("inbox", state.value) for state in ItemState]
    while True:
        ends = f"({above}", "+inf", "WITHSCORES", "LIMIT", 0, PART
        found = await db.read(*(("ZRANGEBYSCORE", key, *ends) for key in lists))
        places = sorted(place for each in found for place in scored(each))
        if not places:
            return
        names = [(member.partition("\0")[0], member.partition("\0")[2]) for _, member in places[:PART]]
        for (above, _), item in zip(places, await items_of(db, owner, names), strict=False):
            if item is not None:
                yield above, dumps.DumpedValue(owner, item)


async def _feed(db: RedisDb, owner: str, after: Any) -> PlacedRecords:
    keys, after = db.keys(owner), after or 0
    while items := await db.one("XRANGE", keys("feed"), f"{after + 1}-0", "+", "COUNT", PART):
        for told in map(told_of, items):
            after = told.cursor
            if not told.last or await db.one("EXISTS", keys.of("h", told.session_id)):
                yield after, dumps.DumpedFeed(owner, told.cursor, told.session_id, told.last, told.events)


async def _once(db: RedisDb, owner: str, after: Any) -> PlacedRecords:
    for name, text in sorted(pairs(await db.one("HGETALL", db.keys(owner)("once")))):
        if after is None or name > after:
            yield name, dumps.DumpedValue(owner, _read_once(text))


async def _documents(db: RedisDb, _: str, after: Any) -> PlacedRecords:
    kind, key = after or ("", "")
    for each in sorted(set(DocumentKind) - set(NOT_COPIED)):
        seen = key if each == kind else ""
        while each >= kind and (part := await every_document(db, each, seen, PART)):
            for document in part:
                seen = document.key
                yield (each, seen), dumps.DumpedDocument(document)


_READERS: dict[DumpKind, Callable[[RedisDb, str, Any], PlacedRecords]] = {
    DumpKind.TOMBSTONE: _values("dead", heads.read_tombstone),
    DumpKind.SESSION: _sessions,
    DumpKind.ENTRY: _entries,
    DumpKind.RECORD: _records,
    DumpKind.APPROVAL: _rows(APPROVALS, lambda owner, _, one: dumps.DumpedValue(owner, one)),
    DumpKind.RUN: _rows(RUNS, lambda owner, _, one: dumps.DumpedValue(owner, one)),
    DumpKind.TURN: _rows(TURNS, dumps.DumpedTurn),
    DumpKind.ITEM: _items,
    DumpKind.FEED: _feed,
    DumpKind.DELEGATION: _values("delegations", read_delegation),
    DumpKind.ONCE: _once,
    DumpKind.DOCUMENT: _documents,
}


# In ---------------------------------------------------------------------------------------------


def _owner(record: Any) -> str:
    return str(record.session.owner if isinstance(record, dumps.DumpedSession) else record.owner)


async def _load_owner(db: RedisDb, backend: Backend, owner: str, records: list[DumpRecord], mark: str | None) -> None:
    unit, keys = Unit(backend, owner), db.keys(owner)
    highest, last = max(map(_number, records), default=0), int(await db.one("GET", db.shared("numbers")) or 0)
    if last < highest:  # assign no number up to it again
        await db.numbers(highest - last)
    logs = await _logs(db, keys, records)
    first = await db.numbers(len(records), ("SADD", db.shared("owners"), owner))
    for number, record in enumerate(records, first):
        if isinstance(record, dumps.DumpedSession):
            lineage = [(serial, logs[serial], upto) for serial, upto in record.lineage]
            unit.add(Loaded(record.session, HeadGuard(0, record.serial, lineage), is_new=True))
        else:
            await _put(db, unit, keys, record, logs, number)
    if mark is not None:
        unit.writes.append(("HSET", keys("meta"), "loaded", mark))
    await backend.commit(unit)


def _number(record: DumpRecord) -> int:
    match record:
        case dumps.DumpedSession(serial):
            return serial
        case dumps.DumpedEntry(_, segment):
            return segment
        case dumps.DumpedTurn(_, number):
            return number
    return 0


async def _logs(db: RedisDb, keys: Keys, records: list[DumpRecord]) -> dict[int, str]:
    """Return the names of logs by serial number; the log of a deleted session is named after its number."""
    logs = {record.serial: record.session.session_id for record in records if isinstance(record, dumps.DumpedSession)}
    serials = {record.segment for record in records if isinstance(record, dumps.DumpedEntry)}
    serials |= {serial for record in records if isinstance(record, dumps.DumpedSession) for serial, _ in record.lineage}
    for serial in serials - logs.keys():
        found = await db.one("ZRANGEBYSCORE", keys.list("segments"), serial, serial)
        logs[serial] = found[0].decode() if found else f"#{serial}"
    return logs


async def _put(db: RedisDb, unit: Unit, keys: Keys, record: DumpRecord, logs: dict[int, str], number: int) -> None:
    match record:
        case dumps.DumpedValue(_, Tombstone() as tombstone):
            unit.writes.append(("HSET", keys("dead"), tombstone.session_id, encode_text(tombstone)))
            unit.writes.append(("ZADD", keys.list("dead"), str(number), tombstone.session_id))
        case dumps.DumpedEntry(_, segment, entry):
            unit.writes += _entry_ops(db, keys, logs[segment], segment, entry)
        case dumps.DumpedRecord(_, None, one):
            unit.writes += await write_ops(db, keys, Book(keys), [PutRecord(one, 0)])
        case dumps.DumpedRecord(_, session_id, one):
            serial = (await _session(unit, str(session_id))).guard.serial
            unit.writes += await write_ops(db, keys, Book(keys, str(session_id), serial), [PutRecord(one, 0)])
        case dumps.DumpedValue(_, Approval() as approval):
            await _save(unit, approval, approval.approval_id, number, approvals=(approval,))
        case dumps.DumpedValue(_, Run() as run):
            await _save(unit, run, run.run_id, number, runs=(run,))
        case dumps.DumpedTurn(_, queued, turn):
            await _save(unit, turn, turn.turn_id, queued, turns=(turn,))
        case dumps.DumpedValue(_, Item() as item):
            await _save(unit, item, item.item_id, number, items=(item,))
        case dumps.DumpedFeed():
            unit.writes += _feed_ops(keys, record)
        case dumps.DumpedValue(_, Delegation() as delegation):
            unit.writes += delegation_ops(keys, delegation, number)
        case dumps.DumpedValue(_, Once() as once):
            name = f"{once.operation}\0{once.key}"
            unit.writes.append(("HSET", keys("once"), name, encode_text(once)))
            unit.writes.append(("ZADD", keys.list("once"), str(micros(once.at)), name))


async def _session(unit: Unit, session_id: str) -> Loaded:
    found = await unit.session(session_id)
    assert found is not None, "sessions come before what hangs on them"
    return found


async def _save(unit: Unit, value: Value, id_: str, number: int, **parts: Any) -> None:
    found = await _session(unit, value.session_id)
    found.guard.numbers[type(value), id_] = number
    await unit.save(found, Change(session=found.head(), **parts))


def _entry_ops(db: RedisDb, keys: Keys, log: str, serial: int, entry: Any) -> list[Op]:
    body = entry_body(db, entry, serial)
    ops: list[Op] = [
        ("XADD", keys.of("l", log), f"{entry.number}-0", "b", body, "c", "0"),
        ("ZADD", keys.list("segments"), str(serial), log),
    ]
    if label := label_of(entry):
        ops.append(("ZADD", keys.of("e", log), "0", f"{label}:{entry.number:010d}"))
    if entry.client_key is not None and not log.startswith("#"):
        ops.append(("HSET", keys.of("k", log), entry.client_key, str(entry.number)))
    return ops


def _feed_ops(keys: Keys, told: dumps.DumpedFeed) -> list[Op]:
    id_, cursor = told.session_id, str(told.cursor)
    ops: list[Op] = [
        ("XADD", keys("feed"), f"{cursor}-0", "s", id_, "l", str(told.last), "n", str(told.count)),
        ("HSET", keys("meta"), "feed", cursor),
    ]
    if told.last:
        ops.append(("ZADD", keys.list("updated"), cursor, id_))
        ops.append(("ZADD", keys.list("told", id_), cursor, cursor))
    return ops
