"""Removing and copying checkpoints. A value is deleted only when no remaining checkpoint needs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec.structs import replace

from moorage.adapters.langgraph import layout
from moorage.adapters.langgraph.layout import CHECKPOINTS, EPOCH, HEAD, VALUES, Header, checkpoint_of
from moorage.adapters.langgraph.messages import said_by
from moorage.adapters.langgraph.reading import TRIES
from moorage.adapters.langgraph.stored import PAGE, config_of, each_record, each_thread, records_of
from moorage.adapters.langgraph.writing import Messages, Requests, ThreadWriter
from moorage.api import Moorage
from moorage.core.errors import InvalidField, SessionGone, SessionNotFound, StoreCorrupt, VersionConflict
from moorage.core.record import Drop, Put

KEPT_EPOCH = Put(namespace=VALUES, key=EPOCH, value=b"", keep=True)

HeaderList = list[Header]  # `list` is a method of a saver
Choice = Callable[[HeaderList], HeaderList]


class ThreadPruner(ThreadWriter):
    """Removes and copies threads."""

    async def delete(self, moor: Moorage, thread_id: str) -> None:
        with suppress(SessionNotFound):
            await self.saver._in_session((str(thread_id),), moor.delete)

    async def delete_runs(self, moor: Moorage, run_ids: Sequence[str]) -> None:
        wanted = set(run_ids)

        def others(headers: HeaderList) -> HeaderList:
            return [it for it in headers if self.saver.serde.loads_typed(it.metadata).get("run_id") not in wanted]

        if wanted:
            async for session_id, _ in each_thread(moor):
                with suppress(SessionNotFound, SessionGone):  # deleted meanwhile
                    await self._keep(moor, session_id, others)

    async def prune(self, moor: Moorage, thread_ids: Sequence[str], strategy: str) -> None:
        choices: dict[str, Choice] = {"keep_latest": self._latest, "delete": lambda _: []}
        if strategy not in choices:
            raise InvalidField("strategy", f"is {strategy!r}; use one of {', '.join(choices)}")
        for thread_id in thread_ids:
            with suppress(SessionNotFound):
                session_id = await self.session(moor, str(thread_id))
                await self._keep(moor, session_id, choices[strategy])

    def _latest(self, headers: HeaderList) -> HeaderList:
        """Return the newest checkpoint of each namespace, and the ancestors that its delta channels need."""
        known = {(it.namespace, it.checkpoint_id): it for it in headers}
        newest = {it.namespace: it for it in sorted(headers, key=lambda it: it.checkpoint_id)}
        kept = []
        for header in newest.values():
            kept.append(header)
            missing = self._delta_channels(header)
            while missing and (above := known.get((header.namespace, header.parent or ""))) is not None:
                header = above
                kept.append(header)
                missing -= header.values.keys()
        return kept

    def _delta_channels(self, header: Header) -> set[str]:
        """Return the channels whose values are built from the writes of ancestors."""
        counters = self.saver.serde.loads_typed(header.metadata).get("counters_since_delta_snapshot") or {}
        return set(counters) - header.values.keys()

    async def _keep(self, moor: Moorage, session_id: str, choose: Choice) -> None:
        """Remove all checkpoints that are not chosen, with their writes and the values that only they need."""
        for _ in range(TRIES):
            guards = await records_of(moor, session_id, [HEAD, EPOCH])
            headers = await self._headers(moor, session_id)
            kept = choose(headers)
            gone = [it for it in headers if it not in kept]
            try:
                await self._remove(moor, session_id, gone, {key: it.version for key, it in guards.items()})
            except VersionConflict:  # a concurrent write
                continue
            await self._clean(moor, session_id, gone)
            return
        raise StoreCorrupt(f"session {session_id}", "others keep writing checkpoints; prune it when it is quiet")

    async def _headers(self, moor: Moorage, session_id: str) -> HeaderList:
        return [it.header async for it in self.each(moor, session_id)]

    async def _remove(self, moor: Moorage, session_id: str, gone: HeaderList, versions: dict[str, int]) -> None:
        """Remove checkpoints unless others removed some, or began to need ancestors, since the versions were read."""
        for start in range(0, len(gone), PAGE):
            drops: Requests = [Drop(namespace=CHECKPOINTS, key=it.key) for it in gone[start : start + PAGE]]
            drops += [Put(namespace=VALUES, key=key, value=b"", version=versions.get(key, 0)) for key in (HEAD, EPOCH)]
            done = await moor.records.write(session_id, drops)
            versions = {it.key: it.version for it in done.records}

    async def _clean(self, moor: Moorage, session_id: str, gone: HeaderList) -> None:
        """Remove the writes of removed checkpoints, and the values that no other needs: later ones cannot need them."""
        needed = {key for it in await self._headers(moor, session_id) for key in it.needs()}
        unused = dict.fromkeys(key for it in gone for key in it.needs() if key not in needed)
        drops: Requests = [Drop(namespace=VALUES, key=key) for key in unused]
        drops += [Drop(namespace=CHECKPOINTS, key=f"{it.key}/", prefix=True) for it in gone]
        for start in range(0, len(drops), PAGE):
            await moor.records.write(session_id, drops[start : start + PAGE])

    # Copies ------------------------------------------------------------------------------------------

    async def copy(self, moor: Moorage, source: str, target: str) -> None:
        """Copy a thread; do nothing if it does not exist."""
        with suppress(SessionNotFound):
            session_id = await self.session(moor, str(source))
            await self.saver._in_session(
                (str(target),), lambda copy: self._copy_records(moor, session_id, copy, str(target))
            )
            await self._say_all(moor, str(source), str(target))

    async def _copy_records(self, moor: Moorage, source: str, target: str, thread_id: str) -> None:
        """Copy values and writes first and checkpoints last, so that no checkpoint exists without them."""
        batch: Requests = [KEPT_EPOCH]
        for namespace, are_checkpoints in ((VALUES, False), (CHECKPOINTS, False), (CHECKPOINTS, True)):
            async for record in each_record(moor, source, namespace):
                if checkpoint_of(record.key)[1] is are_checkpoints and record.key not in (HEAD, EPOCH):
                    value = _copied(record.value) if are_checkpoints else record.value
                    batch.append(Put(namespace=namespace, key=record.key, value=value))
                if len(batch) >= PAGE:
                    await self.store(moor, target, thread_id, batch, [])
                    batch = []
            if batch:
                await self.store(moor, target, thread_id, batch, [])
                batch = []

    async def _say_all(self, moor: Moorage, source: str, target: str) -> None:
        """Add the messages of the newest checkpoint of a thread to the log of another."""
        loaded = await self.get(moor, config_of(source, "", None)) if self.saver._projection else None
        values = {} if loaded is None else loaded.checkpoint["channel_values"]
        said: Messages = []
        for channel, value in values.items():
            if type(value) is list:
                said += said_by(channel, enumerate(value))
        if said:
            await self.saver._in_session((target,), lambda to: self.store(moor, to, target, [], said))


def _copied(checkpoint: bytes) -> bytes:
    """Return a checkpoint for another thread, whose epochs are its own."""
    return layout.pack(replace(layout.unpack_header(checkpoint), epoch=1))
