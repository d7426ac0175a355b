"""The PostgreSQL store: several servers on several machines, one truth.

The methods say what is read or written; the modules beside this one say how. A store connects
when it is first used, and brings its schema up to date then.
"""

from __future__ import annotations

from asyncio import Lock
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial

from msgspec.structs import replace

from moorage.clocks import SystemClock
from moorage.core.approval import Approval
from moorage.core.bundle import Bundle
from moorage.core.context import ContextChange
from moorage.core.entry import Entry, Message
from moorage.core.event import Event, Hit, search_words
from moorage.core.query import Page, SessionQuery
from moorage.core.session import Asker, Change, Session, Stamp
from moorage.ports import (
    BirthDecision,
    Capability,
    CommitWatcher,
    ContextDecision,
    Decision,
    ForkDecision,
    Tail,
)
from moorage.stores.postgres import context, deletion, find, heads, log, search, transfer
from moorage.stores.postgres.access import Access, Job, T
from moorage.stores.postgres.bus import Bus
from moorage.stores.postgres.connection import Connection
from moorage.stores.postgres.groups import Groups
from moorage.stores.postgres.migrate import migrate, schema_version
from moorage.stores.postgres.options import read_url
from moorage.stores.postgres.queue import Hands
from moorage.stores.rows import micros
from moorage.stores.sql.store import SqlStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from moorage.core.fact import Size
    from moorage.core.record import Record
    from moorage.core.work import Claim
    from moorage.ports import Claimed
    from moorage.stores.postgres.queue import Wanted
    from moorage.stores.postgres.sealed import Rewritten
    from moorage.stores.sealing import Sealer
    from moorage.stores.sql.family import Doomed


class DatabaseClock(SystemClock):
    """The database's clock, as far as this machine knows it: so leases mean the same on every machine.

    Times still come in with the call. How far it is ahead of this machine's monotonic clock is measured
    whenever the store looks for others' writes, every second: a step of this machine's own clock moves nothing.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.monotonic() + self._bus.offset, UTC)


class PostgresStore(SqlStore):
    """Keeps sessions in a schema of a PostgreSQL database."""

    capabilities = frozenset({Capability.SEARCH, Capability.PUSH})

    def __init__(self, url: str, sealer: Sealer | None = None, *, patience: float | None = None) -> None:
        """The store that a URL names. With `patience`, callers wait so many seconds for it and no longer."""
        self._is_sealed = sealer is not None and sealer.seals
        if self._is_sealed:
            self.capabilities = frozenset({Capability.PUSH})
        options = read_url(url) if patience is None else replace(read_url(url), patience=patience)
        self._access = Access(options, sealer, prepared)
        self._groups = Groups(self._access)
        self._locks: dict[tuple[str, str], Lock] = {}
        self._hands = Hands()
        self._queued: Wanted | None = None  # of whose turns one was given out last, so that there may be more
        self.clock = DatabaseClock(self._access.bus)

    async def _read(self, job: Job[T]) -> T:
        return await self._access.read(job)

    async def _snapshot(self, job: Job[T]) -> T:
        return await self._access.snapshot(job)

    async def _write(self, job: Job[T]) -> T:
        return await self._access.write(job)

    async def _transact(self, job: Job[T]) -> T:
        return await self._access.transact(job)

    async def _delete(self, db: Connection, owner: str, doomed: list[Doomed], stamp: Stamp) -> None:
        await deletion.delete(db, owner, doomed, stamp)

    # Sessions -----------------------------------------------------------------------------------

    async def create(
        self, owner: str, decide: BirthDecision, *, parent: str | None = None, asker: Asker | None = None
    ) -> Session:
        return await self._access.write(lambda db: heads.create(db, owner, decide, parent, asker))

    async def fork(
        self, owner: str, ref: str, at: int | None, decide: ForkDecision, *, expected: int | None = None
    ) -> Session:
        return await self._access.write(lambda db: heads.fork(db, owner, ref, at, decide, expected))

    async def get(self, owner: str, ref: str) -> Session:
        async def job(db: Connection) -> Session:
            return (await heads.load(db, owner, ref)).session

        return await self._access.read(job)

    async def find(self, owner: str, query: SessionQuery) -> Page[Session]:
        if query.by_update:
            await self._number(owner)
        return await self._access.read(lambda db: find.find(db, owner, query))

    async def apply(
        self,
        owner: str,
        ref: str,
        decide: Decision,
        *,
        expected: int | None = None,
        approval: str | None = None,
        turn: str | None = None,
        item: str | None = None,
        run: str | None = None,
        asker: Asker | None = None,
    ) -> Change:
        async with self._in_turn(owner, ref):
            return await self._access.write(
                lambda db: heads.apply(db, owner, ref, decide, expected, approval, turn, item, run, asker)
            )

    # The log ------------------------------------------------------------------------------------

    async def append(
        self,
        owner: str,
        ref: str,
        messages: list[Message],
        stamp: Stamp,
        *,
        token: str | None = None,
        expected: int | None = None,
    ) -> list[Entry]:
        one = log.Appending(owner, ref, messages, stamp, token)
        is_plain = messages and expected is None and not self._is_sealed and one.is_plain
        if is_plain and (done := await self._groups.append(one)) is not None:
            return done
        return await self._access.write(lambda db: log.append(db, owner, ref, messages, stamp, token, expected))

    async def feed(self, owner: str, after: int, limit: int) -> list[Event]:
        await self._number(owner)
        return await self._snapshot(lambda db: log.feed(db, owner, after, limit))

    async def feed_end(self, owner: str) -> int:
        await self._number(owner)
        return await self._access.read(lambda db: log.feed_end(db, owner))

    async def _number(self, owner: str) -> None:
        await self._access.read(lambda db: log.number(db, owner))

    # Of many sessions at once --------------------------------------------------------------------

    async def find_many(self, owner: str, queries: list[SessionQuery]) -> list[Page[Session]]:
        from moorage.stores.postgres import many

        if any(query.by_update for query in queries):
            await self._number(owner)
        return await self._snapshot(lambda db: many.find_many(db, owner, queries))

    async def tails(
        self, owner: str, session_ids: list[str], limit: int, pins: int = 100, *, before: int | None = None
    ) -> list[Tail]:
        from moorage.stores.postgres import many

        return await self._snapshot(lambda db: many.tails(db, owner, session_ids, limit, pins, before))

    async def approvals_of(
        self, owner: str, session_ids: list[str], *, pending_only: bool = True, limit: int = 100
    ) -> list[list[Approval]]:
        from moorage.stores.postgres import many

        return await self._access.read(lambda db: many.approvals_of(db, owner, session_ids, pending_only, limit))

    # Context and approvals ----------------------------------------------------------------------

    async def write_context(
        self,
        owner: str,
        ref: str,
        decide: ContextDecision,
        at: datetime,
        key: str | None = None,
        *,
        expected: int | None = None,
    ) -> ContextChange:
        async with self._in_turn(owner, ref):
            return await self._access.write(lambda db: context.write(db, owner, ref, decide, micros(at), key, expected))

    # Runs, turns, inboxes -----------------------------------------------------------------------

    async def claim(
        self,
        owners: tuple[str, ...],
        agents: tuple[str, ...],
        wish: Claim,
        stamp: Stamp,
        *,
        full: tuple[str, ...] = (),
        root: str | None = None,
    ) -> Claimed | None:
        """Looked for without a transaction, unless there was something just now: to look costs little."""
        from moorage.stores.postgres import queue

        wanted = queue.Wanted(wish.launcher_id, owners, tuple(agent for agent in agents if agent not in full), root)
        found: Claimed | int | None = 0
        while isinstance(found, int):  # the place to go on looking from
            look = partial(queue.is_due, wanted=wanted, at=micros(stamp.at), after=found)
            take = partial(queue.claim_next, wanted=wanted, wish=wish, stamp=stamp, after=found, hands=self._hands)
            is_likely = found == 0 and self._queued == wanted
            found = await self._claimed(take) if is_likely or await self._access.read(look) else None
        self._queued = None if found is None else wanted
        return found

    async def _claimed(self, take: Job[Claimed | int | None]) -> Claimed | int | None:
        tries = 0

        async def job(db: Connection) -> Claimed | int | None:
            nonlocal tries
            tries += 1
            return await take(db)

        must_lock = self._hands.must_lock
        found = await (self._access.transact(job) if must_lock else self._access.write(job))
        self._hands.note(has_collided=tries > 1)
        return found

    # What is counted ----------------------------------------------------------------------------

    async def size(self) -> Size | None:
        from moorage.stores.postgres.size import size

        return await self._snapshot(size)

    def on_commit(self, watcher: CommitWatcher) -> None:
        self._access.watcher = watcher

    def hurry(self) -> None:
        self._access.pool.hurry()

    # Search, transfer, care ---------------------------------------------------------------------

    async def search(self, owner: str, text: str, limit: int) -> list[Hit]:
        from moorage.stores.postgres import sealed  # who searches has the time

        await self._access.read(sealed.check_searchable)
        upto = await self.feed_end(owner)  # later writes must not keep us from answering
        while await self._access.read(lambda db: search.is_behind(db, owner, upto)):
            await self._access.transact(lambda db: search.catch_up(db, owner))
        return await self._access.read(lambda db: search.search(db, owner, search_words(text), limit))

    async def restore(self, owner: str, bundle: Bundle) -> bool:
        return await self._access.write(lambda db: transfer.restore(db, owner, bundle))

    async def seal(self, progress: Callable[[int], None] | None = None) -> Rewritten:
        """Seal what is there with the first key; tell `progress` how many rows were looked at."""
        from moorage.stores.postgres import sealed

        return await sealed.rewrite(self._access, progress)

    async def count_plain(self) -> int:
        """How many bodies `seal` would seal. Changes nothing, the schema included."""
        from moorage.stores.postgres import sealed

        return await self._access.look(sealed.count_plain)

    async def schema(self) -> int:
        """The version of the schema as it is; 0 if there is none. Changes nothing."""
        return await self._access.look(schema_version)

    async def dump(self, kind: str, limit: int, cursor: str | None = None) -> Page[Record]:
        from moorage.stores.postgres import records  # who moves everything has the time

        if kind == "feed" and cursor is None:
            await self._access.write(records.number_all)
        return await super().dump(kind, limit, cursor)

    async def load(self, records: list[Record], mark: str | None) -> None:
        from moorage.stores.postgres import records as taking_in

        await self._access.transact(lambda db: taking_in.load(db, records, mark))

    async def check(self) -> list[str]:
        return await self._snapshot(transfer.check)

    def pulse(self) -> int:
        return self._access.bus.pulse()

    async def wait(self, seen: int, timeout: float) -> int:
        return await self._access.bus.wait(seen, timeout)

    async def close(self) -> None:
        await self._groups.finish()
        await self._access.close()

    @asynccontextmanager
    async def _in_turn(self, owner: str, ref: str) -> AsyncIterator[None]:
        """Those of this process who change one session do it one after the other: to collide costs a round trip."""
        place = (owner, ref)
        lock = self._locks.setdefault(place, Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked() and self._locks.get(place) is lock:
                del self._locks[place]


async def prepared(db: Connection) -> None:
    """Bring the schema up to date, and mark it as sealed if need be."""
    await migrate(db)
    if db.opener is not None:
        from moorage.stores.postgres import sealed

        await sealed.prepare(db)
