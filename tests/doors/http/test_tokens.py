"""A session's own token: what it may do besides the rows of the access matrix (tests/attack)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest

from moorage.service.keys import session_token
from tests.doors.http.visitors import Guarded, guarded, settle_in


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with guarded(f"sqlite:///{tmp_path / 'moorage.db'}") as door:
        yield door


async def bearer(place: Guarded, session_id: str, owner: str = "ann") -> httpx2.AsyncClient:
    """Return a client with that session's token."""
    return place.visitor(await session_token(place.door.deps, owner, session_id))


async def test_token_of_a_stopped_run_starts_nothing_new(place: Guarded) -> None:
    moor = place.embedded("ann")
    asked = await moor.run("echo-agent", "hello", mode="async_poll")
    session_id, run_id = asked.session.session_id, asked.run.run_id
    token = await session_token(place.door.deps, "ann", session_id, run_id=run_id)
    agent = place.visitor(token)
    assert (await agent.post("/sessions", json={})).status_code == 201
    await moor.stop(session_id)
    wanted = {"agent_name": "echo-agent", "prompt": "hello", "mode": "async_poll"}
    for path, body in (
        ("/sessions", {}),
        ("/runs", wanted),
        (f"/sessions/{session_id}/messages", {"content": "go on"}),
    ):
        refused = await agent.post(path, json=body)
        assert (refused.status_code, refused.json()["code"]) == (409, "run_stopped")
    assert (await agent.get(f"/sessions/{session_id}")).status_code == 200, "it may still read, and end in good order"


async def test_token_sees_ancestors_up_to_its_own_session(place: Guarded) -> None:
    await settle_in(place, "ann")
    own = await bearer(place, "s-ann")
    for ref, above in (("s-ann", []), ("child-ann", ["s-ann"])):
        told = (await own.get(f"/sessions/{ref}/ancestors")).json()["items"]
        assert [each["session_id"] for each in told] == above


async def test_token_deletes_only_descendants(place: Guarded) -> None:
    await settle_in(place, "ann")
    own = await bearer(place, "s-ann")
    for ref in ("s-ann", "plan-ann", "top-ann"):
        for how in ({}, {"force": "true"}, {"dry_run": "true"}):
            assert (await own.delete(f"/sessions/{ref}", params=how)).status_code == 403, ref
    assert (await own.delete("/sessions/child-ann")).json()["session_ids"] == ["child-ann"]
    assert (await place.embedded("ann").get("s-ann")).state == "active"


async def test_sessions_created_with_a_token_are_its_descendants(place: Guarded) -> None:
    await settle_in(place, "ann")
    own = await bearer(place, "s-ann")
    for path in ("/sessions", "/agent-sessions/create"):
        made = (await own.post(path, json={})).json()["session_id"]
        assert (await place.embedded("ann").get(made)).parent_session_id == "s-ann"
        for parent in (None, "top-ann", "nobody"):
            assert (await own.post(path, json={"parent_session_id": parent})).status_code == 403, parent
    asked = {"agent_name": "echo-agent", "prompt": "x", "wait": 0}
    run = (await own.post("/runs", json=asked)).json()["run"]
    assert run["parent_session_id"] == "s-ann"
    assert (await own.post("/runs", json={**asked, "parent": None})).status_code == 403
    assert (await own.post("/runs", json={**asked, "session": "top-ann"})).status_code == 403


async def test_token_writes_records_of_its_session_and_no_memory(place: Guarded) -> None:
    await settle_in(place, "ann")
    own = await bearer(place, "s-ann")
    put = {"op": "put", "namespace": "n", "key": "k", "value": 1}
    answer = await own.post("/sessions/s-ann/records", json={"writes": [put], "memory": [put]})
    assert (answer.status_code, answer.json()["code"]) == (403, "out_of_reach")
    written = await own.post("/sessions/s-ann/records", json={"writes": [{**put, "version": 0}]})
    assert written.is_success, written.text


async def test_a_header_does_not_carry_a_token_further(place: Guarded) -> None:
    await settle_in(place, "ann")
    own = await bearer(place, "s-ann")
    answer = await own.post("/sessions", json={}, headers={"X-Agent-Session-Id": "top-ann"})
    assert (answer.status_code, answer.json()["code"]) == (403, "out_of_reach")
    below = await own.post("/sessions", json={}, headers={"X-Agent-Session-Id": "child-ann"})
    assert below.json()["parent_session_id"] == "child-ann"


async def test_a_token_ends_and_no_letter_of_it_can_be_changed(place: Guarded) -> None:
    await settle_in(place, "ann")
    text = await session_token(place.door.deps, "ann", "s-ann", timedelta(milliseconds=1))
    for wrong in (text, text[:-1] + ("a" if text[-1] != "a" else "b"), "moors_", "moors_x.y"):
        answer = await place.visitor(wrong).get("/sessions/s-ann")
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"


# Holds -------------------------------------------------------------------------------------------


ENDING_A_HOLD = [
    ("release", {}),
    ("suspend", {}),
    ("approvals", {"question": "?"}),
    ("finalize", {"outcome": "completed"}),
]


@pytest.mark.parametrize("named", [None, "nightly"])
async def test_agents_token_ends_no_hold_of_a_person(place: Guarded, named: str | None) -> None:
    key = await place.embedded("ann").create_key(name="ann's")
    ann = place.visitor(key.text)
    for session_id in ("plan", key.key.key_id):  # a session id that reads like the key gives its token nothing
        await place.embedded("ann").create("planner", session_id=session_id, parent=None)
        held = (await ann.post(f"/sessions/{session_id}/resume", json={"holder": named})).json()["hold"]
        agent = await bearer(place, session_id)
        agents = [agent, place.visitor(agent.headers["authorization"].split()[1], **{"x-moorage-holder": "nightly"})]
        for who in agents:
            for verb, body in ENDING_A_HOLD:
                refused = await who.post(f"/sessions/{session_id}/{verb}", json=body)
                assert (refused.status_code, refused.json()["code"]) == (409, "held_by_another"), verb
        assert (await ann.get(f"/sessions/{session_id}")).json()["hold"]["holder"] == held["holder"]
        assert (await ann.post(f"/sessions/{session_id}/release", json={})).json()["hold"] is None


async def test_agents_token_ends_its_own_hold_and_no_other_sessions(place: Guarded) -> None:
    moor = place.embedded("ann")
    await moor.create("planner", session_id="a", parent=None)
    await moor.create("planner", session_id="a:b", parent="a")
    upper, lower = await bearer(place, "a"), await bearer(place, "a:b")
    for _ in range(2):
        assert (await lower.post("/sessions/a:b/resume", json={"holder": "x"})).is_success
        refused = await upper.post("/sessions/a:b/release", json={})
        assert (refused.status_code, refused.json()["code"]) == (409, "held_by_another")
        assert (await lower.post("/sessions/a:b/release", json={})).json()["hold"] is None


@pytest.mark.parametrize("by", ["header", "body", "verdict"])
async def test_hold_names_are_scoped_by_key(place: Guarded, by: str) -> None:
    moor = place.embedded("ann")
    first, second = [await moor.create_key(name=name) for name in ("first", "second")]
    one = place.visitor(first.text)
    await moor.create("planner", session_id="plan", parent=None)
    await moor.update("plan", phase="planning")
    held = (await one.post("/sessions/plan/resume", json={"holder": "nightly"})).json()["hold"]
    for name in ("nightly", f"{first.key.key_id}:nightly", held["holder"]):
        if by == "header":
            two = place.visitor(second.text, **{"x-moorage-holder": name})
            answer = await two.post("/sessions/plan/resume", json={"hold": True})
        elif by == "body":
            answer = await place.visitor(second.text).post("/sessions/plan/resume", json={"holder": name})
        else:
            judged = await place.visitor(second.text).get("/sessions/plan/resume-verdict", params={"holder": name})
            assert judged.json()["reason"] == "held_by_another", judged.text
            continue
        assert (answer.status_code, answer.json()["code"]) == (409, "held_by_another"), (name, answer.text)
    again = place.visitor(first.text, **{"x-moorage-holder": "nightly"})
    assert (await again.post("/sessions/plan/resume", json={})).json()["hold"]["holder"] == held["holder"]
