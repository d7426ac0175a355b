"""A network that says nothing any more, connections that are cut off half through, callers who give up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from moorage.core.errors import MoorageError, OutcomeUnknown, StoreUnavailable
from moorage.service.leases import note_beat
from moorage.stores.postgres import bus, connection
from moorage.stores.postgres.connection import LostConnection, PostgresConnection
from moorage.stores.postgres.store import PostgresStore
from moorage.testing.builders import OWNER, a_session, a_stamp, said, updated, whole_log
from moorage.testing.postgres import PostgresServer
from moorage.testing.proxy import Proxy

IN_TIME = 20  # seconds for what ends after two


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(tcp=True) as server:
        yield server


@pytest.fixture
async def url(server: PostgresServer) -> AsyncIterator[str]:
    with server.database() as url:
        yield url


@pytest.fixture
def wire(server: PostgresServer) -> Iterator[Proxy]:
    with Proxy(("127.0.0.1", server.port)) as wire:
        yield wire


@pytest.fixture
async def store(
    server: PostgresServer, url: str, wire: Proxy, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PostgresStore]:
    """One connection, through a network that can be broken, and not much time."""
    monkeypatch.setattr(connection, "GRACE", 0.5)
    monkeypatch.setattr(bus, "LONGEST_LOOK", 0.5)
    through = url.replace(f":{server.port}/", f":{wire.port}/")
    store = PostgresStore(f"{through}?pool=1&patience=1&statement_timeout=1")
    await store.create(OWNER, a_session("s-1"))
    yield store
    wire.mend()
    await store.close()


# A network that swallows ------------------------------------------------------------------------


async def test_who_reads_from_a_silent_database_is_told_in_time(store: PostgresStore, wire: Proxy) -> None:
    wire.swallow()
    async with asyncio.timeout(IN_TIME):
        with pytest.raises(StoreUnavailable):
            await store.get(OWNER, "s-1")
    wire.mend()
    assert (await store.get(OWNER, "s-1")).session_id == "s-1"


async def test_a_commit_whose_answer_is_swallowed_is_unknown_and_not_repeated(
    store: PostgresStore, wire: Proxy
) -> None:
    await store.append(OWNER, "s-1", said("before"), a_stamp())  # from now on it takes one round trip
    assert store._access.bus._teller is not None
    await store._access.bus._teller  # which has the only connection for a moment
    wire.swallow("down")
    async with asyncio.timeout(IN_TIME):
        with pytest.raises(OutcomeUnknown):
            await store.append(OWNER, "s-1", said("once"), a_stamp())
    wire.mend()
    assert [entry.content for entry in await whole_log(store, "s-1")][1:] == ["before", "once"]


async def test_a_transaction_that_got_no_answer_is_certainly_not_committed(store: PostgresStore, wire: Proxy) -> None:
    async def delete_in_silence(db: PostgresConnection) -> None:
        await db.run("DELETE FROM moor.sessions")
        wire.swallow()
        await db.run("DELETE FROM moor.entries")

    async with asyncio.timeout(IN_TIME):
        with pytest.raises(StoreUnavailable, match="nothing was changed"):
            await store._access.transact(delete_in_silence)
    wire.mend()
    assert (await store.get(OWNER, "s-1")).session_id == "s-1"


async def test_who_waits_is_told_to_look_when_the_network_goes_silent(store: PostgresStore, wire: Proxy) -> None:
    seen = store.pulse()
    await store.get(OWNER, "s-1")  # by then it listens
    while (now := await store.wait(seen, 0.2)) != seen:
        seen = now
    wire.swallow()
    async with asyncio.timeout(IN_TIME):
        assert await store.wait(seen, IN_TIME) != seen


# Cut off half through ---------------------------------------------------------------------------


async def test_a_commit_that_is_cut_off_is_unknown_and_not_repeated(url: str) -> None:
    store, raw, watcher = PostgresStore(url), await asyncpg.connect(url), await asyncpg.connect(url)
    await store.create(OWNER, a_session("s-1"))
    in_the_way = raw.transaction()
    await in_the_way.start()
    await raw.execute("SELECT 1 FROM moorage.sessions FOR UPDATE")
    changing = asyncio.create_task(store.apply(OWNER, "s-1", updated(error="e")))
    async with asyncio.timeout(IN_TIME):
        # A transaction sees only those who were connected when it first looked: the holder of the lock cannot look.
        await _until(watcher, _END_THOSE_WHO_WAIT, 1)
        await in_the_way.rollback()
        with pytest.raises(OutcomeUnknown):
            await changing
    assert (await store.get(OWNER, "s-1")).error_count == 0
    await store.apply(OWNER, "s-1", updated(error="e"))
    assert (await store.get(OWNER, "s-1")).error_count == 1
    await watcher.close()
    await raw.close()
    await store.close()


_END_THOSE_WHO_WAIT = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


async def test_a_transaction_that_idled_for_too_long_is_done_again(url: str) -> None:
    store, tries = PostgresStore(f"{url}?statement_timeout=0.3"), 0
    await store.owners()

    async def dawdle(db: PostgresConnection) -> None:
        nonlocal tries
        tries += 1
        await db.run("INSERT INTO moor.owners (name) VALUES (?)", (f"try-{tries}",))
        await asyncio.sleep(1.5 if tries == 1 else 0)
        await db.run("INSERT INTO moor.owners (name) VALUES ('done')")

    async with asyncio.timeout(IN_TIME):
        await store._access.transact(dawdle)
    rows = await store._access.read(lambda db: db.all("SELECT name FROM moor.owners ORDER BY name"))
    assert [row[0] for row in rows] == ["done", "try-2"]
    await store.close()


async def test_a_schema_that_could_not_be_looked_at_leaves_no_doubt_about_the_change(url: str) -> None:
    store = PostgresStore(url)
    prepare, tries = store._access.pool._prepare, 0

    async def fail_once(db: PostgresConnection) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise LostConnection(OSError("cut off in the middle of COMMIT"), is_certain=False)
        await prepare(db)

    store._access.pool._prepare = fail_once
    await store.create(OWNER, a_session("s-1"))
    assert tries == 2
    await store.close()


# Callers who give up ----------------------------------------------------------------------------


async def test_who_gives_up_while_another_makes_the_schema_leaves_no_connection_behind(url: str) -> None:
    store, raw = PostgresStore(url), await asyncpg.connect(url)
    prepare, goes_on = store._access.pool._prepare, asyncio.Event()

    async def wait(db: PostgresConnection) -> None:
        await goes_on.wait()
        await prepare(db)

    store._access.pool._prepare = wait
    first, second = asyncio.create_task(store.owners()), asyncio.create_task(store.owners())
    async with asyncio.timeout(IN_TIME):
        await _connections(raw, 2)
        second.cancel()
        await _connections(raw, 1)
        goes_on.set()
        assert await first == []
    assert (store._access.pool._free._value, second.cancelled()) == (10, True)
    await raw.close()
    await store.close()


async def test_callers_who_give_up_at_any_moment_take_no_connection_with_them(url: str) -> None:
    store = PostgresStore(f"{url}?pool=2")
    await store.create(OWNER, a_session("s-1"))
    async with asyncio.timeout(IN_TIME):
        for step in range(40):
            work = [
                asyncio.create_task(store.apply(OWNER, "s-1", updated(error="e"))),
                asyncio.create_task(store.log(OWNER, "s-1")),
                asyncio.create_task(note_beat(store, "server", a_stamp().at)),
            ]
            await asyncio.sleep(step / 8000)
            for task in work:
                task.cancel()
            done = await asyncio.gather(*work, return_exceptions=True)
            assert not [each for each in done if isinstance(each, MoorageError)]
        await asyncio.gather(*(store.get(OWNER, "s-1") for _ in range(8)))
    pool = store._access.pool
    assert pool._free._value == 2 >= len(pool._idle)
    assert store._locks == {}
    await store.close()


_OURS = """
SELECT count(*) FROM pg_stat_activity
WHERE application_name = 'moorage' AND datname = current_database() AND backend_type = 'client backend'
"""


async def _connections(raw: asyncpg.Connection, wanted: int) -> None:
    """Wait until the store has so many."""
    await _until(raw, _OURS, wanted)


async def _until(raw: asyncpg.Connection, sql: str, wanted: int) -> None:
    while await raw.fetchval(sql) != wanted:  # noqa: ASYNC110 - the database has no event for it
        await asyncio.sleep(0.01)
