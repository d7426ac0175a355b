"""A store whose contexts are on a separate server: `context_url`.

The log and all other data stay in the store. A change of both is two commits: Moorage first checks that the context's
server answers. A context whose deletion fails expires with its time to live.
"""

from __future__ import annotations

import logging
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from moorage.core.bundle import Bundle
from moorage.core.context import ContextItem, item_of, items_in, record_of
from moorage.core.errors import StoreError
from moorage.core.family import Deletion
from moorage.core.record import CONTEXT, PutRecord, Record, RecordName, RecordQuery, RecordsView
from moorage.core.session import NO_NEEDS, Change, Needs, Session, View
from moorage.ports import Capability, Clock, Decision, ForkDecision, Store, Sweep

if TYPE_CHECKING:
    from collections.abc import Callable

    from moorage.stores.redis.session_context import SessionContext

log = logging.getLogger(__name__)


class ContextBeside:
    """A store that keeps the context of its sessions elsewhere."""

    def __init__(self, store: Store, open_context: Callable[[], SessionContext], clock: Clock) -> None:
        """Wrap a store. `open_context` is called for the first context: hooks need none."""
        self._store, self._open_context, self._clock = store, open_context, clock
        self.capabilities = store.capabilities | {Capability.SHARED_CONTEXT}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        setattr(self, name, found)
        return found

    @cached_property
    def _context(self) -> SessionContext:
        return self._open_context()

    async def records(self, owner: str, ref: str | None, names: list[RecordName], at: datetime) -> list[Record | None]:
        if ref is None or not any(name.namespace == CONTEXT for name in names):
            return await self._store.records(owner, ref, names, at)
        items = await self._items(owner, ref, at)
        return [record_of(name.key, items[name.key]) if name.key in items else None for name in names]

    async def list_records(self, owner: str, ref: str | None, query: RecordQuery, at: datetime) -> list[Record]:
        if ref is None or query.namespace != CONTEXT:
            return await self._store.list_records(owner, ref, query, at)
        return [record_of(key, item) for key, item in sorted((await self._items(owner, ref, at)).items())]

    async def _items(self, owner: str, ref: str, at: datetime) -> dict[str, ContextItem]:
        session = await self._store.get(owner, ref)
        return (await self._context.load(owner, session.session_id, at)).items(at)

    async def apply(
        self, owner: str, ref: str, decide: Decision, *, needs: Needs = NO_NEEDS, expected: int | None = None
    ) -> Change:
        records = needs.records
        if records is None or not any(name.namespace == CONTEXT for name in (*records.names, *records.below)):
            return await self._store.apply(owner, ref, decide, needs=needs, expected=expected)
        session, at = await self._store.get(owner, ref), self._clock.now()
        session.check_version(expected)
        while True:
            kept = await self._context.load(owner, session.session_id, at)
            items = kept.items(at)
            found = {record.name: record for record in (record_of(key, item) for key, item in items.items())}
            head = replace(session, context_version=kept.version)
            change = decide(View(head, records=RecordsView(found)))
            if not change.records:
                return change
            for write in change.records:
                items.pop(write.name.key, None)
                if isinstance(write, PutRecord):
                    items[write.name.key] = item_of(write.record)
            head = change.session
            if await self._context.save(owner, head.session_id, kept, head.context_version, items, head.updated_at):
                return change

    async def fork(
        self, owner: str, ref: str, at: int | None, decide: ForkDecision, *, expected: int | None = None
    ) -> Session:
        source = await self._store.get(owner, ref)
        stored = await self._context.stored(owner, source.session_id)
        session = await self._store.fork(owner, ref, at, decide, expected=expected)
        await self._context.put_stored(owner, session.session_id, stored)
        return session

    async def restore(self, owner: str, bundle: Bundle) -> bool:
        now, session = self._clock.now(), bundle.session
        items = {key: item for key, item in items_in(bundle.records).items() if item.lives(now)}
        if items:
            await self._context.load(owner, session.session_id, now)  # raises before anything is written
        others = [record for record in bundle.records if record.namespace != CONTEXT]
        is_new = await self._store.restore(owner, replace(bundle, records=others))
        if is_new and items:
            await self._context.save(owner, session.session_id, None, session.context_version, items, now)
        return is_new

    async def delete_tree(self, owner: str, ref: str, *args: Any, dry_run: bool = False, **options: Any) -> Deletion:
        deletion = await self._store.delete_tree(owner, ref, *args, dry_run=dry_run, **options)
        await self._forget(owner, [] if dry_run else deletion.session_ids)
        return deletion

    async def sweep(self, owner: str, *args: Any, dry_run: bool = False, **options: Any) -> Sweep:
        swept = await self._store.sweep(owner, *args, dry_run=dry_run, **options)
        await self._forget(owner, [] if dry_run else [tombstone.session_id for tombstone in swept.gone])
        return swept

    async def _forget(self, owner: str, session_ids: list[str]) -> None:
        """Delete contexts of deleted sessions; one that cannot be reached expires with its time to live."""
        if not session_ids:
            return
        try:
            await self._context.delete(owner, session_ids)
        except StoreError as error:
            log.warning("contexts of %d deleted sessions stay until their time is over: %s", len(session_ids), error)

    async def check(self) -> list[str]:
        return [*await self._store.check(), *await self._context.check()]

    def hurry(self) -> None:
        self._store.hurry()
        if self._is_open:
            self._context.hurry()

    async def close(self) -> None:
        if self._is_open:
            await self._context.close()
        await self._store.close()

    @property
    def _is_open(self) -> bool:
        return "_context" in vars(self)
