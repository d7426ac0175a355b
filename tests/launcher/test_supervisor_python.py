"""Functions as agents: each in a process of its own."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.launcher.turns import Running, Turns

HERE = str(Path(__file__).parent / "agents")


@pytest.fixture
def call(turns: Turns) -> Any:
    def begin(function: str, **facts: Any) -> Running:
        table = {"kind": "python", "function": f"functions:{function}", **facts.pop("table", {})}
        return turns.begin(table, cwd=HERE, **facts)

    return begin


def test_a_function_says_things_and_returns_its_answer(call: Any) -> None:
    running = call("greet", prompt="you", history=[{"role": "user", "content": "x"}], context={"seen": 2})
    assert running.wait() == [
        {"type": "phase", "phase": "planning", "metadata": {"step": 1}},
        {"type": "chunk", "text": "Hel"},
        {"type": "message", "role": "assistant", "content": "Hello you, number 1"},
        {"type": "metadata", "metadata": {"mood": "good"}},
        {"type": "error", "error": "a small one"},
        {"type": "checkpoint", "checkpoint": {"seen": 3}},
        {"type": "usage", "input_tokens": 1},
        {"type": "result", "outcome": "completed", "text": "bye", "said": False},
    ]
    assert running.errors() == "this is not the answer\nand neither is this\n"


def test_a_function_knows_its_turn(call: Any) -> None:
    servers = {"boss": {"url": "http://localhost:9", "headers": {"Who": "${AGENT_SESSION_ID}"}}}
    facts = {"session_name": "plan", "task_id": "t", "run_id": "r", "cut_off": True, "parameters": {"days": "3"}}
    told = json.loads(call("told", table={"mcp_servers": servers}, **facts).result()["text"])
    assert told.pop("servers")["boss"]["headers"] == {"Who": "session-1"}
    assert told == {
        "session_id": "session-1",
        "turn_id": "session-1:t1",
        "agent_name": "tested",
        "cwd": HERE,
        **facts,
    }


def test_a_function_can_ask_and_wait(call: Any) -> None:
    running = call("ask", table={"timeout": "20s"})
    asked = running.until(lambda event: event["type"] == "approval")
    assert (asked["question"], asked["plan"]) == ("First?", {"a": 1})
    assert (asked["options"], asked["expires_in"]) == (["later"], 60)
    running.folder.send({"type": "decision", "id": asked["id"], "decision": "approve", "note": "fine"})
    again = running.until(lambda event: event["type"] == "approval" and event["id"] != asked["id"])
    running.folder.send({"type": "decision", "id": again["id"], "decision": "expired"})
    assert running.result()["text"] == "approve fine True, expired False"


def test_an_async_function_can_ask_twice_at_once(call: Any) -> None:
    running = call("ask_twice")
    one = running.until(lambda event: event.get("question") == "One?")
    two = running.until(lambda event: event.get("question") == "Two?")
    running.folder.send({"type": "decision", "id": two["id"], "decision": "reject"})
    running.folder.send({"type": "decision", "id": one["id"], "decision": "approve"})
    assert running.result()["text"] == "approve reject"


def test_exception_of_a_function_is_the_error(call: Any) -> None:
    running = call("fail")
    result = running.result()
    assert (result["outcome"], result["reason"], result["error"]) == ("failed", "agent_failed", "ValueError: no luck")
    assert (result["text"], result["said"]) == ("so far", True)
    assert "in fail" in running.errors()


def test_a_function_that_returns_nothing_has_said_its_answer(call: Any) -> None:
    result = call("says_only").result()
    assert (result["outcome"], result["text"], result["said"]) == ("completed", "that is all", True)


def test_a_function_that_leaves_has_failed(call: Any) -> None:
    assert call("leave").result()["error"] == "it ended with exit status 4"


@pytest.mark.parametrize("function", ["stay", "stay_async"])
def test_a_function_that_is_stopped_can_tidy_up(call: Any, tmp_path: Path, function: str) -> None:
    running = call(function, prompt=str(tmp_path / "note"))
    running.heard("here")
    running.folder.send({"type": "stop"})
    result = running.result()
    assert (result["outcome"], result["text"]) == ("stopped", "here")
    assert (tmp_path / "note").read_text() == "tidied up"


def test_a_function_may_be_in_a_class(call: Any) -> None:
    assert call("Basket.find").result()["text"] == "found"


@pytest.mark.parametrize(
    ("function", "why"),
    [
        ("functions:missing", "module 'functions' has no function 'missing'"),
        ("functions:HERE", "module 'functions' has no function 'HERE'"),
        ("nowhere:x", f"there is no module 'nowhere' in {HERE}, nor on Python's path"),
    ],
)
def test_a_function_that_is_not_there_is_told(call: Any, function: str, why: str) -> None:
    result = call("greet", table={"function": function}).result()
    assert (result["reason"], result["error"]) == ("not_found", why)


def test_a_module_beside_the_definition_is_found(turns: Turns, tmp_path: Path) -> None:
    from msgspec.structs import replace

    from tests.launcher.turns import job

    (tmp_path / "beside.py").write_text("def answer(turn): return 'from beside'")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "json.py").write_text("1 / 0")  # shadows nothing of ours
    folder = turns.prepare({"kind": "python", "function": "beside:answer"})
    wanted = job({"kind": "python", "function": "beside:answer"}, cwd=str(tmp_path / "elsewhere"))
    folder.prepare(replace(wanted, agent=replace(wanted.agent, source=str(tmp_path / "beside.toml"))))
    running = Running(folder, folder.start())
    assert running.result()["text"] == "from beside"
