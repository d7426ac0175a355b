"""Dump everything in the model, and load it. A position in a list is the number of earlier items."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from msgspec.json import Decoder
from msgspec.structs import replace

from moorage.core import dump as dumps
from moorage.core.approval import Approval
from moorage.core.codec import encode
from moorage.core.dump import DumpKind, DumpRecord
from moorage.core.entry import Entry
from moorage.core.family import Tombstone
from moorage.core.inbox import Item
from moorage.core.once import Once
from moorage.core.policy import Delegation
from moorage.core.record import PutRecord, sort_key
from moorage.core.run import Run
from moorage.core.session import Change

if TYPE_CHECKING:
    from moorage.testing.model_store.store import Partition

_read_entry = Decoder(Entry).decode
_read_approval = Decoder(Approval).decode
_read_delegation = Decoder(Delegation).decode


# Out --------------------------------------------------------------------------------------------


def records_of(partitions: list[Partition], kind: DumpKind) -> list[DumpRecord]:
    """Return all records of a kind that belong to owners, in their order."""
    numbered = chain.from_iterable(_READERS[kind](partition) for partition in partitions)
    return [record for _, record in sorted(numbered, key=lambda one: one[0])]


NumberedRecords = Iterator[tuple[tuple[Any, ...], DumpRecord]]  # the sort key, and a record


def _tombstones(partition: Partition) -> NumberedRecords:
    for place, tombstone in enumerate(partition.tombstones.values()):
        yield (partition.owner, place), dumps.DumpedValue(partition.owner, tombstone)


def _sessions(partition: Partition) -> NumberedRecords:
    for record in partition.records.values():
        yield (record.serial,), dumps.DumpedSession(record.serial, record.head.as_kept(), record.parts[:-1])


def _entries(partition: Partition) -> NumberedRecords:
    for segment, entries in partition.segments.items():
        for number, kept in entries.items():
            entry = replace(_read_entry(kept), session_id=None, task_id=None)
            yield (segment, number), dumps.DumpedEntry(partition.owner, segment, entry)


def _records(partition: Partition) -> NumberedRecords:
    books = [
        (0, None, partition.memory),
        *((one.serial, one.session_id, one.beside) for one in partition.records.values()),
    ]
    for serial, session_id, book in books:
        for name, record in book.kept.items():
            yield (partition.owner, serial, *sort_key(name)), dumps.DumpedRecord(partition.owner, session_id, record)


def _approvals(partition: Partition) -> NumberedRecords:
    for place, (name, record) in enumerate(partition.asked.items()):
        yield (partition.owner, place), dumps.DumpedValue(partition.owner, _read_approval(record.approvals[name]))


def _runs(partition: Partition) -> NumberedRecords:
    for number, run in partition.work.runs():
        yield (number,), dumps.DumpedValue(partition.owner, run)


def _turns(partition: Partition) -> NumberedRecords:
    for record in partition.records.values():
        for number, turn in partition.work.case(record.session_id).turns.all():
            yield (number,), dumps.DumpedTurn(partition.owner, number, turn)


def _items(partition: Partition) -> NumberedRecords:
    for number, item in partition.work.items(None):
        yield (number,), dumps.DumpedValue(partition.owner, item)


def _feed(partition: Partition) -> NumberedRecords:
    for cursor, news in partition.feed.items():
        if isinstance(news, Tombstone):
            name, last = news.session_id, 0
        else:
            name, last = news[0].session_id, news[1]
        yield (partition.owner, cursor), dumps.DumpedFeed(partition.owner, cursor, name, last, 1)


def _delegations(partition: Partition) -> NumberedRecords:
    for place, kept in enumerate(partition.delegated.values()):
        yield (partition.owner, place), dumps.DumpedValue(partition.owner, _read_delegation(kept))


def _once(partition: Partition) -> NumberedRecords:
    for key, kept in partition.requests.items():
        yield (partition.owner, *key), dumps.DumpedValue(partition.owner, kept)


_READERS: dict[DumpKind, Callable[[Partition], NumberedRecords]] = {
    DumpKind.TOMBSTONE: _tombstones,
    DumpKind.SESSION: _sessions,
    DumpKind.ENTRY: _entries,
    DumpKind.RECORD: _records,
    DumpKind.APPROVAL: _approvals,
    DumpKind.RUN: _runs,
    DumpKind.TURN: _turns,
    DumpKind.ITEM: _items,
    DumpKind.FEED: _feed,
    DumpKind.DELEGATION: _delegations,
    DumpKind.ONCE: _once,
}


# In ---------------------------------------------------------------------------------------------


def put(partition: Partition, record: DumpRecord) -> None:
    """Insert a record into its owner's partition unchanged."""
    match record:
        case dumps.DumpedValue(_, Tombstone() as tombstone):
            partition.tombstones[tombstone.session_id] = tombstone
        case dumps.DumpedSession(serial, session, lineage):
            partition.shelve(session, lineage, serial)
        case dumps.DumpedEntry(_, segment, entry):
            _put_entry(partition, segment, entry)
        case dumps.DumpedRecord(_, session_id, one):
            partition.book(session_id).write((PutRecord(one, 0),))
        case dumps.DumpedValue(_, Approval() as approval):
            partition.asked[approval.approval_id] = partition.by_id[approval.session_id]
            partition.by_id[approval.session_id].approvals[approval.approval_id] = encode(approval)
        case dumps.DumpedValue(_, Run() as run):
            partition.work.write(run.session_id, Change(session=partition.by_id[run.session_id].head, runs=(run,)))
        case dumps.DumpedTurn(_, number, turn):
            partition.work.write_turn(turn, number)
        case dumps.DumpedValue(_, Item() as item):
            partition.work.write(item.session_id, Change(session=partition.by_id[item.session_id].head, items=(item,)))
        case dumps.DumpedFeed():
            _put_feed(partition, record)
        case dumps.DumpedValue(_, Delegation() as delegation):
            partition.delegated[delegation.delegation_id] = encode(delegation)
        case dumps.DumpedValue(_, Once() as once):
            partition.requests[once.operation, once.key] = once


def _put_entry(partition: Partition, segment: int, entry: Entry) -> None:
    partition.serials.advance_to(segment)
    writer = partition.records.get(segment)
    if writer is not None:
        entry = replace(entry, session_id=writer.session_id, task_id=writer.head.task_id)
        if entry.client_key is not None:
            writer.keys[entry.client_key] = max(entry.number, writer.keys.get(entry.client_key, 0))
    partition.segments.setdefault(segment, {})[entry.number] = encode(entry)


def _put_feed(partition: Partition, record: dumps.DumpedFeed) -> None:
    for back in range(record.count):
        cursor = record.cursor - back
        if record.last == 0:
            partition.feed[cursor] = partition.tombstones[record.session_id]
        else:
            told = partition.by_id[record.session_id]
            partition.feed[cursor] = (told, record.last - back)
            told.cursors.append(cursor)
    partition.feed_end = max(partition.feed_end, record.cursor)
