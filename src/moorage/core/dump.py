"""Dump records: the content of a store, in pieces that any other store can load.

They come kind by kind, in the order of `DumpKind`, with referenced records first. Sessions keep their serial numbers,
because these name segments of the log, even after the session that wrote a segment is deleted. All other records are
named by ids. For one owner, records of a kind come in the order of their creation; turns also have a number, because
launchers take the oldest turn of several owners.

Encrypted bodies are decrypted in the dump and encrypted again by the store that loads it. Heartbeats of servers and
the progress of the search index are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct, to_builtins

from moorage.core.approval import Approval
from moorage.core.codec import canonical
from moorage.core.document import Document
from moorage.core.entry import Entry
from moorage.core.family import Tombstone
from moorage.core.inbox import Item
from moorage.core.once import Once
from moorage.core.policy import Delegation
from moorage.core.record import Record
from moorage.core.run import Run
from moorage.core.session import Session
from moorage.core.turn import Turn


class DumpKind(StrEnum):
    """The kinds of records in a dump, in the order in which another store loads them."""

    TOMBSTONE = "tombstone"
    SESSION = "session"
    ENTRY = "entry"
    RECORD = "record"
    APPROVAL = "approval"
    RUN = "run"
    TURN = "turn"
    ITEM = "item"
    FEED = "feed"
    DELEGATION = "delegation"
    ONCE = "once"
    DOCUMENT = "document"


OwnedValue: TypeAlias = Tombstone | Approval | Run | Item | Delegation | Once


class DumpedValue(Struct, frozen=True, tag="value"):
    """A value of an owner, in the order of creation; requests under a key by operation and key."""

    owner: str
    value: OwnedValue


class DumpedSession(Struct, frozen=True, tag="session"):
    """A head. A lower serial number was created earlier; those of one owner come in that order."""

    serial: int
    session: Session
    lineage: tuple[tuple[int, int], ...] = ()  # of a fork: segments it reads, each with its last number, oldest first


class DumpedEntry(Struct, frozen=True, tag="entry"):
    """An entry of a segment, without its session id: several sessions may read it. By segment and number."""

    owner: str
    segment: int  # the serial number of the session that wrote it
    entry: Entry


class DumpedRecord(Struct, frozen=True, tag="record"):
    """A record of a session, or of its owner if `session_id` is None, even expired; by session, namespace and key."""

    owner: str
    session_id: str | None
    record: Record


class DumpedTurn(Struct, frozen=True, tag="turn"):
    """A turn. A lower number was queued earlier, across all owners."""

    owner: str
    number: int
    turn: Turn


class DumpedFeed(Struct, frozen=True, tag="feed"):
    """The feed: entries up to number `last` of a session, `count` of them, end at this cursor. By owner and cursor.

    `last` is 0 for the deletion of a session. A deleted session has no other events.
    """

    owner: str
    cursor: int
    session_id: str
    last: int
    count: int


class DumpedDocument(Struct, frozen=True, tag="document"):
    """A document, including expired ones; by kind and key."""

    document: Document


DumpRecord: TypeAlias = (
    DumpedValue | DumpedSession | DumpedEntry | DumpedRecord | DumpedTurn | DumpedFeed | DumpedDocument
)


def type_of(record: DumpRecord) -> type[Struct]:
    """Return the type that tells the kind of a record: of its value, if it is only that."""
    return type(record.value if isinstance(record, DumpedValue) else record)


def parts(record: DumpRecord) -> Iterator[bytes]:
    """Yield the bytes of a record, which are equal for every store that dumps it.

    Stores may group events of the feed in different ways, so each event is yielded separately.
    """
    if isinstance(record, DumpedFeed):
        for back in range(record.count - 1, -1, -1):
            last = record.last and record.last - back
            yield canonical(["feed", record.owner, record.cursor - back, record.session_id, last])
    else:
        yield canonical(to_builtins(record))
