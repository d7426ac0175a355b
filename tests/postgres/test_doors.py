"""gRPC and MCP on PostgreSQL: two servers on one database, each with a home of its own, none of them special."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from moorage import connect
from moorage.protobuf import agent_platform_pb2 as pb
from moorage.protobuf import sessions_pb2 as sp
from moorage.testing.postgres import GivenServer, PostgresServer
from tests.doors.grpc.serving import Stubs, sample_process, server_process, until
from tests.doors.grpc.test_platform import refused, task, trailing
from tests.doors.mcp.ways import WAYS, client, text_of

Code = grpc.StatusCode


class Server:
    """A server on the database: where it is by gRPC and over HTTP."""

    def __init__(self, place: str, home: Path) -> None:
        self.place, self.home = place, home

    @property
    def url(self) -> str:
        [note] = (self.home / "servers").iterdir()
        return note.read_text().split()[1]


@pytest.fixture(scope="module")
def servers(
    tmp_path_factory: pytest.TempPathFactory, postgres: GivenServer | PostgresServer
) -> Iterator[tuple[Server, Server]]:
    """Two of them; only the second has a launcher."""
    with ExitStack() as stack:
        database = stack.enter_context(postgres.database())
        started = []
        for more in (("--no-launcher",), ()):
            home = tmp_path_factory.mktemp("home")
            process = stack.enter_context(server_process(database, home, *more))
            started.append(Server(process.place, home))
        yield started[0], started[1]


@pytest.fixture
async def both(servers: tuple[Server, Server]) -> AsyncIterator[tuple[Stubs, Stubs]]:
    one, other = servers
    async with grpc.aio.insecure_channel(one.place) as first, grpc.aio.insecure_channel(other.place) as second:
        yield Stubs(first), Stubs(second)


async def test_registration_is_shared_by_all_servers(
    servers: tuple[Server, Server], both: tuple[Stubs, Stubs], tmp_path: Path
) -> None:
    one, other = both
    with sample_process("echo-agent", tmp_path) as guest:
        offer = pb.RegisterAgentRequest(agent_id="guest", endpoint=guest.place, lease_seconds=4)
        assert (await one.agents.RegisterAgent(offer)).success
        answer = await other.agents.ExecuteTask(task("hi", "guest", session_id="far-1"))
        assert answer.output == "Echo Agent Response: hi"
        async with connect(servers[0].url) as moor:  # asked here, taken by the launcher there
            run = await moor.run("guest", "and as a run", timeout=30)
            assert run.result == "Echo Agent Response: and as a run"
            assert "guest" in [each["name"] for each in (await moor.agents()).items]
        await one.agents.RegisterAgent(offer)  # renewed
        again = await other.agents.ExecuteTask(task("what did I say?", "guest", session_id="far-1"))
        assert again.output.endswith("Remembered: hi")
        guest.kill()

    async def is_gone() -> bool:
        lists = [await stubs.agents.ListAgents(pb.ListAgentsRequest()) for stubs in both]
        return not [each for listed in lists for each in listed.agents if each.agent_id == "guest"]

    await until(is_gone)
    for stubs in both:
        error = await refused(stubs.agents.ExecuteTask(task("hi", "guest", session_id="far-1")))
        assert (error.code(), trailing(error)["session-id"]) == (Code.NOT_FOUND, "far-1")


async def test_a_tool_that_registers_at_one_is_called_through_the_other(
    both: tuple[Stubs, Stubs], tmp_path: Path
) -> None:
    one, other = both
    with sample_process("weather-tool", tmp_path) as tool:
        await one.tools.RegisterTool(pb.RegisterToolRequest(tool_id="far-weather", endpoint=tool.place))
        asked = pb.ToolRequest(tool_id="far-weather", operation="get_weather", parameters={"location": "Rome"})
        assert json.loads((await other.tools.ExecuteTool(asked)).result)["location"] == "Rome"


async def test_a_session_goes_on_at_the_other_server_and_at_the_other_door(
    servers: tuple[Server, Server], both: tuple[Stubs, Stubs]
) -> None:
    one, other = both
    first = await one.agents.ExecuteTask(task("hello", session_id="s-1", parameters={"preference": "tea"}))
    assert (first.session_id, first.metadata["session_turns"]) == ("s-1", "1")
    seen = (await one.sessions.GetSession(sp.GetSessionRequest(session="s-1"))).session.last_entry
    watch = one.sessions.WatchSession(sp.WatchSessionRequest(session="s-1", after=seen))
    pieces = [piece async for piece in other.agents.StreamTask(task("what did I say?", session_id="s-1"))]
    assert pieces[-1].response.output.endswith("Remembered: hello")
    async with asyncio.timeout(20):
        assert json.loads((await watch.read()).event.data)["content"] == "what did I say?"
    watch.cancel()
    trip = await other.workers.ProcessTask(task("1 day in Rome", "itinerary-worker", session_id="s-1"))
    assert json.loads(trip.output)["preferences"] == ["tea"]
    weather = pb.ToolRequest(tool_id="weather-tool", parameters={"location": "Rome"}, session_id="s-1")
    assert (await one.tools.ExecuteTool(weather)).session_id == "s-1"
    error = await refused(other.agents.ExecuteTask(task("x", "nobody", session_id="s-1")))
    assert (error.code(), trailing(error)["session-id"]) == (Code.NOT_FOUND, "s-1")
    port = int(servers[0].url.rpartition(":")[2])
    for way in WAYS[:2]:
        async with client(way, servers[0].home, port) as mcp:
            said = await mcp.call_tool("echo-agent", {"input": "what did I say?", "session_id": "s-1"})
            assert "Remembered: hello; what did I say?" in text_of(said)
            found = await mcp.call_tool("start_agent_session", {"agent": "echo-agent", "prompt": "hi"})
            assert found.structured_content["run"]["result"] == "Echo Agent Response: hi"
            log = await mcp.read_resource("moorage://sessions/s-1/log")
            assert json.loads(log.contents[0].text)["entries"][0]["kind"] == "created"  # type: ignore[union-attr]


async def test_many_first_calls_at_both_servers_make_one_session(both: tuple[Stubs, Stubs]) -> None:
    calls = [both[number % 2].agents.ExecuteTask(task(str(number), session_id="many")) for number in range(16)]
    assert {answer.session_id for answer in await asyncio.gather(*calls)} == {"many"}
    stored = both[0].sessions.WatchSession(sp.WatchSessionRequest(session="many", no_follow=True))
    said = [json.loads(each.event.data) async for each in stored if each.event.type == "message"]
    assert sorted(each["content"] for each in said if each["role"] == "user") == sorted(map(str, range(16)))
