"""Agents that speak the Agent Client Protocol, with the official SDK at the other end."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from moorage.agents.interface import AgentEvent
from tests.launcher.turns import Running, Turns, python, survivors

AGENT = str(Path(__file__).parent / "agents" / "acp_agent.py")


class Stage:
    """One agent of the SDK, with a memory that outlives its process."""

    def __init__(self, turns: Turns, sessions: Path) -> None:
        self._turns, self._sessions = turns, sessions

    def begin(self, prompt: str, *, env: dict[str, str] | None = None, **facts: Any) -> Running:
        table = {
            "kind": "acp",
            "command": [sys.executable, AGENT],
            "env": {"ACP_SESSIONS": str(self._sessions), **(env or {})},
            **facts.pop("table", {}),
        }
        return self._turns.begin(table, prompt=prompt, **facts)


@pytest.fixture
def acp(turns: Turns, tmp_path: Path) -> Stage:
    sessions = tmp_path / "sessions"
    sessions.mkdir()
    return Stage(turns, sessions)


def of_type(events: list[AgentEvent], *kinds: str) -> list[AgentEvent]:
    return [event for event in events if event["type"] in kinds]


def test_words_stream_and_become_a_message(acp: Stage) -> None:
    events = acp.begin("echo tea for two").wait()
    assert "".join(event["text"] for event in of_type(events, "chunk")) == "tea for two "
    [message] = of_type(events, "message")
    assert (message["role"], message["content"]) == ("assistant", "tea for two ")
    assert of_type(events, "usage") == [{"type": "usage", "input_tokens": 4, "output_tokens": 3, "total_tokens": 7}]
    assert events[-1] == {"type": "result", "outcome": "completed", "text": "tea for two ", "said": True}


def test_the_agents_session_is_kept_for_the_next_turn(acp: Stage) -> None:
    events = acp.begin("echo hi", checkpoint={"own": 1}).wait()
    [kept] = of_type(events, "checkpoint")
    assert kept["checkpoint"] == {"own": 1, "acp_session_id": "acp-0"}


def test_an_agent_that_can_load_its_session_goes_on_with_it(acp: Stage) -> None:
    acp.begin("echo first", env={"ACP_LOADS": "yes"}).wait()
    running = acp.begin(
        "recall",
        env={"ACP_LOADS": "yes"},
        checkpoint={"acp_session_id": "acp-0"},
        history=[{"role": "user", "content": "echo first"}],
    )
    events = running.wait()
    assert json.loads(events[-1]["text"]) == {"said": ["echo first", "recall"], "told": []}
    assert len(of_type(events, "message")) == 1  # what it repeated of earlier turns is not said again


def test_agent_without_session_loading_gets_the_history(acp: Stage) -> None:
    answer = [{"type": "text", "text": "first"}]
    history = [{"role": "user", "content": "echo first"}, {"role": "assistant", "content": answer}]
    running = acp.begin(
        "recall", checkpoint={"acp_session_id": "acp-7"}, history=history, table={"system_prompt": "Be brief."}
    )
    told = json.loads(running.result()["text"])["told"]
    assert told == ["Be brief.", "The conversation so far:\n\nuser: echo first\n\nassistant: first"]


def test_a_session_that_is_gone_is_begun_anew(acp: Stage) -> None:
    running = acp.begin(
        "recall",
        env={"ACP_LOADS": "yes"},
        checkpoint={"acp_session_id": "acp-lost"},
        history=[{"role": "user", "content": "echo first"}],
    )
    events = running.wait()
    assert events[0]["type"] == "note"
    assert "could not take up its session again" in events[0]["note"]
    assert json.loads(events[-1]["text"])["told"] == ["The conversation so far:\n\nuser: echo first"]


def test_folder_and_mcp_servers_are_handed_over_in_the_protocols_own_form(acp: Stage, tmp_path: Path) -> None:
    servers = {
        "boss": {"url": "http://localhost:9/mcp", "headers": {"X-Agent-Session-Name": "${AGENT_SESSION_NAME}"}},
        "own": {"command": "sh", "args": ["-c", "true"], "env": {"FOR": "${AGENT_SESSION_ID}"}},
        "old": {"type": "sse", "url": "http://localhost:9/sse"},
    }
    events = acp.begin("setting", table={"mcp_servers": servers}, session_name="plan").wait()
    setting = json.loads(events[-1]["text"])
    assert setting["cwd"] == str(tmp_path)
    boss, own = setting["servers"]
    assert boss == {
        "type": "http",
        "name": "boss",
        "url": "http://localhost:9/mcp",
        "headers": [{"name": "X-Agent-Session-Name", "value": "plan"}],
    }
    assert own["command"].endswith("/sh")
    assert (own["args"], own["env"]) == (["-c", "true"], [{"name": "FOR", "value": "session-1"}])
    assert of_type(events, "note") == [{"type": "note", "note": "it takes no MCP servers over sse: old is left out"}]


def test_tool_calls_and_their_results_are_messages(acp: Stage) -> None:
    events = acp.begin("work").wait()
    call = {"type": "tool_call", "id": "call-1", "name": "Read notes.md", "input": {"path": "notes.md"}}
    result = {"type": "tool_result", "call_id": "call-1", "output": "three lines", "is_error": False}
    other = {"type": "tool_call", "id": "call-2", "name": "Never ends", "input": None}
    lost = {"type": "tool_result", "call_id": "call-2", "output": "it did not say how this ended", "is_error": True}
    assert [(event["role"], event["content"]) for event in of_type(events, "message")] == [
        ("assistant", "Let me look."),
        ("assistant", [call]),
        ("tool", [result]),
        ("assistant", [other]),
        ("tool", [lost]),
        ("assistant", "It has three lines."),
    ]
    [plan] = of_type(events, "note")
    assert plan["data"]["plan"][0]["content"] == "look"
    assert events[-1]["text"] == "It has three lines."


@pytest.mark.parametrize(
    ("decision", "chosen"),
    [
        ("approve", "yes-1"),
        ("reject", "no-1"),
        ("Always allow", "yes-2"),
        ("expired", "cancelled"),
        ("withdrawn", "cancelled"),
    ],
)
def test_a_request_for_permission_waits_for_a_person(acp: Stage, decision: str, chosen: str) -> None:
    running = acp.begin("permit", table={"timeout": "20s"})
    asked = running.until(lambda event: event["type"] == "approval")
    assert (asked["question"], asked["wait"]) == ("Delete everything", True)
    assert asked["plan"] == {"rawInput": {"path": "/"}}
    assert asked["options"] == ["Allow once", "Always allow", "Not now"]
    running.folder.send({"type": "decision", "id": asked["id"], "decision": decision, "note": None})
    assert running.result()["text"] == chosen


def test_stopping_while_it_waits_for_permission_answers_it(acp: Stage) -> None:
    running = acp.begin("permit")
    running.until(lambda event: event["type"] == "approval")
    running.folder.send({"type": "stop"})
    result = running.result()
    assert (result["outcome"], result["text"]) == ("stopped", "cancelled")


def test_stop_cancels_and_the_agent_may_say_its_last_words(acp: Stage) -> None:
    running = acp.begin("wait")
    running.heard("waiting")
    running.folder.send({"type": "stop"})
    result = running.result()
    assert (result["outcome"], result["reason"]) == ("stopped", "stopped")
    assert result["text"] == "waiting, cancelled"


def test_an_agent_that_does_not_hear_cancel_is_ended_all_the_same(acp: Stage) -> None:
    running = acp.begin("wait", env={"ACP_DEAF": "yes"})
    running.heard("waiting")
    running.folder.send({"type": "stop"})
    result = running.result()
    assert (result["outcome"], result["text"], result["said"]) == ("stopped", "waiting", False)
    assert survivors(running.folder) == []


def test_one_that_takes_too_long_has_failed_even_if_it_cancels(acp: Stage) -> None:
    result = acp.begin("wait", table={"timeout": "6s"}).result()
    assert (result["outcome"], result["reason"]) == ("failed", "timed_out")
    assert result["text"] == "waiting, cancelled"


def test_files_and_terminals_are_refused_politely(acp: Stage) -> None:
    assert acp.begin("read").result()["text"] == "refused with [-32601, -32601]"


def test_a_refusal_is_a_failure_and_a_full_output_is_not(acp: Stage) -> None:
    assert acp.begin("refuse").result()["reason"] == "refused"
    full = acp.begin("overflow").result()
    assert (full["outcome"], full["reason"], full["text"]) == ("completed", "max_tokens", "half a")


def test_an_error_of_the_agents_is_told(acp: Stage) -> None:
    result = acp.begin("fail").result()
    assert (result["outcome"], result["reason"]) == ("failed", "agent_failed")
    assert "session/prompt" in result["error"]
    assert "the model is away" in result["error"]


def test_dead_agent_keeps_its_output(acp: Stage) -> None:
    result = acp.begin("die").result()
    assert (result["outcome"], result["text"]) == ("failed", "I am dying")
    assert result["error"].startswith("it ended with exit status 9 before it had answered")


def test_an_agent_that_wants_a_login_says_so(acp: Stage) -> None:
    result = acp.begin("echo hi", env={"ACP_AUTH": "required"}).result()
    assert (result["reason"], "log in" in result["error"]) == ("refused", True)


def test_another_version_of_the_protocol_is_not_spoken(turns: Turns) -> None:
    other = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": 9}})
    result = turns.begin(python(f"input(); print({other!r}, flush=True); input()", kind="acp")).result()
    assert (result["reason"], "version 9" in result["error"]) == ("bad_output", True)


def test_a_program_that_speaks_something_else_is_told(turns: Turns) -> None:
    events = turns.begin(python("print('Welcome to my shell!')", kind="acp")).wait()
    assert (events[0]["type"], events[0]["text"]) == ("problem", "Welcome to my shell!")
    assert "line" not in events[0], "who writes such an agent prints no lines"
    assert events[-1]["problems"] == 1
    assert events[-1]["reason"] == "agent_failed"
