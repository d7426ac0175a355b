"""After commits: notify other processes, hear of their commits, and keep the statistics of a new store up to date.

A NOTIFY with the owner follows a commit, off the write path: after ten milliseconds, and every forty while
commits continue, however many there were. A notification is a hint: it is lost when a connection breaks, or when
the process dies between commit and notification. So a waiting process also checks every second whether any
transaction has ended since: the database's snapshot tells that without reading a table. LISTEN does not work behind
a transaction pooler: there only these checks remain.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import asyncpg

from moorage.core.errors import MoorageError
from moorage.stores import Stale
from moorage.stores.postgres.connection import LostConnection, PostgresConnection
from moorage.stores.server import LONGEST_LOOK, LOOK_EVERY, ListeningPulse, end

if TYPE_CHECKING:
    from moorage.stores.postgres.access import Pool
    from moorage.stores.postgres.connection import PostgresOptions

TELL_AFTER, TELL_EVERY = 0.01, 0.04  # seconds after the first commit, and between notifications while commits continue
LOOK_EVERY_BEHIND_A_POOLER = 0.1

# PostgreSQL analyzes its tables about every minute. Until then it considers any index that begins with the owner as
# good as the one that finds the row, and every change of a quickly growing store reads all of it. So a process that
# fills a store runs ANALYZE early, a few times, off the write path. A store known to be large is skipped.
AFTER = (50, 1_000, 20_000)  # changes of this process
YOUNG = 20_000  # rows of a table according to the database
_KNOWN = "SELECT max(reltuples) FROM pg_class WHERE oid IN ('moor.sessions'::regclass, 'moor.entries'::regclass)"
_TABLES = ("sessions", "entries", "arrivals", "runs", "turns", "inbox", "records", "approvals")
_ANALYZE = f"ANALYZE (SKIP_LOCKED) {', '.join(f'moor.{table}' for table in _TABLES)}"
_LOOK = "SELECT pg_current_snapshot()::text, extract(epoch FROM clock_timestamp())::float8"


class PostgresBus(ListeningPulse):
    """The pulse of a store."""

    _breaks = (MoorageError, OSError, LostConnection, Stale, asyncpg.PostgresError, asyncpg.InterfaceError)

    def __init__(self, options: PostgresOptions, pool: Pool) -> None:
        super().__init__()
        self._options, self._pool = options, pool
        self._teller: asyncio.Task[None] | None = None
        self._has_news = False
        self._changes, self._left = 0, list(AFTER)
        self._analyzing: asyncio.Task[None] | None = None
        self._name = os.urandom(6).hex()  # identifies its own notifications

    # Notifying ----------------------------------------------------------------------------------

    def committed(self, changes: int) -> None:
        """Wake local waiters at once, and notify other processes shortly after: changes were committed here."""
        self.beat()
        self._changes += changes
        if self._left and self._changes >= self._left[0]:
            self._left.pop(0)
            self._analyzing = asyncio.create_task(self._analyze())
        if self._options.pooler:
            return
        self._has_news = True
        if self._teller is None or self._teller.done():
            self._teller = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        pause = TELL_AFTER
        while self._has_news:
            await asyncio.sleep(pause)
            self._has_news = False
            with suppress(MoorageError, LostConnection, Stale):  # listeners also check by themselves
                async with self._pool.connection(self._pool.retries()) as db:
                    await db.all("SELECT pg_notify(?, ?)", (self._options.channel, self._name))
            pause = min(2 * pause, TELL_EVERY)

    async def _analyze(self) -> None:
        with suppress(MoorageError, LostConnection, Stale):  # the database will analyze by itself later
            async with self._pool.connection(self._pool.retries()) as db:
                [(known,)] = await db.all(_KNOWN)
                if known < YOUNG:
                    await db.script(_ANALYZE)

    # Listening ----------------------------------------------------------------------------------

    async def _follow(self) -> None:
        db = await self._pool.new(self._options.patience)
        try:
            if not self._options.pooler:
                await db.raw.add_listener(self._options.channel, self._told)
            await self._look(db)
        finally:
            db.raw.terminate()

    def _told(self, _: object, __: int, ___: str, whose: object) -> None:
        if whose != self._name:  # local waiters were woken at once
            self.beat()

    async def _look(self, db: PostgresConnection) -> None:
        seen, every = None, LOOK_EVERY_BEHIND_A_POOLER if self._options.pooler else LOOK_EVERY
        while True:
            async with asyncio.timeout(LONGEST_LOOK):
                found = await self.set_clock(db)
            if seen is None:
                self.note_listening()
            elif found != seen:
                self.beat()
            seen = found
            await asyncio.sleep(every)

    async def set_clock(self, db: PostgresConnection) -> str:
        """Measure how far the database's clock is ahead of ours; also return the snapshot of ended transactions."""
        asked = time.monotonic()
        [(snapshot, told)] = await db.all(_LOOK)
        self.set_offset(asked, told)
        return str(snapshot)

    async def close(self) -> None:
        """Send pending notifications, and stop."""
        await end(self._analyzing)
        if self._has_news and self._teller is not None:
            await asyncio.wait({self._teller}, timeout=1)
        await end(self._teller)
        await super().close()
