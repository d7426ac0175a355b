"""`moor.records` and `moor.memory`: opaque values of a session, and of all sessions of an owner.

A value of more than one mebibyte is sent in parts before the write that makes it visible, over any connection. The
parts of an incomplete write expire after an hour.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

from msgspec.structs import replace

from moorage.core.codec import check_json, check_list, encode
from moorage.core.errors import InvalidField, StoreCorrupt, TooLarge
from moorage.core.ids import check_ref, uuid7
from moorage.core.query import Page
from moorage.core.record import (
    BYTES,
    JSON,
    MAX_COMMIT,
    MAX_INLINE,
    MAX_VALUE,
    PART_TTL,
    PARTS,
    Append,
    Drop,
    Put,
    Record,
    RecordRequest,
    RecordRequests,
    Touch,
    part_key,
)
from moorage.service.records import RecordsWritten, WrittenRecord

__all__ = ["Append", "Drop", "Memory", "Put", "Record", "Records", "RecordsWritten", "Touch", "WrittenRecord", "packed"]

Found = list[Record | None]  # `list` is a method below
Pieces = list[bytes]
RequestList = list[RecordRequest]
SMALL = 4096  # bytes of a value that stays in a commit that would be too large otherwise
PARTS_AT_ONCE = 4  # read together, so that an answer stays small


class RecordOperations(Protocol):
    """The operations of a connection on records of a session, or of the owner if `ref` is None."""

    async def read_records(self, ref: str | None, namespace: str, keys: Sequence[str]) -> list[Record | None]: ...

    async def records_of(self, session_ids: Sequence[str], namespace: str, key: str) -> list[Record | None]: ...

    async def list_records(
        self,
        ref: str | None,
        namespace: str,
        *,
        prefix: str,
        after: str | None,
        limit: int,
        descending: bool,
        values: bool,
    ) -> Page[Record]: ...

    async def write_records(
        self, ref: str | None, requests: RecordRequests, *, messages: Sequence[Any] = (),
        token: str | None = None, version: int | None = None, memory: RecordRequests = (),
    ) -> RecordsWritten: ...  # fmt: skip


def packed(value: Any) -> tuple[bytes, str]:
    """Return a value as it is stored, and its form: bytes as they are, everything else as JSON."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value), BYTES
    check_json(value, "value")
    return encode(value), JSON


def _requests(writes: object, name: str) -> RequestList:
    """Return the writes as a list. Raises InvalidField."""
    requests: RequestList = check_list(writes, name)
    if not all(isinstance(each, RecordRequest) for each in requests):
        raise InvalidField(name, "must be a list of Put, Append, Drop and Touch")
    return requests


class RecordSpace:
    """The records of one session, or those of the owner if `ref` is None."""

    def __init__(self, backend: RecordOperations, ref: str | None) -> None:
        self._backend, self._ref = backend, ref

    async def get(self, namespace: str, key: str) -> Record | None:
        """Return a record with its value, or None."""
        return (await self.get_many(namespace, [key]))[0]

    async def get_many(self, namespace: str, keys: Sequence[str]) -> Found:
        """Return records by their keys, in this order; None for a missing one."""
        found = await self._backend.read_records(self._ref, namespace, keys)
        return [None if record is None else await self._whole(record) for record in found]

    async def list(
        self,
        namespace: str,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int = 100,
        descending: bool = False,
        values: bool = True,
    ) -> Page[Record]:
        """Return a page of records, sorted by key; pass `next` as `after` for more."""
        page = await self._backend.list_records(
            self._ref, namespace, prefix=prefix, after=after, limit=limit, descending=descending, values=values
        )
        items = [await self._whole(record) for record in page.items] if values else page.items
        return Page(items, page.next)

    async def put(
        self, namespace: str, key: str, value: Any, *, ttl: float | timedelta | None = None, version: int | None = None
    ) -> WrittenRecord:
        """Store bytes or a JSON value. `version` is the expected version; 0 for a new record."""
        data, form = packed(value)
        seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
        put = Put(namespace=namespace, key=key, value=data, form=form, ttl=seconds, version=version)
        return (await self.write([put])).records[0]

    async def delete(self, namespace: str, key: str = "", *, prefix: bool = False, version: int | None = None) -> None:
        """Delete a record, or with `prefix` all records whose keys have this prefix. A missing key is no error."""
        await self.write([Drop(namespace=namespace, key=key, prefix=prefix, version=version)])

    async def write(self, writes: RecordRequests) -> RecordsWritten:
        """Write several records in one commit."""
        return await self._write(writes)

    async def _write(
        self, writes: RecordRequests, *, messages: Sequence[Any] = (), memory: RecordRequests = (), **how: Any
    ) -> RecordsWritten:
        """Write records of a session and of its owner and append messages, as `Records.write` says."""
        writes, memory = _requests(writes, "writes"), _requests(memory, "memory")
        messages = check_list(messages, "messages")
        size = sum(len(each.value) for each in (*writes, *memory) if isinstance(each, (Put, Append)))
        most = MAX_INLINE if size <= MAX_COMMIT else SMALL
        small, shared = await self._staged(writes, most), await Memory(self._backend)._staged(memory, most)
        return await self._backend.write_records(self._ref, small, messages=messages, memory=shared, **how)

    # Values in parts ---------------------------------------------------------------------------------

    async def _staged(self, writes: RecordRequests, most: int) -> RequestList:
        """Return the writes, with values of more than `most` bytes sent ahead."""
        small: RequestList = []
        for each in writes:
            is_large = isinstance(each, (Put, Append)) and len(each.value) > most
            small.append(await self._in_parts(each) if is_large else each)  # type: ignore[arg-type]  # it has a value
        return small

    async def _in_parts(self, write: Put | Append) -> Put | Append:
        if len(write.value) > MAX_VALUE:
            raise TooLarge("record value", len(write.value), MAX_VALUE)
        upload = uuid7(time.time_ns() // 1_000_000, os.urandom(10))
        starts = range(0, len(write.value), MAX_INLINE)
        for number, start in enumerate(starts):
            part = write.value[start : start + MAX_INLINE]
            put = Put(namespace=PARTS, key=part_key(upload, number), value=part, ttl=PART_TTL.total_seconds())
            await self._backend.write_records(self._ref, [put])
        return replace(write, value=upload.encode(), parts=len(starts), size=len(write.value))

    async def _whole(self, record: Record) -> Record:
        """Return a record with its whole value. Raises StoreCorrupt."""
        if not record.parts:
            return record
        pieces: Pieces = []
        after = None
        while len(pieces) < record.parts:
            page = await self._backend.list_records(
                self._ref, PARTS, prefix=f"{record.value.decode()}/", after=after, limit=PARTS_AT_ONCE,
                descending=False, values=True,
            )  # fmt: skip
            pieces += [part.value for part in page.items]
            after = page.next
            if after is None:
                break
        value = b"".join(pieces)
        if len(value) != record.size:  # replaced while it was read, or damaged
            raise StoreCorrupt(
                f"record {record.key!r}", f"{len(value)} of {record.size} bytes are there; read it again"
            )
        return replace(record, value=value, parts=0)


class Memory(RecordSpace):
    """`moor.memory`: values that all sessions of an owner share, by namespace and key."""

    def __init__(self, backend: RecordOperations) -> None:
        super().__init__(backend, None)


class Records:
    """`moor.records`: values of a session, by namespace and key."""

    def __init__(self, backend: RecordOperations) -> None:
        self._backend = backend

    def _of(self, ref: str) -> RecordSpace:
        check_ref(ref)
        return RecordSpace(self._backend, ref)

    async def get(self, ref: str, namespace: str, key: str) -> Record | None:
        """Return a record with its value, or None."""
        return await self._of(ref).get(namespace, key)

    async def get_many(self, ref: str, namespace: str, keys: Sequence[str]) -> Found:
        """Return records by their keys, in this order; None for a missing one."""
        return await self._of(ref).get_many(namespace, keys)

    async def of_sessions(self, session_ids: Sequence[str], namespace: str, key: str) -> Found:
        """Return the record with this key of each session, in this order; None for a missing one."""
        session_ids = check_list(session_ids, "session_ids")
        found = await self._backend.records_of(session_ids, namespace, key)
        both = zip(session_ids, found, strict=True)
        return [None if record is None else await self._of(session_id)._whole(record) for session_id, record in both]

    async def list(
        self,
        ref: str,
        namespace: str,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int = 100,
        descending: bool = False,
        values: bool = True,
    ) -> Page[Record]:
        """Return a page of records, sorted by key; pass `next` as `after` for more."""
        return await self._of(ref).list(
            namespace, prefix=prefix, after=after, limit=limit, descending=descending, values=values
        )

    async def put(
        self, ref: str, namespace: str, key: str, value: Any, *, ttl: float | timedelta | None = None,
        version: int | None = None,
    ) -> WrittenRecord:  # fmt: skip
        """Store bytes or a JSON value. `version` is the expected version; 0 for a new record."""
        return await self._of(ref).put(namespace, key, value, ttl=ttl, version=version)

    async def delete(
        self, ref: str, namespace: str, key: str = "", *, prefix: bool = False, version: int | None = None
    ) -> None:
        """Delete a record, or with `prefix` all records whose keys have this prefix. A missing key is no error."""
        await self._of(ref).delete(namespace, key, prefix=prefix, version=version)

    async def write(
        self,
        ref: str,
        writes: RecordRequests,
        *,
        messages: Sequence[Any] = (),
        token: str | None = None,
        version: int | None = None,
        memory: RecordRequests = (),
    ) -> RecordsWritten:
        """Write records and append messages, all in one commit; a message whose client key is known is not repeated.

        `memory` are writes to the owner's own records, in the same commit.
        """
        return await self._of(ref)._write(writes, messages=messages, token=token, version=version, memory=memory)
