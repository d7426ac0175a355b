"""Two owners on one server: to each, what is the other's is not there. Asked at every route that there is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from tests.doors.http.visitors import SECRET, Guarded, ask, everything, guarded, settle_in

SCOPES = ("read", "write", "launch", "approve")
TOLD_ALIKE = ("request_id", "retry_after")  # what differs from answer to answer


@pytest.fixture
async def place(url: str) -> AsyncIterator[Guarded]:
    async with guarded(url) as door:
        yield door


async def everything_of(place: Guarded, owner: str) -> list[Any]:
    """All that an owner has, for comparing."""
    moor = place.embedded(owner)
    lines = [line async for line in moor.export(f"top-{owner}", tree=True)]
    heads = [(each.session_id, each.version, each.last_entry) for each in await moor.list(limit=100)]
    runs = [(run.run_id, run.state) for run in await moor.runs()]
    kept = [
        (await moor.approvals()),
        (await moor.inbox()).items,
        (await moor.launchers()).items,
        (await moor.deleted()).items,
    ]
    return [lines, heads, runs, kept]


async def test_resource_of_another_owner_behaves_as_missing(place: Guarded) -> None:
    anns = await settle_in(place, "ann")
    missing = dict.fromkeys(anns, "nobody") | {"number": "1", "key": "tone", "name": "greeter", "tool": "weather-tool"}
    bob, before = place.visitor(await place.key("bob", *SCOPES)), await everything_of(place, "ann")

    for asked in everything(place.door):
        if "{session_id}" in f"{asked}" or "_id}" in asked.path:
            theirs, nothing = await ask(bob, asked, anns), await ask(bob, asked, missing)
            assert _alike(theirs, anns) == _alike(nothing, missing), asked
            assert not theirs.is_success or _says_nothing(theirs.json()), asked

    assert await everything_of(place, "ann") == before


def _says_nothing(told: dict[str, Any]) -> bool:
    """A list without items, or a verdict on a session that is not there: neither is an error to ask for."""
    verdict = told.get("verdict", told)
    return told.get("items") in ([], [None]) or verdict.get("reason") in ("session_not_found", "no_existing_session")


def _alike(answer: httpx2.Response, places: dict[str, str]) -> tuple[int, str]:
    """An answer without the ids that were asked for, and without what no two answers share."""
    told = answer.json()
    text = str({name: value for name, value in told.items() if name not in (*TOLD_ALIKE, "delegation")})
    for place in sorted(set(places.values()), key=len, reverse=True):
        text = text.replace(place, "…") if len(place) > 1 else text
    return answer.status_code, text


async def test_no_answer_shows_data_of_another_owner(place: Guarded) -> None:
    await settle_in(place, "ann")
    bobs = await settle_in(place, "bob")
    cursor = (await place.embedded("ann").list(limit=1)).next
    bob = place.visitor(await place.key("bob", *SCOPES))

    for asked in everything(place.door):
        answer = await ask(bob, asked, bobs)
        assert " of ann" not in answer.text, asked
        assert "-ann" not in answer.text, asked
    for path in ("/sessions", "/runs", "/inbox", "/deleted", "/events", "/approvals", "/delegations", "/keys"):
        for query in ({}, {"cursor": cursor}, {"limit": 1000}):
            answer = await bob.get(path, params=query)
            assert "ann" not in answer.text.replace("planner", ""), path
    hits = (await bob.get("/search", params={"q": SECRET})).json()["items"]
    assert {hit["session_id"] for hit in hits} == {"s-bob", "runs-bob"}


async def test_ids_names_and_keys_of_requests_are_each_owners_own(place: Guarded) -> None:
    answers = []
    for owner in ("ann", "bob"):
        client = place.visitor(await place.key(owner, "write"))
        body = {"session_id": "same", "session_name": "name", "purpose": owner}
        answers.append(await client.post("/sessions", json=body, headers={"idempotency-key": "same"}))
    assert [answer.status_code for answer in answers] == [201, 201]
    assert [answer.json()["purpose"] for answer in answers] == ["ann", "bob"]


async def test_a_header_names_no_session_of_another(place: Guarded) -> None:
    await settle_in(place, "ann")
    for name in ("X-Agent-Session-Id", "X-Agent-Session-Name"):
        bob = place.visitor(await place.key("bob", "write"), **{name: "s-ann"})
        for path, body in (("/sessions", {}), ("/runs", {"agent_name": "echo-agent", "prompt": "x", "wait": 0})):
            answer = await bob.post(path, json=body)
            assert (answer.status_code, answer.json()["code"]) == (404, "parent_not_found")
