"""Reading threads: checkpoints with their values and pending writes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    Checkpoint,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
    writes_sort_key,
)

from moorage.adapters.adapter import Adapter
from moorage.adapters.langgraph import layout
from moorage.adapters.langgraph.interrupts import waiting_in
from moorage.adapters.langgraph.known import Known, Threads
from moorage.adapters.langgraph.layout import (
    CHECKPOINTS,
    NO_LISTS,
    Header,
    InlineValue,
    KnownLists,
    Listed,
    Stored,
    ValuePlace,
    Write,
    checkpoint_key,
    checkpoint_of,
)
from moorage.adapters.langgraph.lists import KnownList, short_list
from moorage.adapters.langgraph.stored import (
    PAGE,
    config_of,
    each_record,
    each_thread,
    namespace_of,
    records_of,
    thread_of,
)
from moorage.api import Moorage
from moorage.core.errors import SessionNotFound, StoreCorrupt
from moorage.core.query import each_page
from moorage.records import Record

TRIES = 20  # attempts to read or change a thread that others change meanwhile
AROUND_ONE = 16  # records read at once to find a checkpoint with its writes

PendingWrites = list[tuple[str, str, Any]]  # `list` is a method of a saver
Tuples = list[CheckpointTuple]


class FoundCheckpoint(NamedTuple):
    """A checkpoint without its values, its session, and the writes after it."""

    session_id: str
    header: Header
    writes: list[Write]


FoundCheckpoints = list[FoundCheckpoint]
ThreadCheckpoints = list[tuple[str, FoundCheckpoint]]  # with the ids of their threads


class Saver(Adapter, BaseCheckpointSaver[str]):
    """The parts of a saver that threads need: a store and a serializer."""


class ThreadReader:
    """Reads threads."""

    def __init__(self, saver: Saver, *, asks: bool) -> None:
        self.saver, self.known = saver, Threads()
        self.asks = asks  # whether interrupts become approvals
        self.interrupted: dict[str, str] = {}  # sessions that wait for answers, and the checkpoints that asked

    async def get(self, moor: Moorage, config: RunnableConfig) -> CheckpointTuple | None:
        thread_id, namespace = thread_of(config), namespace_of(config)
        for _ in range(TRIES):
            found = await self.find(moor, thread_id, namespace, get_checkpoint_id(config))
            if found is None:
                return None
            if (loaded := await self._load(moor, thread_id, found)) is not None:
                return loaded
        raise StoreCorrupt(f"thread {thread_id}", "values of a checkpoint are missing")

    async def find(
        self, moor: Moorage, thread_id: str, namespace: str, checkpoint_id: str | None
    ) -> FoundCheckpoint | None:
        """Return a checkpoint, the newest if none is named."""

        async def read(session_id: str) -> FoundCheckpoint | None:
            if checkpoint_id:
                return await self.find_named(moor, session_id, checkpoint_key(namespace, checkpoint_id))
            return await self._newest(moor, session_id, namespace)

        with suppress(SessionNotFound):
            return await self.saver._in_session((thread_id,), read)
        return None

    async def find_named(self, moor: Moorage, session_id: str, key: str) -> FoundCheckpoint | None:
        """Return the checkpoint under this key, or None."""
        record = await moor.records.get(session_id, CHECKPOINTS, key)
        if record is None:
            return None
        writes = [layout.unpack_write(it.value) async for it in each_record(moor, session_id, CHECKPOINTS, f"{key}/")]
        return FoundCheckpoint(session_id, layout.unpack_header(record.value), writes)

    async def _newest(self, moor: Moorage, session_id: str, namespace: str) -> FoundCheckpoint | None:
        start = checkpoint_key(namespace, "")
        page = await moor.records.list(session_id, CHECKPOINTS, prefix=start, descending=True, limit=1)
        if page.items and checkpoint_of(page.items[0].key)[1]:  # without writes, as at the end of a turn
            return FoundCheckpoint(session_id, layout.unpack_header(page.items[0].value), [])
        async for found in self.each(moor, session_id, namespace, page=AROUND_ONE):
            return found
        return None

    async def each(
        self,
        moor: Moorage,
        session_id: str,
        namespace: str | None = None,
        upto: str | None = None,
        *,
        page: int | None = None,
    ) -> AsyncIterator[FoundCheckpoint]:
        """Yield the checkpoints of a session, those of one namespace newest first; only those before `upto`."""
        prefix = "" if namespace is None else checkpoint_key(namespace, "")
        after = checkpoint_key(namespace, upto) if namespace is not None and upto else None
        limit = min(max(page or PAGE, 1), PAGE)
        ask = partial(moor.records.list, session_id, CHECKPOINTS, prefix=prefix, limit=limit, descending=True)
        writes: dict[str, list[Write]] = {}  # of checkpoints that come later: their keys sort before those of writes
        async for records in each_page(ask, after, by="after"):
            for record in records.items:
                key, is_checkpoint = checkpoint_of(record.key)
                if not is_checkpoint:
                    writes.setdefault(key, []).append(layout.unpack_write(record.value))
                    continue
                found = FoundCheckpoint(session_id, layout.unpack_header(record.value), writes.pop(key, []))
                if upto is None or found.header.checkpoint_id < upto:
                    yield found

    async def _load(self, moor: Moorage, thread_id: str, found: FoundCheckpoint) -> CheckpointTuple | None:
        """Return a checkpoint with its values, and cache it; None if it was removed meanwhile."""
        session_id, header, _ = found
        spot = session_id, header.namespace
        before = self.known.find(spot)
        lists = {} if before is None else before.lists
        needed = header.needs(lists)
        values = await records_of(moor, session_id, needed)
        loaded = self._whole(thread_id, found, needed, values, lists)
        if loaded is None:
            return None
        if before is None or not before.is_whole(header):
            self.known.remember(spot, _known(header, loaded.checkpoint, before))
        if self.asks and waiting_in(loaded.pending_writes or []):
            self.interrupted[session_id] = header.checkpoint_id
        return loaded

    async def load_all(self, moor: Moorage, found: ThreadCheckpoints) -> Tuples:
        """Return checkpoints with their values, reading shared values once; skip those removed meanwhile."""
        needed = [each.header.needs() for _, each in found]
        keys: dict[str, list[str]] = {}
        for (_, each), some in zip(found, needed, strict=True):
            keys.setdefault(each.session_id, []).extend(some)
        values = {session_id: await records_of(moor, session_id, some) for session_id, some in keys.items()}
        loaded = [
            self._whole(thread_id, each, some, values[each.session_id])
            for (thread_id, each), some in zip(found, needed, strict=True)
        ]
        return [each for each in loaded if each is not None]

    def _whole(
        self,
        thread_id: str,
        found: FoundCheckpoint,
        needed: list[str],
        values: Mapping[str, Record],
        lists: KnownLists = NO_LISTS,
    ) -> CheckpointTuple | None:
        if any(key not in values for key in needed):
            return None
        header = found.header
        checkpoint: Checkpoint = self.saver.serde.loads_typed(header.checkpoint)
        checkpoint["channel_values"] = {
            channel: self._value(place, values, lists.get(channel)) for channel, place in header.values.items()
        }
        return CheckpointTuple(
            config_of(thread_id, header.namespace, header.checkpoint_id),
            checkpoint,
            self.saver.serde.loads_typed(header.metadata),
            None if header.parent is None else config_of(thread_id, header.namespace, header.parent),
            self.pending(found.writes),
        )

    def _value(self, place: ValuePlace, found: Mapping[str, Record], known: KnownList | None = None) -> Any:
        load = self.saver.serde.loads_typed
        match place:
            case InlineValue():
                return load((place.kind, place.data))
            case Stored():
                return load(layout.unpack_frame(found[place.key].value))
        items = list[Any]()
        for each in place.slices:
            if known is not None and each in known.loaded:
                items += known.copy_of(each)
                continue
            frames = layout.unpack_segment(found[each.segment].value)[each.start : each.stop]
            items += [load(frame) for frame in frames]
        return items

    def pending(self, writes: list[Write]) -> PendingWrites:
        """Return pending writes as LangGraph takes them."""
        ordered = sorted(writes, key=lambda it: writes_sort_key(it.task_path, it.task_id, it.index))
        return [(it.task_id, it.channel, self.saver.serde.loads_typed(it.value)) for it in ordered]

    # Lists -------------------------------------------------------------------------------------------

    async def match(
        self,
        moor: Moorage,
        config: RunnableConfig | None,
        filter: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> ThreadCheckpoints:
        """Return the checkpoints that match with the ids of their threads, newest first, without their values."""
        asked: Mapping[str, Any] = {} if config is None else config["configurable"]
        namespace, wanted = asked.get("checkpoint_ns"), asked.get("checkpoint_id")
        upto = None if before is None else get_checkpoint_id(before)

        async def match(session_id: str) -> FoundCheckpoints:
            found: FoundCheckpoints = []
            async for each in self.each(moor, session_id, namespace, upto, page=limit if not filter else None):
                if wanted in (None, each.header.checkpoint_id) and self._fits(each.header, filter):
                    found.append(each)
                if limit is not None and len(found) >= limit and namespace is not None:
                    break  # they are sorted newest first
            return found

        found: ThreadCheckpoints = []
        if config is None:
            async for session_id, thread_id in each_thread(moor):
                found += [(thread_id, each) for each in await match(session_id)]
        else:
            thread_id = thread_of(config)
            with suppress(SessionNotFound):
                found = [(thread_id, each) for each in await self.saver._in_session((thread_id,), match)]
        found.sort(key=lambda it: it[1].header.checkpoint_id, reverse=True)
        return found[:limit]

    async def session(self, moor: Moorage, thread_id: str) -> str:
        """Return the id of the session of a thread. Raises SessionNotFound."""
        return (await self.saver._in_session((thread_id,), moor.get)).session_id

    def _fits(self, header: Header, filter: dict[str, Any] | None) -> bool:
        if not filter:
            return True
        metadata = self.saver.serde.loads_typed(header.metadata)
        return all(name in metadata and metadata[name] == value for name, value in filter.items())

    # Delta channels ----------------------------------------------------------------------------------

    async def history(
        self, moor: Moorage, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        thread_id, namespace = thread_of(config), namespace_of(config)
        history: dict[str, DeltaChannelHistory] = {channel: {"writes": []} for channel in channels}
        found = await self.find(moor, thread_id, namespace, get_checkpoint_id(config)) if channels else None
        while found is not None and found.header.parent and any("seed" not in it for it in history.values()):
            found = await self.find(moor, thread_id, namespace, found.header.parent)
            if found is not None:
                await self._step_back(moor, found, history)
        return history

    async def _step_back(self, moor: Moorage, at: FoundCheckpoint, history: dict[str, DeltaChannelHistory]) -> None:
        """Put the writes of one ancestor before the ones collected so far."""
        writes = self.pending(at.writes)
        for channel, found in history.items():
            if "seed" in found:
                continue
            found["writes"][:0] = [write for write in writes if write[1] == channel]
            if (place := at.header.values.get(channel)) is not None:
                found["seed"] = self._value(place, await records_of(moor, at.session_id, layout.keys_of(place)))


def _known(header: Header, checkpoint: Checkpoint, before: Known | None) -> Known:
    lists = {
        channel: KnownList.of(
            checkpoint["channel_values"][channel], place.slices, None if before is None else before.lists.get(channel)
        )
        for channel, place in header.values.items()
        if isinstance(place, Listed)
    }
    values = checkpoint["channel_values"]
    short = {channel: known for channel, value in values.items() if (known := short_list(value)) is not None}
    return Known(header.checkpoint_id, header.epoch, checkpoint["channel_versions"], header.values, lists, short)
