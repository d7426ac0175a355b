"""Pydantic AI: `MoorageConversationStore`, for conversations that several processes may share.

::

    store = MoorageConversationStore("sqlite:///moorage.db")
    conversation = await store.load("c-1") or Conversation(conversation_id="c-1")
    result = await agent.run(prompt, conversation=conversation)
    await store.save(result)

A conversation is a session. Its record, the new entries of its history and their messages in the log are one commit. A
record that another writer changed meanwhile is refused. A fork has a copy of the entries before it, so a session needs
no other one, and its entries are deleted with it. The owner's memory maps an entry to its sessions.
"""

from __future__ import annotations

from moorage.adapters.adapter import require
from moorage.core.entry import Message

require("pydantic-ai", "pydantic-ai-slim", "2.66")

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Self

import msgspec
from pydantic import ConfigDict, TypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)

from moorage.adapters.adapter import Adapter, parts_in
from moorage.adapters.batches import in_batches, read_all, read_last
from moorage.adapters.channel import ConnectTarget
from moorage.adapters.foreign_ids import session_id_of
from moorage.adapters.formats import pydantic_ai
from moorage.adapters.payload import form_of
from moorage.adapters.projection import with_distinct_keys
from moorage.api import Moorage
from moorage.core.errors import IdTaken, InvalidJson, NotFound, SessionNotFound, VersionConflict
from moorage.core.record import RecordRequest
from moorage.records import Append, Drop, Put, Record

__all__ = ["MoorageConversationStore"]

RECORD, ENTRIES = "record", "entries/"
PAGE = 1000

_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")  # as Pydantic AI writes messages
_records: TypeAdapter[list[Any]] = TypeAdapter(list[ConversationRecord], config=_config)
_entries: TypeAdapter[list[Any]] = TypeAdapter(list[ConversationEntry], config=_config)

ConversationEntries = Sequence[ConversationEntry]
ConversationHistory = list[ConversationEntry]


class MoorageConversationStore(ConversationStore):
    """Conversations in the interface of Pydantic AI. `with`, `async with`, `close` or `aclose` close it."""

    def __init__(self, url: ConnectTarget = None, **settings: Any) -> None:
        self._conversations = Conversations(url, **settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def close(self) -> None:
        """Close the store, unless it was given as an open connection. Acknowledged data is safe without this."""
        self._conversations.close()

    async def aclose(self) -> None:
        """Close the store from an event loop."""
        await self._conversations.aclose()

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation, or None."""
        return await self._conversations.record(conversation_id)

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """Return records, the last saved one first."""
        return await self._conversations.all_records(scope, limit)

    async def write_record(
        self, record: ConversationRecord, *, new_entries: ConversationEntries = (), expected_revision: str | None
    ) -> None:
        """Store a record and new entries, both or none. Raises ConversationConflict."""
        await self._conversations.write(record, new_entries, expected_revision)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation with its entries and its log. Raises ConversationConflict."""
        await self._conversations.delete(conversation_id, expected_revision)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return an entry. Raises KeyError."""
        return (await self._conversations.history(entry_id, 1))[-1]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> ConversationHistory:
        """Return the entries up to this one, oldest first, the last `limit` of them. Raises KeyError."""
        if head_id is None or limit == 0:
            return []
        return await self._conversations.history(head_id, limit)


class Conversations(Adapter):
    """The operations of the store."""

    framework = pydantic_ai.FRAMEWORK

    def __init__(self, url: ConnectTarget = None, **settings: Any) -> None:
        super().__init__(url, **settings)
        self._forks: dict[str, str] = {}  # newest entries of forks made by Moorage, and their sessions

    async def record(self, conversation_id: str) -> ConversationRecord | None:
        parts = (conversation_id,)
        return await self._read(self._if_known(parts, lambda moor, ref: self._stored(moor, ref, conversation_id)))

    async def all_records(self, scope: str | None, limit: int | None) -> list[ConversationRecord]:
        label = self.framework if scope is None else self._label("scope", scope)

        async def read(moor: Moorage) -> list[ConversationRecord]:
            found: list[ConversationRecord] = []
            cursor = None
            while limit is None or len(found) < limit:
                size = PAGE if limit is None else max(1, min(limit - len(found), PAGE))
                page = await moor.list(label=label, sort="-updated", limit=size, cursor=cursor)
                ids = [session.session_id for session in page.items]
                held = await moor.records.of_sessions(ids, self.framework, RECORD) if ids else []
                both = zip(page.items, map(_record_of, held), strict=True)
                found += [_renamed(record, *parts_in(session)) for session, record in both if record is not None]
                cursor = page.next
                if cursor is None:
                    break
            return sorted(found, key=lambda one: one.updated_at, reverse=True)

        return [] if limit == 0 else await self._read(read)

    async def write(self, record: ConversationRecord, new: ConversationEntries, expected: str | None) -> None:
        async def write(moor: Moorage) -> None:
            work = lambda ref: self._save(moor, ref, record, new, expected)  # noqa: E731
            await self._in_session((record.conversation_id,), work)

        await self._write(write)

    async def delete(self, conversation_id: str, expected: str) -> None:
        async def delete(moor: Moorage) -> None:
            try:
                await self._in_session(
                    (conversation_id,), lambda ref: self._delete(moor, ref, conversation_id, expected)
                )
            except SessionNotFound:
                raise ConversationConflict(conversation_id) from None

        await self._write(delete)

    async def history(self, head_id: str, limit: int | None) -> ConversationHistory:
        return await self._read(lambda moor: self._history(moor, head_id, limit))

    # Reading ----------------------------------------------------------------------------------------

    async def _stored(self, moor: Moorage, ref: str, conversation_id: str) -> ConversationRecord | None:
        record = _record_of(await moor.records.get(ref, self.framework, RECORD))
        if record is None or record.conversation_id == conversation_id:
            return record
        if record.head_id is not None:
            self._forks[record.head_id] = ref
        return _renamed(record, conversation_id)

    async def _history(self, moor: Moorage, head_id: str, limit: int | None) -> ConversationHistory:
        fork = self._forks.get(head_id)
        for ref in [*await self._sessions_with(moor, head_id), *([fork] if fork else [])]:
            with suppress(KeyError, NotFound):
                return await self._own_history(moor, ref, head_id, limit)
        raise KeyError(head_id)

    async def _own_history(self, moor: Moorage, ref: str, head_id: str, limit: int | None) -> ConversationHistory:
        """Return the history up to an entry of a session; read the newest entries first if few are requested."""
        if limit is not None:
            with suppress(KeyError):
                return _chain(await read_last(moor, ref, self.framework, ENTRIES, limit, _batch), head_id, limit)
        entries, _ = await read_all(moor, ref, self.framework, ENTRIES, _batch)
        return _chain(entries, head_id, limit)

    async def _sessions_with(self, moor: Moorage, entry_id: str) -> list[str]:
        page = await moor.memory.list(self.framework, prefix=_index_key(entry_id, ""), limit=PAGE)
        return [record.key.partition("/")[2] for record in page.items]

    # Writing ----------------------------------------------------------------------------------------

    async def _save(
        self, moor: Moorage, ref: str, record: ConversationRecord, new: ConversationEntries, expected: str | None
    ) -> None:
        held, stored = await self._held(moor, ref)
        if (None if stored is None else stored.revision) != expected:
            raise ConversationConflict(record.conversation_id)
        copied = await self._copied(moor, ref, record, stored)
        entries = [*await self._borrowed(moor, ref, record, stored, new), *new]
        if held is None:
            await self._make(moor, ref, record)
        messages = _said(entries) if self._projection else []
        put = _put(self.framework, [record], 0 if held is None else held.version)
        named = [_mark(self.framework, entry.id, ref) for entry in [*copied, *entries]]
        *ahead, marks = in_batches(named, PAGE) or [[]]
        for some in ahead:  # the memory may name a session before it has the entries
            await moor.memory.write(some)
        writes = [*_appends(self.framework, entries), put]
        try:
            await moor.records.write(ref, writes, messages=messages, memory=marks)
        except VersionConflict:
            raise ConversationConflict(record.conversation_id) from None
        if not messages:  # lists have the order of the log
            await moor.update(ref, metadata={"revision": record.revision})

    async def _held(self, moor: Moorage, ref: str) -> tuple[Record | None, ConversationRecord | None]:
        try:
            held = await moor.records.get(ref, self.framework, RECORD)
        except SessionNotFound:
            return None, None
        return held, _record_of(held)

    async def _copied(
        self, moor: Moorage, ref: str, record: ConversationRecord, stored: ConversationRecord | None
    ) -> ConversationHistory:
        """Return the entries of a fork made by Moorage that is saved for the first time: the memory lacks them."""
        if stored is None or stored.conversation_id == record.conversation_id:
            return []
        return (await read_all(moor, ref, self.framework, ENTRIES, _batch))[0]

    async def _borrowed(
        self,
        moor: Moorage,
        ref: str,
        record: ConversationRecord,
        stored: ConversationRecord | None,
        new: ConversationEntries,
    ) -> ConversationHistory:
        """Return the history that a fork begins with, to be copied. Raises ConversationConflict if it was deleted."""
        head = new[0].parent_id if new else record.head_id
        if head is None or (stored is not None and head == stored.head_id):
            return []
        try:
            if ref in await self._sessions_with(moor, head):
                return []
            return await self._history(moor, head, None)
        except KeyError:
            raise ConversationConflict(record.conversation_id) from None

    async def _make(self, moor: Moorage, ref: str, record: ConversationRecord) -> None:
        scopes = [] if record.scope is None else [self._label("scope", record.scope)]
        birth = self._birth((record.conversation_id,), labels=[self.framework, *scopes])
        with suppress(IdTaken):
            await moor.create(session_id=ref, **birth)

    async def _delete(self, moor: Moorage, ref: str, conversation_id: str, expected: str) -> None:
        held, stored = await self._held(moor, ref)
        if held is None or stored is None or stored.revision != expected:
            raise ConversationConflict(conversation_id)
        entries, _ = await read_all(moor, ref, self.framework, ENTRIES, _batch)
        try:
            await moor.records.write(ref, [_put(self.framework, [], held.version)])
        except VersionConflict:
            raise ConversationConflict(conversation_id) from None
        await moor.delete(ref)
        for some in in_batches(entries, PAGE):
            await moor.memory.write([Drop(namespace=self.framework, key=_index_key(one.id, ref)) for one in some])


def _record_of(held: Record | None) -> ConversationRecord | None:
    """Return the record of a conversation, unless it is being deleted."""
    found = [] if held is None else _records.validate_json(held.value)
    return found[0] if found else None


def _renamed(record: ConversationRecord, *names: str) -> ConversationRecord:
    """Return a record under the id of its session: a fork made by Moorage has that of its source."""
    return replace(record, conversation_id=names[0]) if len(names) == 1 else record


def _put(namespace: str, records: list[ConversationRecord], version: int) -> Put:
    data = _dumped(_records, records)
    return Put(namespace=namespace, key=RECORD, value=data, form=form_of(data), version=version)


def _appends(namespace: str, entries: ConversationEntries) -> list[RecordRequest]:
    batches = [_dumped(_entries, list(some)) for some in in_batches(entries)]
    return [Append(namespace=namespace, prefix=ENTRIES, value=data, form=form_of(data)) for data in batches]


def _batch(record: Record) -> ConversationHistory:
    return _entries.validate_json(record.value)


def _dumped(adapter: TypeAdapter[list[Any]], values: list[Any]) -> bytes:
    try:
        return adapter.dump_json(values)
    except ValueError as error:  # PydanticSerializationError is one
        raise InvalidJson("conversation", str(error)) from error


def _said(entries: ConversationEntries) -> list[Message]:
    spoken = msgspec.json.decode(_dumped(_entries, list(entries))) if entries else []
    return with_distinct_keys(one for entry in spoken for one in pydantic_ai.said(entry["message"], entry["id"]))


def _chain(entries: ConversationHistory, head_id: str, limit: int | None) -> ConversationHistory:
    """Return entries from the first one to the head, each after its parent. Raises KeyError if one is missing."""
    by_id = {entry.id: entry for entry in entries}
    found: ConversationHistory = []
    entry_id: str | None = head_id
    while entry_id is not None and (limit is None or len(found) < limit):
        found.append(by_id[entry_id])
        entry_id = found[-1].parent_id
    return found[::-1]


def _index_key(entry_id: str, ref: str) -> str:
    return f"{session_id_of(entry_id)}/{ref}"


def _mark(namespace: str, entry_id: str, ref: str) -> Put:
    return Put(namespace=namespace, key=_index_key(entry_id, ref), value=b"", keep=True)
