"""Reading threads: checkpoints with their values and pending writes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

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
from moorage.adapters.langgraph.known import Known, Spot, Threads
from moorage.adapters.langgraph.layout import (
    CHECKPOINTS,
    EPOCH,
    NO_LISTS,
    WRITES,
    Header,
    InlineValue,
    KnownLists,
    Listed,
    Stored,
    ValuePlace,
    Write,
    checkpoint_key,
    version_of,
)
from moorage.adapters.langgraph.lists import KnownList, short_list
from moorage.adapters.langgraph.stored import (
    config_of,
    each_record,
    each_thread,
    namespace_of,
    records_of,
    thread_of,
)
from moorage.api import Moorage
from moorage.core.errors import SessionNotFound, StoreCorrupt
from moorage.records import Record

TRIES = 20  # attempts to read or change a thread that others change meanwhile

PendingWrites = list[tuple[str, str, Any]]  # `list` is a method of a saver
Tuples = list[CheckpointTuple]
FoundHeaders = list[tuple[str, str, Header]]  # session, thread, checkpoint


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
            found = await self.header(moor, thread_id, namespace, get_checkpoint_id(config))
            if found is None:
                return None
            session_id, header = found
            spot = session_id, namespace
            if (loaded := await self.load(moor, session_id, thread_id, header, remember=spot)) is not None:
                return loaded
        raise StoreCorrupt(f"thread {thread_id}", "values of a checkpoint are missing")

    async def header(
        self, moor: Moorage, thread_id: str, namespace: str, checkpoint_id: str | None
    ) -> tuple[str, Header] | None:
        """Return a checkpoint without its values, and its session; the newest checkpoint if none is named."""

        async def read(session_id: str) -> tuple[str, Header] | None:
            if checkpoint_id:
                record = await moor.records.get(session_id, CHECKPOINTS, checkpoint_key(namespace, checkpoint_id))
            else:
                start = checkpoint_key(namespace, "")
                page = await moor.records.list(session_id, CHECKPOINTS, prefix=start, descending=True, limit=1)
                record = page.items[0] if page.items else None
            return None if record is None else (session_id, layout.unpack_header(record.value))

        with suppress(SessionNotFound):
            return await self.saver._in_session((thread_id,), read)
        return None

    async def load(
        self, moor: Moorage, session_id: str, thread_id: str, header: Header, *, remember: Spot | None = None
    ) -> CheckpointTuple | None:
        """Return a checkpoint with its values; None if it was removed meanwhile."""
        before = None if remember is None else self.known.find(remember)
        lists = {} if before is None else before.lists
        keys = header.needs(lists)
        found = await records_of(moor, session_id, [EPOCH, *keys]) if keys or before is None else {}
        pending = await self.pending(moor, session_id, header)
        loaded = self._whole(thread_id, header, found, pending, lists)
        if remember is not None and loaded is not None:
            # An old epoch is harmless: the next checkpoint is refused, and written again without the cached lists.
            epoch = version_of(found, EPOCH) if found or before is None else before.epoch
            self.known.remember(remember, _known(header, loaded.checkpoint, epoch, before))
            if self.asks and waiting_in(pending):
                self.interrupted[session_id] = header.checkpoint_id
        return loaded

    async def load_all(self, moor: Moorage, found: FoundHeaders) -> Tuples:
        """Return checkpoints with their values, reading shared values once; skip those removed meanwhile."""
        loaded: Tuples = []
        for session_id, thread_id in dict.fromkeys((session, thread) for session, thread, _ in found):
            headers = [header for session, _, header in found if session == session_id]
            needed = list(dict.fromkeys(key for header in headers for key in header.needs()))
            values = await records_of(moor, session_id, needed)
            writes = await self._writes_between(moor, session_id, headers)
            for header in headers:
                pending = self._loaded(writes.get(checkpoint_key(header.namespace, header.checkpoint_id), []))
                if (whole := self._whole(thread_id, header, values, pending)) is not None:
                    loaded.append(whole)
        return sorted(loaded, key=lambda it: str(it.checkpoint["id"]), reverse=True)

    async def _writes_between(self, moor: Moorage, session_id: str, headers: list[Header]) -> dict[str, list[Write]]:
        """Return the writes of checkpoints by checkpoint key; neighbours are read together."""
        found: dict[str, list[Write]] = {}
        for namespace in {header.namespace for header in headers}:
            keys = [checkpoint_key(it.namespace, it.checkpoint_id) for it in headers if it.namespace == namespace]
            first, last = min(keys), max(keys)
            async for record in each_record(moor, session_id, WRITES, checkpoint_key(namespace, ""), after=first):
                key = record.key.rsplit("/", 2)[0]
                if key > last:
                    break
                found.setdefault(key, []).append(layout.unpack_write(record.value))
        return found

    def _whole(
        self,
        thread_id: str,
        header: Header,
        found: Mapping[str, Record],
        pending: PendingWrites,
        lists: KnownLists = NO_LISTS,
    ) -> CheckpointTuple | None:
        if any(key not in found for key in header.needs(lists)):
            return None
        checkpoint: Checkpoint = self.saver.serde.loads_typed(header.checkpoint)
        checkpoint["channel_values"] = {
            channel: self._value(place, found, lists.get(channel)) for channel, place in header.values.items()
        }
        return CheckpointTuple(
            config_of(thread_id, header.namespace, header.checkpoint_id),
            checkpoint,
            self.saver.serde.loads_typed(header.metadata),
            None if header.parent is None else config_of(thread_id, header.namespace, header.parent),
            pending,
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

    async def pending(self, moor: Moorage, session_id: str, header: Header) -> PendingWrites:
        """Return the pending writes of a checkpoint."""
        start = f"{checkpoint_key(header.namespace, header.checkpoint_id)}/"
        return self._loaded(
            [layout.unpack_write(it.value) async for it in each_record(moor, session_id, WRITES, start)]
        )

    def _loaded(self, writes: list[Write]) -> PendingWrites:
        ordered = sorted(writes, key=lambda it: writes_sort_key(it.task_path, it.task_id, it.index))
        return [(it.task_id, it.channel, self.saver.serde.loads_typed(it.value)) for it in ordered]

    # Lists -------------------------------------------------------------------------------------------

    async def find(
        self,
        moor: Moorage,
        config: RunnableConfig | None,
        filter: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> FoundHeaders:
        """Return the checkpoints that match, newest first, without their values."""
        asked: Mapping[str, Any] = {} if config is None else config["configurable"]
        namespace, wanted = asked.get("checkpoint_ns"), asked.get("checkpoint_id")
        upto = None if before is None else get_checkpoint_id(before)
        found: FoundHeaders = []
        async for session_id, thread_id in self._sessions(moor, config):
            async for header in self.headers(moor, session_id, namespace, upto, most=limit if not filter else None):
                if wanted in (None, header.checkpoint_id) and self._fits(header, filter):
                    found.append((session_id, thread_id, header))
                if limit is not None and len(found) >= limit and config is not None and namespace is not None:
                    break  # they are sorted newest first
        found.sort(key=lambda it: it[2].checkpoint_id, reverse=True)
        return found[:limit]

    async def _sessions(self, moor: Moorage, config: RunnableConfig | None) -> AsyncIterator[tuple[str, str]]:
        """Yield sessions and the ids of their threads: the one of the config, or all."""
        if config is None:
            async for each in each_thread(moor):
                yield each
            return
        with suppress(SessionNotFound):
            yield await self.session(moor, thread_of(config)), thread_of(config)

    async def session(self, moor: Moorage, thread_id: str) -> str:
        """Return the id of the session of a thread. Raises SessionNotFound."""
        return (await self.saver._in_session((thread_id,), moor.get)).session_id

    async def headers(
        self, moor: Moorage, session_id: str, namespace: str | None, upto: str | None, most: int | None = None
    ) -> AsyncIterator[Header]:
        """Yield checkpoints of a session, those of one namespace newest first."""
        prefix = "" if namespace is None else checkpoint_key(namespace, "")
        after = checkpoint_key(namespace, upto) if namespace is not None and upto else None
        async for record in each_record(moor, session_id, CHECKPOINTS, prefix, descending=True, after=after, page=most):
            header = layout.unpack_header(record.value)
            if upto is None or header.checkpoint_id < upto:
                yield header

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
        found = await self.header(moor, thread_id, namespace, get_checkpoint_id(config)) if channels else None
        while found is not None and found[1].parent and any("seed" not in it for it in history.values()):
            found = await self.header(moor, thread_id, namespace, found[1].parent)
            if found is not None:
                await self._step_back(moor, *found, history)
        return history

    async def _step_back(
        self, moor: Moorage, session_id: str, header: Header, history: dict[str, DeltaChannelHistory]
    ) -> None:
        """Put the writes of one ancestor before the ones collected so far."""
        writes = await self.pending(moor, session_id, header)
        for channel, found in history.items():
            if "seed" in found:
                continue
            found["writes"][:0] = [write for write in writes if write[1] == channel]
            if (place := header.values.get(channel)) is not None:
                found["seed"] = self._value(place, await records_of(moor, session_id, layout.keys_of(place)))


def _known(header: Header, checkpoint: Checkpoint, epoch: int, before: Known | None) -> Known:
    lists = {
        channel: KnownList.of(
            checkpoint["channel_values"][channel], place.slices, None if before is None else before.lists.get(channel)
        )
        for channel, place in header.values.items()
        if isinstance(place, Listed)
    }
    values = checkpoint["channel_values"]
    short = {channel: known for channel, value in values.items() if (known := short_list(value)) is not None}
    return Known(header.checkpoint_id, epoch, checkpoint["channel_versions"], header.values, lists, short)
