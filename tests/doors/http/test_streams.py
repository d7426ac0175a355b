"""Streams over HTTP: replayed, live, resumed by their cursor, bounded, and closed to other owners."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from httpx_sse import aconnect_sse

from moorage import config
from moorage.connection import LaunchOptions
from moorage.core.entry import Event
from moorage.core.render import to_json
from moorage.doors.http.streams import StreamSettings
from moorage.service.deps import Deps, ServerSettings
from moorage.testing.faults import Worker
from moorage.testing.model_store import ModelStore
from tests.doors.http.listening import PATIENCE, STREAM, Listener, listening
from tests.doors.http.server import OwnerAuthorizer, Served, launching, serving


async def until(holds: Callable[[], bool], within: float = 60.0) -> None:
    """Until this holds."""
    async with asyncio.timeout(within):
        while not holds():  # noqa: ASYNC110  there is no event for a closed connection
            await asyncio.sleep(0.01)


# Reading -----------------------------------------------------------------------------------------


async def test_a_session_is_replayed_and_followed_with_the_logs_numbers(
    served: Served, http: httpx2.AsyncClient
) -> None:
    moor = served.moorage()
    session = await moor.create("planner", parent=None)
    await moor.append(session.id, ["one", "two"])
    async with listening(http, f"/sessions/{session.id}/events") as stream:
        heard = await stream.some(3)
        assert [(each.id, each.type) for each in heard] == [(1, "created"), (2, "message"), (3, "message")]
        stored = [to_json(event) async for event in moor.events(session.id, follow=False)]
        assert [each.data for each in heard] == stored
        await moor.update(session.id, phase="planning")
        live = await stream.next()
    assert (live.id, live.type, live.data["data"]["to"]) == (4, "phase", "planning")
    assert [live.data] == [to_json(event) async for event in moor.events(session.id, after=3, follow=False)]


async def test_all_sessions_have_one_cursor(served: Served, http: httpx2.AsyncClient) -> None:
    moor = served.moorage()
    one = await moor.create(session_id="one", parent=None)
    async with listening(http, "/events") as stream:
        assert (await stream.next()).data["session_id"] == "one"
        await moor.create(session_id="two", parent=None)
        await moor.append(one.id, ["a", "b"])
        heard = await stream.some(3)
    assert [(each.id, each.data["session_id"], each.data["data"]["number"]) for each in heard] == [
        (2, "two", 1),
        (3, "one", 2),
        (4, "one", 3),
    ]


@pytest.mark.parametrize("path", ["/sessions/one/events", "/events"])
async def test_a_reader_goes_on_where_it_was(served: Served, http: httpx2.AsyncClient, path: str) -> None:
    moor = served.moorage()
    await moor.create(session_id="one", parent=None)
    await moor.append("one", ["a", "b", "c"])
    for request in (
        {"params": {"after": "2"}},
        {"headers": {"last-event-id": "2"}},
        {"params": {"after": "0"}, "headers": {"last-event-id": "2"}},  # a browser that comes back
    ):
        async with listening(http, path, **request) as stream:
            assert [each.id for each in await stream.some(2)] == [3, 4]
    async with listening(http, path, params={"after": "end"}) as stream:
        await moor.append("one", "d")
        assert (await stream.next()).id == 5
        await moor.delete("one")


async def test_a_long_stream_is_replayed_whole_while_it_grows(served: Served, http: httpx2.AsyncClient) -> None:
    moor = served.moorage()
    await moor.create(session_id="one", parent=None)
    for _ in range(4):
        await moor.append("one", ["x"] * 150)

    async def grow() -> None:
        for _ in range(100):
            await moor.append("one", "y")

    async with listening(http, "/sessions/one/events") as one, listening(http, "/events") as everything:
        growing = asyncio.create_task(grow())
        for stream in (one, everything):
            assert [each.id for each in await stream.some(701)] == list(range(1, 702))
        await growing


async def test_only_some_types_or_one_session(served: Served, http: httpx2.AsyncClient) -> None:
    moor = served.moorage()
    for name in ("one", "two"):
        await moor.create(session_id=name, name=f"called-{name}", parent=None)
        await moor.append(name, "a")
        await moor.update(name, phase="planning")
    async with AsyncExitStack() as stack:

        async def opened(path: str, **query: str) -> Listener:
            return await stack.enter_async_context(listening(http, path, params=query))

        phases = await opened("/sessions/one/events", types="phase,error")
        of_two = await opened("/events", session="called-two", types="message")
        gone = await opened("/events", types="session_deleted")
        assert (await phases.next()).id == 3
        assert (await of_two.next()).data["session_id"] == "two"
        for name in ("one", "two"):
            await moor.append(name, "b")
            await moor.update(name, error="oops")
        assert (await phases.next()).id == 5
        assert (await of_two.next()).data["data"]["content"] == "b"
        await moor.delete("one")
        assert [each.type for each in await phases.rest()] == ["session_deleted"], "the end is always told"
        assert (await gone.next()).data["session_id"] == "one"


@pytest.mark.parametrize("path", ["/sessions/one/events", "/events"])
async def test_json_pages_lead_to_the_end(served: Served, http: httpx2.AsyncClient, path: str) -> None:
    moor = served.moorage()
    await moor.create(session_id="one", parent=None)
    await moor.append("one", ["a", "b", "c", "d"])
    await moor.update("one", phase="planning")
    headers, seen = {"accept": "application/json"}, []
    after: str | None = "0"
    while after is not None:
        page = (await http.get(path, params={"after": after, "limit": 2}, headers=headers)).json()
        assert set(page) == {"items", "next"}
        seen += [event["id"] for event in page["items"]]
        after = page["next"]
    assert seen == [1, 2, 3, 4, 5, 6]
    phases = (await http.get(path, params={"types": "phase", "limit": 1}, headers=headers)).json()
    assert ([event["id"] for event in phases["items"]], phases["next"]) == ([6], None)
    at_the_end = (await http.get(path, params={"after": "end"}, headers=headers)).json()
    assert at_the_end == {"items": [], "next": None}


@pytest.mark.parametrize("accept", [STREAM, {"accept": "application/json"}])
async def test_wrong_questions_are_refused(http: httpx2.AsyncClient, accept: dict[str, str]) -> None:
    await http.post("/sessions", json={"session_id": "one"})

    async def refused(path: str, status: int, code: str, **query: str) -> None:
        answer = await http.get(path, params=query, headers=accept)
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text

    for path in ("/events", "/sessions/one/events"):
        await refused(path, 422, "invalid_after", after="yesterday")
        await refused(path, 422, "invalid_types", types="message,gossip")
        await refused(path, 422, "invalid_typs", typs="message")
    await refused("/sessions/nobody/events", 404, "session_not_found")
    await refused("/events", 404, "session_not_found", session="nobody")
    await http.delete("/sessions/one")
    await refused("/sessions/one/events", 410, "session_gone")


async def test_a_stream_that_is_quiet_gives_signs_of_life(url: str) -> None:
    async with serving(url, settings=StreamSettings(heartbeat=0.05)) as served, served.client() as http:
        session = await served.moorage().create(parent=None)
        async with listening(http, f"/sessions/{session.id}/events") as stream:
            await stream.next()
            waiting = asyncio.create_task(stream.next())
            await until(lambda: stream.comments >= 3)
            await served.moorage().append(session.id, "at last")
            assert (await waiting).data["data"]["content"] == "at last"


async def test_a_stream_that_leaves_out_all_that_happens_gives_signs_of_life_too(url: str) -> None:
    async with serving(url, settings=StreamSettings(heartbeat=0.3)) as served, served.client() as http:
        moor = served.moorage()
        await moor.create(session_id="one", parent=None)

        async def chatter() -> None:
            while True:
                await moor.append("one", "again")
                await asyncio.sleep(0.05)

        talking = asyncio.create_task(chatter())
        async with listening(http, "/sessions/one/events?types=error") as stream, asyncio.timeout(PATIENCE):
            async for line in stream._lines:
                assert not line.startswith("data")
                stream.comments += line.startswith(":")
                if stream.comments == 2:
                    break
        talking.cancel()


async def test_asking_for_the_head_of_a_stream_opens_none(served: Served, http: httpx2.AsyncClient) -> None:
    answer = await http.head("/events", headers=STREAM)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")
    assert served.live.places.taken == 0


async def test_httpx_sse_gets_no_message_besides_the_events(url: str) -> None:
    async with serving(url, settings=StreamSettings(heartbeat=0.02)) as served, httpx.AsyncClient() as http:
        session = await served.moorage().create(session_id="one", parent=None)
        path = f"{served.url}/sessions/one/events"
        async with asyncio.timeout(PATIENCE), aconnect_sse(http, "GET", path, params={"after": "end"}) as source:
            assert source.response.headers["last-event-id"] == "1", "where to go on if it breaks off before an event"
            events = source.aiter_sse()
            for number in (2, 3):
                await asyncio.sleep(0.1)  # some signs of life
                await served.moorage().append(session.id, f"number {number}")
                event = await anext(events)
                assert (event.id, event.event, event.json()["data"]["number"]) == (str(number), "message", number)
            assert event.retry is None, "said once, with the first"


# Which form an answer has ------------------------------------------------------------------------

ACCEPT = {
    None: "application/json",
    "": "application/json",
    "*/*": "application/json",
    "application/json": "application/json",
    "application/*": "application/json",
    "image/png": "application/json",
    "text/event-stream": "text/event-stream",
    "Text/Event-Stream": "text/event-stream",
    "text/event-stream; charset=utf-8": "text/event-stream",
    "text/event-stream, */*": "text/event-stream",
    "text/*": "text/event-stream",
    "application/json, text/event-stream": "application/json",
    "text/event-stream, application/json": "application/json",
    "application/json;q=0.5, text/event-stream": "text/event-stream",
    "APPLICATION/JSON;Q=0.9,text/event-stream;q=0.1": "application/json",
    "text/event-stream;q=0, */*": "application/json",
    "application/json;q=0, */*;q=0.1": "text/event-stream",
    "text/event-stream;q=high": "application/json",
}


@pytest.mark.parametrize("accept", ACCEPT)
async def test_a_stream_comes_to_those_who_prefer_one(http: httpx2.AsyncClient, accept: str | None) -> None:
    await http.post("/sessions", json={"session_id": "one"})
    if accept is None:
        del http.headers["accept"]
    for path in ("/events", "/sessions/one/events"):
        answer = await http.head(path, headers={} if accept is None else {"accept": accept})
        assert answer.headers["content-type"] == ACCEPT[accept]


async def test_an_accept_header_in_two_lines_is_one(http: httpx2.AsyncClient) -> None:
    lines = [("accept", "text/event-stream"), ("accept", "application/json;q=0.1")]
    assert (await http.head("/events", headers=lines)).headers["content-type"] == "text/event-stream"


@pytest.mark.parametrize(
    ("codings", "coding"),
    [("gzip", "gzip"), ("GZIP;q=0.1", "gzip"), ("*", "gzip"), ("gzip;q=0", None), ("br, *;q=0", None), ("br", None)],
)
async def test_an_answer_is_packed_for_those_who_take_gzip(
    http: httpx2.AsyncClient, codings: str, coding: str | None
) -> None:
    await http.post("/sessions", json={"session_id": "one", "metadata": {"note": "long " * 1000}})
    answer = await http.get("/sessions/one", headers={"accept-encoding": codings})
    assert answer.headers.get("content-encoding") == coding


# Ends --------------------------------------------------------------------------------------------


async def test_a_deletion_ends_a_sessions_stream_and_each_of_a_cascade_is_told(
    served: Served, http: httpx2.AsyncClient
) -> None:
    moor = served.moorage()
    await moor.create(session_id="root", parent=None)
    names = ["root", *(f"child-{number}" for number in range(5))]
    for name in names[1:]:
        await moor.create(session_id=name, parent="root")
    async with AsyncExitStack() as stack:
        streams = {name: await stack.enter_async_context(listening(http, f"/sessions/{name}/events")) for name in names}
        everything = await stack.enter_async_context(listening(http, "/events?types=session_deleted"))
        for stream in streams.values():
            assert (await stream.next()).type == "created"
        await moor.delete("root")
        for name, stream in streams.items():
            [last] = await stream.rest()
            assert (last.type, last.id, last.data["session_id"]) == ("session_deleted", 2, name)
        gone = await everything.some(len(names))
    assert sorted(each.data["session_id"] for each in gone) == sorted(names)
    assert {each.data["data"]["root_of_deletion"] for each in gone} == {"root"}


async def test_approval_expires_without_any_other_request(served: Served, http: httpx2.AsyncClient) -> None:
    moor = served.moorage()
    session = await moor.create(parent=None, ttl=1)
    async with listening(http, f"/sessions/{session.id}/events") as stream:
        assert [each.type for each in await stream.rest()] == ["created", "session_deleted"]


async def test_a_server_that_stops_ends_its_streams(served: Served, http: httpx2.AsyncClient) -> None:
    async with listening(http, "/events") as stream:
        rest = asyncio.create_task(stream.rest())
        await until(lambda: served.live.places.taken == 1)
        await served.live.close()
        assert await rest == []
    async with listening(http, "/events") as late:
        assert await late.rest() == []
    await until(lambda: served.live.places.taken == 0)


async def test_closing_a_stream_leaves_the_run(served: Served, http: httpx2.AsyncClient) -> None:
    moor = served.moorage()
    moor.launching = LaunchOptions(launches=False)
    session = await moor.create("echo-agent", parent=None)
    body = {"content": "hello", "stream": True}
    async with listening(http, f"/sessions/{session.id}/messages", verb="POST", json=body) as stream:
        queued = await stream.next()
        assert (queued.type, queued.data["reason"]) == ("queued", "no_launcher")
        assert (await stream.next()).data["data"]["content"] == "hello"
    await until(lambda: served.live.places.taken == 0)
    [run] = (await moor.runs(session=session.id)).items
    assert run.state == "queued"
    async with launching(served):
        assert (await moor.result(run.run_id, wait=60)).state == "completed"


# Answers as they come ----------------------------------------------------------------------------


async def test_an_answer_is_streamed_until_its_run_has_settled(served: Served, http: httpx2.AsyncClient) -> None:
    session = await served.moorage().create("echo-agent", parent=None)
    await served.moorage().append(session.id, "earlier")
    body = {"content": "hello", "stream": True}
    async with (
        launching(served),
        listening(http, f"/sessions/{session.id}/messages", verb="POST", json=body) as stream,
    ):
        queued, *heard = await stream.rest()
    assert (queued.type, queued.id, queued.data["reason"]) == ("queued", None, "launcher_busy"), "told at once"
    assert [each.id for each in heard] == [*range(3, 3 + len(heard) - 1), None], "from the message on"
    assert [each.data["data"]["content"] for each in heard if each.type == "message"] == [
        "hello",
        "Echo Agent Response: hello",
    ]
    assert [each.type for each in heard[-2:]] == ["run_settled", "done"]
    done = heard[-1].data
    assert (done["run"]["state"], done["reply"]["content"]) == ("completed", "Echo Agent Response: hello")
    assert served.live.places.taken == 0


async def test_stream_of_a_message_without_a_run_ends_with_it(served: Served, http: httpx2.AsyncClient) -> None:
    await served.moorage().create(session_id="one", parent=None)
    body = {"messages": ["a", "b"], "stream": True}
    async with listening(http, "/sessions/one/messages", verb="POST", json=body) as stream:
        heard = await stream.rest()
    assert [(each.id, each.type) for each in heard] == [(2, "message"), (3, "message"), (None, "done")]
    assert heard[-1].data["run_id"] is None


async def test_a_session_deleted_while_it_answers_ends_the_stream(served: Served, http: httpx2.AsyncClient) -> None:
    await served.moorage().create("echo-agent", session_id="one", parent=None)
    body = {"content": "a", "stream": True}
    async with listening(http, "/sessions/one/messages", verb="POST", json=body) as stream:
        assert [(await stream.next()).type for _ in range(2)] == ["queued", "message"]
        await served.moorage().delete("one", force=True)
        assert [each.type for each in await stream.rest()] == ["session_deleted", "done"]


async def test_a_deletion_is_a_warning_in_the_log_and_an_event_for_each_leaves_first(
    served: Served, http: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    for name, parent in (("top", None), ("mid", "top"), ("leaf", "mid")):
        await served.moorage().create(session_id=name, parent=parent)
    async with listening(http, "/events") as stream:
        assert (await http.delete("/sessions/top", params={"dry_run": "true"})).json()["cascaded_children"] == 2
        assert caplog.messages == []
        assert (await http.delete("/sessions/top")).json()["unconfirmed"] == []
        heard = [await stream.next() for _ in range(6)]
    assert [(each.type, each.data["session_id"]) for each in heard[3:]] == [
        ("session_deleted", name) for name in ("leaf", "mid", "top")
    ]
    assert {each.data["data"]["root_of_deletion"] for each in heard[3:]} == {"top"}
    assert "deleted session top (descendants: 2, " in caplog.text


# Whose they are, and how many --------------------------------------------------------------------


async def test_streams_carry_only_events_of_their_owner(url: str) -> None:
    async with serving(url, authorizer=OwnerAuthorizer) as served, served.client() as http, AsyncExitStack() as stack:
        for owner in ("ann", "bob"):
            await served.moorage(owner).create(session_id=f"of-{owner}", parent=None)
            await served.moorage(owner).create(session_id="same", parent=None)
        streams: dict[str, Listener] = {}
        for owner in ("ann", "bob"):
            who = {"x-owner": owner}
            streams[owner] = await stack.enter_async_context(listening(http, "/events", headers=who))
            streams[f"same {owner}"] = await stack.enter_async_context(
                listening(http, "/sessions/same/events", headers=who)
            )
            other = "bob" if owner == "ann" else "ann"
            assert (await http.get(f"/sessions/of-{other}/events", headers=who)).status_code == 404
            assert (await http.get("/events", params={"session": f"of-{other}"}, headers=who)).status_code == 404
        for owner in ("ann", "bob"):
            await served.moorage(owner).append("same", f"by {owner}")
            await served.moorage(owner).append(f"of-{owner}", f"by {owner}")
        for owner in ("ann", "bob"):
            heard = await streams[owner].some(4)
            assert [each.data["session_id"] for each in heard] == [f"of-{owner}", "same", "same", f"of-{owner}"]
            assert {each.data["data"]["content"] for each in heard[2:]} == {f"by {owner}"}
            assert (await streams[f"same {owner}"].some(2))[1].data["data"]["content"] == f"by {owner}"


async def test_streams_are_limited_for_each_and_in_all(url: str) -> None:
    limits = ServerSettings(streams_per_visitor=2, streams=3)
    async with serving(url, authorizer=OwnerAuthorizer, limits=limits) as served, served.client() as http:
        async with AsyncExitStack() as stack:
            for _ in range(2):
                await stack.enter_async_context(listening(http, "/events"))
            refused = await http.get("/events", headers=STREAM)
            assert (refused.status_code, refused.json()["code"], refused.json()["limit"]) == (429, "rate_limited", 2)
            await stack.enter_async_context(listening(http, "/events", headers={"x-owner": "ann"}))
            refused = await http.get("/events", headers={**STREAM, "x-owner": "bob"})
            assert (refused.status_code, refused.json()["limit"]) == (429, 3)
        await until(lambda: served.live.places.taken == 0)
        async with listening(http, "/events"):
            assert served.live.places.taken == 1


async def test_a_slow_reader_is_dropped_and_misses_nothing_when_it_comes_back(url: str) -> None:
    async with serving(url, settings=StreamSettings(drained_within=0.5)) as served, served.client() as http:
        moor = served.moorage()
        await moor.create(session_id="one", parent=None)
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.setblocking(False)
            port = int(served.url.rpartition(":")[2])
            await asyncio.get_running_loop().sock_connect(slow, ("127.0.0.1", port))
            slow.send(b"GET /sessions/one/events HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n")
            await until(lambda: served.live.places.taken == 1)
            for _ in range(60):
                await moor.append("one", "x" * 250_000)
            await until(lambda: served.live.places.taken == 0)
            await until(lambda: served.connections == 0)  # what it did not read is not kept for it
            read = await _read_all(slow)
        assert len(read) < 60 * 250_000
        assert not read.endswith(b"0\r\n\r\n"), "it was broken off, not ended"
        async with listening(http, "/sessions/one/events") as stream:
            assert [each.id for each in await stream.some(61)] == list(range(1, 62))


async def _read_all(connection: socket.socket) -> bytes:
    read = b""
    while some := await asyncio.wait_for(asyncio.get_running_loop().sock_recv(connection, 1 << 20), 30):
        read += some
    return read


# Wake-ups are hints ------------------------------------------------------------------------------


class Deaf(ModelStore):
    """A store that never sends a pulse."""

    async def wait(self, seen: int, timeout: float) -> int:
        await asyncio.sleep(timeout)
        return seen


class Forgetful(ModelStore):
    """A store whose feed leaves out every third event."""

    async def feed(self, owner: str, after: int, limit: int) -> list[Event]:
        return [event for event in await super().feed(owner, after, limit) if event.id % 3 != 2]


@pytest.fixture
async def on_a_store() -> AsyncIterator[Callable[[ModelStore], Awaitable[Served]]]:
    async with AsyncExitStack() as stack:

        async def serve(store: ModelStore) -> Served:
            deps = Deps(store, config.SystemClock(), config.entropy)
            return await stack.enter_async_context(serving(deps))

        yield serve


async def test_events_arrive_though_no_wake_up_does(on_a_store: Any) -> None:
    served = await on_a_store(Deaf())
    moor = served.moorage()
    await moor.create(session_id="one", parent=None)
    async with (
        served.client() as http,
        listening(http, "/sessions/one/events") as one,
        listening(http, "/events") as all_,
    ):
        for stream in (one, all_):
            await stream.next()
        await moor.append("one", "unannounced")
        async with asyncio.timeout(20):
            for stream in (one, all_):
                assert (await stream.next()).data["data"]["content"] == "unannounced"


async def test_gap_in_pushed_events_is_filled_from_the_store(on_a_store: Any) -> None:
    served = await on_a_store(Forgetful())
    moor = served.moorage()
    await moor.create(session_id="one", parent=None)
    async with served.client() as http, listening(http, "/sessions/one/events") as stream:
        await stream.next()
        for number in range(2, 32):
            await moor.append("one", "x")
            if number % 3 == 1:  # those that the feed has
                assert [each.id for each in await stream.some(3)] == [number - 2, number - 1, number]


WRITER = """
import sys
from moorage import sync
moor = sync.connect(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    moor.append("one", line.strip())
"""


async def test_events_of_another_process_arrive(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'moorage.db'}"
    async with serving(url) as served, served.client() as http:
        await served.moorage().create(session_id="one", parent=None)
        with Worker(WRITER, url) as writer:
            await asyncio.to_thread(writer.line)
            async with (
                listening(http, "/sessions/one/events?after=1") as one,
                listening(http, "/events?after=1") as all_,
            ):
                for word in ("from", "elsewhere"):
                    writer.say(word)
                    for stream in (one, all_):
                        assert (await stream.next()).data["data"]["content"] == word
