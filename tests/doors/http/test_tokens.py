"""A session's own token at every route: what it reaches, and what it may never do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest

from moorage.service.keys import session_token
from tests.doors.http.visitors import Asked, Guarded, ask, everything, guarded, settle_in

NEVER = {  # whatever it names; all of them are for keys
    *("fork", "resumable", "delegate", "delegations", "deleted", "cleanup", "search", "decide", "send_again"),
    *("launchers", "define_agent", "remove_agent", "keys", "create_key", "revoke_key", "stats", "check"),
    *("put_agent", "definitions", "register_launcher", "events", "last_lines", "import", "import_histories", "metrics"),
    *("turn_claim", "turn_heartbeat", "turn_adopt", "turn_entries", "turn_finish", "turn_approval"),
}
FOR_ALL = {"agents", "agent", "tools", "healthz", "readyz", "openapi", "docs", "web"}


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with guarded(f"sqlite:///{tmp_path / 'moorage.db'}") as door:
        yield door


async def bearer(place: Guarded, session_id: str, owner: str = "ann") -> httpx2.AsyncClient:
    """Whoever has that session's token."""
    return place.visitor(await session_token(place.door.deps, owner, session_id))


def named(place: Guarded) -> list[tuple[str, Asked]]:
    """Every request, with the name of what it asks for."""
    from moorage.remote.operations import OPERATIONS

    names = [operation.name for operation in OPERATIONS] + [each.name for _, _, each in place.door.described]
    return list(zip(names, everything(place.door), strict=True))


async def test_a_token_reaches_its_session_and_those_below_and_nothing_else(place: Guarded) -> None:
    anns = await settle_in(place, "ann")
    outside = await settle_in(place, "bob")
    own, beside = await bearer(place, "top-ann"), await bearer(place, "child-ann")
    for name, asked in named(place):
        if name in NEVER or name in FOR_ALL or asked.path == "/resume-verdict":
            continue
        far = await ask(beside, asked, anns)
        assert far.status_code == 403, (asked, far.text)
        assert (await ask(own, asked, outside)).status_code == 403, asked
        if asked.verb == "GET":
            assert (await ask(own, asked, anns)).is_success, asked


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


async def test_no_answer_to_a_token_tells_of_its_ancestors_or_siblings(place: Guarded) -> None:
    """Look at what every route returns, not only at what it takes."""
    secret, moor = "platypus", place.embedded("ann")
    anns = await settle_in(place, "ann")
    for ref in ("top-ann", "sibling"):
        if ref == "sibling":
            await moor.create("planner", session_id=ref, parent="top-ann", purpose=secret)
        await moor.append(ref, secret)
        await moor.save_checkpoint(ref, {"step": secret})
        await moor.context.put(ref, "tone", secret)
        await moor.update(ref, metadata={"why": secret}, error=secret)
        await moor.request_approval(ref, secret)
        await moor.run("echo-agent", secret, mode="async_poll", session_id=f"runs-{ref}", parent=ref)
    own, asked_for = await bearer(place, "s-ann"), 0
    for _, asked in named(place):
        if asked.verb == "GET":
            answer = await ask(own, asked, anns)
            assert secret not in answer.text, asked
            asked_for += answer.is_success
    assert asked_for > 25  # else nothing was looked at


async def test_token_sees_ancestors_up_to_its_own_session(place: Guarded) -> None:
    await settle_in(place, "ann")
    own = await bearer(place, "s-ann")
    for ref, above in (("s-ann", []), ("child-ann", ["s-ann"])):
        told = (await own.get(f"/sessions/{ref}/ancestors")).json()["items"]
        assert [each["session_id"] for each in told] == above


async def test_a_token_never_does_what_is_for_keys(place: Guarded) -> None:
    anns = await settle_in(place, "ann")
    own, seen = await bearer(place, "s-ann"), set()
    for name, asked in named(place):
        if name in NEVER or asked.path == "/resume-verdict":
            answer = await ask(own, asked, anns)
            assert answer.status_code == 403, (asked, answer.text)
            assert answer.json()["code"] in ("forbidden", "out_of_reach")
            seen.add(name)
    assert seen - {"should_resume"} == NEVER, "a route has another name by now"


async def test_a_token_deletes_what_is_below_but_neither_itself_nor_what_is_above(place: Guarded) -> None:
    await settle_in(place, "ann")
    own = await bearer(place, "s-ann")
    for ref in ("s-ann", "plan-ann", "top-ann"):
        for how in ({}, {"force": "true"}, {"dry_run": "true"}):
            assert (await own.delete(f"/sessions/{ref}", params=how)).status_code == 403, ref
    assert (await own.delete("/sessions/child-ann")).json()["session_ids"] == ["child-ann"]
    assert (await place.embedded("ann").get("s-ann")).state == "active"


async def test_what_a_token_makes_hangs_on_its_session(place: Guarded) -> None:
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


SCOPES = {"read": {"read"}, "write": {"read", "write"}, "approve": {"approve"}, "launch": {"launch"}}


@pytest.mark.parametrize("held", SCOPES)
async def test_a_key_without_the_scope_is_told_which_it_lacks(place: Guarded, held: str) -> None:
    from moorage.remote.operations import OPERATIONS

    wanted = [{operation.scope.value, operation.or_scope and operation.or_scope.value} for operation in OPERATIONS]
    wanted += [set() if each.scope is None else {each.scope.value} for _, _, each in place.door.described]
    anns = await settle_in(place, "ann")
    client = place.visitor(await place.key("ann", held))
    for scopes, asked in zip(wanted, everything(place.door), strict=True):
        if scopes and not scopes & SCOPES[held]:
            answer = await ask(client, asked, anns)
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), asked
            assert answer.json()["scope"] in scopes


@pytest.mark.parametrize("given", [{}, {"authorization": "Basic eDp5"}, {"authorization": "Bearer moor_x_y"}])
async def test_without_a_key_that_counts_every_route_is_shut(place: Guarded, given: dict[str, str]) -> None:
    anns = await settle_in(place, "ann")
    async with httpx2.AsyncClient(base_url=place.url, headers=given) as stranger:
        for name, asked in named(place):
            answer = await ask(stranger, asked, anns)
            if name in ("healthz", "readyz", "openapi", "docs", "web"):
                assert answer.is_success
            else:
                assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized"), asked


# Holds -------------------------------------------------------------------------------------------


ENDING_A_HOLD = [("release", {}), ("suspend", {}), ("finalize", {"outcome": "completed"})]


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
async def test_nobody_holds_under_the_name_of_another_key(place: Guarded, by: str) -> None:
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
