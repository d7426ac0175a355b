"""Several servers on one database: none is special, and together they are one."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import moorage
import moorage.sync
from moorage.core.errors import StoreTooNew
from moorage.stores.postgres.migrate import LATEST
from moorage.stores.postgres.store import PostgresStore
from moorage.testing.postgres import GivenServer, PostgresServer
from tests.fleet.machines import Fleet, Writer, answers, said_in, until
from tests.fleet.rules import FleetRules

Server = GivenServer | PostgresServer
SOURCE = Path(moorage.__file__).parent


class TestServersOnOneDatabase(FleetRules):
    """The rules of every store, and what the schema of a database adds to them."""

    @pytest.fixture
    def store_url(self, postgres_url: str) -> str:
        return postgres_url

    def test_an_older_and_a_newer_release_work_side_by_side(
        self, fleet: Callable[..., Fleet], postgres: Server, postgres_url: str, tmp_path: Path
    ) -> None:
        servers = fleet()
        with moorage.sync.connect(servers.urls[0]) as moor:
            session = moor.create(agent="talker").id
        writer = Writer(servers.urls, session)
        writer.start()
        until(lambda: len(writer.acknowledged) >= 2)
        servers.servers[1].end()
        servers.servers[1] = servers.server(1, PYTHONPATH=str(newer_release(tmp_path, EXPANDS)))
        servers.servers[1].start()
        until(lambda: answers(servers.ports[1]))
        name = postgres_url.partition("?")[0].rpartition("/")[2]
        assert postgres.sql("SELECT max(number) FROM moorage.migrations", name) == [str(LATEST + 1)]

        servers.servers[0].restart()  # the older one starts on the newer schema
        until(lambda: answers(servers.ports[0]))
        before = len(writer.acknowledged)
        until(lambda: len(writer.acknowledged) > before + 3)
        writer.stop.set()
        writer.join(30)
        assert said_in(servers.urls[0], session) == said_in(servers.urls[1], session) == writer.acknowledged
        with moorage.sync.connect(servers.urls[0]) as older, moorage.sync.connect(servers.urls[1]) as newer:
            assert newer.get(older.create(agent="from the older").id).agent == "from the older"
            assert older.get(newer.create(agent="from the newer").id).agent == "from the newer"


# Upgrades ---------------------------------------------------------------------------------------


EXPANDS = f"""-- needs {LATEST}
ALTER TABLE moor.sessions ADD COLUMN colour text;
CREATE INDEX sessions_by_colour ON moor.sessions (owner, colour) WHERE colour IS NOT NULL;
"""
CONTRACTS = "ALTER TABLE moor.sessions DROP COLUMN IF EXISTS colour;\n"


def newer_release(folder: Path, *migrations: str) -> Path:
    """The next release of the package, with more migrations; the folder to import it from."""
    package = folder / "newer" / "moorage"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    for number, sql in enumerate(migrations, LATEST + 1):
        (package / "stores" / "postgres" / "migrations" / f"{number:04}_next.sql").write_text(sql)
    module = package / "stores" / "postgres" / "migrate.py"
    code = module.read_text()
    assert f"LATEST = {LATEST} " in code
    module.write_text(code.replace(f"LATEST = {LATEST} ", f"LATEST = {LATEST + len(migrations)} "))
    return package.parent


async def test_an_older_release_is_refused_once_something_was_taken_away(
    postgres: Server, postgres_url: str, tmp_path: Path
) -> None:
    store = PostgresStore(postgres_url)
    await store.owners()
    await store.close()
    name = postgres_url.partition("?")[0].rpartition("/")[2]
    row = f"({LATEST + 2}, 'contracts', 0, 0, {LATEST + 2})"
    postgres.sql(f"INSERT INTO moorage.migrations VALUES {row}", name)

    store = PostgresStore(postgres_url)
    with pytest.raises(StoreTooNew):
        await store.owners()
    await store.close()


# A forgotten transaction ------------------------------------------------------------------------


async def test_a_transaction_left_open_elsewhere_neither_hides_nor_delays_anything(postgres_url: str) -> None:
    """Short here; MOORAGE_OPEN_TRANSACTION says how many seconds it may last: 70 is the promise."""
    import os

    import asyncpg

    from moorage.testing.builders import OWNER, a_session, a_stamp, said, whole_feed
    from moorage.testing.work import carry, launch

    seconds = float(os.environ.get("MOORAGE_OPEN_TRANSACTION", "2"))
    one, other = PostgresStore(postgres_url), PostgresStore(postgres_url)
    await one.create(OWNER, a_session("s-1"))
    forgotten = await asyncpg.connect(postgres_url)
    began, rounds, seen = time.monotonic(), 0, [event.id for event in await other.feed(OWNER, 0, 1000)]
    try:
        await forgotten.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await forgotten.execute("SELECT count(*) FROM moorage.sessions")
        await forgotten.execute("CREATE TABLE IF NOT EXISTS scratch (n int)")  # it has an id of its own now
        while time.monotonic() - began < seconds:
            rounds += 1
            await one.append(OWNER, "s-1", said(f"round {rounds}"), a_stamp())
            await launch(one, f"work-{rounds}", f"run-{rounds}")
            async with asyncio.timeout(10):
                await carry(other)
            fresh = await other.feed(OWNER, seen[-1], 1000)
            assert f"round {rounds}" in [event.data.get("content") for event in fresh]
            seen += [event.id for event in fresh]
            await asyncio.sleep(min(0.05, seconds / 100))
    finally:
        await forgotten.close()
    assert rounds >= 3
    assert seen == [event.id for event in await whole_feed(one, OWNER)]
    await one.close()
    await other.close()
