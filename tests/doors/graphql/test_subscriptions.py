"""Subscriptions: replayed, live, gap-free across broken connections and restarted servers, by both ways."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed

import moorage
from moorage.doors.http.streams import StreamSettings
from tests.doors.graphql.client import Client
from tests.doors.http.server import Served, free_port, serving, serving_process
from tests.doors.http.test_streams import until

EVENTS = """subscription Follow($id: ID!, $after: ID! = 0) {
  agentSessionEvents(sessionId: $id, after: $after) { id type data timestamp } }"""
MANY = 1_000


class Follower:
    """A client that dies again and again, and comes back with the last id it saw."""

    def __init__(self, gql: Client, by: str) -> None:
        self._gql, self._by = gql, by
        self.ids: list[int] = []
        self.deaths = 0
        self._chance = random.Random(7)

    async def until(self, last: int) -> None:
        while not self.ids or self.ids[-1] < last:
            some = self._chance.randint(1, 60)
            try:
                await (self._by_socket(some, last) if self._by == "socket" else self._by_sse(some, last))
            except (httpx2.TransportError, ConnectionClosed, OSError):
                await asyncio.sleep(0.02)  # the server is away
            self.deaths += 1

    @property
    def _after(self) -> str:
        return str(self.ids[-1] if self.ids else 0)

    async def _by_socket(self, some: int, last: int) -> None:
        async with self._gql.socket() as socket:
            await socket.subscribe("x", EVENTS, id="s", after=self._after)
            for _ in range(some):
                self._note(await socket.next("x"))
                if self.ids[-1] >= last:
                    return
            socket.connection.transport.abort()  # without a word

    async def _by_sse(self, some: int, last: int) -> None:
        async with self._gql.sse(EVENTS, {"last-event-id": self._after}, id="s") as stream:
            for _ in range(some):
                self._note(await stream.next())
                assert stream.id == self.ids[-1]
                if self.ids[-1] >= last:
                    return

    def _note(self, payload: Any) -> None:
        self.ids.append(int(payload["data"]["agentSessionEvents"]["id"]))


@pytest.mark.parametrize("by", ["socket", "sse"])
async def test_a_client_that_dies_and_returns_misses_nothing_and_hears_nothing_twice(
    gql: Client, served: Served, by: str
) -> None:
    moor = served.moorage()
    await moor.create(session_id="s", parent=None)

    async def say() -> None:
        for number in range(0, MANY, 5):
            await moor.append("s", [f"m-{number + each}" for each in range(5)])

    follower = Follower(gql, by)
    async with asyncio.timeout(100):
        await asyncio.gather(say(), follower.until(MANY + 1))
    assert follower.ids == list(range(1, MANY + 2))
    assert follower.deaths > 10
    await until(lambda: served.live.places.taken == 0)


@pytest.mark.parametrize("by", ["socket", "sse"])
def test_a_follower_outlives_a_server_that_is_killed(tmp_path: Path, by: str) -> None:
    url, port, count = f"sqlite:///{tmp_path / 'moorage.db'}", free_port(), 120

    async def followed(last: int, follower: Follower) -> None:
        async with asyncio.timeout(60):
            await follower.until(last)

    async def both() -> list[int]:
        async with Client(f"http://127.0.0.1:{port}") as gql:
            follower = Follower(gql, by)
            async with moorage.connect(url) as moor:
                await moor.create(session_id="s", parent=None)
                for part in range(3):
                    with serving_process(url, port) as process:
                        following = asyncio.create_task(followed(1 + count * (part + 1), follower))
                        for _ in range(count // 10):
                            await moor.append("s", ["x"] * 10)
                        if part < 2:
                            await until(lambda: len(follower.ids) > 20)
                            process.kill()
                            following.cancel()
                            await asyncio.wait([following])
                        else:
                            await following
            return follower.ids

    ids = asyncio.run(both())
    assert ids == list(range(1, 3 * count + 2))


@pytest.mark.parametrize("by", ["socket", "sse"])
async def test_the_end_of_a_session_is_the_end_of_its_stream(gql: Client, served: Served, by: str) -> None:
    moor = served.moorage()
    await moor.create(session_id="s", parent=None)
    if by == "socket":
        async with gql.socket() as socket:
            await socket.subscribe("1", EVENTS, id="s")
            await socket.next()
            await moor.delete("s")
            last = (await socket.next())["data"]["agentSessionEvents"]
            assert await socket.hear() == {"id": "1", "type": "complete"}
    else:
        async with gql.sse(EVENTS, id="s") as stream:
            await stream.next()
            await moor.delete("s")
            last = (await stream.next())["data"]["agentSessionEvents"]
            assert await stream.hear() == ("complete", None)
    assert (last["type"], last["id"], last["data"]["reason"]) == ("session_deleted", "2", "deleted")


async def test_a_stream_may_begin_at_the_end(gql: Client, served: Served) -> None:
    moor = served.moorage()
    await moor.create(session_id="s", name="named", parent=None)
    await moor.append("s", ["old"])
    async with gql.socket() as socket:
        await socket.subscribe("1", 'subscription { agentSessionEvents(sessionId: "named", after: "end") { id } }')
        await until(lambda: "local" in served.live._hubs and "s" in served.live._hubs["local"]._by_session)
        await moor.append("s", ["new"])
        assert await socket.next() == {"data": {"agentSessionEvents": {"id": "3"}}}


async def test_each_subscriber_gets_its_own_selection(gql: Client, served: Served) -> None:
    moor = served.moorage()
    await moor.create(session_id="s", parent=None)
    queries = {
        "a": ('subscription { agentSessionEvents(sessionId: "s") { id } }', {"id": "1"}),
        "b": ('subscription { agentSessionEvents(sessionId: "s") { kind: type } }', {"kind": "created"}),
        "c": ("subscription { ...F } fragment F on Subscription { agentSessionEvents(sessionId: \"s\") { type } }",
              {"type": "created"}),
    }  # fmt: skip
    choosing = """subscription ($full: Boolean!) {
      agentSessionEvents(sessionId: "s") { type id @include(if: $full) } }"""
    async with gql.socket() as socket:
        for name, (query, expected) in queries.items():
            await socket.subscribe(name, query)
            assert await socket.next(name) == {"data": {"agentSessionEvents": expected}}
        for name, full in (("d", True), ("e", False)):
            await socket.subscribe(name, choosing, full=full)
            told = await socket.next(name)
            assert told["data"]["agentSessionEvents"] == {"type": "created", **({"id": "1"} if full else {})}
        aliased = 'subscription { mine: agentSessionEvents(sessionId: "s") { id } }'
        await socket.subscribe("f", aliased)
        assert await socket.next("f") == {"data": {"mine": {"id": "1"}}}


async def test_one_event_is_put_into_words_once_for_all(
    gql: Client, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    from moorage.doors.graphql.engine import Execution

    worded: list[int] = []
    answer: Callable[..., bytes] = Execution.rendered

    def counted(self: Execution, event: Any) -> bytes:
        worded.append(event.id)
        return answer(self, event)

    monkeypatch.setattr(Execution, "rendered", counted)
    moor = served.moorage()
    await moor.create(session_id="s", parent=None)
    async with gql.socket() as socket:
        for name in range(20):
            await socket.subscribe(str(name), EVENTS, id="s")
        assert {(await socket.hear())["id"] for _ in range(20)} == {str(name) for name in range(20)}
        worded.clear()
        await moor.append("s", ["hello"])
        heard = {(await socket.hear())["id"] for _ in range(20)}
    assert heard == {str(name) for name in range(20)}
    assert 1 <= len(worded) <= 3  # one for all, unless some were just reading the store


async def test_long_subscription_keeps_nothing_of_its_events(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/sessions.db") as served, Client(served.url) as gql:
        moor = served.moorage()
        await moor.create(session_id="s", parent=None)
        counts = []
        async with gql.socket() as socket:
            await socket.subscribe("1", EVENTS, id="s")
            await socket.some(1)
            for _ in range(3):
                await moor.append("s", ["x"] * MANY)
                await socket.some(MANY)
                gc.collect()
                counts.append(len(gc.get_objects()))
    assert counts[-1] - counts[-2] < MANY // 2, counts


async def test_a_quiet_stream_shows_signs_of_life(url: str) -> None:
    async with serving(url, settings=StreamSettings(heartbeat=0.05)) as served, Client(served.url) as gql:
        await served.moorage().create(session_id="s", parent=None)
        async with gql.sse(EVENTS, id="s") as stream:
            await stream.next()
            later = asyncio.create_task(stream.next())
            await asyncio.wait([later], timeout=0.5)
            assert stream.comments > 0
            await served.moorage().append("s", ["more"])
            await later


async def test_a_server_that_stops_ends_its_streams_without_saying_that_all_is_told(
    gql: Client, served: Served
) -> None:
    await served.moorage().create(session_id="s", parent=None)
    async with gql.sse(EVENTS, id="s") as stream:
        await stream.next()
        await served.door.close()
        with pytest.raises(AssertionError, match="the stream has ended"):
            await stream.hear()
