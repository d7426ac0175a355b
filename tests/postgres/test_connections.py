"""How the PostgreSQL store is reached: settings, schemas, poolers, and a server that goes away and comes back."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

import moorage.sync
from moorage.core.errors import InvalidField, OutcomeUnknown, StoreBusy, StoreTooNew, StoreUnavailable
from moorage.stores.postgres.connection import PostgresConnection, Statements, read_url
from moorage.stores.postgres.migrate import LATEST, migrate, migrations, schema_version
from moorage.stores.postgres.store import PostgresStore
from moorage.testing.builders import OWNER, a_session, a_stamp, said, updated, whole_log
from moorage.testing.postgres import PostgresServer


@pytest.fixture
async def raw(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    raw = await asyncpg.connect(postgres_url)
    yield raw
    await raw.close()


# Settings ---------------------------------------------------------------------------------------


def test_url_says_how_the_store_is_used() -> None:
    options = read_url(
        "postgres://ann:p%40ss@db:5433/app?schema=moor2&pool=3&pooler=transaction&sslmode=require&patience=2"
    )

    assert options.dsn == "postgresql://ann:p%40ss@db:5433/app?sslmode=require"
    assert (options.schema, options.pool, options.pooler, options.patience) == ("moor2", 3, True, 2.0)
    assert options.shown == "postgresql://db:5433/app", "no password is ever shown"


@pytest.mark.parametrize(
    "wrong",
    ["schema=a-b", "schema=pg_x", "pool=0", "pool=many", "pooler=session", "patience=-1", "statement_timeout=x"],
)
def test_url_with_a_wrong_setting_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidField, match=wrong.partition("=")[0]):
        read_url(f"postgresql://db/app?{wrong}")


async def test_connections_have_time_outs(postgres_url: str) -> None:
    store = PostgresStore(f"{postgres_url}&statement_timeout=7")

    async def asked(db: PostgresConnection) -> list[str]:
        names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
        return [(await db.all(f"SHOW {name}"))[0][0] for name in names]

    assert await store._access.read(asked) == ["7s", "7s", "7s"]
    await store.close()


async def test_those_who_come_when_all_connections_are_in_use_wait_and_then_give_up(postgres_url: str) -> None:
    store = PostgresStore(f"{postgres_url}&pool=1&patience=0.5")
    await store.create(OWNER, a_session("s-1"))

    async def keep(db: PostgresConnection) -> None:
        await db.all("SELECT pg_sleep(2)")

    keeping = asyncio.ensure_future(store._access.read(keep))
    await asyncio.sleep(0.1)
    with pytest.raises(StoreBusy):
        await store.get(OWNER, "s-1")
    await keeping
    assert (await store.get(OWNER, "s-1")).session_id == "s-1"
    await store.close()


async def test_behind_a_pooler_nothing_depends_on_the_connection(postgres_url: str, raw: asyncpg.Connection) -> None:
    store = PostgresStore(f"{postgres_url}&pooler=transaction")
    await store.create(OWNER, a_session("s-1"))
    for number in range(3):
        await store.append(OWNER, "s-1", said(str(number)), a_stamp())
        await store.apply(OWNER, "s-1", updated(error="e"))

    async def prepared(db: PostgresConnection) -> int:
        return int((await db.all("SELECT count(*) FROM pg_prepared_statements"))[0][0])

    assert await store._access.read(prepared) <= 1  # at most the one that asks
    assert len(await whole_log(store, "s-1")) == 7
    await store.close()


# Schemas ----------------------------------------------------------------------------------------


def test_latest_migration_is_the_last_one() -> None:
    assert [migration.number for migration in migrations()] == list(range(1, LATEST + 1))


async def test_servers_that_start_together_make_one_schema(postgres_url: str, raw: asyncpg.Connection) -> None:
    stores = [PostgresStore(postgres_url) for _ in range(8)]
    await asyncio.gather(*(store.create(OWNER, a_session(f"s-{n}")) for n, store in enumerate(stores)))

    applied = await raw.fetch("SELECT number FROM moorage.migrations ORDER BY number")
    assert [row[0] for row in applied] == list(range(1, LATEST + 1))
    assert await stores[0].check() == []
    for store in stores:
        await store.close()


async def test_schema_that_another_server_made_meanwhile_is_seen(postgres_url: str, raw: asyncpg.Connection) -> None:
    waiting, other = PostgresConnection(raw, "here", Statements("moorage"), None), PostgresStore(postgres_url)
    async with waiting.transaction():
        assert await schema_version(waiting) == 0
        await other.create(OWNER, a_session("s-1"))
        assert await schema_version(waiting) == LATEST
        assert await migrate(waiting) == []
    await other.close()


async def test_a_long_migration_elsewhere_is_waited_for(postgres_url: str, raw: asyncpg.Connection) -> None:
    store = PostgresStore(f"{postgres_url}&statement_timeout=0.2")
    async with raw.transaction():
        await raw.execute("SELECT pg_advisory_xact_lock(hashtextextended('moorage \"moorage\".', 0))")
        starting = asyncio.create_task(store.create(OWNER, a_session("s-1")))
        await asyncio.sleep(0.5)  # longer than any other statement may take
    await starting

    assert await store.check() == []
    await store.close()


async def test_tables_of_others_are_left_alone(postgres_url: str, raw: asyncpg.Connection) -> None:
    await raw.execute("CREATE TABLE public.sessions (session_id text); INSERT INTO public.sessions VALUES ('mine')")
    store = PostgresStore(postgres_url)
    await store.create(OWNER, a_session("s-1"))

    assert [tuple(row) for row in await raw.fetch("SELECT * FROM public.sessions")] == [("mine",)]
    await store.close()


async def test_schema_of_another_program_is_refused(postgres_url: str, raw: asyncpg.Connection) -> None:
    await raw.execute("CREATE SCHEMA theirs; CREATE TABLE theirs.things (n int)")
    store = PostgresStore(f"{postgres_url}&schema=theirs")

    with pytest.raises(StoreUnavailable, match="another program"):
        await store.owners()
    await store.close()


async def test_two_schemas_of_one_database_know_nothing_of_each_other(postgres_url: str) -> None:
    one, other = PostgresStore(f"{postgres_url}&schema=one"), PostgresStore(f"{postgres_url}&schema=Two")
    await one.create(OWNER, a_session("s-1"))

    assert (await one.owners(), await other.owners()) == ([OWNER], [])
    await one.close()
    await other.close()


async def test_schema_of_a_newer_release_is_refused(postgres_url: str, raw: asyncpg.Connection) -> None:
    store = PostgresStore(postgres_url)
    await store.owners()
    await store.close()
    await raw.execute("INSERT INTO moorage.migrations VALUES (9999, 'later', 0, 0)")

    newer = PostgresStore(postgres_url)
    with pytest.raises(StoreTooNew):
        await newer.owners()
    await newer.close()


async def test_an_edited_migration_is_noticed(postgres_url: str, raw: asyncpg.Connection) -> None:
    store = PostgresStore(postgres_url)
    await store.owners()
    await raw.execute("UPDATE moorage.migrations SET checksum = 1 WHERE number = 1")

    assert await store.check() == ["migration schema was edited after it was applied"]
    await store.close()


# Coming and going -------------------------------------------------------------------------------


async def test_a_database_that_is_not_there_is_waited_for_and_then_given_up() -> None:
    store = PostgresStore("postgresql://nobody@127.0.0.1:1/none?patience=0.3", is_known=True)
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="nothing was changed"):
        await store.owners()
    assert time.monotonic() - began >= 0.3
    await store.close()


@pytest.mark.parametrize("host", ["127.0.0.1:1", "localhost:1", "no-such-host.invalid"])
async def test_address_that_was_never_reached_is_given_up_at_once(host: str) -> None:
    store = PostgresStore(f"postgresql://nobody@{host}/none")
    async with asyncio.timeout(10):  # callers wait 30 seconds for a database that was there
        with pytest.raises(StoreUnavailable, match="nothing was changed"):
            await store.owners()
    await store.close()


async def test_a_wrong_database_is_said_at_once(postgres_url: str) -> None:
    store = PostgresStore(postgres_url.replace("moorage_test", "no_such"))
    async with asyncio.timeout(10):
        with pytest.raises(StoreUnavailable, match="does not exist"):
            await store.owners()
    await store.close()


@pytest.fixture
def restarting(durable_postgres: PostgresServer) -> Iterator[tuple[PostgresServer, str]]:
    with durable_postgres.database() as url:
        yield durable_postgres, url


async def test_callers_wait_for_a_restarting_server_and_lose_nothing(
    restarting: tuple[PostgresServer, str],
) -> None:
    server, url = restarting
    store = PostgresStore(url)
    await store.create(OWNER, a_session("s-1"))
    acknowledged, unknown, enough, is_over = 0, 0, 10, False
    has_enough = asyncio.Event()

    async def write() -> None:
        nonlocal acknowledged, unknown
        while not is_over:
            try:
                await store.append(OWNER, "s-1", said("x"), a_stamp())
                acknowledged += 1
            except OutcomeUnknown:
                unknown += 1
            if acknowledged >= enough:
                has_enough.set()

    async def read() -> None:
        while not is_over:
            assert (await store.get(OWNER, "s-1")).session_id == "s-1"  # a read never fails

    tasks = [asyncio.ensure_future(each()) for each in (write, write, read)]
    async with asyncio.timeout(90):
        await has_enough.wait()
        await asyncio.to_thread(server.restart, "immediate")
        enough = acknowledged + 10
        has_enough.clear()
        await has_enough.wait()
    is_over = True
    await asyncio.gather(*tasks)

    said_in_all = len(await whole_log(store, "s-1")) - 1
    assert acknowledged <= said_in_all <= acknowledged + unknown
    assert unknown <= 2, "only what was being committed at that moment"
    assert await store.check() == []
    await store.close()


async def test_a_wait_goes_on_through_a_restart(restarting: tuple[PostgresServer, str]) -> None:
    server, url = restarting
    here, there = PostgresStore(url), PostgresStore(url)
    await here.create(OWNER, a_session("s-1"))
    there.pulse()
    await there.get(OWNER, "s-1")
    await asyncio.to_thread(server.restart, "immediate")
    async with asyncio.timeout(60):
        seen = there.pulse()
        await here.append(OWNER, "s-1", said("x"), a_stamp())
        while (await there.get(OWNER, "s-1")).last_entry < 2:
            seen = await there.wait(seen, 5)
    await here.close()
    await there.close()


def test_missing_driver_is_named() -> None:
    code = (
        "import sys; sys.modules['asyncpg'] = None\n"
        "import moorage.sync\n"
        "try: moorage.sync.connect('postgresql://u:secret@h/d')\n"
        "except moorage.MoorageError as error: print(error.code, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("unsupported ")
    assert "pip install 'moorage[postgres]'" in done.stdout
    assert "secret" not in done.stdout


# Without an event loop --------------------------------------------------------------------------


def test_scripts_need_no_event_loop(postgres_url: str) -> None:
    with moorage.sync.connect(postgres_url) as moor:
        session = moor.create(agent="tester")
        moor.append(session.id, "hello")
        assert [hit.session_id for hit in moor.search("hello")] == [session.id]
        reply = moor.run("echo-agent", "hi")
    assert (reply.status, "hi" in str(reply.result)) == ("completed", True)
