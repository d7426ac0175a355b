"""graphql-transport-ws, rule by rule; and what a connection may not do to the server."""

from __future__ import annotations

import asyncio
import socket as sockets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import websockets.exceptions
from msgspec.structs import replace
from websockets.asyncio.client import connect

from moorage.doors.http.protocol import BoundedProtocol
from moorage.doors.http.streams import StreamSettings
from moorage.service.deps import ServerSettings
from tests.doors.graphql.client import Client, Socket, raw_socket
from tests.doors.http.server import Served, address_of, running, serving
from tests.doors.http.test_streams import until

EVENTS = "subscription ($id: ID!, $after: ID! = 0) { agentSessionEvents(sessionId: $id, after: $after) { id type } }"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Nothing here depends on the store."""
    return f"memory://{tmp_path}"


async def settled(served: Served, **settings: Any) -> None:
    answering = await served.graphql.loaded()
    answering.sockets = replace(answering.sockets, **settings)


# The rules ---------------------------------------------------------------------------------------


async def test_queries_and_changes_come_over_the_socket_too(gql: Client) -> None:
    async with gql.socket() as socket:
        await socket.subscribe("a", 'mutation { createAgentSession(sessionId: "s") { interface } }')
        assert await socket.next("a") == {"data": {"createAgentSession": {"interface": "graphql"}}}
        assert await socket.hear() == {"id": "a", "type": "complete"}
        await socket.subscribe("a", "query ($s: ID!) { agentSession(sessionId: $s) { state } }", s="s")
        assert await socket.next("a") == {"data": {"agentSession": {"state": "CREATED"}}}
        assert await socket.hear() == {"id": "a", "type": "complete"}
        await socket.subscribe("b", '{ agentSession(sessionId: "nobody") { state } }')
        assert (await socket.next("b"))["errors"][0]["extensions"]["code"] == "session_not_found"


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("{", "invalid_query"),
        ("{ nope }", "invalid_query"),
        ("subscription { nope }", "invalid_query"),
        ("subscription { }", "invalid_query"),
        ('subscription { agentSessionEvents(sessionId: "nobody") { id } }', "session_not_found"),
        ('subscription { agentSessionEvents(sessionId: "s", after: "x") { id } }', "invalid_after"),
        ('subscription { agentSessionEvents(sessionId: "s", after: "-1") { id } }', "invalid_after"),
        ('subscription { agentSessionEvents(sessionId: "s", after: 99999999999) { id } }', "invalid_number"),
        ('subscription { a: agentSessionEvents(sessionId: "s") { id } b: agentSessionEvents(sessionId: "s") { id } }',
         "invalid_query"),
        ("subscription ($s: ID!) { agentSessionEvents(sessionId: $s) { id } }", "invalid_query"),
        (None, "invalid_query"),
    ],
)  # fmt: skip
async def test_failure_is_an_error_of_its_operation(gql: Client, served: Served, query: str | None, code: str) -> None:
    await served.moorage().create(session_id="s", parent=None)
    async with gql.socket() as socket:
        await socket.say(type="subscribe", id="1", payload={"query": query})
        told = await socket.hear()
        assert (told["id"], told["type"]) == ("1", "error")
        assert told["payload"][0]["extensions"]["code"] == code
        await socket.subscribe("1", "{ __typename }")  # the connection goes on, and the id is free
        assert await socket.next() == {"data": {"__typename": "Query"}}


async def test_cancelled_operation_ends(gql: Client, served: Served) -> None:
    await served.moorage().create(session_id="s", parent=None)
    async with gql.socket() as socket:
        await socket.subscribe("1", EVENTS, id="s")
        await socket.next()
        assert served.live.places.taken == 1
        await socket.say(type="complete", id="1")
        await socket.say(type="complete", id="nobody")
        await until(lambda: served.live.places.taken == 0)
        await socket.subscribe("1", EVENTS, id="s", after="1")
        await served.moorage().append("s", ["more"])
        assert (await socket.next())["data"]["agentSessionEvents"] == {"id": "2", "type": "message"}


async def test_pings_are_answered(gql: Client, served: Served) -> None:
    async with raw_socket(served.url) as socket:
        await socket.say(type="ping")
        assert await socket.hear() == {"type": "pong"}
        await socket.say(type="connection_init")
        assert await socket.hear() == {"type": "connection_ack"}
        await socket.say(type="ping", payload={"x": 1})
        assert await socket.hear() == {"type": "pong"}
        await socket.say(type="pong")
        await socket.subscribe("1", "{ __typename }")
        assert (await socket.hear())["type"] == "next"


async def test_a_quiet_connection_is_asked_whether_it_lives(url: str) -> None:
    lively = StreamSettings(heartbeat=0.1)
    async with serving(url, settings=lively) as served, Client(served.url) as gql, gql.socket() as socket:
        for _ in range(3):
            assert await socket.hear() == {"type": "ping"}
            await socket.say(type="pong")


Steps = Callable[[Socket], Any]


async def init(socket: Socket) -> None:
    await socket.say(type="connection_init")
    assert await socket.hear() == {"type": "connection_ack"}


async def subscribe_first(socket: Socket) -> None:
    await socket.subscribe("1", "{ __typename }")


async def init_twice(socket: Socket) -> None:
    await init(socket)
    await socket.say(type="connection_init")


async def same_id(socket: Socket) -> None:
    await init(socket)
    for _ in range(2):
        await socket.subscribe("same", EVENTS, id="s")


def message(text: str | bytes) -> Steps:
    async def steps(socket: Socket) -> None:
        await init(socket)
        await socket.connection.send(text)

    return steps


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        (subscribe_first, 4401),
        (init_twice, 4429),
        (same_id, 4409),
        (message("{"), 4400),
        (message(b"\x00\x01"), 4400),
        (message("[]"), 4400),
        (message("{}"), 4400),
        (message('{"type": "nope"}'), 4400),
        (message('{"type": 5}'), 4400),
        (message('{"type": "subscribe"}'), 4400),
        (message('{"type": "subscribe", "id": "1"}'), 4400),
        (message('{"type": "subscribe", "id": 7, "payload": {"query": "{ __typename }"}}'), 4400),
        (message('{"type": "subscribe", "id": "1", "payload": {"query": 5}}'), 4400),
        (message('{"type": "subscribe", "id": "1", "payload": {"query": "{ __typename }", "variables": []}}'), 4400),
        (message('{"type": "' + "x" * 5000 + '"}'), 4400),
        (message('{"type":"ping","payload":' + "[" * 100_000 + "]" * 100_000 + "}"), 4400),
    ],
)
async def test_a_broken_rule_closes_with_its_code(gql: Client, served: Served, steps: Steps, code: int) -> None:
    await served.moorage().create(session_id="s", parent=None)
    async with raw_socket(served.url) as socket:
        await steps(socket)
        assert (await socket.closed())[0] == code
    await until(lambda: served.live.places.taken == 0)


@pytest.mark.parametrize("protocol", [None, "graphql-ws", "mqtt"])
async def test_another_protocol_is_refused(served: Served, protocol: str | None) -> None:
    try:
        async with raw_socket(served.url, protocol) as socket:
            assert (await socket.closed())[0] == 4406
    except websockets.exceptions.InvalidHandshake:
        assert protocol is not None  # a client that insists on its own


async def test_there_is_no_socket_elsewhere(served: Served) -> None:
    with pytest.raises(websockets.exceptions.InvalidStatus) as refused:
        async with connect(served.url.replace("http", "ws") + "/sessions"):
            pass
    assert refused.value.response.status_code == 403


# Limits ------------------------------------------------------------------------------------------


async def test_who_does_not_say_who_it_is_is_let_go(served: Served) -> None:
    await settled(served, init_within=0.1)
    async with raw_socket(served.url) as socket:
        assert await socket.closed() == (4408, "Connection initialisation timeout")
    async with raw_socket(served.url) as socket:
        for _ in range(2):
            await socket.say(type="ping")  # a sign of life is no answer
        assert (await socket.closed())[0] == 4408


async def test_only_so_many_streams_of_one_visitor(url: str) -> None:
    async with serving(url, limits=ServerSettings(streams_per_visitor=3)) as served, Client(served.url) as gql:
        await served.moorage().create(session_id="s", parent=None)
        async with gql.socket() as one, gql.socket() as two:
            for name in ("1", "2", "3"):
                await one.subscribe(name, EVENTS, id="s")
                assert (await one.hear())["type"] == "next"
            await two.subscribe("4", EVENTS, id="s")
            told = await two.hear()
            assert (told["type"], told["payload"][0]["extensions"]["code"]) == ("error", "rate_limited")
            async with gql.sse(EVENTS, id="s") as stream:
                assert (await stream.next())["errors"][0]["extensions"]["code"] == "rate_limited"
            await one.say(type="complete", id="1")
            await until(lambda: served.live.places.taken == 2)
            await two.subscribe("4", EVENTS, id="s")
            assert (await two.hear())["type"] == "next"


async def test_only_so_many_connections(url: str) -> None:
    async with serving(url, limits=ServerSettings(streams=2)) as served, Client(served.url) as gql:
        async with gql.socket(), gql.socket(), raw_socket(served.url) as third:
            assert (await third.closed())[0] == 1013
        async with gql.socket():
            pass


async def test_only_so_many_operations_on_one_connection(gql: Client, served: Served) -> None:
    await settled(served, operations=2)
    await served.moorage().create(session_id="s", parent=None)
    async with gql.socket() as socket:
        for name in ("1", "2"):
            await socket.subscribe(name, EVENTS, id="s")
            assert (await socket.hear())["type"] == "next"
        await socket.subscribe("3", "{ __typename }")
        told = await socket.hear()
        assert (told["id"], told["payload"][0]["extensions"]["code"]) == ("3", "rate_limited")


async def test_who_does_not_read_loses_the_connection_and_no_memory(url: str) -> None:
    patience = StreamSettings(drained_within=0.3)
    async with serving(url, settings=patience) as served, Client(served.url) as gql:
        moor = served.moorage()
        await moor.create(session_id="s", parent=None)
        slow = sockets.socket()
        slow.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
        slow.setblocking(False)
        host, port = served.url.removeprefix("http://").split(":")
        await asyncio.get_running_loop().sock_connect(slow, (host, int(port)))
        async with raw_socket(served.url, sock=slow, max_queue=1) as socket:
            await socket.say(type="connection_init")
            await socket.hear()
            query = 'subscription { agentSessionEvents(sessionId: "s") { data } }'
            await socket.subscribe("1", query)
            await socket.next()
            socket.connection.transport.pause_reading()
            for _ in range(12):
                await moor.append("s", ["x" * 900_000])
            await until(lambda: served.live.places.taken == 0)
            socket.connection.transport.abort()
        async with gql.socket() as socket:  # and nothing is lost to who comes back
            await socket.subscribe("1", EVENTS, id="s", after="1")
            ids = [each["data"]["agentSessionEvents"]["id"] for each in await socket.some(12)]
            assert ids == [str(number) for number in range(2, 14)]


async def test_a_connection_that_breaks_off_leaves_nothing(gql: Client, served: Served) -> None:
    await served.moorage().create(session_id="s", parent=None)
    for _ in range(5):
        async with gql.socket() as socket:
            for name in range(3):
                await socket.subscribe(str(name), EVENTS, id="s")
            await socket.hear()
            socket.connection.transport.abort()
    await until(lambda: served.live.places.taken == 0)
    assert (await served.graphql.loaded())._open == 0


async def test_an_open_connection_is_under_no_bounds_of_a_request(served: Served) -> None:
    class Hasty(BoundedProtocol):
        head_within = pace_every = 0.05

    async with running(served.door, http=Hasty) as server, Client(address_of(server)) as gql, gql.socket() as socket:
        await asyncio.sleep(0.3)
        await socket.subscribe("1", "{ __typename }")
        assert await socket.next() == {"data": {"__typename": "Query"}}
