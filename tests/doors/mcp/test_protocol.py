"""The official client, in each revision of the protocol, over HTTP and over stdio: every way answers alike."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourceUpdated, ToolsListChanged

from moorage import sync
from tests.contract.choice import IS_ALL
from tests.doors.mcp.ways import NEW, OLD, SLOW, TALKER, WAYS, client, define, is_alive, server_process, text_of

TABLE = (
    "list_agents start_agent_session resume_agent_session send_message get_agent_session_status "
    "get_agent_session_result retry_run list_agent_sessions list_children wait_for_children "
    "rename_session suspend_session release_session request_approval stop_agent_session delete_agent_session "
    "get_context set_context get_memory set_memory search_sessions"
).split()

FEWER_WAYS = [way for way in WAYS if IS_ALL or way.startswith("http") or way.endswith(NEW)]  # these take seconds


class Place:
    """A home, and a server on it if the way needs one."""

    def __init__(self, home: Path, port: int | None) -> None:
        self.home, self.port = home, port


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("home")
    define(home, SLOW)
    define(home, TALKER)
    with server_process(home) as process:
        yield Place(home, process.port)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(way: str, served: Place, tmp_path: Path) -> Place:
    """Where a client of this way goes: who is alone has a home that no server knows."""
    if not way.startswith("alone"):
        return served
    define(tmp_path, SLOW)
    define(tmp_path, TALKER)
    return Place(tmp_path, None)


async def test_tools_are_listed_called_and_refused_alike(way: str, place: Place) -> None:
    async with client(way, place.home, place.port) as mcp:
        assert mcp.session.protocol_version == way.split()[1]
        tools = {tool.name: tool for tool in (await mcp.list_tools()).tools}
        assert list(tools)[: len(TABLE)] == TABLE
        assert {"echo-agent", "hello-world", "itinerary-worker", "weather-tool", "slow", "talker"} <= tools.keys()
        for tool in tools.values():
            assert tool.input_schema["type"] == "object"
            assert tool.output_schema is not None
            assert tool.annotations is not None
        await check_recall(mcp, way)
        await check_refusals(mcp)


async def check_recall(mcp: Client, way: str) -> None:
    """The second call in one session sees the first; without a session nothing is kept."""
    session = f"recall.{way.replace(' ', '.')}"
    asked = {"input": "Hello, remember my preferences", "parameters": {"preference": "italian food"}}
    first = await mcp.call_tool("echo-agent", {**asked, "session_id": session})
    lines = text_of(first).splitlines()
    assert lines[0] == "Echo Agent Response: Hello, remember my preferences | Parameters: preference=italian food"
    assert lines[1] == ""
    assert lines[2].startswith("**Metadata**: agent_id=echo-agent, processed_at=")
    assert f"task_number=1, session_id={session}" in lines[2]
    assert lines[3:] == [f"**Session ID**: {session}"]
    second = await mcp.call_tool("echo-agent", {"input": "what did I say?", "session_id": session})
    assert "Remembered: Hello, remember my preferences" in text_of(second)
    assert second.structured_content["metadata"]["task_number"] == 2
    plan = await mcp.call_tool("itinerary-worker", {"input": "Plan a trip to Rome", "session_id": session})
    assert "italian food" in plan.structured_content["output"]
    assert text_of(await mcp.call_tool("echo-agent", {"input": "hi"})) == "Echo Agent Response: hi"
    weather = await mcp.call_tool("weather-tool", {"location": "New York", "days": "5", "session_id": session})
    assert text_of(weather).endswith(f"\n\n**Session ID**: {session}")
    assert len(weather.structured_content["result"]["days"]) == 5


async def check_refusals(mcp: Client) -> None:
    """Failures carry the flag and our codes; what is no tool at all is an error of the protocol."""
    for name, arguments, code in (
        ("get_agent_session_status", {"session_id": "nobody"}, "session_not_found"),
        ("get_agent_session_status", {}, "invalid_session_id"),
        ("start_agent_session", {"agent": "nobody", "prompt": "x"}, "agent_not_found"),
        ("start_agent_session", {"agent": "echo-agent", "prompt": "x", "parent": "nobody"}, "parent_not_found"),
        ("start_agent_session", {"agent": "echo-agent"}, "invalid_prompt"),
        ("list_agent_sessions", {"limit": "many"}, "invalid_limit"),
        ("list_agent_sessions", {"limit": 5, "surprise": 1}, "invalid_surprise"),
        ("list_agent_sessions", {"cursor": "x"}, "invalid_cursor"),
        ("echo-agent", {}, "invalid_input"),
        ("weather-tool", {"location": ""}, None),
    ):
        result = await mcp.call_tool(name, arguments)
        assert result.is_error, (name, arguments)
        if code is not None:
            assert result.structured_content["error"]["code"] == code, text_of(result)
            assert text_of(result).startswith(f"{code}: ")
    with pytest.raises(MCPError, match="tool_not_found"):
        await mcp.call_tool("no-such-tool", {})


@pytest.mark.parametrize("way", FEWER_WAYS)
async def test_long_work_tells_how_it_goes(way: str, place: Place) -> None:
    heard: list[tuple[float, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))

    async with client(way, place.home, place.port) as mcp:
        asked = {"agent": "talker", "prompt": "go", "mode": "SYNC"}
        result = await mcp.call_tool("start_agent_session", asked, progress_callback=hear)
        assert not result.is_error, text_of(result)
        assert result.structured_content["run"]["result"] == "done"
        assert [progress for progress, _ in heard] == list(range(1, len(heard) + 1))
        assert any("planning" in str(message) for _, message in heard), heard
        heard.clear()
        await mcp.call_tool("echo-agent", {"input": "one two three four five six seven"}, progress_callback=hear)
        assert "".join(str(message) for _, message in heard) == (
            "Echo Agent Response: one two three four five six seven"
        )


@pytest.mark.parametrize("way", FEWER_WAYS)
async def test_cancelling_a_call_stops_the_run(way: str, place: Place) -> None:
    async with client(way, place.home, place.port) as mcp:
        for tool, asked in (("start_agent_session", {"agent": "slow", "prompt": "go"}), ("slow", {"input": "go"})):
            session = f"cancel.{tool}.{way.replace(' ', '.')}"
            calling = asyncio.create_task(mcp.call_tool(tool, {**asked, "session_id": session}))
            await running(mcp, session)
            pid = int(await written(place.home / "slow.pid"))
            calling.cancel()
            await asyncio.wait([calling])
            status = await mcp.call_tool("get_agent_session_status", {"session_id": session, "wait_seconds": 30})
            assert status.structured_content["run"]["state"] == "stopped"
            assert not is_alive(pid)
            (place.home / "slow.pid").unlink()
        assert "Echo" in text_of(await mcp.call_tool("echo-agent", {"input": "still there?"}))


async def running(mcp: Client, session: str) -> None:
    """Wait until a session's run is at work."""
    while True:
        status = await mcp.call_tool("get_agent_session_status", {"session_id": session})
        run = None if status.is_error else status.structured_content["run"]
        if run is not None and run["state"] == "running":
            return
        await asyncio.sleep(0.05)


async def written(path: Path) -> str:
    """Return the content of a file once it is not empty."""

    def look() -> str:
        return path.read_text() if path.exists() else ""

    while not (text := look().strip()):  # noqa: ASYNC110  a file has no event
        await asyncio.sleep(0.02)
    return text


async def test_clients_hear_of_other_tools_and_of_sessions_they_follow(way: str, place: Place) -> None:
    name = f"late-{way.replace(' ', '-')}"
    heard: asyncio.Queue[Any] = asyncio.Queue()

    async def hear(message: Any) -> None:
        heard.put_nowait(getattr(message, "method", None))

    async with client(way, place.home, place.port, message_handler=hear) as mcp:
        assert name not in [tool.name for tool in (await mcp.list_tools()).tools]
        if way.endswith(OLD):
            define(place.home, f'[agent]\nname = "{name}"\nkind = "command"\ncommand = ["true"]\n')
            while await heard.get() != "notifications/tools/list_changed":
                pass
        else:
            await mcp.call_tool("send_message", {"session_id": name, "message": "first"})
            uri = f"moorage://sessions/{name}/log"
            async with mcp.listen(tools_list_changed=True, resource_subscriptions=[uri]) as changes:
                define(place.home, f'[agent]\nname = "{name}"\nkind = "command"\ncommand = ["true"]\n')
                assert await anext(changes) == ToolsListChanged()
                await mcp.call_tool("send_message", {"session_id": name, "message": "second"})
                assert await anext(changes) == ResourceUpdated(uri=uri)
        assert name in [tool.name for tool in (await mcp.list_tools()).tools]


async def test_sessions_and_logs_are_resources(way: str, place: Place) -> None:
    session = f"resource.{way.replace(' ', '.')}"
    async with client(way, place.home, place.port) as mcp:
        for text in ("one", "two", "three"):
            await mcp.call_tool("send_message", {"session_id": session, "message": text})
        listed = [resource.uri for resource in (await mcp.list_resources()).resources]
        assert f"moorage://sessions/{session}" in listed
        templates = (await mcp.list_resource_templates()).resource_templates
        assert [template.uri_template for template in templates] == [
            "moorage://sessions/{session_id}",
            "moorage://sessions/{session_id}/log{?after,limit}",
            "moorage://sessions/{session_id}/messages{?before,limit}",
        ]
        assert (await read(mcp, f"moorage://sessions/{session}"))["state"] == "active"
        said, uri = [], f"moorage://sessions/{session}/log?limit=2"
        while uri:
            page = await read(mcp, uri)
            said += [entry["content"] for entry in page["entries"] if entry["content"]]
            uri = page["next"]
        assert said == ["one", "two", "three"]
        messages = await read(mcp, f"moorage://sessions/{session}/messages?limit=1")
        assert [entry["content"] for entry in messages["messages"]] == ["three"]
        for wrong in ("moorage://sessions/nobody", "moorage://elsewhere", f"moorage://sessions/{session}/nothing"):
            with pytest.raises(MCPError) as refused:
                await mcp.read_resource(wrong)
            assert refused.value.code == -32002


async def read(mcp: Client, uri: str) -> dict[str, Any]:
    [contents] = (await mcp.read_resource(uri)).contents
    assert contents.mime_type == "application/json"
    document: dict[str, Any] = json.loads(contents.text)  # type: ignore[union-attr]
    return document


@pytest.mark.parametrize("version", [OLD, "2026-07-28"])
async def test_long_lists_come_in_pages(tmp_path: Path, version: str) -> None:
    for number in range(120):
        define(tmp_path, f'[agent]\nname = "agent-{number:03}"\nkind = "command"\ncommand = ["true"]\n')
    with sync.connect(f"sqlite:///{tmp_path}/moorage.db") as moor:
        for number in range(60):
            moor.create(session_id=f"session-{number:02}")
    async with client(f"alone {version}", tmp_path) as mcp:
        names: list[str] = []
        cursor = None
        while names == [] or cursor:
            tools = await mcp.list_tools(cursor=cursor)
            names += [tool.name for tool in tools.tools]
            assert len(tools.tools) <= 100
            cursor = tools.next_cursor
        assert len(names) == len(set(names)) == len(TABLE) + 4 + 120
        uris: list[str] = []
        while uris == [] or cursor:
            resources = await mcp.list_resources(cursor=cursor)
            uris += [resource.uri for resource in resources.resources]
            cursor = resources.next_cursor
        assert len(uris) == len(set(uris)) == 120
        sessions: list[str] = []
        while sessions == [] or cursor:
            page = await mcp.call_tool("list_agent_sessions", {"limit": 25, "cursor": cursor})
            sessions += [session["session_id"] for session in page.structured_content["sessions"]]
            cursor = page.structured_content["next"]
        assert len(sessions) == len(set(sessions)) == 60
        with pytest.raises(MCPError, match="invalid_cursor"):
            await mcp.list_resources(cursor="nonsense")


async def test_a_server_that_stops_ends_the_streams_of_changes(tmp_path: Path) -> None:
    heard, code = None, None
    with server_process(tmp_path) as server:
        try:
            async with client(WAYS[1], tmp_path, server.port) as mcp, mcp.listen(tools_list_changed=True) as changes:
                server.process.terminate()
                heard = [event async for event in changes]
                code = await asyncio.to_thread(server.process.wait, 8)  # it waits for no stream
        except* httpx2.ConnectError:
            pass  # the library may still say goodbye to a server that is gone
    assert (heard, code) == ([], 0)
