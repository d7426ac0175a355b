"""Several servers on one database: none is special, and together they are one."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import httpx2
import pytest

import moorage
import moorage.sync
from moorage.core.errors import MoorageError, StoreTooNew
from moorage.service.servers import BEAT_EVERY
from moorage.stores.postgres.migrate import LATEST
from moorage.stores.postgres.store import PostgresStore
from moorage.testing.postgres import GivenServer, PostgresServer
from tests.postgres.fleet import Fleet, answers, until

Server = GivenServer | PostgresServer
SOURCE = Path(moorage.__file__).parent


@pytest.fixture
def fleet(postgres_url: str, tmp_path: Path) -> Iterator[Callable[..., Fleet]]:
    """Starts servers on one database."""
    started: list[Fleet] = []

    def start(count: int = 2, settings: str = "") -> Fleet:
        fleet = Fleet(postgres_url, tmp_path, count, launches=False)
        (fleet.home / "config.toml").write_text(settings)
        started.append(fleet)
        fleet.start()
        return fleet

    yield start
    for each in started:
        each.end()


def test_a_stream_at_one_server_tells_what_was_written_at_the_other(fleet: Callable[..., Fleet]) -> None:
    one, other = fleet().urls
    with moorage.sync.connect(one) as reader, moorage.sync.connect(other) as writer:
        session = writer.create(agent="talker").id
        heard = reader.events(session, after=0)
        assert next(heard).type == "created"
        for number in range(5):
            said = time.monotonic()
            writer.append(session, f"number {number}")
            assert next(heard).data["content"] == f"number {number}"
            assert time.monotonic() - said < 5


def test_a_request_under_one_key_is_done_once_whoever_hears_it(fleet: Callable[..., Fleet]) -> None:
    urls = fleet().urls

    def create(number: int) -> str:
        headers, body = {"Idempotency-Key": f"key-{number // 6}"}, {"purpose": f"number {number // 6}"}
        answer = httpx2.post(f"{urls[number % 2]}/sessions", json=body, headers=headers, timeout=30)
        assert answer.status_code in (200, 201), answer.text
        return str(answer.json()["session_id"])

    with ThreadPoolExecutor(12) as together:
        made = list(together.map(create, range(24)))
    assert [len(set(made[start : start + 6])) for start in range(0, 24, 6)] == [1, 1, 1, 1]
    with moorage.sync.connect(urls[0]) as moor:
        assert len(moor.list().items) == 4


def test_two_servers_allow_a_key_no_more_than_one(fleet: Callable[..., Fleet], postgres_url: str) -> None:
    with moorage.sync.connect(postgres_url) as store:
        key = store.create_key(scopes=["read"]).text
    urls = fleet(settings="[server]\nrate = 1\nburst = 30\n").urls
    time.sleep(BEAT_EVERY.total_seconds() + 1)  # so the first knows of the second
    began = time.monotonic()
    with httpx2.Client(headers={"Authorization": f"Bearer {key}"}, timeout=10) as http:
        answers = [http.get(f"{url}/sessions?limit=1").status_code for _ in range(40) for url in urls]
    assert set(answers) == {200, 429}
    assert 20 <= answers.count(200) <= 30 + (time.monotonic() - began) + 2


# Upgrades ---------------------------------------------------------------------------------------


class Writer(threading.Thread):
    """Says one thing after another, to whichever server there is, each once; as a client with a deadline does."""

    def __init__(self, urls: list[str], session: str) -> None:
        super().__init__(daemon=True)
        self._urls, self._session = urls, session
        self.acknowledged: list[str] = []
        self.problems: list[MoorageError] = []
        self.stop = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.stop.is_set():
            number += 1
            self._say(number)

    def _say(self, number: int) -> None:
        content = f"line {number}"
        message = {"role": "user", "content": content, "client_key": content}
        for url in [*self._urls, *self._urls, *self._urls]:
            try:
                with moorage.sync.connect(url, deadline=3) as moor:
                    moor.append(self._session, [message])
                    self.acknowledged.append(content)
                    return
            except MoorageError as error:
                self.problems.append(error)


def _said(url: str, session: str) -> list[str]:
    with moorage.sync.connect(url) as moor:
        return [str(entry.content) for entry in moor.log(session, kinds=["message"], limit=1000)]


def test_a_rolling_restart_loses_nothing(fleet: Callable[..., Fleet]) -> None:
    servers = fleet()
    with moorage.sync.connect(servers.urls[0]) as moor:
        session = moor.create(agent="talker").id
    writer = Writer(servers.urls, session)
    writer.start()
    until(lambda: len(writer.acknowledged) >= 3)
    for number in range(2):
        before = len(writer.acknowledged)
        servers.servers[number].restart()
        until(lambda: answers(servers.ports[number]))  # noqa: B023
        until(lambda: len(writer.acknowledged) > before + 2)  # noqa: B023
    writer.stop.set()
    writer.join(30)
    assert _said(servers.urls[1], session) == writer.acknowledged


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


def test_an_older_and_a_newer_release_work_side_by_side(
    fleet: Callable[..., Fleet], postgres: Server, postgres_url: str, tmp_path: Path
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
    assert _said(servers.urls[0], session) == _said(servers.urls[1], session) == writer.acknowledged
    with moorage.sync.connect(servers.urls[0]) as older, moorage.sync.connect(servers.urls[1]) as newer:
        assert newer.get(older.create(agent="from the older").id).agent == "from the older"
        assert older.get(newer.create(agent="from the newer").id).agent == "from the newer"


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


# A transaction that somebody forgot -------------------------------------------------------------


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


def test_a_page_of_a_stream_is_the_same_at_every_server(fleet: Callable[..., Fleet]) -> None:
    urls = fleet(3).urls
    with moorage.sync.connect(urls[0]) as moor:
        sessions = [moor.create(agent="talker").id for _ in range(5)]
    with ThreadPoolExecutor(6) as together:
        list(together.map(lambda n: _append(urls[n % 3], sessions[n % 5], n), range(30)))
    told = []
    for url in urls:
        with moorage.sync.connect(url) as moor:
            told.append([(event.id, event.session_id) for event in islice(moor.events(after=0), 35)])
    assert told[0] == told[1] == told[2]


def _append(url: str, session: str, number: int) -> None:
    with moorage.sync.connect(url) as moor:
        moor.append(session, f"number {number}")
