"""Requests at the same moment: one wins, or all get the same."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from moorage.testing.faults import PATIENCE
from tests.doors.http.server import Served

AT_ONCE = 8


async def at_once(served: Served, *requests: tuple[str, str, dict[str, Any]]) -> list[httpx2.Response]:
    """The answers to requests that set out together, each on a connection of its own."""
    clients = [served.client() for _ in requests]
    try:
        for client in clients:
            await client.get("/resumable")  # the connection is there before it counts
        async with asyncio.timeout(PATIENCE):
            asked = zip(clients, requests, strict=True)
            return list(await asyncio.gather(*(each.request(verb, path, **what) for each, (verb, path, what) in asked)))
    finally:
        for client in clients:
            await client.aclose()


@pytest.mark.parametrize("state", ["created", "suspended"])
async def test_of_two_that_resume_one_gets_it_and_the_other_is_told_who(
    served: Served, http: httpx2.AsyncClient, state: str
) -> None:
    for attempt in range(10):
        path = f"/sessions/{state}-{attempt}"
        await http.post("/sessions", json={"session_id": f"{state}-{attempt}"})
        if state == "suspended":
            await http.post(f"{path}/suspend", json={"checkpoint": {"step": 3}})
        answers = await at_once(served, *[("POST", f"{path}/resume", {"json": {"hold": True}})] * 2)
        won, lost = sorted(answers, key=lambda answer: answer.status_code)
        assert (won.status_code, lost.status_code) == (200, 409)
        hold, told = won.json()["hold"], lost.json()
        assert (told["code"], told["holder"], told["until"]) == ("held_by_another", hold["holder"], hold["until"])
        assert "token" not in told


async def test_same_holder_gets_the_hold_again_with_a_new_token(served: Served, http: httpx2.AsyncClient) -> None:
    await http.post("/sessions", json={"session_id": "s"})
    same = ("POST", "/sessions/s/resume", {"json": {"holder": "ann's laptop"}})
    answers = await at_once(served, *[same] * AT_ONCE)
    assert [answer.status_code for answer in answers] == [200] * AT_ONCE
    tokens = {answer.json()["hold"]["token"] for answer in answers}
    assert len(tokens) == AT_ONCE
    by_header = {"X-Moorage-Holder": "ann's laptop"}
    again = await http.post("/sessions/s/resume", headers=by_header)
    assert (again.status_code, again.json()["hold"]["token"] in tokens) == (200, False)
    assert (await http.post("/sessions/s/resume", json={"hold": True})).status_code == 409
    assert (await http.post("/sessions/s/release", json={})).json()["hold"] is None
    assert (await http.post("/sessions/s/resume", json={"hold": True})).status_code == 200


CREATES: dict[str, dict[str, Any]] = {
    "/sessions": {"purpose": "x"},
    "/agent-sessions/create": {"purpose": "x"},
    "/runs": {"agent_name": "echo-agent", "prompt": "x", "wait": 0},
    "/sessions/s/fork": {},
    "/sessions/s/messages": {"content": "x"},
    "/sessions/s/checkpoints": {"checkpoint": {"step": 1}},
    "/sessions/s/compact": {"summary": "x"},
    "/sessions/s/approvals": {"question": "x?"},
}
OTHERS = {"agent_name": "hello-world", "prompt": "y", "at": 1, "content": "y", "checkpoint": {"step": 2}}
OTHERS |= {"summary": "y", "question": "y?", "purpose": "y"}


@pytest.mark.parametrize("path", CREATES)
async def test_concurrent_requests_with_one_key_run_once(served: Served, http: httpx2.AsyncClient, path: str) -> None:
    await http.post("/sessions", json={"session_id": "s"})
    body, headers = CREATES[path], {"idempotency-key": "k"}
    answers = await at_once(served, *[("POST", path, {"json": body, "headers": headers})] * AT_ONCE)
    assert {answer.status_code for answer in answers} == {201}, [answer.text for answer in answers]
    assert len({answer.content for answer in answers}) == 1
    sessions = (await http.get("/sessions")).json()["items"]
    assert len(sessions) == (2 if "fork" in path or not path.startswith("/sessions/") else 1)

    other = {
        **body,
        **{name: value for name, value in OTHERS.items() if name in (*body, "at" if "fork" in path else "")},
    }
    refused = await http.post(path, json=other, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (409, "key_reused")


async def test_concurrent_delegations_with_one_key_create_one_session(served: Served, http: httpx2.AsyncClient) -> None:
    body, headers = {"agent": "planner", "create": True}, {"idempotency-key": "k"}
    answers = await at_once(served, *[("POST", "/delegations", {"json": body, "headers": headers})] * AT_ONCE)
    assert {answer.status_code for answer in answers} == {200}, [answer.text for answer in answers]
    [session] = (await http.get("/sessions")).json()["items"]
    assert {answer.json()["session"]["session_id"] for answer in answers} == {session["session_id"]}
    assert len((await http.get("/delegations")).json()["items"]) == 1

    refused = await http.post("/delegations", json={**body, "purpose": "another"}, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (409, "key_reused")


@pytest.mark.parametrize("other", [{"correlation": "c"}, {"join": "all"}, {"session_name": "n"}, {"purpose": "p"}])
async def test_a_run_asked_for_otherwise_under_one_key_is_refused(
    http: httpx2.AsyncClient, other: dict[str, Any]
) -> None:
    body, headers = CREATES["/runs"], {"idempotency-key": "k"}
    assert (await http.post("/runs", json=body, headers=headers)).status_code == 201
    refused = await http.post("/runs", json={**body, **other}, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (409, "key_reused")


async def test_all_that_is_said_at_once_is_kept_in_one_order(served: Served, http: httpx2.AsyncClient) -> None:
    await http.post("/sessions", json={"session_id": "s"})
    said = [("POST", "/sessions/s/messages", {"json": {"content": str(n)}}) for n in range(4 * AT_ONCE)]
    answers = await at_once(served, *said)
    numbers = [answer.json()["entries"][0]["number"] for answer in answers]
    assert sorted(numbers) == list(range(2, 2 + len(said)))


async def test_of_two_changes_for_one_version_one_is_made(served: Served, http: httpx2.AsyncClient) -> None:
    tag = (await http.post("/sessions", json={"session_id": "s"})).headers["etag"]
    phases = ("planning", "executing")
    change = [("PATCH", "/sessions/s", {"json": {"phase": phase}, "headers": {"if-match": tag}}) for phase in phases]
    assert sorted(answer.status_code for answer in await at_once(served, *change)) == [200, 412]


CHANGE = {"json": {"metadata": {"changed": True}}}
AT_A_VERSION: dict[str, tuple[str, str, dict[str, Any]]] = {
    "delete": ("DELETE", "", {}),
    "messages": ("POST", "/messages", {"json": {"content": "x", "run": False}}),
    "stop": ("POST", "/stop", {"json": {}}),
    "context": ("PUT", "/context/key", {"json": 1}),
    "checkpoint": ("POST", "/checkpoints", {"json": {"checkpoint": {"step": 1}}}),
}


@pytest.mark.parametrize("name", AT_A_VERSION)
async def test_change_for_a_version_is_not_made_after_another_change(
    served: Served, http: httpx2.AsyncClient, name: str
) -> None:
    """Whatever was done at the named version is in the log before the change, or the session is gone."""
    verb, below, what = AT_A_VERSION[name]
    for attempt in range(20):
        path = f"/sessions/s-{attempt}"
        made = await http.post("/sessions", json={"session_id": f"s-{attempt}"})
        meant = (verb, f"{path}{below}", {**what, "headers": {"if-match": made.headers["etag"]}})
        changed, done = await at_once(served, ("PATCH", path, CHANGE), meant)
        assert done.status_code in (200, 201, 412), done.text
        if name == "delete":
            assert sorted([changed.status_code, done.status_code]) in ([200, 410], [200, 412])
        elif name == "messages" and done.status_code == 201:
            entries = (await http.get(f"{path}/log")).json()["items"]
            assert [entry["kind"] for entry in entries] == ["created", "message", "metadata"]
        elif name == "checkpoint" and done.status_code == 201:
            entries = (await http.get(f"{path}/log")).json()["items"]
            assert [entry["kind"] for entry in entries] == ["created", "checkpoint", "metadata"]


async def test_fork_at_a_version_has_nothing_of_a_later_one(served: Served, http: httpx2.AsyncClient) -> None:
    for attempt in range(20):
        path = f"/sessions/s-{attempt}"
        tag = (await http.post("/sessions", json={"session_id": f"s-{attempt}"})).headers["etag"]
        fork = ("POST", f"{path}/fork", {"json": {}, "headers": {"if-match": tag}})
        _, forked = await at_once(served, ("PATCH", path, CHANGE), fork)
        assert forked.status_code == 412 or forked.json()["metadata"] == {}


async def test_context_is_written_at_the_version_of_the_session(http: httpx2.AsyncClient) -> None:
    tag = (await http.post("/sessions", json={"session_id": "s"})).headers["etag"]
    for value in (1, 2):
        written = await http.put("/sessions/s/context/key", json=value, headers={"if-match": tag})
        assert written.status_code == 200, "writing to the context moves no version of the session"
    assert (await http.put("/sessions/s/context/key?version=1", json=3)).json()["code"] == "version_conflict"
    await http.patch("/sessions/s", json={"phase": "planning"})
    for verb, path in (("PUT", "/key"), ("DELETE", "/key"), ("PUT", ""), ("PATCH", ""), ("DELETE", "")):
        given: dict[str, Any] = {} if verb == "DELETE" else {"json": {"a": 1}}
        late = await http.request(verb, f"/sessions/s/context{path}", headers={"if-match": tag}, **given)
        assert (late.status_code, late.json()["code"]) == (412, "version_conflict")


async def test_of_two_decisions_one_counts(served: Served, http: httpx2.AsyncClient) -> None:
    await http.post("/sessions", json={"session_id": "s"})
    asked = (await http.post("/sessions/s/approvals", json={"question": "?"})).json()["approval_id"]
    decide = [("POST", f"/approvals/{asked}/decision", {"json": {"decision": each}}) for each in ("approve", "reject")]
    assert sorted(answer.status_code for answer in await at_once(served, *decide)) == [200, 409]
