"""A connection that breaks: what is repeated is done once, streams go on where they were, and patience ends."""

from __future__ import annotations

import asyncio
import queue
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import moorage
from moorage import sync
from moorage.api import Moorage
from moorage.connection import caller_for
from moorage.core import errors
from moorage.core.entry import Event
from moorage.core.errors import MoorageError, ServerUnreachable, edge_of
from moorage.remote.background import Background
from moorage.remote.client import RemoteMoorage
from moorage.remote.transport import Ask, check_url
from moorage.testing.faults import PATIENCE
from tests.remote.server import Doors, Loop, Server, a_door

SOON = 2.0  # seconds that are enough for a running server


class Proxy:
    """Passes bytes on between a client and a server, and loses answers when told to."""

    def __init__(self, target: str) -> None:
        self._port = int(target.split(":")[2].split("/")[0])
        self._path = target.partition(str(self._port))[2]
        self.lose = 0  # so many answers
        self.passed: list[bytes] = []  # the first line of every request

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{self._path}"

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, onwards = await asyncio.open_connection("127.0.0.1", self._port)
        asking = asyncio.create_task(self._ask(reader, onwards))
        try:
            while answer := await there.read(1 << 20):
                if self.lose:
                    self.lose -= 1
                    return
                writer.write(answer)
        finally:
            asking.cancel()
            onwards.close()
            writer.close()

    async def _ask(self, reader: asyncio.StreamReader, onwards: asyncio.StreamWriter) -> None:
        while request := await reader.read(1 << 20):
            if request.split(b" ", 1)[0] in (b"GET", b"POST", b"PUT", b"PATCH", b"DELETE"):
                self.passed.append(request.split(b"\r\n")[0])
            onwards.write(request)
        onwards.close()


@pytest.fixture
async def proxy(address: str) -> AsyncIterator[tuple[Proxy, Moorage]]:
    """A connection whose answers may get lost."""
    between = Proxy(address)
    async with between.listening() as url, moorage.connect(url, deadline=10) as moor, asyncio.timeout(60):
        yield between, moor


async def test_repeated_request_runs_once(proxy: tuple[Proxy, Moorage]) -> None:
    between, moor = proxy
    session = await moor.create("echo-agent", session_id="s-1", parent=None)
    writes: list[Callable[[], Awaitable[object]]] = [
        lambda: moor.create("agent", parent=None),
        lambda: moor.append("s-1", ["one", "two"]),
        lambda: moor.send("s-1", "three", token=None),
        lambda: moor.fork("s-1"),
        lambda: moor.save_checkpoint("s-1", {"step": 1}),
        lambda: moor.compact("s-1", "we talked"),
        lambda: moor.run("echo-agent", "four", mode="async_poll", parent=None),
        lambda: moor.request_approval("s-1", "Sure?"),
    ]
    for write in writes:
        between.lose, asked_before = 2, len(between.passed)
        await write()
        assert between.lose == 0
        assert len(between.passed) - asked_before >= 3, "asked until an answer came"
    assert len((await moor.list(limit=100)).items) == 1 + 3  # created, forked, and the run's own
    said = [entry.content for entry in await moor.messages("s-1", limit=100)]
    assert said == ["one", "two", "three"]
    assert len((await moor.checkpoints("s-1")).items) == len(await moor.approvals("s-1")) == 1
    assert len(await moor.log("s-1", kinds=["summary"])) == 1
    assert len((await moor.runs(open_only=True)).items) == 2
    assert (await moor.get("s-1")).created_at == session.created_at


async def test_unrepeatable_request_is_reported_as_unsure(proxy: tuple[Proxy, Moorage]) -> None:
    between, moor = proxy
    await moor.create(session_id="s-1", parent=None)
    between.lose, before = 1, len(between.passed)
    with pytest.raises(ServerUnreachable) as lost:
        await moor.update("s-1", error="counted")
    assert lost.value.is_unsure
    assert len(between.passed) == before + 1
    assert (await moor.get("s-1")).error_count == 1


async def test_reading_is_repeated(proxy: tuple[Proxy, Moorage]) -> None:
    between, moor = proxy
    await moor.create(session_id="s-1", parent=None)
    between.lose = 3
    assert (await moor.get("s-1")).session_id == "s-1"
    assert between.lose == 0


@pytest.fixture
def nobody() -> str:
    """An address at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


async def test_refused_first_connection_fails_with_a_hint(nobody: str) -> None:
    began = time.monotonic()
    async with moorage.connect(nobody) as moor:
        for attempt in (moor.create(), anext(moor.events()), anext(moor.export("s-1"))):
            with pytest.raises(ServerUnreachable, match=r"connection refused.*moorage serve") as refused:
                await attempt
    assert time.monotonic() - began < 10
    assert not refused.value.is_unsure
    assert edge_of(refused.value).exit_code == 5


async def test_localhost_with_several_addresses_fails_at_once_too(nobody: str) -> None:
    async with moorage.connect(nobody.replace("127.0.0.1", "localhost")) as moor, asyncio.timeout(10):
        with pytest.raises(ServerUnreachable, match="connection refused"):
            await moor.list()


async def test_inside_an_agent_a_server_that_restarts_is_waited_for(
    nobody: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AGENT_RUN_ID", "r-1")
    monkeypatch.setattr("moorage.remote.transport.QUIET_FOR", 0.0)
    async with moorage.connect(nobody, deadline=0.5) as moor:
        with pytest.raises(ServerUnreachable):
            await moor.list()
    assert "trying for another" in caplog.text


HANGING = """
import socket, sys, time
socket.getaddrinfo = lambda *_, **__: time.sleep(60)
from moorage.doors.cli.app import run
sys.exit(run(["list", "--url", "http://sessions.example:8765"]))
"""


def test_name_that_does_not_resolve_fails_within_seconds() -> None:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=50)
    assert (done.returncode, time.monotonic() - began < 15) == (5, True)
    assert "the name sessions.example does not resolve" in done.stderr


async def test_server_that_went_away_is_waited_for_and_the_caller_is_told_once(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("moorage.remote.transport.QUIET_FOR", 0.0)
    door = loop.run(a_door(f"sqlite:///{tmp_path / 'kept.db'}"))
    server = await asyncio.to_thread(Server, door, loop)
    async with moorage.connect(server.url, deadline=0.5) as moor:
        await moor.list()
        await asyncio.to_thread(server.stop)
        with pytest.raises(ServerUnreachable):
            await moor.list()
    loop.run(door.deps.store.close())
    [told] = [record.getMessage() for record in caplog.records if record.name.startswith("moorage.remote")]
    assert told.startswith(f"no answer from {server.url}")


async def test_answer_of_another_server_is_refused() -> None:
    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(other, "127.0.0.1", 0)
    async with server, asyncio.timeout(30):
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with moorage.connect(url, deadline=1) as moor:
            with pytest.raises(ServerUnreachable, match="something else answers"):
                await moor.get("s-1")


async def test_too_many_requests_are_asked_again_when_the_server_says(address: str) -> None:
    answers = [(429, 0), (503, 0), (200, None)]
    asked: list[float] = []

    async def busy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        status, later = answers[len(asked)]
        asked.append(time.monotonic())
        body = b'{"items":[],"next":null}' if status == 200 else b'{"code":"rate_limited","detail":"wait"}'
        retry = "" if later is None else f"Retry-After: {later}\r\n"
        writer.write(f"HTTP/1.1 {status} X\r\nConnection: close\r\n{retry}Content-Length: {len(body)}\r\n\r\n".encode())
        writer.write(body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(busy, "127.0.0.1", 0)
    async with server, asyncio.timeout(30):
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with moorage.connect(url, deadline=5) as moor:
            assert (await moor.list()).items == []
    assert len(asked) == 3


# Streams ----------------------------------------------------------------------------------------


async def test_live_words_go_on_after_a_long_pause_and_a_break() -> None:
    words, heard, deadline = iter(["one", "two", "three"]), asyncio.Queue[str](), 0.3
    speakers, is_over = list[asyncio.Task[None] | None](), asyncio.Event()

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        speakers.append(asyncio.current_task())
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        writer.write(f'data: {{"session_id":"s-1","text":"{next(words)}","begins":false}}\n\n'.encode())
        with suppress(TimeoutError):  # quiet for longer than the client is patient
            await asyncio.wait_for(is_over.wait(), 2 * deadline)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    async with server, asyncio.timeout(30):
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with moorage.connect(url, deadline=deadline) as moor:
            with moor.words_heard("s-1", lambda text, _: heard.put_nowait(text)):
                assert [await heard.get(), await heard.get()] == ["one", "two"]
        is_over.set()
        await asyncio.gather(*filter(None, speakers))


@pytest.fixture
def loop() -> Iterator[Loop]:
    opened = Loop()
    yield opened
    opened.close()


async def test_a_stream_goes_on_where_it_was_when_the_server_comes_back(loop: Loop, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'kept.db'}"
    door = loop.run(a_door(store))
    server = await asyncio.to_thread(Server, door, loop)
    port = server.port
    heard: list[tuple[int, Event]] = []
    async with moorage.connect(server.url) as moor, asyncio.timeout(60):
        await moor.create(session_id="s-1", parent=None)
        streams = [moor.events("s-1"), moor.events()]
        for round_ in range(3):
            await moor.append("s-1", [f"{round_}-{number}" for number in range(3)])
            wanted = 1 + 3 * (round_ + 1)
            while len(heard) < 2 * wanted:
                heard += [(which, await anext(stream)) for which, stream in enumerate(streams)]
            await asyncio.to_thread(server.stop)
            server = await asyncio.to_thread(Server, door, loop, port)
        await moor.delete("s-1")
        assert [(await anext(stream)).type for stream in streams] == ["session_deleted"] * 2
        with pytest.raises(StopAsyncIteration):
            await anext(streams[0])
        await streams[1].aclose()  # type: ignore[attr-defined]
    for which in (0, 1):
        ids = [event.id for about, event in heard if about == which]
        assert ids == list(range(1, 11)), "no gap and no double"
    await asyncio.to_thread(server.stop)
    loop.run(door.deps.store.close())


async def test_a_stream_from_the_end_knows_where_it_began_before_anything_happens(address: str) -> None:
    async with moorage.connect(address) as moor, asyncio.timeout(60):
        assert isinstance(moor, RemoteMoorage)
        await moor.append((await moor.create(parent=None)).id, ["one", "two"])
        async with moor._event_stream("/events", "end") as stream:
            assert await anext(stream) == ("3", b"")


async def test_a_stream_gives_up_on_a_server_that_stays_away(loop: Loop, tmp_path: Path) -> None:
    door = loop.run(a_door(f"sqlite:///{tmp_path / 'kept.db'}"))
    server = await asyncio.to_thread(Server, door, loop)
    async with moorage.connect(server.url, deadline=0.5) as moor, asyncio.timeout(60):
        await moor.create(session_id="s-1", parent=None)
        stream = moor.events("s-1")
        assert (await anext(stream)).type == "created"
        await asyncio.to_thread(server.stop)
        with pytest.raises(ServerUnreachable):
            await anext(stream)
    loop.run(door.deps.store.close())


# Without await ----------------------------------------------------------------------------------


def ours() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "moorage-remote"]


def test_the_sync_door_has_a_thread_until_it_is_closed(address: str) -> None:
    before = len(ours())
    with sync.connect(address) as moor:
        assert len(ours()) == before + 1
        moor.create(session_id="s-1")
        for event in moor.events("s-1"):
            assert event.type == "created"
            break
        assert [event.type for event in moor.events(follow=False)] == ["created"]
        assert "".join(moor.export("s-1")).startswith('{"type":"moorage"')
    assert len(ours()) == before
    moor.close()
    with pytest.raises(MoorageError) as closed:
        moor.get("s-1")
    assert closed.value.code == "store_unavailable"


def test_a_stream_that_is_left_open_is_closed_with_the_connection(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    with sync.connect(address) as moor:
        moor.create(session_id="s-1")
        for number in range(40):
            moor.append("s-1", f"{number}" * 10_000)
        events, lines = moor.events("s-1"), moor.export("s-1")
        next(events)
        next(lines)
    ours = [record.getMessage() for record in caplog.records if record.threadName != "server"]
    assert ours == [], "nothing is complained of"


def test_closed_connection_ends_a_waiting_stream(address: str) -> None:
    told: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
    moor = sync.connect(address)
    moor.create(session_id="s-1")
    stream = moor.events("s-1")
    next(stream)

    def wait() -> None:
        try:
            next(stream)
        except MoorageError as error:
            told.put(error)

    thread = threading.Thread(target=wait)
    thread.start()
    moor.close()
    thread.join(60)
    assert not thread.is_alive()
    assert isinstance(told.get(timeout=60), errors.StoreUnavailable)


def test_a_callback_that_would_wait_for_itself_is_refused(address: str, doors: Doors) -> None:
    doors.launching(address)
    refused: list[Exception] = []

    def hear(_: str, event: dict[str, Any]) -> None:
        try:
            moor.list()
        except MoorageError as error:
            refused.append(error)

    with sync.connect(address) as moor:
        assert moor.run("echo-agent", "hello", on_event=hear, timeout=60).status == "completed"
    assert refused
    assert {error.code for error in refused} == {"unsupported"}  # type: ignore[attr-defined]


def test_the_sync_door_works_inside_a_running_loop(address: str) -> None:
    async def notebook() -> str:
        with sync.connect(address) as moor:
            return moor.create(session_id="s-1").session_id

    assert asyncio.run(notebook()) == "s-1"


# Who is asking ----------------------------------------------------------------------------------


async def test_inside_an_agent_its_session_is_the_parent(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with moorage.connect(address) as moor:
        await moor.create(session_id="agent", parent=None)
        await moor.create(session_id="other", parent=None)
        monkeypatch.setenv("AGENT_SESSION_ID", "agent")
        assert (await moor.create()).parent_session_id == "agent"
        assert (await moor.create(parent="other")).parent_session_id == "other"
        assert (await moor.create(parent=None)).parent_session_id is None
        made = await moor.delegate("planner", create=True)
        assert made.session is not None
        assert made.session.parent_session_id == "agent"
        monkeypatch.setenv("AGENT_SESSION_ID", "${AGENT_SESSION_ID}")
        with pytest.warns(UserWarning, match="was not filled in"):
            assert (await moor.create()).parent_session_id is None


async def test_who_asks_travels_too(address: str) -> None:
    async with moorage.connect(address, by="josé", holder="somebody", interface="cli") as moor:
        session = await moor.create(session_id="s-1", parent=None)
        assert session.interface == "cli"
        assert [entry.by for entry in await moor.log("s-1")] == ["josé"]
        assert (await moor.resume("s-1")).hold.holder == "local:somebody"


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({}, None),
        ({"MOORAGE_KEY": "k"}, "k"),
        ({"MOORAGE_KEY": "k", "MOORAGE_TOKEN": "t"}, "t"),
    ],
)
def test_a_key_is_the_argument_else_the_token_else_the_key(
    given: dict[str, str], sent: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert bearer(moorage.connect("http://127.0.0.1:1")) == sent
    assert bearer(moorage.connect("http://127.0.0.1:1", key="mine")) == "mine"


def bearer(moor: Any) -> str | None:
    request = moor._transport._request(Ask(verb="GET", path="/x"))
    told = request.headers.get("authorization")
    return None if told is None else told.removeprefix("Bearer ")


@pytest.mark.parametrize("url", ["http://", "http://ann:secret@host", "http://host/?x=1", "http://host/#x"])
def test_an_address_that_is_none_is_refused_without_telling_its_password(url: str) -> None:
    with pytest.raises(errors.InvalidField) as refused:
        check_url(url)
    assert refused.value.code == "invalid_url"
    assert "secret" not in refused.value.message


def test_another_owner_is_the_keys_to_say() -> None:
    with pytest.raises(errors.InvalidField, match="key"):
        moorage.connect("http://127.0.0.1:1", owner="ann")


async def test_a_running_session_says_so(address: str, doors: Doors) -> None:
    async with moorage.connect(address) as moor:
        await moor.run("echo-agent", "hello", mode="async_poll", session_id="s-1", parent=None)
        session = await moor.get("s-1")
    import msgspec

    from moorage.core.query import Page
    from moorage.core.render import to_json
    from moorage.core.session import Session
    from moorage.remote.asking import read
    from moorage.service.family import TreeNode

    running = msgspec.structs.replace(session, live_turn="t-1", state=type(session.state)("active"))
    assert running.status == "running"
    for value, kind in (
        (running, Session),
        (Page([session, running]), Page[Session]),
        (TreeNode(session=session, children=[TreeNode(session=running)]), TreeNode),
    ):
        back = read(msgspec.json.encode(to_json(value)), kind)
        assert to_json(back) == to_json(value)


async def test_headers_that_cannot_travel_are_left_out() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        caller = caller_for(owner="local", by="two\nlines", interface="python", holder="h")
        moor = RemoteMoorage.to("http://127.0.0.1:1", caller)
    assert "x-moorage-by" not in moor._transport._request(Ask(verb="GET", path="/x")).headers
    await moor.close()


# Without an event loop --------------------------------------------------------------------------


class LateBackground(Background):
    """Its thread gets no processor for a while, as on a machine with other things to do."""

    def __init__(self) -> None:
        self.may_work = threading.Event()
        super().__init__()

    def _work(self) -> None:
        assert self.may_work.wait(PATIENCE)
        super()._work()


def test_call_before_the_thread_runs_is_answered() -> None:
    late = LateBackground()
    assert late.is_open
    threading.Timer(0.05, late.may_work.set).start()
    assert late.run(asyncio.sleep(0, "an answer")) == "an answer"
    late.close()
    assert not late.is_open
