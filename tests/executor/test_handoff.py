"""One conversation across doors: begun at a terminal, gone on with over REST, GraphQL and MCP and from Python.

A door joins in with one line in LEGS: its name as the log has it, and a function that says something in a session and
gives what the agent answered.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import moorage
from moorage import sync
from moorage.executor import AgentExecutor
from tests.doors.cli.agent_files import define
from tests.doors.cli.talking import CTRL_C, Talk, a_talk
from tests.executor.processes import PATIENCE, served

THINKING = """
[agent]
name = "thinking"
kind = "command"
protocol = "jsonl"
command = ["python3", "-c", '''
import json, sys
next(sys.stdin)
print(json.dumps({"type": "message", "content": "Let me think."}), flush=True)
sys.stdin.read()
''']
"""
Leg = Callable[[str, str, str], str]  # the server's address, the session, what to say -> the answer


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'shared.db'}"


@pytest.fixture
def address(tmp_path: Path, store: str, home: Path) -> Iterator[str]:
    with served(tmp_path, store) as url:
        yield url


def by_rest(address: str, session_id: str, words: str) -> str:
    answer = httpx2.post(
        f"{address}/sessions/{session_id}/messages", json={"content": words, "wait": 30}, timeout=PATIENCE
    )
    assert answer.status_code == 201, answer.text
    return str(answer.json()["reply"]["content"])


def by_the_earlier_api(address: str, session_id: str, words: str) -> str:
    answer = httpx2.post(f"{address}/agent-sessions/{session_id}/messages", json={"message": words}, timeout=PATIENCE)
    return str(answer.json()["content"])


def by_python(address: str, session_id: str, words: str) -> str:
    async def ask() -> str:
        async with moorage.connect(address) as moor:
            turn = await AgentExecutor(moor).execute_single_turn("echo-agent", words, session_id=session_id)
            return turn.text

    return asyncio.run(ask())


def by_graphql(address: str, session_id: str, words: str) -> str:
    answer = httpx2.post(
        f"{address}/graphql",
        json={
            "query": "mutation ($id: ID!, $words: String!)"
            " { sendMessageToSession(sessionId: $id, message: $words, wait: 30) { reply { text } } }",
            "variables": {"id": session_id, "words": words},
        },
        timeout=PATIENCE,
    )
    return str(answer.json()["data"]["sendMessageToSession"]["reply"]["text"])


def by_mcp(address: str, session_id: str, words: str) -> str:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    arguments = {"session_id": session_id, "message": words, "wait_seconds": 30}
    answer = httpx2.post(
        f"{address}/mcp",
        json={
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "send_message", "arguments": arguments, "_meta": meta},
        },
        headers={
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call",
            "Mcp-Name": "send_message",
        },
        timeout=PATIENCE,
    )
    return str(answer.json()["result"]["structuredContent"]["run"]["result"])


LEGS: list[tuple[str, Leg]] = [
    ("rest", by_rest),
    ("rest", by_the_earlier_api),
    ("graphql", by_graphql),
    ("mcp", by_mcp),
    ("python", by_python),
]


def started(talk: Talk) -> str:
    talk.wait_for("Session created: ")
    return talk.wait_for("\n").strip()


@pytest.mark.parametrize("way", ["through the server", "beside the server, on its file"])
def test_a_conversation_goes_from_door_to_door_in_one_log(address: str, store: str, way: str) -> None:
    url = address if way == "through the server" else store
    with a_talk("--url", url, "run", "echo-agent") as talk:
        session_id = started(talk)
        talk.say("from the terminal")
        talk.wait_for("Echo Agent Response: from the terminal")
        talk.wait_for("You: ")
        talk.type(CTRL_C)
        talk.wait_for(f"To come back: moorage attach {session_id}")
        assert talk.end() == 0
    for number, (_, leg) in enumerate(LEGS):
        assert leg(address, session_id, f"leg {number}") == f"Echo Agent Response: leg {number}"
    with a_talk("--url", url, "run", "echo-agent", "--session", session_id) as talk:
        talk.say("//recall")
        told = ["from the terminal", *(f"leg {number}" for number in range(len(LEGS)))]
        talk.wait_for(f"Remembered: {'; '.join(told)}")
        talk.say("/quit")
        assert talk.end() == 0
    with sync.connect(address) as moor:
        log = moor.log(session_id, limit=1000).items
    assert [entry.number for entry in log] == list(range(1, len(log) + 1))
    said = [(entry.interface, entry.text) for entry in log if entry.role == "user"]
    expected = [("cli", "from the terminal"), *((door, f"leg {number}") for number, (door, _) in enumerate(LEGS))]
    assert said == [*expected, ("cli", "/recall")]
    assert [entry.kind for entry in log].count("turn_ended") == len(LEGS) + 2


def test_chat_that_was_left_is_found_at_another_door_with_everything_kept(address: str, store: str, home: Path) -> None:
    define(home, THINKING)
    with a_talk("--url", store, "run", "thinking") as talk:
        session_id = started(talk)
        talk.say("take your time")
        talk.wait_for("Agent: Let me think.")
        talk.type(CTRL_C)
        talk.wait_for("To come back: moorage attach ")
        assert talk.end() == 0
    found = httpx2.get(f"{address}/sessions/{session_id}", params={"messages": 2}).json()
    assert [(message["role"], message["content"].strip()) for message in found["messages"]] == [
        ("user", "take your time"),
        ("assistant", "Let me think."),
    ]
    was_suspended = "Session suspended: " in talk.shown  # unless the server's launcher was faster, and goes on
    assert (found["state"] == "suspended") is was_suspended
    [run] = httpx2.get(f"{address}/runs", params={"session": session_id}).json()["items"]
    assert run["state"] == ("queued" if was_suspended else "running")


def test_message_without_a_turn_waits_for_the_next_run(address: str) -> None:
    with sync.connect(address) as moor:
        session_id = moor.create("echo-agent").session_id
        moor.suspend(session_id)
        waiting = moor.send(session_id, "are you there?", wake=False)
        assert moor.result(str(waiting.run_id), wait=0.2).state == "queued"
        with a_talk("--url", address, "run", "echo-agent", "--session", session_id) as talk:
            talk.say("and now?")
            talk.wait_for("Echo Agent Response: are you there?")
            talk.wait_for("and now?\n")
            talk.wait_for("You: ")
            talk.type(CTRL_C)
            assert talk.end() == 0
        assert moor.result(str(waiting.run_id), wait=PATIENCE).state == "completed"


def test_doors_that_talk_at_once_take_turns_and_lose_no_word(address: str, store: str) -> None:
    words = 6
    with sync.connect(address) as moor, a_talk("--url", store, "run", "echo-agent") as talk:
        session_id = started(talk)
        errors: list[BaseException] = []

        def tell(leg: Leg, name: str) -> None:
            try:
                for number in range(words):
                    assert f"{name} {number}" in leg(address, session_id, f"{name} {number}")
            except BaseException as error:
                errors.append(error)

        threads = [
            threading.Thread(target=tell, args=(leg, f"{door}-{place}")) for place, (door, leg) in enumerate(LEGS)
        ]
        for thread in threads:
            thread.start()
        for number in range(words):
            talk.say(f"typed {number}")
        talk.wait_for("You: ")
        for thread in threads:
            thread.join(PATIENCE)
        assert errors == []
        talk.type(CTRL_C)
        talk.wait_for(f"Session suspended: {session_id}")
        assert talk.end() == 0
        log = moor.log(session_id, limit=1000).items
        runs = moor.runs(session=session_id, limit=1000).items
    expected = {f"typed {number}" for number in range(words)}
    expected |= {f"{door}-{place} {number}" for place, (door, _) in enumerate(LEGS) for number in range(words)}
    said = [entry.text for entry in log if entry.role == "user"]
    assert (len(said), set(said)) == (len(expected), expected)
    assert {run.state for run in runs} == {"completed"}
    assert len(runs) == len(expected)
    answers = "\n".join(entry.text for entry in log if entry.role == "assistant")
    assert [word for word in expected if word not in answers] == []
    assert [entry.number for entry in log] == list(range(1, len(log) + 1))
    assert_turns_do_not_overlap(log)


def assert_turns_do_not_overlap(log: list[Any]) -> None:
    at_work = None
    for entry in log:
        if entry.kind == "turn_started":
            assert at_work is None, f"entry {entry.number}: two turns at once"
            at_work = entry.data["turn_id"]
        elif entry.kind == "turn_ended":
            at_work = None
