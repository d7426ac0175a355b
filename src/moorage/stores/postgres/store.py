"""The PostgreSQL store: several servers on several machines share its data.

`stores/sql/store.py` says which job each method runs. A store connects at its first use, and then brings its schema up
to date.
"""

from __future__ import annotations

from asyncio import Lock
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from moorage import ports
from moorage.core.dump import DumpKind, DumpRecord
from moorage.core.entry import Entry, Message
from moorage.core.query import Page
from moorage.core.session import Change, Stamp
from moorage.core.work import Claim
from moorage.ports import Claimed, CommitWatcher
from moorage.stores import sql
from moorage.stores.postgres import log, migrate, queue, search
from moorage.stores.postgres.access import PostgresAccess
from moorage.stores.postgres.connection import PostgresConnection, read_url
from moorage.stores.sealing import Sealer
from moorage.stores.server import ServerClock
from moorage.stores.sql.sealed import Rewritten
from moorage.stores.sql.store import SNAPSHOT, SqlStore, job
from moorage.stores.sql.work import WantedTurns


class PostgresStore(SqlStore):
    """Keeps sessions in a schema of a PostgreSQL database."""

    _access: PostgresAccess

    def __init__(
        self, url: str, sealer: Sealer | None = None, *, patience: float | None = None, is_known: bool = False
    ) -> None:
        """Open the store of a URL. With `patience`, callers wait at most so many seconds for it.

        With `is_known`, wait for the database even if the first connection is refused.
        """
        self._is_sealed = sealer is not None and sealer.seals
        super().__init__(is_sealed=self._is_sealed)
        options = read_url(url) if patience is None else replace(read_url(url), patience=patience)
        self._access = PostgresAccess(options, sealer, prepared, is_known=is_known)
        self._groups = log.Groups(self._access)
        self._locks: dict[tuple[str, str], Lock] = {}
        self._hands = queue.Hands()
        self.clock = ServerClock(self._access.bus)

    async def _number(self, owner: str) -> None:
        await self._access.read(lambda db: log.number(db, owner))

    def _search(self) -> Any:
        return search

    # Changing -----------------------------------------------------------------------------------

    async def apply(self, owner: str, ref: str, *args: Any, **options: Any) -> Change:
        """Let changes of one session in this process run one after another: a collision costs a round trip."""
        place = owner, ref
        lock = self._locks.setdefault(place, Lock())
        try:
            async with lock:
                return await super().apply(owner, ref, *args, **options)
        finally:
            if not lock.locked() and self._locks.get(place) is lock:
                del self._locks[place]

    async def append(self, owner: str, ref: str, messages: list[Message], stamp: Stamp, **options: Any) -> list[Entry]:
        one = log.AppendedMessages(owner, ref, messages, stamp, options.get("token"))
        is_plain = messages and options.get("expected") is None and not self._is_sealed and one.is_plain
        if is_plain and (done := await self._groups.append(one)) is not None:
            return done
        return await super().append(owner, ref, messages, stamp, **options)

    async def _is_due(self, wanted: WantedTurns, at: int, after: int) -> bool:
        return await self._access.read(lambda db: queue.is_due(db, wanted, at, after))

    async def _claim(self, wanted: WantedTurns, wish: Claim, stamp: Stamp, after: int) -> Claimed | int | None:
        tries = 0

        async def take(db: PostgresConnection) -> Claimed | int | None:
            nonlocal tries
            tries += 1
            return await queue.claim_next(db, wanted, wish, stamp, after, self._hands)

        found = await (self._access.transact(take) if self._hands.to_lock else self._access.write(take))
        self._hands.note(has_collided=tries > 1)
        return found

    # Of many sessions at once -------------------------------------------------------------------

    tails = job(ports.Log.tails, lambda: log.tails, SNAPSHOT)

    # Care ---------------------------------------------------------------------------------------

    totals = job(ports.Counting.totals, lambda: migrate.totals, SNAPSHOT)
    check = job(ports.Store.check, lambda: migrate.check, SNAPSHOT)

    def on_commit(self, watcher: CommitWatcher) -> None:
        self._access.watcher = watcher

    def hurry(self) -> None:
        self._access.pool.hurry()

    async def seal(self, progress: Callable[[int], None] | None = None) -> Rewritten:
        """Seal all bodies with the first key; call `progress` with the number of rows examined."""
        return await sql.sealed.rewrite(self._access.transact, progress)

    async def count_plain(self) -> int:
        """Return how many bodies `seal` would seal. Changes nothing, not even the schema."""
        return await self._access.look(sql.sealed.count_plain)

    async def schema(self) -> int:
        """Return the version of the schema; 0 if there is none. Changes nothing."""
        return await self._access.look(migrate.schema_version)

    async def dump(self, kind: DumpKind, limit: int, cursor: str | None = None) -> Page[DumpRecord]:
        if kind is DumpKind.FEED and cursor is None:
            await self._access.write(log.number_all)
        return await super().dump(kind, limit, cursor)

    def pulse(self) -> int:
        return self._access.bus.pulse()

    async def wait(self, seen: int, timeout: float) -> int:
        return await self._access.bus.wait(seen, timeout)

    async def close(self) -> None:
        await self._groups.finish()
        await self._access.close()


async def prepared(db: PostgresConnection) -> None:
    """Bring the schema up to date, and mark it as sealed if needed."""
    await migrate.migrate(db)
    if db.opener is not None and not await sql.sealed.is_marked(db, db.opener):
        async with db.transaction():
            await db.run("SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", (f"moorage {db.prefix} sealing",))
            await sql.sealed.mark(db, db.opener)
