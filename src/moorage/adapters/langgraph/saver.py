"""MoorageSaver: checkpoints of LangGraph as records of sessions, one session for each thread."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from copy import copy
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from moorage.adapters.adapter import Adapter
from moorage.adapters.channel import ConnectTarget
from moorage.adapters.langgraph import interrupts
from moorage.adapters.langgraph.layout import Write
from moorage.adapters.langgraph.reading import Saver
from moorage.adapters.langgraph.removing import ThreadPruner
from moorage.adapters.langgraph.stored import namespace_of, thread_of
from moorage.api import Moorage

TOGETHER = 50  # checkpoints of a list that are loaded at once


class MoorageSaver(Saver):
    """A checkpointer for `builder.compile(checkpointer=...)`. Takes a URL or an open connection.

    `projection=False` keeps messages out of the log, `approvals=False` creates no approvals for interrupts.
    """

    framework = "langgraph"

    def __init__(
        self,
        target: ConnectTarget = None,
        *,
        serde: SerializerProtocol | None = None,
        approvals: bool = True,
        **settings: Any,
    ) -> None:
        Adapter.__init__(self, target, **settings)
        BaseCheckpointSaver.__init__(self, serde=serde)
        self._threads = ThreadPruner(self, asks=approvals)
        self._original = self

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint, the newest of its thread if the config names none."""
        return self._drive(lambda moor: self._threads.get(moor, config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint, the newest of its thread if the config names none."""
        return await self._read(lambda moor: self._threads.get(moor, config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, newest first."""
        found = self._drive(lambda moor: self._threads.match(moor, config, filter, before, limit))
        for start in range(0, len(found), TOGETHER):
            some = found[start : start + TOGETHER]
            yield from self._drive(lambda moor, it=some: self._threads.load_all(moor, it))  # type: ignore[misc]  # bound

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield checkpoints, newest first."""
        found = await self._read(lambda moor: self._threads.match(moor, config, filter, before, limit))
        for start in range(0, len(found), TOGETHER):
            some = found[start : start + TOGETHER]
            for each in await self._read(lambda moor, it=some: self._threads.load_all(moor, it)):  # type: ignore[misc]
                yield each

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint; write only those of its values that its parent does not have."""
        return self._drive(lambda moor: self._threads.put(moor, config, checkpoint, metadata, new_versions))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint; write only those of its values that its parent does not have."""
        return await self._write(lambda moor: self._threads.put(moor, config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the writes of a task after a checkpoint. An interrupt becomes an approval."""
        self._drive(lambda moor: self._threads.put_writes(moor, config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the writes of a task after a checkpoint. An interrupt becomes an approval."""
        await self._write(lambda moor: self._threads.put_writes(moor, config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread: its session with its log, its records and its children."""
        self._drive(lambda moor: self._threads.delete(moor, thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread: its session with its log, its records and its children."""
        await self._write(lambda moor: self._threads.delete(moor, thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of some runs. Looks at all threads."""
        self._drive(lambda moor: self._threads.delete_runs(moor, run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of some runs. Looks at all threads."""
        await self._write(lambda moor: self._threads.delete_runs(moor, run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints and pending writes of a thread."""
        self._drive(lambda moor: self._threads.copy(moor, source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints and pending writes of a thread."""
        await self._write(lambda moor: self._threads.copy(moor, source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the newest checkpoint of each namespace with the data its delta channels need, or `delete` all."""
        self._drive(lambda moor: self._threads.prune(moor, thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the newest checkpoint of each namespace with the data its delta channels need, or `delete` all."""
        await self._write(lambda moor: self._threads.prune(moor, thread_ids, strategy))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the writes of a checkpoint's ancestors to channels, back to the nearest stored value of each."""
        return self._drive(lambda moor: self._threads.history(moor, config, channels))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the writes of a checkpoint's ancestors to channels, back to the nearest stored value of each."""
        return await self._read(lambda moor: self._threads.history(moor, config, channels))

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return a version that sorts after the current one and that no other writer creates."""
        number = 0 if current is None else int(str(current).partition(".")[0])
        return f"{number + 1:016}.{random.getrandbits(32):08x}"

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> MoorageSaver:
        """Return a saver with a serializer that allows more types; it closes with this one."""
        other: MoorageSaver = super().with_allowlist(extra_allowlist)
        if other is not self:
            other._threads = copy(self._threads)
            other._threads.saver = other
        return other

    # Moving in ---------------------------------------------------------------------------------------

    def has(self, config: RunnableConfig) -> bool:
        """Return whether a checkpoint exists."""
        place = thread_of(config), namespace_of(config), get_checkpoint_id(config)
        return self._drive(lambda moor: self._threads.find(moor, *place)) is not None

    def restore_writes(self, config: RunnableConfig, writes: Sequence[Write]) -> None:
        """Store pending writes as another saver stored them; existing ones are unchanged."""
        place = thread_of(config), namespace_of(config), str(get_checkpoint_id(config))
        if writes:
            self._drive(lambda moor: self._threads.restore_writes(moor, *place, writes))

    # Answers to interrupts ---------------------------------------------------------------------------

    def answers(self, config: RunnableConfig) -> dict[str, Any] | None:
        """Return the answers to the interrupts of a thread, for `Command(resume=...)`; None while one is open."""
        return self._drive(lambda moor: self._answers(moor, config))

    async def aanswers(self, config: RunnableConfig) -> dict[str, Any] | None:
        """Return the answers to the interrupts of a thread, for `Command(resume=...)`; None while one is open."""
        return await self._read(lambda moor: self._answers(moor, config))

    async def _answers(self, moor: Moorage, config: RunnableConfig) -> dict[str, Any] | None:
        found = await self._threads.find(moor, thread_of(config), namespace_of(config), get_checkpoint_id(config))
        if found is None:
            return None
        waiting = interrupts.waiting_in(self._threads.pending(found.writes))
        return await interrupts.answers(moor, found.session_id, waiting) if waiting else None

    def _check_open(self) -> None:
        self._is_closed = self._original._is_closed
        super()._check_open()
