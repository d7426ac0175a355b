"""Who may come in by MCP, and how far they reach: the same authorizer as everywhere."""

from __future__ import annotations

import pytest
from mcp.shared.exceptions import MCPError

from moorage.service import keys
from tests.doors.mcp.serving import ACCEPT, HELLO, Served, open_http
from tests.doors.mcp.ways import NEW, OLD, client


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://localhost:3000"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Authorization": "Bearer moor_nonsense"}, 401),
    ],
)
async def test_strangers_on_this_machine_only(served: Served, headers: dict[str, str], status: int) -> None:
    async with open_http(served) as http:
        answer = await http.post("/mcp", json=HELLO, headers={**ACCEPT, **headers})
        assert answer.status_code == status
        assert "x-request-id" in answer.headers
        looked = await http.head("/mcp", headers=headers)
        assert looked.status_code == status


@pytest.mark.parametrize("version", [OLD, NEW])
async def test_two_owners_never_meet(served: Served, version: str) -> None:
    one, two = await served.key("one"), await served.key("two")
    async with client(f"http {version}", served.home, served.port, headers=one) as mcp:
        await mcp.call_tool("echo-agent", {"input": "a secret of one", "session_id": "shared"})
        await mcp.call_tool("set_context", {"session_id": "shared", "key": "k", "value": "one"})
    async with client(f"http {version}", served.home, served.port, headers=two) as mcp:
        status = await mcp.call_tool("get_agent_session_status", {"session_id": "shared"})
        assert status.structured_content["error"]["code"] == "session_not_found"
        assert (await mcp.list_resources()).resources == []
        with pytest.raises(MCPError, match="session_not_found"):
            await mcp.read_resource("moorage://sessions/shared/log")
        assert (await mcp.call_tool("search_sessions", {"query": "secret"})).structured_content["hits"] == []
        asked = await mcp.call_tool("echo-agent", {"input": "what did I say?", "session_id": "shared"})
        assert "Remembered: nothing yet" in asked.structured_content["output"]
    assert (await served.moorage("two").get("shared")).owner == "two"
    assert await served.moorage("one").context.get("shared") == {"k": "one"}


async def test_a_session_of_the_protocol_is_no_password(served: Served) -> None:
    one, two = await served.key("one"), await served.key("two")
    async with open_http(served, headers=ACCEPT) as http:
        greeted = await http.post("/mcp", json=HELLO, headers=one)
        session = {"Mcp-Session-Id": greeted.headers["mcp-session-id"], "MCP-Protocol-Version": OLD}
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        assert (await http.post("/mcp", json=ping, headers={**one, **session})).status_code == 200
        assert (await http.post("/mcp", json=ping, headers={**two, **session})).status_code == 404
        assert (await http.delete("/mcp", headers={**two, **session})).status_code == 404
        assert (await http.post("/mcp", json=ping, headers=session)).status_code == 401
        assert (await http.delete("/mcp", headers={**one, **session})).status_code == 200
        assert (await http.post("/mcp", json=ping, headers={**one, **session})).status_code == 404


async def test_a_key_for_reading_only_reads(served: Served) -> None:
    await served.moorage("one").create(session_id="mine")
    async with client(f"http {NEW}", served.home, served.port, headers=await served.key("one", "read")) as mcp:
        assert not (await mcp.call_tool("get_agent_session_status", {"session_id": "mine"})).is_error
        for name, arguments in (
            ("send_message", {"session_id": "mine", "message": "x"}),
            ("echo-agent", {"input": "x"}),
            ("weather-tool", {"location": "Rome"}),
            ("delete_agent_session", {"session_id": "mine"}),
        ):
            refused = await mcp.call_tool(name, arguments)
            assert refused.structured_content["error"]["code"] == "forbidden"


async def test_a_token_reaches_its_session_and_below(served: Served) -> None:
    moor = served.moorage()
    await moor.create_key()
    own, other = await moor.create(session_id="own"), await moor.create(session_id="other")
    child = await moor.create(session_id="child", parent=own.session_id)
    text = await keys.session_token(served.deps, "local", "own")
    async with client(f"http {NEW}", served.home, served.port, headers={"Authorization": f"Bearer {text}"}) as mcp:
        assert (await mcp.call_tool("get_agent_session_status", {})).structured_content["session_id"] == "own"
        listed = await mcp.call_tool("list_agent_sessions", {})
        assert [each["session_id"] for each in listed.structured_content["sessions"]] == [child.session_id]
        await mcp.call_tool("echo-agent", {"input": "hi", "session_id": "made-here"})
        assert (await moor.get("made-here")).parent_session_id == "own"
        for name, arguments in (
            ("get_agent_session_status", {"session_id": other.session_id}),
            ("send_message", {"session_id": other.session_id, "message": "x"}),
            ("set_context", {"session_id": other.session_id, "key": "k", "value": 1}),
            ("echo-agent", {"input": "x", "session_id": other.session_id}),
            ("weather-tool", {"location": "Rome", "session_id": other.session_id}),
            ("start_agent_session", {"agent": "echo-agent", "prompt": "x", "parent": other.session_id}),
            ("start_agent_session", {"agent": "echo-agent", "prompt": "x", "session_id": other.session_id}),
            ("resume_agent_session", {"session_id": other.session_id}),
            ("resume_agent_session", {}),
            ("list_children", {"session_id": other.session_id}),
            ("list_agent_sessions", {"root": other.session_id}),
            ("wait_for_children", {"session_id": other.session_id}),
            ("suspend_session", {"session_id": other.session_id}),
            ("request_approval", {"session_id": other.session_id, "question": "?"}),
            ("stop_agent_session", {"session_id": other.session_id}),
            ("get_context", {"session_id": other.session_id}),
            ("get_agent_session_result", {"session_id": other.session_id}),
            ("delete_agent_session", {"session_id": other.session_id}),
            ("delete_agent_session", {"session_id": "own"}),
            ("search_sessions", {"query": "hi"}),
        ):
            refused = await mcp.call_tool(name, arguments)
            assert refused.is_error, name
            assert refused.structured_content["error"]["code"] == "out_of_reach", (name, refused.structured_content)
        with pytest.raises(MCPError, match="out_of_reach"):
            await mcp.read_resource("moorage://sessions/other")
        uris = [resource.uri for resource in (await mcp.list_resources()).resources]
        assert not any("other" in uri for uri in uris)
    headers = {"Authorization": f"Bearer {text}", "X-Agent-Session-Id": "other"}
    async with client(f"http {NEW}", served.home, served.port, headers=headers) as mcp:
        for name, arguments in (
            ("start_agent_session", {"agent": "echo-agent", "prompt": "x"}),
            ("start_agent_session", {"agent": "echo-agent", "prompt": "x", "session_id": "made-here"}),
            ("resume_agent_session", {"session_id": "made-here", "prompt": "x"}),
            ("echo-agent", {"input": "x", "session_id": "somewhere"}),
            ("set_context", {"session_id": "somewhere", "key": "k", "value": 1}),
            ("get_memory", {"namespace": "n"}),
            ("set_memory", {"namespace": "n", "key": "k", "value": 1}),
        ):
            refused = await mcp.call_tool(name, arguments)
            assert refused.structured_content["error"]["code"] == "out_of_reach", name


async def test_server_without_the_library_names_it(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorage.doors.mcp.door.find_spec", lambda _: None)
    async with open_http(served, headers=ACCEPT) as http:
        answer = await http.post("/mcp", json=HELLO)
        assert (answer.status_code, answer.json()["code"]) == (422, "unsupported")
        assert "moorage[mcp]" in answer.json()["detail"]
        assert (await http.head("/mcp")).status_code == 422
        assert (await http.get("/sessions")).status_code == 200


async def test_agents_token_releases_no_hold_of_a_person(served: Served) -> None:
    moor = served.moorage()
    await moor.create_key()
    await moor.create("echo-agent", session_id="own", parent=None)
    person = await served.key("local")
    text = await keys.session_token(served.deps, "local", "own")
    async with (
        client(f"http {NEW}", served.home, served.port, headers=person) as ann,
        client(f"http {NEW}", served.home, served.port, headers={"Authorization": f"Bearer {text}"}) as agent,
    ):
        taken = await ann.call_tool("resume_agent_session", {"session_id": "own", "hold": True})
        assert not taken.is_error, taken.structured_content
        for tool, more in (("release_session", {}), ("suspend_session", {}), ("request_approval", {"question": "?"})):
            refused = await agent.call_tool(tool, {"session_id": "own", **more})
            assert refused.structured_content["error"]["code"] == "held_by_another", tool
        assert (await moor.get("own")).hold is not None
        assert not (await ann.call_tool("release_session", {"session_id": "own"})).is_error
        assert not (await agent.call_tool("resume_agent_session", {"session_id": "own", "hold": True})).is_error
        assert not (await agent.call_tool("release_session", {"session_id": "own"})).is_error, "its own"
    assert (await moor.get("own")).hold is None
