"""Access to the database: a pool of connections, and how jobs run on them.

A job is a coroutine function of a connection. A job that reads is repeated when its connection breaks, until the
caller's patience ends. A job that writes is repeated if it was certainly not committed: the database was unreachable,
refused it, or a concurrent commit won. A caller whose change has an unknown outcome gets `outcome_unknown`.

No lock is held while Python decides: a job reads, decides, and commits with one statement, which is refused if what it
read has changed. Only the second attempt locks what it reads, so that writers of one session queue up.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg

from moorage.core.errors import MoorageError, OutcomeUnknown, StoreBusy, StoreUnavailable
from moorage.stores import Stale
from moorage.stores.postgres.bus import PostgresBus
from moorage.stores.postgres.connection import LostConnection, PostgresConnection, PostgresOptions, Statements, connect
from moorage.stores.sealing import Sealer
from moorage.stores.server import Retries, StoreServer

T = TypeVar("T")
PostgresJob = Callable[[PostgresConnection], Awaitable[T]]

MOST_TRIES = 40  # attempts of a change that loses against concurrent ones
MOST_BROKEN_RULES = 5  # attempts of a change that violates the database's constraints
_NEVER_MIND = ("28", "3D", "42")  # no such user, password or database: waiting does not help


class PostgresAccess:
    """Runs jobs on connections of a pool."""

    def __init__(
        self, options: PostgresOptions, sealer: Sealer | None, prepare: PostgresJob[None], *, is_known: bool = False
    ) -> None:
        """Create a pool. With `is_known`, wait for the database even if the first connection is refused."""
        self.options = options
        self.pool = Pool(options, sealer, self._prepare, is_known=is_known)
        self.bus = PostgresBus(options, self.pool)
        self._prepare_store = prepare
        self.watcher: Callable[[int, float], None] | None = None

    async def _prepare(self, db: PostgresConnection) -> None:
        await self._prepare_store(db)
        await self.bus.set_clock(db)

    async def read(self, job: PostgresJob[T]) -> T:
        """Run a job that only reads."""
        patience = self.pool.retries()
        await self.bus.ready()
        while True:
            try:
                async with self.pool.connection(patience) as db:
                    return await job(db)
            except (LostConnection, Stale) as error:
                await patience.wait(error)

    async def look(self, job: PostgresJob[T]) -> T:
        """Run a job that only reads, on a database whose schema may be old or missing."""
        patience = self.pool.retries()
        while True:
            try:
                db = await self.pool.new(max(patience.left, 0.1))
                try:
                    return await job(db)
                finally:
                    await close_raw(db.raw)
            except LostConnection as error:
                await patience.wait(error)

    async def snapshot(self, job: PostgresJob[T]) -> T:
        """Run a job whose reads all see one instant."""

        async def at_one_instant(db: PostgresConnection) -> T:
            async with db.snapshot():
                return await job(db)

        return await self.read(at_one_instant)

    glance = read  # another connection is as fast

    async def write(self, job: PostgresJob[T]) -> T:
        """Run a job that commits with one statement, its last; from the second attempt on within a transaction."""
        return await self._tried(job, locks_at_once=False)

    async def transact(self, job: PostgresJob[T]) -> T:
        """Run a job within a transaction."""
        return await self._tried(job, locks_at_once=True)

    async def _tried(self, job: PostgresJob[T], *, locks_at_once: bool) -> T:
        patience, tries = self.pool.retries(), 0
        while True:
            began, tries = time.monotonic(), tries + 1
            try:
                async with self.pool.connection(patience) as db:
                    result = await (_locked(db, job) if locks_at_once or tries > 1 else job(db))
                    if db.has_written:
                        self.bus.committed(db.changes)
                        if self.watcher is not None:
                            self.watcher(db.changes, time.monotonic() - began)
                    return result
            except Stale as error:
                if tries >= (MOST_BROKEN_RULES if error.is_rule else MOST_TRIES):
                    shown = self.options.shown
                    raise StoreUnavailable(f"{shown} refuses it ({error})", store=shown) from error
            except LostConnection as error:
                if not error.is_certain:
                    raise OutcomeUnknown(self.options.shown, str(error)) from error
                await patience.wait(error)

    async def close(self) -> None:
        """Close all connections."""
        await self.bus.close()
        await self.pool.close()


async def _locked(db: PostgresConnection, job: PostgresJob[T]) -> T:
    db.is_locking = True
    try:
        async with db.transaction():
            return await job(db)
    finally:
        db.is_locking = False


class Pool(StoreServer):
    """Connections, opened when needed and kept for the next caller."""

    def __init__(
        self, options: PostgresOptions, sealer: Sealer | None, prepare: PostgresJob[None], *, is_known: bool
    ) -> None:
        super().__init__(options.shown, options.patience, is_known=is_known)
        self._options, self._sealer, self._prepare = options, sealer, prepare
        self._statements = Statements(options.schema)
        self._idle: list[PostgresConnection] = []
        self._free = asyncio.Semaphore(options.pool)
        self._is_prepared, self._preparing = False, asyncio.Lock()

    def connection(self, patience: Retries) -> Lent:
        """Lend a connection. Raises StoreBusy if all stay in use, LostConnection if none can be opened."""
        return Lent(self, patience)

    async def take(self, patience: Retries) -> PostgresConnection:
        """Return a connection that the caller has to give back."""
        self.process.check()
        try:
            async with asyncio.timeout(max(patience.left, 0) if self._free.locked() else None):
                await self._free.acquire()
        except TimeoutError:
            raise StoreBusy(self.shown) from None
        try:
            while self._idle:
                if not (db := self._idle.pop()).raw.is_closed():
                    return db
            db = await self.new(max(patience.left, 0.1))
            await self._prepare_once(db)
        except BaseException:
            self._free.release()
            raise
        return db

    async def new(self, timeout: float) -> PostgresConnection:
        """Open a separate connection. Raises StoreUnavailable, or LostConnection if a retry may succeed."""
        try:
            raw = await connect(self._options, timeout)
        except (OSError, asyncpg.InterfaceError, asyncpg.PostgresError) as error:
            if _is_hopeless(error):
                raise StoreUnavailable(f"{self.shown}: {error}", store=self.shown) from error
            raise LostConnection(error, is_certain=True) from error
        self.is_known = True
        return PostgresConnection(raw, self.shown, self._statements, self._sealer)

    async def _prepare_once(self, db: PostgresConnection) -> None:
        """Let the first connection bring the schema up to date; the others wait for that."""
        if self._is_prepared:
            return
        try:
            async with self._preparing:
                if not self._is_prepared:
                    await self._prepare(db)
                    self._is_prepared = True
        except BaseException as error:
            db.raw.terminate()
            if isinstance(error, LostConnection):  # no change has begun, whether or not the schema exists
                raise LostConnection(error, is_certain=True) from error
            raise

    def give_back(self, db: PostgresConnection, *, is_lost: bool) -> None:
        """Return a connection to the pool. If it was lost, drop all connections to the dead server."""
        if is_lost:
            for other in self._idle:
                other.raw.terminate()
        if self.process.is_closed:
            db.raw.terminate()
        elif not db.raw.is_closed():
            self._idle.append(db)
        self._free.release()

    async def close(self) -> None:
        """Close idle connections; those in use are closed when they are given back."""
        self.process.is_closed = True
        idle, self._idle = self._idle, []
        for db in idle:
            await close_raw(db.raw)


class Lent:
    """A lent connection of a pool. Every statement takes one, so this is no generator-based context manager."""

    __slots__ = ("_db", "_patience", "_pool")

    def __init__(self, pool: Pool, patience: Retries) -> None:
        self._pool, self._patience = pool, patience

    async def __aenter__(self) -> PostgresConnection:
        self._db = db = await self._pool.take(self._patience)
        db.has_written, db.changes = False, 1
        return db

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and not isinstance(error, MoorageError | Stale):  # an error halfway
            self._db.raw.terminate()
        self._pool.give_back(self._db, is_lost=isinstance(error, LostConnection))


def _is_hopeless(error: Exception) -> bool:
    """Return whether waiting cannot help: wrong settings, an untrusted certificate, a server without TLS."""
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "").startswith(_NEVER_MIND)
    nonsense = isinstance(error, ssl.SSLCertVerificationError | asyncpg.ClientConfigurationError)
    return nonsense or "rejected SSL upgrade" in str(error)


async def close_raw(raw: asyncpg.Connection[Any]) -> None:
    """Close a connection, and wait only briefly for it."""
    try:
        await raw.close(timeout=2)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
        raw.terminate()
