"""A key that is revoked ends the streams it has open, at every door, with the error that a stranger gets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest

from moorage import config, connect
from moorage.core.errors import StoreUnavailable, Unauthorized
from moorage.doors.graphql import door as graphql
from moorage.doors.grpc.server import GrpcServer
from moorage.doors.http import authorizer, streams
from moorage.doors.http.app import Door
from moorage.doors.http.authorizer import Authorizer
from moorage.doors.http.streams import StreamSettings
from moorage.doors.mcp import door as mcp
from moorage.protobuf.sessions_pb2 import WatchSessionRequest
from tests.doors.graphql.client import Client
from tests.doors.grpc.serving import Stubs
from tests.doors.http.listening import STREAM
from tests.doors.http.server import Served, running
from tests.doors.mcp.serving import ACCEPT, HELLO

EVENTS = "subscription ($id: ID!) { agentSessionEvents(sessionId: $id) { id type } }"
PATIENCE = 20.0


class Guarded(Served):
    """A server with all its doors that look often who may still read; a key, and a session to follow."""

    grpc_port = 0
    key_id = ""
    key = ""

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    async def revoke(self) -> None:
        await self.moorage().revoke_key(self.key_id)


@pytest.fixture
async def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Guarded]:
    monkeypatch.setattr(authorizer, "LOOK_EVERY", 0.2)
    deps = config.open_deps(f"sqlite:///{tmp_path}/x.db", threaded=True)
    checking = Authorizer(deps)
    door = Door(deps, checking)
    live = streams.add_to(door, StreamSettings(heartbeat=0.2))
    mcp.add_to(door, live)
    server = GrpcServer(deps, checking)
    async with running(door) as http, asyncio.timeout(PATIENCE):
        served = Guarded(http, door, live, graphql.add_to(door, live))
        served.grpc_port = await server.start("127.0.0.1", 0)
        made = await served.moorage().create_key(scopes=("read", "write"))
        served.key, served.key_id = made.text, made.key.key_id
        await served.moorage().create(session_id="s", parent=None)
        yield served
        await server.close(0)
    await deps.store.close()


async def test_server_sent_events_end_with_a_refusal(guarded: Guarded) -> None:
    headers = {**guarded.headers, **STREAM}
    async with guarded.client(headers=headers) as http, http.stream("GET", "/sessions/s/events") as stream:
        lines = stream.aiter_lines()
        while not (await anext(lines)).startswith("data:"):
            pass
        await guarded.revoke()
        rest = [line async for line in lines if line and line != ":"]
    assert rest[0] == "event: refused"
    assert '"code":"unauthorized"' in rest[1]


async def test_a_client_in_python_is_told_so(guarded: Guarded) -> None:
    async with connect(guarded.url, key=guarded.key) as moor:
        events = moor.events("s")
        assert (await anext(events)).type == "created"
        await guarded.revoke()
        with pytest.raises(Unauthorized):
            await anext(events)


async def test_subscriptions_end_with_an_error(guarded: Guarded) -> None:
    async with Client(guarded.url, guarded.key) as gql, gql.socket() as socket, gql.sse(EVENTS, id="s") as sse:
        await socket.subscribe("1", EVENTS, id="s")
        await socket.next()
        await guarded.revoke()
        told = await socket.hear()
        while told["type"] == "ping":
            told = await socket.hear()
        assert (told["type"], told["payload"][0]["extensions"]["code"]) == ("error", "unauthorized")
        lines = [line async for line in sse._lines]
    assert any('"unauthorized"' in line for line in lines)


async def test_watching_by_grpc_ends_unauthenticated(guarded: Guarded) -> None:
    metadata = (("authorization", f"Bearer {guarded.key}"),)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{guarded.grpc_port}") as channel:
        watch = Stubs(channel).sessions.WatchSession(WatchSessionRequest(session="s"), metadata=metadata)
        assert (await watch.read()).event.type == "created"
        await guarded.revoke()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await watch.read()
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_stream_by_mcp_is_hung_up_on(guarded: Guarded) -> None:
    async with guarded.client(headers={**guarded.headers, **ACCEPT}) as http:
        greeted = await http.post("/mcp", json=HELLO)
        session = {"Mcp-Session-Id": greeted.headers["mcp-session-id"]}
        await http.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session)
        async with http.stream("GET", "/mcp", headers=session) as stream:
            assert stream.status_code == 200
            await guarded.revoke()
            with pytest.raises(httpx2.TransportError):
                await _read(stream)
        assert (await http.post("/mcp", json=HELLO)).status_code == 401


async def _read(stream: Any) -> None:
    async for _ in stream.aiter_bytes():
        pass


async def test_a_store_that_is_away_ends_no_stream(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = asyncio.Event()

    async def fail(*_: object) -> None:
        looked.set()
        raise StoreUnavailable("away")

    headers = {**guarded.headers, **STREAM}
    async with guarded.client(headers=headers) as http, http.stream("GET", "/sessions/s/events") as stream:
        lines = stream.aiter_lines()
        monkeypatch.setattr(Authorizer, "look_at", fail)
        await looked.wait()
        await guarded.moorage().append("s", ["still here"])
        while "still here" not in await anext(lines):
            pass
