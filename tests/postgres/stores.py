"""Empty stores on a PostgreSQL server, many in a row: one database, which is emptied in between."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import asyncpg

from moorage.stores.postgres.store import PostgresStore
from moorage.stores.sealing import Sealer
from moorage.testing.postgres import Databases

# Tables are small here: to delete rows takes a fiftieth of what TRUNCATE takes to make new files.
_EMPTY = """
DO $$ DECLARE each text; BEGIN
    FOR each IN SELECT relname FROM pg_class WHERE relnamespace = 'moorage'::regnamespace AND relkind = 'r'
        AND relname NOT IN ('migrations', 'documents')
    LOOP EXECUTE format('DELETE FROM moorage.%I', each); END LOOP;
    DELETE FROM moorage.documents WHERE key <> 'encryption at rest';
END $$
"""


class DatabasePool:
    """A database on a server that gives empty stores, one at a time."""

    def __init__(self, server: Databases) -> None:
        self._server = server
        self._name: str | None = None
        self._kept: PostgresStore | None = None

    @property
    def url(self) -> str:
        """The database."""
        if self._name is None:
            self._name = self._server.create_database()
        return self._server.url(self._name)

    async def store(self, sealer: Sealer | None = None, options: str = "", *, is_new: bool = False) -> PostgresStore:
        """An empty store; what others left behind is gone. With `is_new`, no page of it was ever written to."""
        if is_new:
            self.drop()
        is_new = self._name is None
        url = self.url
        if not is_new:
            await empty(url)
        return PostgresStore(with_options(url, options), sealer)

    async def kept_store(self, sealer: Sealer | None = None, *, is_new: bool = False) -> PostgresStore:
        """An empty store that stays open: a new connection costs ten times as much as what most tests ask of it.

        Those who use it share an event loop, and may close it.
        """
        if self._kept is None or is_new or self._kept._access.pool.process.is_closed:
            await self.close()
            self._kept = await self.store(sealer, is_new=is_new)
        else:
            await self._kept._access.transact(lambda db: db.script(_EMPTY))
            self._kept._queued = self._kept._access.watcher = None
        return self._kept

    async def close(self) -> None:
        """Close what stayed open."""
        if self._kept is not None:
            await self._kept.close()
            self._kept = None

    def drop(self) -> None:
        """Remove the database."""
        if self._name is not None:
            self._server.drop_database(self._name)
            self._name = None


def with_options(url: str, options: str) -> str:
    """A URL that says something more."""
    return f"{url}{'&' if '?' in url else '?'}{options}" if options else url


async def empty(url: str) -> None:
    """Delete everything but the schema, and how it is sealed."""
    raw = await asyncpg.connect(url)
    try:
        if await raw.fetchval("SELECT to_regclass('moorage.migrations')") is not None:
            await raw.execute(_EMPTY)
    finally:
        await raw.close()


class Loop:
    """An event loop for stores that are compared step by step."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def __call__(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(coroutine)

    def close(self) -> None:
        """End it."""
        self._loop.close()
