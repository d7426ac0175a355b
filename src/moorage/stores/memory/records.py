"""Everything as records, out of memory and into it. A place in a list is how many came before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from msgspec.json import Decoder
from msgspec.structs import replace

from moorage.core.approval import Approval
from moorage.core.codec import encode
from moorage.core.context import ContextItem
from moorage.core.delegation import Delegation
from moorage.core.entry import Entry
from moorage.core.family import Tombstone
from moorage.core.record import (
    ApprovalRecord,
    ContextRecord,
    DelegationRecord,
    EntryRecord,
    FeedRecord,
    ItemRecord,
    OnceRecord,
    Record,
    RunRecord,
    SessionRecord,
    TombstoneRecord,
    TurnRecord,
)
from moorage.core.session import Change

if TYPE_CHECKING:
    from moorage.stores.memory.store import Shelf

_read_entry = Decoder(Entry).decode
_read_item = Decoder(ContextItem).decode
_read_approval = Decoder(Approval).decode
_read_delegation = Decoder(Delegation).decode


# Out --------------------------------------------------------------------------------------------


def records_of(shelves: list[Shelf], kind: str) -> list[Record]:
    """All records of a kind that belong to owners, in their order."""
    numbered = chain.from_iterable(_READERS[kind](shelf) for shelf in shelves)
    return [record for _, record in sorted(numbered, key=lambda one: one[0])]


Numbered = Iterator[tuple[tuple[Any, ...], Record]]  # what to sort by, and a record


def _stones(shelf: Shelf) -> Numbered:
    for place, stone in enumerate(shelf.stones.values()):
        yield (shelf.owner, place), TombstoneRecord(shelf.owner, stone)


def _sessions(shelf: Shelf) -> Numbered:
    for record in shelf.records.values():
        yield (record.serial,), SessionRecord(record.serial, record.head.as_kept(), record.parts[:-1])


def _entries(shelf: Shelf) -> Numbered:
    for segment, entries in shelf.segments.items():
        for number, kept in entries.items():
            entry = replace(_read_entry(kept), session_id=None, task_id=None)
            yield (segment, number), EntryRecord(shelf.owner, segment, entry)


def _context(shelf: Shelf) -> Numbered:
    for record in shelf.records.values():
        for key, kept in record.context.items():
            yield (
                (record.serial, key),
                ContextRecord(shelf.owner, record.session_id, key, _read_item(kept)),
            )


def _approvals(shelf: Shelf) -> Numbered:
    for place, (name, record) in enumerate(shelf.asked.items()):
        yield (shelf.owner, place), ApprovalRecord(shelf.owner, _read_approval(record.approvals[name]))


def _runs(shelf: Shelf) -> Numbered:
    for number, run in shelf.desk.runs():
        yield (number,), RunRecord(shelf.owner, run)


def _turns(shelf: Shelf) -> Numbered:
    for record in shelf.records.values():
        for number, turn in shelf.desk.case(record.session_id).turns.all():
            yield (number,), TurnRecord(shelf.owner, number, turn)


def _items(shelf: Shelf) -> Numbered:
    for number, item in shelf.desk.items(None):
        yield (number,), ItemRecord(shelf.owner, item)


def _feed(shelf: Shelf) -> Numbered:
    for cursor, news in shelf.feed.items():
        if isinstance(news, Tombstone):
            name, last = news.session_id, 0
        else:
            name, last = news[0].session_id, news[1]
        yield (shelf.owner, cursor), FeedRecord(shelf.owner, cursor, name, last, 1)


def _delegations(shelf: Shelf) -> Numbered:
    for place, kept in enumerate(shelf.delegated.values()):
        yield (shelf.owner, place), DelegationRecord(shelf.owner, _read_delegation(kept))


def _once(shelf: Shelf) -> Numbered:
    for key, kept in shelf.requests.items():
        yield (shelf.owner, *key), OnceRecord(shelf.owner, kept)


_READERS: dict[str, Callable[[Shelf], Numbered]] = {
    "tombstone": _stones,
    "session": _sessions,
    "entry": _entries,
    "context": _context,
    "approval": _approvals,
    "run": _runs,
    "turn": _turns,
    "item": _items,
    "feed": _feed,
    "delegation": _delegations,
    "once": _once,
}


# In ---------------------------------------------------------------------------------------------


def put(shelf: Shelf, record: Record) -> None:
    """Put a record on its owner's shelf, as it is."""
    match record:
        case TombstoneRecord(_, stone):
            shelf.stones[stone.session_id] = stone
        case SessionRecord(serial, session, lineage):
            shelf.shelve(session, lineage, serial)
        case EntryRecord(_, segment, entry):
            _put_entry(shelf, segment, entry)
        case ContextRecord(_, session_id, key, item):
            shelf.by_id[session_id].context[key] = encode(item)
        case ApprovalRecord(_, approval):
            shelf.asked[approval.approval_id] = shelf.by_id[approval.session_id]
            shelf.by_id[approval.session_id].approvals[approval.approval_id] = encode(approval)
        case RunRecord(_, run):
            shelf.desk.write(run.session_id, Change(session=shelf.by_id[run.session_id].head, runs=(run,)))
        case TurnRecord(_, number, turn):
            shelf.desk.write_turn(turn, number)
        case ItemRecord(_, item):
            shelf.desk.write(item.session_id, Change(session=shelf.by_id[item.session_id].head, items=(item,)))
        case FeedRecord():
            _put_feed(shelf, record)
        case DelegationRecord(_, delegation):
            shelf.delegated[delegation.delegation_id] = encode(delegation)
        case OnceRecord(_, once):
            shelf.requests[once.operation, once.key] = once


def _put_entry(shelf: Shelf, segment: int, entry: Entry) -> None:
    shelf.serials.reach(segment)
    writer = shelf.records.get(segment)
    if writer is not None:
        entry = replace(entry, session_id=writer.session_id, task_id=writer.head.task_id)
        if entry.client_key is not None:
            writer.keys[entry.client_key] = max(entry.number, writer.keys.get(entry.client_key, 0))
    shelf.segments.setdefault(segment, {})[entry.number] = encode(entry)


def _put_feed(shelf: Shelf, record: FeedRecord) -> None:
    for back in range(record.count):
        cursor = record.cursor - back
        if record.last == 0:
            shelf.feed[cursor] = shelf.stones[record.session_id]
        else:
            told = shelf.by_id[record.session_id]
            shelf.feed[cursor] = (told, record.last - back)
            told.cursors.append(cursor)
    shelf.feed_end = max(shelf.feed_end, record.cursor)
