"""Records: all that a store keeps, in pieces that any other store can take in.

They come kind by kind, in the order of `KINDS`: what is referred to comes first. Sessions
keep their serial numbers, because segments of the log are named by them, even when the
session that wrote one is gone; everything else is named by ids. Of one owner the order within a
kind tells what came first; turns have a number besides, because launchers take the oldest of several owners.

What is sealed at rest comes out open and is sealed anew where it goes in. Heartbeats of servers are
not part of it, nor how far search has come.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from msgspec import Struct, to_builtins

from moorage.core.approval import Approval
from moorage.core.codec import canonical
from moorage.core.context import ContextItem
from moorage.core.delegation import Delegation
from moorage.core.document import Document
from moorage.core.entry import Entry
from moorage.core.family import Tombstone
from moorage.core.inbox import Item
from moorage.core.once import Once
from moorage.core.run import Run
from moorage.core.session import Session
from moorage.core.turn import Turn


class TombstoneRecord(Struct, frozen=True, tag="tombstone"):
    """What stays of a deleted session; in the order of deletions."""

    owner: str
    tombstone: Tombstone


class SessionRecord(Struct, frozen=True, tag="session"):
    """A head. A lower serial number was created earlier; of one owner they come in that order."""

    serial: int
    session: Session
    lineage: tuple[tuple[int, int], ...] = ()  # of a fork: segments it reads, and up to which number, oldest first


class EntryRecord(Struct, frozen=True, tag="entry"):
    """An entry of a segment, without the ids of its session: several may read it. By segment and number."""

    owner: str
    segment: int  # the serial number of the session that wrote it
    entry: Entry


class ContextRecord(Struct, frozen=True, tag="context"):
    """One key of a session's context, expired or not; by session and key."""

    owner: str
    session_id: str
    key: str
    item: ContextItem


class ApprovalRecord(Struct, frozen=True, tag="approval"):
    """An approval; in the order they were asked."""

    owner: str
    approval: Approval


class RunRecord(Struct, frozen=True, tag="run"):
    """A run; in the order they were asked for."""

    owner: str
    run: Run


class TurnRecord(Struct, frozen=True, tag="turn"):
    """A turn. A lower number was queued earlier, whoever's it is."""

    owner: str
    number: int
    turn: Turn


class ItemRecord(Struct, frozen=True, tag="item"):
    """An item of an inbox; in the order they came."""

    owner: str
    item: Item


class FeedRecord(Struct, frozen=True, tag="feed"):
    """The feed: entries up to number `last` of a session, `count` of them, end at this cursor. By owner and cursor.

    `last` is 0 for the deletion of a session. Of a session that was deleted nothing else is told.
    """

    owner: str
    cursor: int
    session_id: str
    last: int
    count: int


class DelegationRecord(Struct, frozen=True, tag="delegation"):
    """A delegation; in the order they were recorded."""

    owner: str
    delegation: Delegation


class OnceRecord(Struct, frozen=True, tag="once"):
    """A request that was made under a key; by owner, operation and key."""

    owner: str
    once: Once


class DocumentRecord(Struct, frozen=True, tag="document"):
    """A document, expired or not; by kind and key."""

    document: Document


Record: TypeAlias = (
    TombstoneRecord
    | SessionRecord
    | EntryRecord
    | ContextRecord
    | ApprovalRecord
    | RunRecord
    | TurnRecord
    | ItemRecord
    | FeedRecord
    | DelegationRecord
    | OnceRecord
    | DocumentRecord
)

KINDS: dict[str, type[Any]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (
        TombstoneRecord, SessionRecord, EntryRecord, ContextRecord, ApprovalRecord, RunRecord, TurnRecord, ItemRecord,
        FeedRecord, DelegationRecord, OnceRecord, DocumentRecord,
    )
}  # fmt: skip


def parts(record: Record) -> Iterator[bytes]:
    """What a record says, as bytes that are the same whichever store it came out of.

    Stores may put events of the feed together as they like, so each is told by itself.
    """
    if isinstance(record, FeedRecord):
        for back in range(record.count - 1, -1, -1):
            last = record.last and record.last - back
            yield canonical(["feed", record.owner, record.cursor - back, record.session_id, last])
    else:
        yield canonical(to_builtins(record))
