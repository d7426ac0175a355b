"""Statistics for a new store.

PostgreSQL analyzes its tables about every minute. Until then it considers any index that begins with the owner as
good as the one that finds the row, and every change of a quickly growing store reads all of it. So a process that
fills a store runs ANALYZE early, a few times, off the write path. A store known to be large is skipped.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from moorage.core.errors import MoorageError
from moorage.stores import Stale
from moorage.stores.postgres.connection import LostConnection

if TYPE_CHECKING:
    from moorage.stores.postgres.access import Pool

AFTER = (50, 1_000, 20_000)  # changes of this process
YOUNG = 20_000  # rows of a table according to the database

_KNOWN = "SELECT max(reltuples) FROM pg_class WHERE oid IN ('moor.sessions'::regclass, 'moor.entries'::regclass)"
_TABLES = ("sessions", "entries", "arrivals", "runs", "turns", "inbox", "records", "approvals")
_COUNT = f"ANALYZE (SKIP_LOCKED) {', '.join(f'moor.{table}' for table in _TABLES)}"


class Statistics:
    """Counts changes, and runs ANALYZE."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._changes, self._left = 0, list(AFTER)
        self._counting: asyncio.Task[None] | None = None

    def committed(self, changes: int) -> None:
        """Count the changes of a commit."""
        self._changes += changes
        if self._left and self._changes >= self._left[0]:
            self._left.pop(0)
            self._counting = asyncio.create_task(self._count())

    async def _count(self) -> None:
        with suppress(MoorageError, LostConnection, Stale):  # the database will analyze by itself later
            async with self._pool.connection(self._pool.retries()) as db:
                known = await db.one(_KNOWN)
                if known is not None and known[0] < YOUNG:
                    await db.script(_COUNT)

    async def close(self) -> None:
        """Stop the task."""
        if self._counting is not None:
            self._counting.cancel()
            with suppress(asyncio.CancelledError):
                await self._counting
