"""Microsoft Agent Framework: the history of sessions, their snapshots, and checkpoints of workflows.

::

    history = MoorageHistoryProvider("sqlite:///moorage.db")
    agent = Agent(client, context_providers=[history])

Messages and snapshots belong to the session with the same id. Checkpoints belong to the owner: the framework finds them
by their own ids. The framework's codec writes and reads them; it restores only types that it knows and those in
`allowed_checkpoint_types`.
"""

from __future__ import annotations

from moorage.adapters.adapter import require

require("agent-framework", "agent-framework-core", "1.23")

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from typing import Any

from agent_framework import (
    AgentSession,
    HistoryProvider,
    Message,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
)
from agent_framework._sessions import filter_new_messages
from agent_framework._workflows._checkpoint_encoding import decode_checkpoint_value, encode_checkpoint_value

from moorage.adapters.adapter import Adapter
from moorage.adapters.batches import appended, read_all, read_last
from moorage.adapters.channel import ConnectTarget
from moorage.adapters.foreign_ids import escaped
from moorage.adapters.formats.agent_framework import FRAMEWORK, said
from moorage.adapters.payload import form_of, packed, unpacked
from moorage.adapters.projection import with_distinct_keys
from moorage.api import Moorage
from moorage.core.errors import SessionNotFound, VersionConflict
from moorage.core.query import each_item
from moorage.core.record import MAX_WRITES, Drop, Put, RecordRequest
from moorage.records import Record

__all__ = ["MoorageCheckpointStorage", "MoorageHistoryProvider", "MoorageSessionStore"]

MESSAGES, SNAPSHOT = "messages/", "snapshot"  # keys of a session's records
CHECKPOINTS, WORKFLOWS = f"{FRAMEWORK}.checkpoint", f"{FRAMEWORK}.workflow"  # namespaces of the owner's records
NAMELESS = "default"  # the session of an agent that runs without one
LONGEST = 300  # characters of a part of a key; a longer part is replaced by its digest
PAGE = 500  # records read at once
ANY_TEXT = "surrogatepass"  # how ids are encoded: an id may have lone surrogates


class MoorageHistoryProvider(Adapter, HistoryProvider):
    """The messages of sessions. Takes a URL or an open connection."""

    framework = FRAMEWORK

    def __init__(
        self,
        target: ConnectTarget = None,
        *,
        source_id: str = "moorage",
        load_messages: bool = True,
        store_inputs: bool = True,
        store_context_messages: bool = False,
        store_context_from: set[str] | None = None,
        store_outputs: bool = True,
        **settings: Any,
    ) -> None:
        Adapter.__init__(self, target, **settings)
        HistoryProvider.__init__(
            self,
            source_id,
            load_messages=load_messages,
            store_inputs=store_inputs,
            store_context_messages=store_context_messages,
            store_context_from=store_context_from,
            store_outputs=store_outputs,
        )

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        """Return the messages of a session, oldest first."""
        parts = (session_id or NAMELESS,)
        read = self._if_known(parts, lambda moor, ref: read_all(moor, ref, FRAMEWORK, MESSAGES, _messages))
        found = await self._read(read)
        return [] if found is None else found[0]

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add messages at the end, all of them or none; skip those that repeat the end of the history."""

        async def write(moor: Moorage) -> None:
            parts = (session_id or NAMELESS,)
            items = [it.to_dict() for it in filter_new_messages(await self._last(moor, parts, len(messages)), messages)]
            if items:
                spoken = with_distinct_keys(map(said, items)) if self._projection else []
                await self._commit(moor, parts, appended(FRAMEWORK, MESSAGES, items, "messages"), spoken)

        if messages:
            await self._write(write)

    async def _last(self, moor: Moorage, parts: tuple[str, ...], count: int) -> list[Message]:
        try:
            work = lambda ref: read_last(moor, ref, FRAMEWORK, MESSAGES, count, _messages)  # noqa: E731
            return await self._in_session(parts, work)
        except SessionNotFound:
            return []


def _messages(record: Record) -> list[Message]:
    """Return the messages of a batch. Converting one batch after the other needs less memory, and so less time."""
    return [Message.from_dict(item) for item in unpacked(record.value)]


class MoorageSessionStore(Adapter):
    """Snapshots of `AgentSession`, by ids of the caller. Each snapshot replaces the one before."""

    framework = FRAMEWORK

    async def get(self, session_id: str) -> AgentSession | None:
        """Return the stored session, or None."""
        _check_id(session_id)
        read = self._if_known((session_id,), lambda moor, ref: moor.records.get(ref, FRAMEWORK, SNAPSHOT))
        record = await self._read(read)
        return None if record is None else AgentSession.from_dict(unpacked(record.value))

    async def set(self, session_id: str, session: AgentSession) -> None:
        """Store a session in place of the one before. Raises InvalidJson if its state is no JSON."""
        _check_id(session_id)
        data = packed(session.to_dict(), "session")
        put = Put(namespace=FRAMEWORK, key=SNAPSHOT, value=data, form=form_of(data))
        await self._write(lambda moor: self._commit(moor, (session_id,), [put]))

    async def delete(self, session_id: str) -> None:
        """Delete the snapshot. The messages stay in the session until it is deleted."""
        _check_id(session_id)
        drop = self._if_known((session_id,), lambda moor, ref: moor.records.delete(ref, FRAMEWORK, SNAPSHOT))
        await self._write(drop)


class MoorageCheckpointStorage(Adapter):
    """Checkpoints of workflows. Takes a URL or an open connection."""

    framework = FRAMEWORK

    def __init__(
        self, target: ConnectTarget = None, *, allowed_checkpoint_types: list[str] | None = None, **settings: Any
    ) -> None:
        super().__init__(target, **settings)
        self._allowed = frozenset(allowed_checkpoint_types or ())

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Store a checkpoint and return its id. Raises WorkflowCheckpointException if it could not be restored."""
        encoded = _encoded(checkpoint, self._allowed)
        data = packed(encoded, "checkpoint")

        async def write(moor: Moorage) -> None:
            while True:
                old = await moor.memory.get(CHECKPOINTS, _part(checkpoint.checkpoint_id))
                try:
                    await moor.memory.write(_saved(checkpoint, data, old))
                except VersionConflict:  # a concurrent save of the same checkpoint
                    continue
                return

        await self._write(write)
        return str(checkpoint.checkpoint_id)

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        """Return a checkpoint. Raises WorkflowCheckpointException if there is none."""
        record = await self._read(lambda moor: moor.memory.get(CHECKPOINTS, _part(checkpoint_id)))
        if record is None:
            raise WorkflowCheckpointException(f"No checkpoint found with ID {checkpoint_id}")
        return self._decoded(record)

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        """Return the checkpoints of a workflow, oldest first."""

        async def read(moor: Moorage) -> list[Record | None]:
            keys = [_part(it) async for it in _ids(moor, workflow_name)]
            found: list[Record | None] = []
            for start in range(0, len(keys), MAX_WRITES):
                found += await moor.memory.get_many(CHECKPOINTS, keys[start : start + MAX_WRITES])
            return found

        return [self._decoded(record) for record in await self._read(read) if record is not None]

    async def delete(self, checkpoint_id: str) -> bool:
        """Delete a checkpoint; False if there is none."""

        async def drop(moor: Moorage) -> bool:
            while True:
                old = await moor.memory.get(CHECKPOINTS, _part(checkpoint_id))
                if old is None:
                    return False
                gone: list[RecordRequest] = [Drop(namespace=CHECKPOINTS, key=old.key, version=old.version)]
                try:
                    await moor.memory.write([*gone, Drop(namespace=WORKFLOWS, key=_place(unpacked(old.value)))])
                except VersionConflict:
                    continue
                return True

        return await self._write(drop)

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        """Return the newest checkpoint of a workflow, or None."""

        async def read(moor: Moorage) -> Record | None:
            while True:
                prefix = f"{_part(workflow_name)}/"
                page = await moor.memory.list(WORKFLOWS, prefix=prefix, limit=1, descending=True)
                if not page.items:
                    return None
                found = await moor.memory.get(CHECKPOINTS, _part(page.items[0].value.decode(errors=ANY_TEXT)))
                if found is not None:  # otherwise it was deleted meanwhile
                    return found

        record = await self._read(read)
        return None if record is None else self._decoded(record)

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        """Return the ids of the checkpoints of a workflow, oldest first."""

        async def read(moor: Moorage) -> list[str]:
            return [it async for it in _ids(moor, workflow_name)]

        return await self._read(read)

    def _decoded(self, record: Record) -> WorkflowCheckpoint:
        value = decode_checkpoint_value(unpacked(record.value), allowed_types=self._allowed)
        return WorkflowCheckpoint.from_dict(value)


def _encoded(checkpoint: WorkflowCheckpoint, allowed: frozenset[str]) -> Any:
    """Return a checkpoint as the framework's codec writes it, after checking that the codec can restore it."""
    try:
        encoded = encode_checkpoint_value(checkpoint.to_dict())
        decode_checkpoint_value(encoded, allowed_types=allowed)
    except WorkflowCheckpointException:
        raise
    except Exception as error:
        text = f"checkpoint {checkpoint.checkpoint_id} could not be restored with the allowed types; it is not saved"
        raise WorkflowCheckpointException(text) from error
    return encoded


def _saved(checkpoint: WorkflowCheckpoint, data: bytes, old: Record | None) -> list[RecordRequest]:
    """Return the writes of a checkpoint: the checkpoint itself, and its place among those of its workflow."""
    key, version = _part(checkpoint.checkpoint_id), 0 if old is None else old.version
    place = _place(checkpoint.to_dict())
    before = place if old is None else _place(unpacked(old.value))
    writes: list[RecordRequest] = [] if before == place else [Drop(namespace=WORKFLOWS, key=before)]
    return [
        *writes,
        Put(namespace=CHECKPOINTS, key=key, value=data, form=form_of(data), version=version),
        Put(namespace=WORKFLOWS, key=place, value=str(checkpoint.checkpoint_id).encode(errors=ANY_TEXT)),
    ]


def _place(checkpoint: dict[str, Any]) -> str:
    moment = datetime.fromisoformat(checkpoint["timestamp"]).astimezone(UTC).strftime("%Y%m%dT%H%M%S.%f")
    return f"{_part(checkpoint['workflow_name'])}/{moment}/{_part(checkpoint['checkpoint_id'])}"


async def _ids(moor: Moorage, workflow_name: str) -> AsyncIterator[str]:
    ask = partial(moor.memory.list, WORKFLOWS, prefix=f"{_part(workflow_name)}/", limit=PAGE)
    async for record in each_item(ask, by="after"):
        yield record.value.decode(errors=ANY_TEXT)


def _part(text: str) -> str:
    plain = escaped(str(text))
    return plain if 0 < len(plain) <= LONGEST else "~" + sha256(plain.encode()).hexdigest()


def _check_id(session_id: object) -> None:
    if not isinstance(session_id, str) or not session_id:
        raise ValueError("session_id must be a non-empty string")
