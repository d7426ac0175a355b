"""A store that fills faster than the database counts: each change reads its own rows, whatever else there is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from moorage.stores.postgres.bus import AFTER
from moorage.stores.postgres.store import PostgresStore
from moorage.testing.builders import OWNER, a_stamp, said
from moorage.testing.work import carry, launch
from tests.postgres.stores import with_options

SESSIONS = 2 * AFTER[0]
TURNS = 10


@pytest.fixture
async def raw(postgres_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A connection of one's own."""
    raw = await asyncpg.connect(postgres_url)
    yield raw
    await raw.close()


@pytest.fixture
async def young(postgres_url: str, raw: asyncpg.Connection[Any]) -> str:
    """A store that has just got its first sessions, in tables that the database does not count by itself."""
    store = PostgresStore(url := with_options(postgres_url, "pool=1"))
    await store.get_many(OWNER, [])
    for table in ("sessions", "entries", "arrivals", "runs", "turns", "inbox"):
        await raw.execute(f"ALTER TABLE moorage.{table} SET (autovacuum_enabled = off)")
    for number in range(SESSIONS):
        await launch(store, f"s-{number}", f"run-{number}")
    if (counting := store._access.bus._analyzing) is not None:
        await counting
    await store.close()
    return url


async def test_filling_a_store_updates_its_statistics(young: str, raw: asyncpg.Connection[Any]) -> None:
    known = await raw.fetchval("SELECT reltuples FROM pg_class WHERE oid = 'moorage.sessions'::regclass")
    assert known >= AFTER[0] / 2


async def test_a_turn_touches_its_own_rows(young: str, raw: asyncpg.Connection[Any]) -> None:
    before, store = await _rows_touched(raw), PostgresStore(young)
    for number in range(TURNS):
        await carry(store)
        await store.append(OWNER, f"s-{number}", said("more"), a_stamp())
    await store.close()
    touched = await _rows_touched(raw) - before
    assert 0 < touched < TURNS * SESSIONS, "every turn read a good part of the store"


_CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
_TOUCHED = """
SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint FROM pg_stat_user_tables WHERE schemaname = 'moorage'
"""


async def _rows_touched(raw: asyncpg.Connection[Any]) -> int:
    """Return the rows read by all connections; they report when they end."""
    async with asyncio.timeout(10):
        while await raw.fetchval(_CONNECTIONS):  # noqa: ASYNC110  the server has no event for it
            await asyncio.sleep(0.02)
    return int(await raw.fetchval(_TOUCHED))
