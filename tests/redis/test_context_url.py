"""`context_url`: the log in one store, the context on a Redis server, where other programs read and write it, too."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import redis

import moorage
from moorage.core.errors import ContextUnavailable, InvalidField, SessionCorrupt, SessionGone, VersionConflict
from moorage.testing.redis import RedisServer
from tests.doors.cli.running import run
from tests.fleet.machines import Fleet

HOUR = 3600
Call = Callable[[], Awaitable[Any]]
pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex")  # the seed calls it


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer(durable=True) as server:
        yield server


class Seed:
    """The two functions of seed 004, as they are written there."""

    def __init__(self, server: RedisServer) -> None:
        self.redis_client = redis.Redis(host="127.0.0.1", port=server.port)

    def store_session_context(self, session_id: str, context: dict[str, Any]) -> None:
        key = f"session:{session_id}"
        self.redis_client.setex(key, 3600, json.dumps(context))

    def get_session_context(self, session_id: str) -> dict[str, Any]:
        key = f"session:{session_id}"
        data = self.redis_client.get(key)
        return json.loads(data) if data else {}


@pytest.fixture
def seed(server: RedisServer) -> Iterator[Seed]:
    seed = Seed(server)
    yield seed
    seed.redis_client.close()


def file_url(folder: Path) -> str:
    return f"sqlite:///{folder}/log.db"


@pytest.fixture
async def moor(server: RedisServer, tmp_path: Path) -> AsyncIterator[Any]:
    async with moorage.connect(file_url(tmp_path), context_url=server.url("patience=0.2")) as moor:
        yield moor


async def test_moorage_and_another_program_share_a_context(moor: Any, seed: Seed) -> None:
    session = (await moor.create(agent="planner")).id
    await moor.context.put(session, "city", "Rome")
    assert seed.get_session_context(session) == {"city": "Rome"}
    lifetime = seed.redis_client.ttl(f"session:{session}")
    assert HOUR - 60 < lifetime <= HOUR

    seed.store_session_context(session, {**seed.get_session_context(session), "last_input": "où ?"})
    assert await moor.context.get(session) == {"city": "Rome", "last_input": "où ?"}
    await moor.context.merge(session, {"days": 3})
    assert seed.get_session_context(session) == {"city": "Rome", "last_input": "où ?", "days": 3}
    await moor.context.delete(session, "city")
    assert seed.get_session_context(session) == {"last_input": "où ?", "days": 3}
    await moor.context.delete(session)
    assert seed.get_session_context(session) == {}


async def test_write_of_another_program_counts_as_a_change_of_every_key(moor: Any, seed: Seed) -> None:
    session = (await moor.create()).id
    await moor.context.put(session, "a", 1)
    for number in (2, 3):  # each is a change, even without a read in between
        seen = (await moor.context.items(session))["a"].version
        seed.store_session_context(session, {"a": number, "b": number})
        with pytest.raises(VersionConflict):
            await moor.context.put(session, "a", "late", version=seen)
    items = await moor.context.items(session)
    assert {key: item.value for key, item in items.items()} == {"a": 3, "b": 3}
    await moor.context.put(session, "a", "in time", version=items["a"].version)


async def test_racing_writers_lose_nothing(moor: Any, seed: Seed) -> None:
    """Lesson 19: a read-modify-write of one object loses updates; each of ours is compared at the commit."""
    session = (await moor.create()).id
    await asyncio.gather(*(moor.context.put(session, f"k{number}", number) for number in range(30)))
    assert seed.get_session_context(session) == {f"k{number}": number for number in range(30)}


async def test_writing_refreshes_the_time_to_live_and_reading_does_not(moor: Any, seed: Seed) -> None:
    session = (await moor.create()).id
    await moor.context.put(session, "a", 1)
    seed.redis_client.expire(f"session:{session}", 1000)
    await moor.context.get(session)
    assert seed.redis_client.ttl(f"session:{session}") <= 1000
    await moor.context.put(session, "b", 1)
    assert seed.redis_client.ttl(f"session:{session}") > 1000


async def test_key_with_its_own_time_to_live_ends_alone(moor: Any, seed: Seed) -> None:
    session = (await moor.create()).id
    await moor.context.put(session, "stays", 1)
    await moor.context.put(session, "goes", 2, ttl=0.05)
    assert seed.redis_client.ttl(f"session:{session}") > HOUR - 60
    await asyncio.sleep(0.06)
    assert await moor.context.get(session) == {"stays": 1}
    await moor.context.put(session, "long", 3, ttl=2 * HOUR)
    assert seed.redis_client.ttl(f"session:{session}") > HOUR
    items = await moor.context.items(session)
    between = items["long"].expires_at - items["stays"].expires_at
    assert round(between.total_seconds()) == HOUR
    assert seed.get_session_context(session) == {"stays": 1, "long": 3}


async def test_context_that_ended_is_empty_and_its_versions_go_on(moor: Any, seed: Seed) -> None:
    session = (await moor.create()).id
    first = await moor.context.put(session, "a", 1)
    seed.redis_client.delete(f"session:{session}")  # as its time to live does
    assert await moor.context.get(session) == {}
    assert (await moor.context.put(session, "a", 2, version=0)).version > first.version


async def test_fork_export_and_deletion_take_the_context_along(moor: Any, seed: Seed, tmp_path: Path) -> None:
    session = (await moor.create()).id
    await moor.context.merge(session, {"a": 1})
    seed.store_session_context(session, {"a": 2})
    fork = (await moor.fork(session)).id
    await moor.context.put(fork, "b", 3)
    assert (seed.get_session_context(session), seed.get_session_context(fork)) == ({"a": 2}, {"a": 2, "b": 3})

    lines = [line async for line in moor.export(fork)]
    await moor.delete(fork)
    assert seed.redis_client.keys(f"*{fork}*") == []
    with pytest.raises(SessionGone):
        await moor.context.get(fork)
    async with moorage.connect(file_url(tmp_path), owner="ann", context_url=moor.opened.context_url) as ann:
        await ann.import_(lines)
        assert await ann.context.get(fork) == {"a": 2, "b": 3}


async def test_owners_with_the_same_id_have_contexts_of_their_own(
    moor: Any, seed: Seed, server: RedisServer, tmp_path: Path
) -> None:
    await moor.create(session_id="s-1")
    await moor.create(session_id="ann:s-1")
    await moor.context.put("s-1", "whose", "local")
    await moor.context.put("ann:s-1", "whose", "local, too")
    for owner in ("ann", "@ann", "ann:s", "{a}"):
        async with moorage.connect(file_url(tmp_path), owner=owner, context_url=server.url()) as theirs:
            await theirs.create(session_id="s-1")
            assert await theirs.context.get("s-1") == {}
            await theirs.context.put("s-1", "whose", owner)
            assert await theirs.context.get("s-1") == {"whose": owner}
    assert seed.get_session_context("s-1") == {"whose": "local"}
    assert seed.get_session_context("@ann:s-1") == {"whose": "ann"}
    assert seed.get_session_context("ann:s-1") == {"whose": "local, too"}


async def test_log_goes_on_while_the_context_is_away(moor: Any, server: RedisServer) -> None:
    session = (await moor.create()).id
    await moor.context.put(session, "a", 1)
    server.kill()
    calls: list[Call] = [
        lambda: moor.context.get(session),
        lambda: moor.context.put(session, "a", 2),
        lambda: moor.fork(session),
        lambda: moor.resume(session),
    ]
    for call in calls:
        with pytest.raises(ContextUnavailable) as away:
            await call()
        assert away.value.code == "context_unavailable"
    await moor.append(session, [{"role": "user", "content": "Is anybody there?"}])
    gone = (await moor.create()).id
    await moor.delete(gone)
    assert len((await moor.list()).items) == 1
    [problem] = await moor.check()
    assert "the server of the context does not answer" in problem

    await asyncio.to_thread(server.start)
    assert await moor.context.get(session) == {"a": 1}
    assert (await moor.resume(session)).context == {"a": 1}
    assert await moor.check() == []


@pytest.mark.parametrize("hold", [True, False])
async def test_resume_without_the_context_changes_and_holds_nothing(moor: Any, server: RedisServer, hold: bool) -> None:
    session = await moor.create()
    before = await moor.suspend(session.id)
    server.kill()
    with pytest.raises(ContextUnavailable):
        await moor.resume(session.id, hold=hold, holder="ann")
    assert await moor.get(session.id) == before
    await asyncio.to_thread(server.start)
    assert (await moor.resume(session.id, hold=True, holder="bob")).hold is not None


async def test_turn_waits_for_the_context_and_gets_it(server: RedisServer, tmp_path: Path) -> None:
    url = server.url("patience=0.2")
    async with moorage.connect(file_url(tmp_path), context_url=url) as moor:
        asked = await moor.run("hello-world", "Hi")
        await moor.context.put(asked.session_id, "name", "Ann")
        server.kill()
        later = asyncio.create_task(moor.run("hello-world", "Again", session=asked.session_id))
        await asyncio.sleep(0.5)
        assert not later.done()
        await asyncio.to_thread(server.start)
        async with asyncio.timeout(30):
            assert (await later).status == "completed"


@pytest.mark.parametrize(
    "found", [b"no JSON", b"[1]", b'{"a": NaN}', b"\xff", None], ids=["text", "list", "nan", "bytes", "another type"]
)
async def test_foreign_value_is_named_and_left_alone(moor: Any, seed: Seed, found: bytes | None) -> None:
    session = (await moor.create()).id
    key = f"session:{session}"
    seed.redis_client.set(key, found) if found is not None else seed.redis_client.lpush(key, "x")
    calls: list[Call] = [lambda: moor.context.get(session), lambda: moor.context.put(session, "a", 1)]
    for call in calls:
        with pytest.raises(SessionCorrupt, match="context"):
            await call()
    await moor.append(session, [{"role": "user", "content": "the log is whole"}])
    assert seed.redis_client.type(key) == (b"string" if found is not None else b"list")


async def test_listed_permissions_are_enough(server: RedisServer, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "redis.md").read_text(encoding="utf-8")
    [listed] = re.findall(r"^\| \*\*permissions\*\* \| `(.*)`\. \|$", page, flags=re.M)
    server.ask("ACL", "SETUSER", "reader", "on", ">password", "-@all", *listed.split())
    url = f"redis://reader:password@127.0.0.1:{server.port}"
    async with moorage.connect(file_url(tmp_path), context_url=url) as moor:
        session = (await moor.create()).id
        await moor.context.put(session, "a", 1)
        fork = (await moor.fork(session)).id
        assert await moor.context.get(fork) == {"a": 1}
        await moor.delete(fork)
        assert await moor.check() == []
    assert server.ask("DBSIZE") == b":2\r\n"


async def test_sessions_without_context_ask_no_server(tmp_path: Path) -> None:
    """The server is unreachable: only calls that want a context get an error."""
    async with moorage.connect(file_url(tmp_path), context_url="redis://127.0.0.1:1?patience=0.1") as moor:
        session = (await moor.create()).id
        await moor.append(session, [{"role": "user", "content": "hi"}])
        with pytest.raises(ContextUnavailable):
            await moor.context.get(session)


def test_wrong_context_urls_are_refused(server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("sqlite:///x.db", "http://127.0.0.1:1", "redis"):
        with pytest.raises(InvalidField, match="context_url"):
            moorage.sync.connect(file_url(tmp_path), context_url=url)
    with (
        pytest.raises(InvalidField, match="context_url is 'soon'"),
        moorage.sync.connect(file_url(tmp_path), context_url=server.url("ttl=soon")) as moor,
    ):
        moor.context.get(moor.create().id)
    with pytest.raises(InvalidField, match="a server has its own"):
        moorage.sync.connect("http://127.0.0.1:1", context_url=server.url())
    monkeypatch.setenv("MOORAGE_ENCRYPTION_KEYS", f"k1:{'A' * 43}=")
    with pytest.raises(InvalidField, match="encryption is on"):
        moorage.sync.connect(file_url(tmp_path), context_url=server.url())


# Other doors --------------------------------------------------------------------------------------


def test_commands_share_the_context_with_other_programs(server: RedisServer, seed: Seed, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(f'context_url = "{server.url("ttl=10m")}"\n')
    env = {"MOORAGE_HOME": str(tmp_path), "MOORAGE_URL": file_url(tmp_path)}
    session = run("create", "--agent", "planner", env=env).id
    assert run("context", "set", session, "city", '"Rome"', env=env).code == 0
    assert seed.get_session_context(session) == {"city": "Rome"}
    assert seed.redis_client.ttl(f"session:{session}") <= 600
    seed.store_session_context(session, {"city": "Pisa"})
    assert run("--json", "context", "get", session, env=env).json == {"city": "Pisa"}

    doctor = run("--json", "doctor", env=env)
    assert (doctor.code, doctor.json["context_url"]) == (0, server.url("ttl=10m")), doctor
    server.kill()
    away = run("context", "get", session, env=env)
    assert away.code == 5, away
    assert "context_unavailable" in away.err or "of the context does not answer" in away.err
    doctor = run("--json", "doctor", env=env)
    assert (doctor.code, "of the context does not answer" in doctor.json["problems"][0]) == (1, True), doctor


def test_server_keeps_contexts_beside_its_store(server: RedisServer, seed: Seed, tmp_path: Path) -> None:
    flags = ("--context-url", server.url("patience=0.2"))
    with Fleet(file_url(tmp_path), tmp_path, 1, launches=False, flags=flags) as fleet:
        base = fleet.urls[0]
        with httpx2.Client(base_url=base, timeout=30) as http:
            session = http.post("/sessions", json={"agent_name": "planner"}).json()["session_id"]
            assert http.put(f"/sessions/{session}/context/city", json="Rome").status_code == 200
            assert seed.get_session_context(session) == {"city": "Rome"}
            seed.store_session_context(session, {"city": "Pisa"})
            assert http.get(f"/sessions/{session}/context").json() == {"city": "Pisa"}
            stale = http.put(f"/sessions/{session}/context/city", json="x", headers={"If-Match": '"99"'})
            assert stale.status_code == 412, stale.text
            server.kill()
            away = http.get(f"/sessions/{session}/context")
            assert (away.status_code, away.json()["code"]) == (503, "context_unavailable"), away.text
            said = http.post(f"/sessions/{session}/messages", json={"role": "user", "content": "hi", "run": False})
            assert said.status_code in (200, 201), said.text
            assert http.get("/healthz").status_code == 200


async def test_log_may_be_in_postgres(server: RedisServer, seed: Seed, postgres_url: str) -> None:
    async with moorage.connect(postgres_url, context_url=server.url()) as moor:
        session = (await moor.create()).id
        await moor.context.put(session, "a", 1)
        assert seed.get_session_context(session) == {"a": 1}
        await moor.delete(session)
        assert seed.redis_client.dbsize() == 0
