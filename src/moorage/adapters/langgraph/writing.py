"""Writing threads: each checkpoint is one commit, with the messages that it adds to the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    get_checkpoint_id,
    get_serializable_checkpoint_metadata,
)

from moorage.adapters.foreign_ids import required_id
from moorage.adapters.langgraph import interrupts, layout
from moorage.adapters.langgraph.known import Known, Spot
from moorage.adapters.langgraph.layout import (
    CHECKPOINTS,
    EPOCH,
    HEAD,
    VALUES,
    Header,
    InlineValue,
    Listed,
    Stored,
    ValuePlace,
    Write,
    checkpoint_key,
    new_key,
    version_of,
    write_key,
)
from moorage.adapters.langgraph.lists import SHORTEST, Frame, KnownList, ListPlan, short_list
from moorage.adapters.langgraph.messages import said_by
from moorage.adapters.langgraph.reading import TRIES, Saver, ThreadReader
from moorage.adapters.langgraph.stored import config_of, namespace_of, records_of, thread_of
from moorage.api import Moorage
from moorage.core.entry import MAX_MESSAGES_PER_APPEND, Message
from moorage.core.errors import SessionNotFound, StoreCorrupt, VersionConflict
from moorage.core.record import Put, RecordRequest

MESSAGES_AT_ONCE = MAX_MESSAGES_PER_APPEND // 2
TOUCHED = Put(namespace=VALUES, key=HEAD, value=b"")  # shows a removal that ancestors are needed

Items = list[Any]  # `list` is a method of a saver
Messages = list[Message]
Requests = list[RecordRequest]


class CheckpointDraft:
    """A checkpoint to be written: its records, its messages, and the data to cache."""

    def __init__(self, saver: Saver, spot: Spot, before: Known) -> None:
        self._saver, self._spot, self._before = saver, spot, before
        self.replaces = False  # whether a checkpoint with its id exists
        self._shares = False  # whether it needs stored values
        self.writes: list[RecordRequest] = []
        self.said: list[Message] = []
        self._places: dict[str, ValuePlace] = {}
        self._lists: dict[str, KnownList] = {}
        self._short: dict[str, KnownList] = {}

    def keep(self, channel: str, place: ValuePlace) -> None:
        """Reuse a value of the checkpoint before."""
        if channel in self._before.short:
            self._short[channel] = self._before.short[channel]
        if isinstance(place, InlineValue):
            self._places[channel] = self._placed((place.kind, place.data), layout.SMALL)
            return
        self._shares, self._places[channel] = True, place
        if channel in self._before.lists:
            self._lists[channel] = self._before.lists[channel]

    def add(self, channel: str, value: Any) -> None:
        """Store a value that may have changed."""
        if type(value) is list and len(value) >= SHORTEST:
            self._add_list(channel, value)
            return
        self._places[channel] = self._stored(value)
        if type(value) is list:
            before = self._before.short.get(channel) or self._before.lists.get(channel)
            self._say(channel, value, _unknown(value, before))
        if (known := short_list(value)) is not None:
            self._short[channel] = known

    def finish(self, checkpoint: Checkpoint, metadata: CheckpointMetadata, parent: str | None) -> Known:
        """Add the checkpoint itself, and return the data to cache."""
        dump, epoch = self._saver.serde.dumps_typed, self._before.epoch or 1
        body = dump({**checkpoint, "channel_values": {}})
        header = Header(self._spot[1], checkpoint["id"], parent, body, dump(metadata), self._places, epoch)
        replaced = None if self.replaces else 0
        self.writes += self._guards(metadata)
        self.writes.append(Put(namespace=CHECKPOINTS, key=header.key, value=layout.pack(header), version=replaced))
        return Known(checkpoint["id"], epoch, checkpoint["channel_versions"], self._places, self._lists, self._short)

    def _guards(self, metadata: CheckpointMetadata) -> list[RecordRequest]:
        """Return the writes that refuse it if others removed values that it shares, and that guard what it needs."""
        expected = self._before.epoch if self._shares else None
        epoch = Put(namespace=VALUES, key=EPOCH, value=b"", keep=not self.replaces, version=expected)
        return [TOUCHED, epoch] if metadata.get("counters_since_delta_snapshot") else [epoch]

    def _add_list(self, channel: str, value: list[Any]) -> None:
        plan = ListPlan(value, self._before.lists.get(channel), new_key, self._saver.serde.dumps_typed)
        self.writes += [_value(key, layout.pack(frames)) for key, frames in plan.segments.items()]
        self._shares = self._shares or len(plan.segments) < len(plan.slices)
        self._places[channel], self._lists[channel] = Listed(plan.slices), plan.known()
        short = self._before.short.get(channel)
        self._say(channel, value, plan.fresh if short is None else _unknown(value, short))

    def _stored(self, value: Any) -> ValuePlace:
        return self._placed(self._saver.serde.dumps_typed(value), layout.INLINE)

    def _placed(self, frame: Frame, inline: int) -> ValuePlace:
        """Store a value in the checkpoint if it has at most `inline` bytes, else in a record that others can share."""
        if len(frame[1]) <= inline:
            return InlineValue(*frame)
        key = new_key()
        self.writes.append(_value(key, layout.pack(frame)))
        return Stored(key)

    def _say(self, channel: str, items: list[Any], fresh: Sequence[int]) -> None:
        if self._saver._projection and not self._spot[1]:  # the parent graph keeps a subgraph's relevant messages
            self.said += said_by(channel, ((index, items[index]) for index in fresh))


def _unknown(items: list[Any], known: KnownList | None) -> Sequence[int]:
    """Return the indexes of the items that a known list does not have."""
    if known is None:
        return range(len(items))
    return [found for found in known.find(items) if isinstance(found, int)]


class ThreadWriter(ThreadReader):
    """Writes threads."""

    async def put(
        self,
        moor: Moorage,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        thread_id, namespace, parent = thread_of(config), namespace_of(config), get_checkpoint_id(config)
        facts = get_serializable_checkpoint_metadata(config, metadata)

        async def write(session_id: str) -> None:
            spot, replaces = (session_id, namespace), False
            for _ in range(TRIES):
                draft = await self._draft(moor, spot, checkpoint, parent, new_versions)
                draft.replaces = replaces
                known = draft.finish(checkpoint, facts, parent)
                try:
                    await self.store(moor, session_id, thread_id, draft.writes, draft.said)
                except VersionConflict:  # a concurrent removal may have deleted values that it shares
                    await self._check_known(moor, spot)
                    key = checkpoint_key(namespace, checkpoint["id"])
                    replaces = await self.find_named(moor, session_id, key) is not None
                else:
                    self.known.remember(spot, known)
                    return await self._go_on(moor, session_id, parent)
            raise StoreCorrupt(f"thread {thread_id}", "others keep removing its checkpoints")

        await self.saver._in_session((thread_id,), write)
        return config_of(thread_id, namespace, checkpoint["id"])

    async def _check_known(self, moor: Moorage, spot: Spot) -> None:
        """Forget a cached checkpoint unless it exists unchanged; a put may share its values in the current epoch."""
        session_id, namespace = spot
        if (known := self.known.find(spot)) is None or known.checkpoint_id is None:
            return
        epoch = await _epoch(moor, session_id)  # before the checkpoint: later removals increment it
        found = await self.find_named(moor, session_id, checkpoint_key(namespace, known.checkpoint_id))
        if found is not None and found.header.values == known.places:
            self.known.remember(spot, known._replace(epoch=epoch))
        else:
            self.known.forget(spot)

    async def _go_on(self, moor: Moorage, session_id: str, parent: str | None) -> None:
        """Close the questions of earlier checkpoints.

        The new one must be a child of the one that asked: LangGraph may write that one after the interrupt.
        """
        if parent is not None and self.interrupted.get(session_id) == parent:
            del self.interrupted[session_id]
            await interrupts.settle(moor, session_id)

    async def _draft(
        self, moor: Moorage, spot: Spot, checkpoint: Checkpoint, parent: str | None, new_versions: ChannelVersions
    ) -> CheckpointDraft:
        before = self.known.find(spot) or Known(None, await _epoch(moor, spot[0]), {}, {}, {}, {})
        draft = CheckpointDraft(self.saver, spot, before)
        for channel, value in checkpoint["channel_values"].items():
            place = before.place_of(channel, checkpoint, new_versions) if before.checkpoint_id == parent else None
            if place is None:
                draft.add(channel, value)
            else:
                draft.keep(channel, place)
        return draft

    async def put_writes(
        self, moor: Moorage, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        thread_id, namespace = thread_of(config), namespace_of(config)
        checkpoint_id = str(required_id(config["configurable"], "checkpoint_id"))
        replaces = all(channel in WRITES_IDX_MAP for channel, _ in writes)
        dump = self.saver.serde.dumps_typed
        wrote = [
            Write(task_id, task_path, WRITES_IDX_MAP.get(channel, number), channel, dump(value))
            for number, (channel, value) in enumerate(writes)
        ]
        puts = writes_of(namespace, checkpoint_id, wrote, keep=not replaces)

        async def write(session_id: str) -> None:
            await self.store(moor, session_id, thread_id, [*puts], [])
            waiting = interrupts.waiting_in((task_id, channel, value) for channel, value in writes)
            if waiting and self.asks:
                self.interrupted[session_id] = checkpoint_id
                await interrupts.ask(moor, session_id, waiting)

        await self.saver._in_session((thread_id,), write)

    async def restore_writes(
        self, moor: Moorage, thread_id: str, namespace: str, checkpoint_id: str, writes: Sequence[Write]
    ) -> None:
        """Store pending writes as another saver stored them; existing ones are unchanged."""
        puts = writes_of(namespace, checkpoint_id, writes, keep=True)

        async def write(session_id: str) -> None:
            await self.store(moor, session_id, thread_id, [*puts], [])

        await self.saver._in_session((thread_id,), write)

    async def store(self, moor: Moorage, session_id: str, thread_id: str, writes: Requests, said: Messages) -> None:
        """Write records and messages in one commit; messages of a long earlier history are written first."""
        said = list({message.client_key: message for message in said}.values())
        while len(said) > MAX_MESSAGES_PER_APPEND:
            await self.saver._commit_to(moor, session_id, (thread_id,), [], said[:MESSAGES_AT_ONCE])
            said = said[MESSAGES_AT_ONCE:]
        await self.saver._commit_to(moor, session_id, (thread_id,), writes, said)


def writes_of(namespace: str, checkpoint_id: str, writes: Iterable[Write], *, keep: bool) -> list[Put]:
    """Return the records of pending writes; the last one counts if two have the same task and index."""
    found = {write_key(namespace, checkpoint_id, it.task_id, it.index): it for it in writes}
    return [Put(namespace=CHECKPOINTS, key=key, value=layout.pack(it), keep=keep) for key, it in found.items()]


async def _epoch(moor: Moorage, session_id: str) -> int:
    try:
        return version_of(await records_of(moor, session_id, [EPOCH]), EPOCH)
    except SessionNotFound:
        return 0


def _value(key: str, value: bytes) -> Put:
    return Put(namespace=VALUES, key=key, value=value, version=0)
