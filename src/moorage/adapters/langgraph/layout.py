"""The storage of a thread: records of a session, in two namespaces.

| namespace | key | value |
|---|---|---|
| `langgraph.checkpoint` | checkpoint namespace / checkpoint id | the checkpoint, and where its values are |
| `langgraph.checkpoint` | checkpoint namespace / checkpoint id / task id / index | a pending write after it |
| `langgraph.value` | made up, unique | a channel's value, or a segment of a list |

So one read of the newest records returns a checkpoint and its writes.

A stored value never changes, so checkpoints share values. The record `EPOCH` guards them: removing or replacing a
checkpoint increments it, and a put that shares values of a checkpoint expects it unchanged since that one existed. So a
value that no checkpoint needs after a removal is never needed again, and can be deleted. The record `HEAD` guards
ancestors: a put that needs them writes it, and a removal expects it unchanged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256

import msgspec
from msgspec import Struct

from moorage.adapters.foreign_ids import escaped
from moorage.adapters.langgraph.lists import Frame, KnownList, Slice
from moorage.records import Record

CHECKPOINTS, VALUES = "langgraph.checkpoint", "langgraph.value"
APPROVALS = "langgraph.approval"  # interrupt id to approval id
HEAD, EPOCH = "head", "epoch"  # keys of VALUES
LONGEST = 200  # characters of a part of a key; a longer part is replaced by its digest
SMALL = 512  # bytes of a value that every checkpoint has a copy of
INLINE = 2048  # bytes of a value that its first checkpoint has; later ones share a record, if it is not small


class InlineValue(Struct, frozen=True, array_like=True, tag=0):
    """A small value, in the checkpoint itself."""

    kind: str
    data: bytes


class Stored(Struct, frozen=True, array_like=True, tag=1):
    """A value with its own record."""

    key: str


class Listed(Struct, frozen=True, array_like=True, tag=2):
    """A list in slices of segments."""

    slices: list[Slice]


ValuePlace = InlineValue | Stored | Listed
KnownLists = Mapping[str, KnownList]  # by channel
NO_LISTS: KnownLists = {}


class Header(Struct, frozen=True, array_like=True):
    """A checkpoint without its values, and where they are."""

    namespace: str
    checkpoint_id: str
    parent: str | None
    checkpoint: Frame
    metadata: Frame
    values: dict[str, ValuePlace]
    epoch: int  # at most that of the thread when this was stored

    @property
    def key(self) -> str:
        """Return the key of its record."""
        return checkpoint_key(self.namespace, self.checkpoint_id)

    def needs(self, lists: KnownLists = NO_LISTS) -> list[str]:
        """Return the keys of the values it needs, except cached parts of lists."""
        return [key for channel, place in self.values.items() for key in keys_of(place, lists.get(channel))]


class Write(Struct, frozen=True, array_like=True):
    """A pending write of a task."""

    task_id: str
    task_path: str
    index: int
    channel: str
    value: Frame


def keys_of(place: ValuePlace, known: KnownList | None = None) -> list[str]:
    """Return the keys of the records that hold a value, except cached parts of a list."""
    match place:
        case Stored():
            return [place.key]
        case Listed():
            return [each.segment for each in place.slices if known is None or each not in known.loaded]
    return []


def new_key() -> str:
    """Return a key for a value: unique, and later ones sort after earlier ones."""
    return f"{time.time_ns() // 1000:014x}{os.urandom(6).hex()}"


@lru_cache(4096)
def part(text: str) -> str:
    """Return any text as a part of a key."""
    plain = escaped(text)
    return plain if len(plain) <= LONGEST else "~" + sha256(plain.encode()).hexdigest()


def checkpoint_key(namespace: str, checkpoint_id: str) -> str:
    """Return the key of a checkpoint; later ones sort after earlier ones."""
    return f"{part(namespace)}/{part(checkpoint_id)}"


def write_key(namespace: str, checkpoint_id: str, task_id: str, index: int) -> str:
    """Return the key of a pending write; it sorts after that of its checkpoint."""
    return f"{checkpoint_key(namespace, checkpoint_id)}/{part(task_id)}/{index}"


def checkpoint_of(key: str) -> tuple[str, bool]:
    """Return the key of a checkpoint from its own key or from that of a write, and whether it is its own."""
    parts = key.split("/")
    return "/".join(parts[:2]), len(parts) == 2


def version_of(found: Mapping[str, Record], key: str) -> int:
    """Return the version of a record; 0 if it does not exist."""
    return found[key].version if key in found else 0


pack = msgspec.msgpack.Encoder().encode
unpack_header = msgspec.msgpack.Decoder(Header).decode
unpack_write = msgspec.msgpack.Decoder(Write).decode
unpack_frame = msgspec.msgpack.Decoder(Frame).decode
unpack_segment = msgspec.msgpack.Decoder(list[Frame]).decode
