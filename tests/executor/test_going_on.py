"""Suspend, resume, go on: at every door alone, and from door to door, with a real server and real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.executor.processes import PATIENCE, served
from tests.executor.test_handoff import by_graphql, by_mcp, by_rest, by_the_earlier_api

SOON = 10.0  # seconds; an answer of the echo agent takes well under one, a hold would keep it for ten minutes


@pytest.fixture
def address(tmp_path: Path, home: Path) -> Iterator[str]:
    with served(tmp_path, f"sqlite:///{tmp_path / 'shared.db'}") as url:
        yield url


def posted(url: str, body: dict[str, Any] | None = None) -> Any:
    answer = httpx2.post(url, json=body or {}, timeout=SOON)
    assert answer.is_success, answer.text
    return answer.json()


def graphql(address: str, query: str, **variables: Any) -> Any:
    answer = posted(f"{address}/graphql", {"query": query, "variables": variables})
    assert "errors" not in answer, answer
    return answer["data"]


def mcp(address: str, tool: str, **arguments: Any) -> Any:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    called = {"name": tool, "arguments": arguments, "_meta": meta}
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": called}
    answer = httpx2.post(f"{address}/mcp", json=request, headers=headers, timeout=SOON).json()["result"]
    assert not answer.get("isError"), answer
    return answer["structuredContent"]


def cli(address: str, *arguments: str) -> Any:
    command = [sys.executable, "-m", "moorage", "--url", address, "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def streamed(address: str, session_id: str, words: str) -> str:
    """The last thing that the stream of the earlier API says."""
    body = {"message": words, "stream": True}
    answer = httpx2.post(f"{address}/agent-sessions/{session_id}/messages", json=body, timeout=SOON)
    events = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines()]
    return str([each["data"]["content"] for each in events if each["type"] == "message"][-1])


def by_stream(address: str, session_id: str, words: str) -> str:
    """The reply in the last event of the stream of `/sessions`."""
    body = {"content": words, "stream": True}
    answer = httpx2.post(f"{address}/sessions/{session_id}/messages", json=body, timeout=SOON)
    done = answer.text.partition("event: done")[2]
    return str(json.loads(done.partition("data: ")[2].splitlines()[0])["reply"]["content"])


def by_mcp_resume(address: str, session_id: str, words: str) -> str:
    return str(mcp(address, "resume_agent_session", session_id=session_id, prompt=words)["run"]["result"])


def by_cli(address: str, session_id: str, words: str) -> str:
    return str(cli(address, "agent", "resume", session_id, words)["result"])


Step = Callable[[str, str], Any]
Leg = Callable[[str, str, str], str]
SUSPEND = "mutation ($id: ID!) { suspendSession(sessionId: $id) { state } }"
RESUME = "mutation ($id: ID!) { resumeSession(sessionId: $id) { state hold { holder } } }"
SEND = 'mutation ($id: ID!) { sendMessageToSession(sessionId: $id, message: "x") { run { because { reason } } } }'
RELEASE = "mutation ($id: ID!) { releaseSession(sessionId: $id) { hold { holder } } }"
# By door: how it suspends, how it resumes, how it asks.
DOORS: dict[str, tuple[Step, Step, Leg]] = {
    "cli": (lambda url, ref: cli(url, "suspend", ref), lambda url, ref: cli(url, "agent", "resume", ref), by_cli),
    "rest": (
        lambda url, ref: posted(f"{url}/sessions/{ref}/suspend"),
        lambda url, ref: posted(f"{url}/sessions/{ref}/resume"),
        by_rest,
    ),
    "rest, streamed": (
        lambda url, ref: posted(f"{url}/sessions/{ref}/suspend"),
        lambda url, ref: posted(f"{url}/sessions/{ref}/resume"),
        by_stream,
    ),
    "agent-sessions": (
        lambda url, ref: posted(f"{url}/agent-sessions/{ref}/suspend"),
        lambda url, ref: posted(f"{url}/agent-sessions/{ref}/resume"),
        by_the_earlier_api,
    ),
    "agent-sessions, streamed": (
        lambda url, ref: posted(f"{url}/agent-sessions/{ref}/suspend"),
        lambda url, ref: posted(f"{url}/agent-sessions/{ref}/resume"),
        streamed,
    ),
    "graphql": (
        lambda url, ref: graphql(url, SUSPEND, id=ref),
        lambda url, ref: graphql(url, RESUME, id=ref),
        by_graphql,
    ),
    "mcp": (
        lambda url, ref: mcp(url, "suspend_session", session_id=ref),
        lambda url, ref: mcp(url, "resume_agent_session", session_id=ref),
        by_mcp,
    ),
    "mcp, resumed with a prompt": (
        lambda url, ref: mcp(url, "suspend_session", session_id=ref),
        lambda url, ref: None,
        by_mcp_resume,
    ),
}


@pytest.mark.parametrize("door", DOORS)
def test_session_that_was_suspended_and_resumed_answers(address: str, door: str) -> None:
    suspend, resume, ask = DOORS[door]
    session_id = posted(f"{address}/agent-sessions/create", {"agent_name": "echo-agent"})["session_id"]
    for word in ("one", "two"):
        suspend(address, session_id)
        resume(address, session_id)
        assert ask(address, session_id, word) == f"Echo Agent Response: {word}"
    assert posted(f"{address}/agent-sessions/{session_id}/resume")["session"]["hold"] is None


@pytest.mark.parametrize("resumed", [True, False], ids=["resumed", "woken by the message"])
def test_conversation_goes_on_from_door_to_door(address: str, resumed: bool) -> None:
    session_id = cli(address, "create", "--agent", "echo-agent")["session_id"]
    before = "cli"
    for door in ("cli", "rest", "agent-sessions", "graphql", "mcp", "cli"):
        DOORS[before][0](address, session_id)
        if resumed:
            DOORS[door][1](address, session_id)
        assert DOORS[door][2](address, session_id, door) == f"Echo Agent Response: {door}"
        before = door


def test_hold_is_given_up_at_graphql_and_mcp(address: str) -> None:
    session_id = posted(f"{address}/agent-sessions/create", {"agent_name": "echo-agent"})["session_id"]
    releases: tuple[Callable[[], Any], ...] = (
        lambda: graphql(address, RELEASE, id=session_id)["releaseSession"]["hold"],
        lambda: mcp(address, "release_session", session_id=session_id)["session"].get("hold"),
    )
    for release in releases:
        held = posted(f"{address}/sessions/{session_id}/resume", {"hold": True})
        assert held["hold"]["token"]
        refused = httpx2.post(
            f"{address}/agent-sessions/{session_id}/messages", json={"message": "hello"}, timeout=SOON
        )
        assert (refused.status_code, refused.json()["code"]) == (409, "held_by_another")
        assert release() is None
        assert by_the_earlier_api(address, session_id, "hello") == "Echo Agent Response: hello"


def test_ask_with_the_token_of_the_hold_hands_over(address: str) -> None:
    session_id = posted(f"{address}/agent-sessions/create", {"agent_name": "echo-agent"})["session_id"]
    for path in (f"/agent-sessions/{session_id}/messages", f"/sessions/{session_id}/messages"):
        token = posted(f"{address}/sessions/{session_id}/resume", {"hold": True})["hold"]["token"]
        body = {"content": "mine", "token": token, "wait": 8}
        answer = posted(f"{address}{path}", body if "agent" in path else {**body, "run": True})
        said = answer["content"] if "agent" in path else answer["reply"]["content"]
        assert said == "Echo Agent Response: mine"


def test_resume_over_http_gives_a_hold_only_to_who_can_be_told_apart(address: str) -> None:
    session_id = posted(f"{address}/sessions", {"agent_name": "echo-agent"})["session_id"]
    path = f"{address}/sessions/{session_id}/resume"
    assert posted(path)["hold"] is None
    named = httpx2.post(path, json={}, headers={"X-Moorage-Holder": "ann"}, timeout=SOON).json()["hold"]
    assert named["holder"] == "local:ann"
    again = posted(path, {"holder": "ann"})["hold"]
    assert (again["holder"], again["token"] == named["token"]) == ("local:ann", False)
    assert httpx2.post(path, json={"hold": True}, timeout=SOON).json()["code"] == "held_by_another"


# Never a silent wait ----------------------------------------------------------------------------


def waiting_for_approval(address: str) -> tuple[str, str]:
    """A session with an open question: its id, and the question's."""
    session_id = posted(f"{address}/agent-sessions/create", {"agent_name": "echo-agent"})["session_id"]
    return session_id, posted(f"{address}/sessions/{session_id}/approvals", {"question": "Really?"})["approval_id"]


def test_wait_ends_at_once_where_only_a_person_can_help(address: str) -> None:
    session_id, approval_id = waiting_for_approval(address)
    body = {"content": "go on", "wait": 30, "run": True}
    told = posted(f"{address}/sessions/{session_id}/messages", body)
    assert (told["run"]["state"], told["reply"]) == ("queued", None)
    assert told["run"]["because"]["reason"] == "waiting_for_approval"
    assert told["run"]["because"]["approval_id"] == approval_id
    again = httpx2.get(f"{address}/runs/{told['run_id']}/result", params={"wait": 30}, timeout=SOON).json()
    assert again["because"]["reason"] == "waiting_for_approval"
    posted(f"{address}/approvals/{approval_id}/decision", {"decision": "approve"})
    over = httpx2.get(f"{address}/runs/{told['run_id']}/result", params={"wait": 9}, timeout=SOON).json()
    assert over["state"] == "completed"


def test_message_that_does_not_wake_says_that_the_session_is_suspended(address: str) -> None:
    session_id = posted(f"{address}/agent-sessions/create", {"agent_name": "echo-agent"})["session_id"]
    posted(f"{address}/sessions/{session_id}/suspend")
    told = posted(f"{address}/sessions/{session_id}/messages", {"content": "later", "wake": False, "wait": 30})
    assert told["run"]["because"]["reason"] == "suspended"


def test_ask_that_queues_behind_a_hold_says_who_holds_it(address: str) -> None:
    session_id = posted(f"{address}/agent-sessions/create", {"agent_name": "echo-agent"})["session_id"]
    hold = posted(f"{address}/sessions/{session_id}/resume", {"hold": True})["hold"]
    told = posted(f"{address}/sessions/{session_id}/messages", {"content": "after you", "queue": True, "wait": 30})
    assert (told["run"]["because"]["reason"], told["run"]["because"]["by"]) == ("held", hold["holder"])


def test_streams_say_at_once_why_nothing_happens(address: str) -> None:
    session_id, approval_id = waiting_for_approval(address)
    body = {"message": "go on", "stream": True}
    earlier = httpx2.post(f"{address}/agent-sessions/{session_id}/messages", json=body, timeout=SOON)
    [line] = earlier.text.splitlines()
    told = json.loads(line.removeprefix("data: "))
    assert (told["type"], told["data"]["content"]) == ("queued", "waiting_for_approval")
    assert told["data"]["because"]["approval_id"] == approval_id
    body = {"content": "go on", "stream": True, "run": True}
    events = httpx2.post(f"{address}/sessions/{session_id}/messages", json=body, timeout=SOON).text
    assert events.startswith("event: queued\ndata: ")
    assert "event: done\n" in events


def test_mcp_and_graphql_say_why_nothing_happens(address: str) -> None:
    session_id, _ = waiting_for_approval(address)
    run = mcp(address, "send_message", session_id=session_id, message="go on", wait_seconds=30)["run"]
    assert (run["settled"], run["because"]["reason"]) == (False, "waiting_for_approval")
    told = graphql(address, SEND, id=session_id)["sendMessageToSession"]
    assert told["run"]["because"]["reason"].lower() == "waiting_for_approval"
