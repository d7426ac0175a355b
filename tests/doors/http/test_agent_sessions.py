"""The routes of an earlier API: its client's own lines run against a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import Any

import httpx2
import pytest

from moorage.doors.http.authorizer import Authorizer
from moorage.doors.http.visit import Visitor
from moorage.service.deps import Caller
from tests.doors.http.server import Served, launching, serving


@pytest.fixture
async def working(served: Served) -> AsyncIterator[Served]:
    """A server whose agents get to work."""
    async with launching(served):
        yield served


def conversation(requests: httpx2.Client, printed: list[str]) -> str:
    """The example of the earlier API to the letter; only its `print` goes into a list."""
    print = printed.append
    # Create session
    response = requests.post("/agent-sessions/create", json={
        "agent_name": "hello-world",
        "initial_message": "Help me with coding"
    })  # fmt: skip
    session_id = response.json()["session_id"]

    # Send messages
    response = requests.post(f"/agent-sessions/{session_id}/messages", json={
        "message": "How do I handle errors?",
        "stream": True
    })  # fmt: skip

    # Handle streaming response
    for line in response.iter_lines():
        event = json.loads(line.replace("data: ", ""))
        print(event["data"]["content"])
    return str(session_id)


async def test_the_clients_own_lines_work(working: Served) -> None:
    printed: list[str] = []
    with httpx2.Client(base_url=working.url, timeout=60) as requests:
        session_id = await asyncio.to_thread(conversation, requests, printed)
    assert any("How do I handle errors?" not in line and "Hello" in line for line in printed), printed
    said = [entry.text for entry in (await working.moorage().messages(session_id)).items if entry.role == "user"]
    assert said == ["Help me with coding", "How do I handle errors?"]


async def test_answers_say_why_the_agent_has_not_begun(http: httpx2.AsyncClient) -> None:
    body = {"agent_name": "echo-agent", "initial_message": "hello"}
    made = (await http.post("/agent-sessions/create", json=body)).json()
    assert made["because"]["reason"] == "no_launcher"
    path = f"/agent-sessions/{made['session_id']}/messages"
    answer = (await http.post(path, json={"content": "more", "wait": 0})).json()
    assert (answer["content"], answer["state"], answer["because"]["reason"]) == ("", "queued", "no_launcher")


async def test_a_session_is_made_at_once_whatever_its_agent_does(served: Served, http: httpx2.AsyncClient) -> None:
    body = {"agent_name": "echo-agent", "initial_message": "hello", "metadata": {"a": 1}, "session_name": "first"}
    answer = await http.post("/agent-sessions/create", json=body)
    told = answer.json()
    assert answer.status_code == 201
    assert told["state"] == "active"
    assert told["task_id"]
    assert datetime.fromisoformat(told["created_at"]).tzinfo is not None
    assert (await served.moorage().get_run(told["run_id"])).state == "queued"
    child = await http.post("/agent-sessions/create", json={"parent_session_name": "first"})
    assert child.json()["state"] == "created"
    shown = (await http.get(f"/agent-sessions/{child.json()['session_id']}")).json()
    assert shown["parent_session_id"] == told["session_id"]
    orphan = await http.post("/agent-sessions/create", json={"parent_session_name": "nobody"})
    assert (orphan.status_code, orphan.json()["code"]) == (404, "parent_not_found")


async def test_a_session_made_again_with_its_key_is_the_same(served: Served, http: httpx2.AsyncClient) -> None:
    headers, body = {"Idempotency-Key": "k"}, {"agent_name": "echo-agent", "initial_message": "hello"}
    first, second = [await http.post("/agent-sessions/create", json=body, headers=headers) for _ in range(2)]
    assert first.json() == second.json()
    assert len((await served.moorage().messages(first.json()["session_id"])).items) == 1
    for other in ({"agent_name": "hello-world"}, {"agent_name": "echo-agent", "initial_message": "good-bye"}):
        refused = await http.post("/agent-sessions/create", json=other, headers=headers)
        assert (refused.status_code, refused.json()["code"], refused.json()["key"]) == (409, "key_reused", "k")


async def test_a_version_from_yesterday_is_refused(http: httpx2.AsyncClient) -> None:
    await http.post("/agent-sessions/create", json={"session_id": "s"})
    for action in ("messages", "suspend", "resume", "complete"):
        body = {"content": "now"} if action == "messages" else {}
        late = await http.post(f"/agent-sessions/s/{action}", json=body, headers={"if-match": '"9-1"'})
        assert (late.status_code, late.json()["code"]) == (412, "version_conflict"), action


async def test_a_wrong_first_message_makes_no_session(http: httpx2.AsyncClient) -> None:
    answer = await http.post("/agent-sessions/create", json={"initial_message": "x" * 20_000_000})
    assert answer.status_code in (413, 422)
    answer = await http.post("/agent-sessions/create", json={"initial_message": 3})
    assert answer.status_code == 422
    assert (await http.post("/agent-sessions/list", json={})).json()["sessions"] == []


async def test_an_answer_is_waited_for(working: Served) -> None:
    async with working.client() as http:
        made = (await http.post("/agent-sessions/create", json={"agent_name": "echo-agent"})).json()
        for field in ("message", "content"):
            answer = await http.post(f"/agent-sessions/{made['session_id']}/messages", json={field: f"my {field}"})
            told = answer.json()
            assert (told["content"], told["session_id"]) == (f"Echo Agent Response: my {field}", made["session_id"])
            assert told["turn_id"]
        log = (await http.get(f"/sessions/{made['session_id']}/log", params={"kinds": "turn_started"})).json()["items"]
        assert log[-1]["data"]["turn_id"] == told["turn_id"]
        for wrong in ({}, {"message": "a", "content": "b"}, {"message": ["a"]}):
            assert (await http.post(f"/agent-sessions/{made['session_id']}/messages", json=wrong)).status_code == 422


async def test_a_stream_has_lines_of_data_and_nothing_else(working: Served) -> None:
    async with working.client() as http:
        made = (await http.post("/agent-sessions/create", json={"agent_name": "echo-agent"})).json()
        body = {"content": "a\nb", "stream": True}
        answer = await http.post(f"/agent-sessions/{made['session_id']}/messages", json=body)
    assert answer.headers["content-type"] == "text/event-stream"
    *lines, rest = answer.text.split("\n")
    assert rest == ""
    assert all(line.startswith("data: {") for line in lines)
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert all(set(event) == {"type", "data", "timestamp"} for event in events)
    assert all(isinstance(event["data"]["content"], str) for event in events)
    assert [(event["type"], event["data"]["content"]) for event in events] == [
        ("queued", ""),
        ("message", "Echo Agent Response: a\nb"),
        ("run_settled", ""),
    ]


@pytest.mark.parametrize("stream", [True, False])
async def test_asking_an_agent_that_is_not_known_is_refused_and_nothing_is_kept(
    http: httpx2.AsyncClient, stream: bool
) -> None:
    made = (await http.post("/agent-sessions/create", json={"agent_name": "ecko-agent"})).json()
    path = f"/agent-sessions/{made['session_id']}"
    answer = await http.post(f"{path}/messages", json={"message": "hello", "stream": stream})
    assert (answer.status_code, answer.json()["code"]) == (404, "agent_not_found")
    assert answer.json()["nearest"] == ["echo-agent"]
    assert (await http.get(path)).json()["last_entry"] == 1


async def test_first_message_to_an_agent_that_is_not_known_makes_no_session(http: httpx2.AsyncClient) -> None:
    answer = await http.post("/agent-sessions/create", json={"agent_name": "ecko-agent", "initial_message": "hello"})
    assert (answer.status_code, answer.json()["nearest"]) == (404, ["echo-agent"])
    assert (await http.post("/agent-sessions/list", json={})).json()["sessions"] == []


async def test_sessions_are_listed_by_their_filters(http: httpx2.AsyncClient) -> None:
    for agent in ("a", "a", "b"):
        made = (await http.post("/agent-sessions/create", json={"agent_name": agent})).json()
    await http.post(f"/agent-sessions/{made['session_id']}/complete", json={"summary": "done"})

    async def listed(**filters: Any) -> Any:
        return (await http.post("/agent-sessions/list", json=filters)).json()

    assert {each["agent_name"] for each in (await listed(agent_name="a"))["sessions"]} == {"a"}
    assert [each["summary"] for each in (await listed(state="COMPLETED"))["sessions"]] == ["done"]
    first = await listed(limit=2)
    rest = await listed(limit=2, cursor=first["next"])
    assert (len(first["sessions"]), len(rest["sessions"]), rest["next"]) == (2, 1, None)
    assert (await http.post("/agent-sessions/list", json={"stat": "x"})).status_code == 422


async def test_a_session_is_paused_gone_on_with_and_closed(http: httpx2.AsyncClient) -> None:
    made = (await http.post("/agent-sessions/create", json={"initial_message": "hello"})).json()
    path = f"/agent-sessions/{made['session_id']}"
    paused = await http.post(f"{path}/suspend", json={"checkpoint": {"step": 2}, "reason": "lunch"})
    assert paused.json()["state"] == "suspended"
    back = (await http.post(f"{path}/resume")).json()
    assert (back["state"], back["checkpoint"]) == ("active", {"step": 2})
    assert [message["content"] for message in back["messages"]] == ["hello"]
    assert back["hold"] is None
    assert (await http.post(f"{path}/resume", json={"holder": "another"})).json()["hold"] is None
    held = (await http.post(f"{path}/resume", json={"hold": True})).json()
    assert held["hold"]["token"]
    other = await http.post(f"{path}/resume", json={"holder": "another"})
    assert (other.status_code, other.json()["code"]) == (409, "held_by_another")
    closed = await http.post(f"{path}/complete", json={"summary": "eaten"})
    assert (closed.json()["state"], closed.json()["summary"]) == ("completed", "eaten")
    late = await http.post(f"{path}/messages", json={"message": "one more"})
    assert (late.status_code, late.json()["code"]) == (409, "session_closed")
    assert (await http.get("/agent-sessions/nobody")).status_code == 404


class TokenAuthorizer(Authorizer):
    """An authorizer that takes every caller for the session `own`, as if they had its token."""

    async def admit(self, exchange: Any) -> Visitor:
        caller = Caller(by="own", interface="rest", holder="own")
        return Visitor(caller, session_id=None if b"x-key" in exchange.headers else "own")


@pytest.fixture
async def with_a_token(url: str) -> AsyncIterator[Served]:
    async with serving(url, authorizer=TokenAuthorizer) as served:
        moor = served.moorage()
        await moor.create(session_id="own", parent=None)
        await moor.create(session_id="below", parent="own")
        await moor.create(session_id="beside", parent=None)
        yield served


def refused() -> Iterator[tuple[str, str, Any]]:
    for path in ("/agent-sessions/beside", "/sessions/beside/events", "/events"):
        yield "GET", path, None
    yield "POST", "/sessions/beside/messages", {"content": "x"}
    yield "POST", "/agent-sessions/create", {"parent_session_id": None}
    yield "POST", "/agent-sessions/create", {"parent_session_id": "beside"}
    for verb in ("messages", "suspend", "resume", "complete"):
        yield "POST", f"/agent-sessions/beside/{verb}", {"message": "x"} if verb == "messages" else {}


@pytest.mark.parametrize(("verb", "path", "body"), list(refused()))
async def test_a_token_reaches_nothing_beside_its_session(
    with_a_token: Served, verb: str, path: str, body: Any
) -> None:
    async with with_a_token.client() as http:
        answer = await http.request(verb, path, json=body)
    assert (answer.status_code, answer.json()["code"]) == (403, "out_of_reach"), answer.text


async def test_token_covers_its_session_and_descendants(with_a_token: Served) -> None:
    async with with_a_token.client() as http:
        for ref in ("own", "below"):
            assert (await http.get(f"/agent-sessions/{ref}")).status_code == 200
            assert (await http.post(f"/sessions/{ref}/messages", json={"content": "x"})).status_code == 201
            page = await http.get(f"/sessions/{ref}/events", headers={"accept": "application/json"})
            assert [event["id"] for event in page.json()["items"]] == [1, 2]
        made = (await http.post("/agent-sessions/create", json={})).json()
        assert (await http.get(f"/agent-sessions/{made['session_id']}")).json()["parent_session_id"] == "own"
        listed = (await http.post("/agent-sessions/list", json={})).json()["sessions"]
        assert {each["parent_session_id"] for each in listed} == {"own"}
