"""Sending messages over HTTP: they are kept, they ask for a run, and the answer is waited for or streamed."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.doors.http.server import Served, launching


async def made(http: httpx2.AsyncClient, agent: str | None = "echo-agent") -> str:
    return str((await http.post("/sessions", json={"agent_name": agent})).json()["session_id"])


async def say(http: httpx2.AsyncClient, session: str, *, headers: Any = None, **body: Any) -> httpx2.Response:
    return await http.post(f"/sessions/{session}/messages", json=body, headers=headers)


async def test_a_message_to_nobodys_agent_is_kept_and_starts_nothing(http: httpx2.AsyncClient) -> None:
    session = await made(http, "somebody-elses")
    answer = await say(http, session, content="hello")
    told = answer.json()
    assert answer.status_code == 201
    assert [(entry["number"], entry["content"]) for entry in told["entries"]] == [(2, "hello")]
    assert (told["session_id"], told["run_id"], told["run"], told["reply"]) == (session, None, None, None)


async def test_a_users_message_asks_for_a_run_unless_told_not_to(http: httpx2.AsyncClient) -> None:
    session = await made(http)
    asked = (await say(http, session, content="hello")).json()
    assert asked["run"]["state"] == "queued"
    assert asked["reply"] is None
    for body in ({"content": "x", "run": False}, {"content": "x", "role": "assistant"}):
        assert (await say(http, session, **body)).json()["run_id"] is None
    assert len((await http.get("/runs", params={"session": session})).json()["items"]) == 1


async def test_the_reply_is_waited_for(served: Served, http: httpx2.AsyncClient) -> None:
    session = await made(http)
    async with launching(served):
        told = (await say(http, session, content="hello", wait=60)).json()
    assert told["run"]["state"] == "completed"
    assert (told["reply"]["role"], told["reply"]["content"]) == ("assistant", "Echo Agent Response: hello")


async def test_content_may_have_parts(served: Served, http: httpx2.AsyncClient) -> None:
    session = await made(http)
    parts = [{"type": "text", "text": "hello"}]
    async with launching(served):
        told = (await say(http, session, content=parts, wait=60)).json()
    assert told["entries"][0]["content"] == parts
    assert told["reply"]["content"] == "Echo Agent Response: hello"


async def test_of_several_messages_the_last_one_asks(served: Served, http: httpx2.AsyncClient) -> None:
    session = await made(http)
    said = [{"role": "system", "content": "Be brief"}, "hello"]
    async with launching(served):
        told = (await say(http, session, messages=said, wait=60)).json()
    assert [(entry["role"], entry["content"]) for entry in told["entries"]] == [
        ("system", "Be brief"),
        ("user", "hello"),
    ]
    assert told["reply"]["content"] == "Echo Agent Response: hello"
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert (await say(http, session, messages=history)).json()["run_id"] is None


@pytest.mark.parametrize("agent", ["echo-agent", "somebody-elses"])
async def test_a_message_sent_again_with_its_key_is_the_same(http: httpx2.AsyncClient, agent: str) -> None:
    session = await made(http, agent)
    first = (await say(http, session, content="hello", headers={"Idempotency-Key": "k1"})).json()
    again = (await say(http, session, content="hello", headers={"Idempotency-Key": "k1"})).json()
    in_body = (await say(http, session, content="hello", client_key="k1")).json()
    assert first == again == in_body
    assert (await http.get(f"/sessions/{session}")).json()["last_entry"] == first["entries"][0]["number"]


async def test_several_messages_share_a_key_by_their_places(http: httpx2.AsyncClient) -> None:
    session = await made(http, None)
    headers = {"Idempotency-Key": "k1"}
    for _ in range(2):
        told = (await say(http, session, messages=["a", "b"], headers=headers)).json()
        assert [(entry["number"], entry["client_key"]) for entry in told["entries"]] == [(2, "k1:0"), (3, "k1:1")]
    other = await say(http, session, messages=["a", "c"], headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "key_reused")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "messages"),
        ({"content": "a", "messages": ["b"]}, "messages"),
        ({"messages": []}, "messages"),
        ({"content": "a", "role": "boss"}, "messages[0].role"),
        ({"content": 3}, "content"),
        ({"content": "a", "wait": 61}, "wait"),
        ({"content": "a", "strem": True}, "strem"),
    ],
)
async def test_a_wrong_message_is_refused_and_changes_nothing(
    http: httpx2.AsyncClient, body: dict[str, Any], field: str
) -> None:
    session = await made(http)
    answer = await say(http, session, **body)
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert (await http.get(f"/sessions/{session}")).json()["last_entry"] == 1


async def test_a_closed_session_takes_no_message(http: httpx2.AsyncClient) -> None:
    session = await made(http)
    await http.post(f"/sessions/{session}/finalize", json={})
    answer = await say(http, session, content="hello")
    assert (answer.status_code, answer.json()["code"]) == (409, "session_closed")
    assert (await say(http, "nobody", content="hello")).status_code == 404
