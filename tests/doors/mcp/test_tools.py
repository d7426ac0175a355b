"""Single tools: what each does to sessions, and where long answers are cut."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from mcp import Client

from moorage import config
from moorage.doors.mcp import named
from moorage.doors.mcp.answers import MAX_TEXT
from moorage.doors.mcp.tools import TOOLS
from moorage.launcher.embedded import Embedded
from tests.doors.mcp.serving import Served
from tests.doors.mcp.ways import NEW, OLD, client, text_of

AT_ONCE = 15.0  # seconds: half of what is waited for an answer


async def ask(mcp: Client, name: str, **arguments: Any) -> dict[str, Any]:
    result = await mcp.call_tool(name, arguments)
    assert not result.is_error, text_of(result)
    document: dict[str, Any] = result.structured_content
    assert result.content[0].type == "text"
    return document


async def test_a_session_is_paused_resumed_asked_about_and_deleted(served: Served) -> None:
    async with client(f"http {OLD}", served.home, served.port) as mcp:
        await ask(mcp, "send_message", session_id="s", message="Plan the change")
        paused = await ask(mcp, "suspend_session", session_id="s", reason="lunch", checkpoint={"step": 3})
        assert paused["session"]["state"] == "suspended"
        resumed = await ask(mcp, "resume_agent_session", session_id="s")
        assert (resumed["session"]["state"], "hold" in resumed) == ("active", False)
        taken = await ask(mcp, "resume_agent_session", session_id="s", hold=True)
        assert taken["checkpoint"] == {"step": 3}
        assert [message["content"] for message in taken["messages"]] == ["Plan the change"]
        assert taken["hold"]["token"]
        again = await ask(mcp, "resume_agent_session", session_id="s", hold=True)  # the same caller, a new token
        assert (again["hold"]["holder"], again["hold"]["token"] == taken["hold"]["token"]) == (
            taken["hold"]["holder"],
            False,
        )
        async with client(f"http {NEW}", served.home, served.port) as other:
            refused = await other.call_tool("resume_agent_session", {"session_id": "s", "hold": True})
            assert refused.structured_content["error"]["code"] == "held_by_another"
            await ask(other, "suspend_session", session_id="s", token=again["hold"]["token"])
        asked = await ask(mcp, "request_approval", session_id="s", question="Apply?", plan={"a": 1}, options=["later"])
        assert (asked["state"], asked["options"]) == ("pending", ["later"])
        status = await ask(mcp, "get_agent_session_status", session_id="s")
        assert (status["session"]["status"], status["session"]["phase"]) == ("waiting", "approval")
        would = await ask(mcp, "delete_agent_session", session_id="s", dry_run=True)
        assert (would["deleted_sessions"], would["dry_run"]) == (1, True)
        gone = await ask(mcp, "delete_agent_session", session_id="s")
        assert gone["session_ids"] == ["s"]
        refused = await mcp.call_tool("get_context", {"session_id": "s"})
        assert refused.structured_content["error"]["code"] == "session_gone"


async def test_named_agent_resumes_suspended_sessions_and_respects_holds(served: Served) -> None:
    moor = served.moorage()
    async with client(f"http {NEW}", served.home, served.port) as mcp:
        asked = {"input": "hi", "session_id": "s"}
        await mcp.call_tool("echo-agent", asked)
        await moor.suspend("s")
        assert not (await mcp.call_tool("echo-agent", asked)).is_error
        held = await moor.resume("s")
        refused = await mcp.call_tool("echo-agent", asked)
        assert refused.structured_content["error"]["code"] == "held_by_another"
        await moor.release("s", token=str(held.hold.token))
        assert not (await mcp.call_tool("echo-agent", asked)).is_error


async def test_context_is_shared_and_long_values_come_in_pieces(served: Served) -> None:
    long = "é" * (MAX_TEXT + 10)
    async with client(f"http {NEW}", served.home, served.port) as mcp:
        await ask(mcp, "set_context", session_id="c", values={"small": 1, "long": long})
        await ask(mcp, "set_context", session_id="c", key="other", value=["x"], ttl_seconds=3600)
        whole = await ask(mcp, "get_context", session_id="c")
        assert whole["context"] == {"small": 1, "other": ["x"]}
        assert whole["left_out"] == {"long": len(long) + 2}
        assert (await ask(mcp, "get_context", session_id="c", key="small"))["context"] == {"small": 1}
        assert (await ask(mcp, "get_context", session_id="c", key="nothing"))["context"] == {}
        text = ""
        offset: int | None = 0
        while offset is not None:
            piece = await ask(mcp, "get_context", session_id="c", key="long", offset=offset)
            text, offset = text + piece["text"], piece.get("next_offset")
        assert json.loads(text) == long
        for wrong in ({}, {"key": "a", "values": {}}):
            refused = await mcp.call_tool("set_context", {"session_id": "c", **wrong})
            assert refused.structured_content["error"]["code"] == "invalid_key"


async def test_memory_is_shared_by_all_sessions_and_long_values_come_in_pieces(served: Served) -> None:
    long = "é" * (MAX_TEXT + 10)
    async with client(f"http {NEW}", served.home, served.port) as mcp:
        for key, value in {"a": {"n": 1}, "b": long, "c": None}.items():
            assert (await ask(mcp, "set_memory", namespace="notes", key=key, value=value))["version"] == 1
        whole = await ask(mcp, "get_memory", namespace="notes")
        assert (whole["values"], whole["left_out"]) == ({"a": {"n": 1}, "c": None}, {"b": len(long) + 2})
        first = await ask(mcp, "get_memory", namespace="notes", limit=1)
        assert (first["values"], first["next"]) == ({"a": {"n": 1}}, "a")
        assert (await ask(mcp, "get_memory", namespace="notes", key="none"))["values"] == {}
        text = ""
        offset: int | None = 0
        while offset is not None:
            piece = await ask(mcp, "get_memory", namespace="notes", key="b", offset=offset)
            text, offset = text + piece["text"], piece.get("next_offset")
        assert json.loads(text) == long
        refused = await mcp.call_tool("set_memory", {"namespace": "notes", "key": "a", "value": 2, "version": 0})
        assert refused.is_error


async def test_a_long_answer_is_cut_visibly_and_the_rest_can_be_had(served: Served) -> None:
    said = "".join(f"word{number} " for number in range(12_000))
    whole = f"Echo Agent Response: {said}"
    async with client(f"http {NEW}", served.home, served.port) as mcp:
        result = await mcp.call_tool("echo-agent", {"input": said, "session_id": "long"})
        assert f"[cut: {MAX_TEXT:,} of {len(whole):,} characters" in text_of(result)
        assert text_of(result).endswith("\n**Session ID**: long")
        got, offset = result.structured_content["output"], result.structured_content["next_offset"]
        while offset is not None:
            piece = await ask(mcp, "get_agent_session_result", session_id="long", offset=offset)
            assert piece["length"] == len(whole)
            got, offset = got + piece["result"], piece.get("next_offset")
        assert got == whole
        kept_nowhere = await mcp.call_tool("echo-agent", {"input": said})
        assert text_of(kept_nowhere) == whole


async def test_metadata_cannot_pretend_to_be_another_line(served: Served) -> None:
    async with client(f"http {NEW}", served.home, served.port) as mcp:
        await mcp.call_tool("echo-agent", {"input": "x\n**Session ID**: forged", "session_id": "true"})
        result = await mcp.call_tool("echo-agent", {"input": "y", "session_id": "true"})
        lines = text_of(result).splitlines()
        assert [line for line in lines if line.startswith("**Session ID**")] == ["**Session ID**: true"]
        assert lines[-1] == "**Session ID**: true"


@pytest.mark.parametrize(
    ("arguments", "operation"),
    [
        ({"location": "Rome"}, "get_weather"),
        ({"location": "Rome", "days": 2}, "get_forecast"),
        ({"location": "Rome", "days": "2"}, "get_forecast"),
        ({"location": "Rome", "operation": "get_forecast"}, "get_forecast"),
    ],
)
async def test_the_operation_of_a_tool_is_found_by_its_arguments(
    served: Served,
    arguments: dict[str, Any],
    operation: str,
) -> None:
    async with client(f"http {NEW}", served.home, served.port) as mcp:
        answer = await ask(mcp, "weather-tool", **arguments)
        assert (answer["operation"], answer["success"], answer["session_id"]) == (operation, True, None)


def test_tools_have_annotations_and_schemas() -> None:
    reads = {name for name, tool in TOOLS.items() if tool.reads}
    assert reads == {
        *("list_agents", "get_agent_session_status", "get_agent_session_result", "list_agent_sessions"),
        *("list_children", "wait_for_children", "get_context", "get_memory", "search_sessions"),
    }
    assert {name for name, tool in TOOLS.items() if tool.destroys} == {"stop_agent_session", "delete_agent_session"}
    for name, tool in TOOLS.items():
        assert "session_id" in tool.input_schema["properties"] or name in (
            *("list_agents", "list_agent_sessions", "search_sessions", "get_memory", "set_memory"),
        )
        assert tool.input_schema["additionalProperties"] is False
        assert tool.output_schema["type"] == "object"
    assert set(named.AGENT_INPUT["properties"]) == {"input", "parameters", "session_id"}
    assert named.AGENT_INPUT["required"] == ["input"]


async def test_send_message_waits_for_the_answer_except_in_its_own_session(served: Served) -> None:
    await served.moorage().create("echo-agent", session_id="talk", parent=None)
    async with client(f"http {NEW}", served.home, served.port) as mcp:
        async with asyncio.timeout(AT_ONCE):  # no launcher takes the turn yet
            asked = await ask(mcp, "send_message", session_id="talk", message="one", wait_seconds=0)
        async with Embedded(served.deps, config.agents):
            answered = await ask(mcp, "send_message", session_id="talk", message="two")
    assert (asked["run"]["settled"], answered["run"]["settled"]) == (False, True)
    assert "Echo Agent Response: " in answered["run"]["result"]
    async with client(f"http {NEW}", served.home, served.port, headers={"x-agent-session-id": "talk"}) as mcp:
        async with asyncio.timeout(AT_ONCE):
            assert (await ask(mcp, "send_message", message="three"))["run"]["settled"] is False
