"""Every operation, asked by every kind of caller: it answers those that the matrix names, and tells nothing of others.

All ask about `child`, a session of ann's: her keys and bob's with one scope each, the tokens of the session itself,
of its parent, its sibling and its child, and a caller without a key. Refused requests come first and change nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from tests.attack.access import COVERS, ROWS, Row
from tests.attack.family import ABOVE, EVERYONE, OF_ANN, VISIBLE_TO, check, owner_of, settle, token_of
from tests.doors.http.visitors import Asked, Guarded, ask, everything, guarded

ASKED_FOR = "child"
FORBIDDEN = (403, "forbidden")
NOTHING_THERE = {"/inbox/{item_id}/resend"}  # no item is set aside: 404 even for callers who may ask
OTHER_DOORS = {"/mcp", "/graphql"}  # test_tokens.py asks at them


class Cell(NamedTuple):
    """A request and who may make it."""

    asked: Asked
    row: Row


Caller = Callable[[Row], bool]


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with guarded(f"memory://{tmp_path}") as door:
        yield door


async def test_every_route_has_a_row(place: Guarded) -> None:
    asked = {(each.verb, each.path) for each in everything(place.door)}
    assert asked == set(ROWS)
    others = {route.path for route in place.door.routes if (route.verb, route.path) not in asked}
    assert {path for path in others if not path.startswith(("/web/", "/graphql/static/"))} == OTHER_DOORS


@pytest.mark.parametrize("given", [{}, {"authorization": "Basic eDp5"}, {"authorization": "Bearer moor_x_y"}])
async def test_caller_without_a_valid_key_is_shut_out(place: Guarded, given: dict[str, str]) -> None:
    places = await settle(place)
    async with httpx2.AsyncClient(base_url=place.url, headers=given) as nobody:
        await walk(place, nobody, places, visible=(), may=lambda row: row.is_open, refusal=(401, "unauthorized"))


@pytest.mark.parametrize("scope", COVERS)
async def test_keys_of_the_owner(place: Guarded, scope: str) -> None:
    places = await settle(place)
    ann = place.visitor(await place.key("ann", scope))
    await walk(place, ann, places, visible=OF_ANN, may=lambda row: row.to_key(scope), refusal=FORBIDDEN)


@pytest.mark.parametrize("scope", COVERS)
async def test_keys_of_another_owner_find_nothing(place: Guarded, scope: str) -> None:
    places = await settle(place)
    bob, before = place.visitor(await place.key("bob", scope)), await dump(place, "ann")
    for cell in cells(place):
        answer = await ask(bob, cell.asked, places[ASKED_FOR])
        check({"bob"}, answer.text, asked_for=places[ASKED_FOR])
        if not cell.row.to_key(scope):
            assert answer.status_code == 403, cell
    assert await dump(place, "ann") == before


@pytest.mark.parametrize("holder", VISIBLE_TO)
async def test_tokens_of_sessions(place: Guarded, holder: str) -> None:
    places = await settle(place)
    token = place.visitor(await token_of(place, holder))
    await walk(
        place, token, places, visible=VISIBLE_TO[holder], may=lambda row: row.to_token(holder), refusal=FORBIDDEN
    )


@pytest.mark.parametrize("holder", VISIBLE_TO)
async def test_tokens_that_ask_about_every_other_session(place: Guarded, holder: str) -> None:
    places = await settle(place)
    token, answered = place.visitor(await token_of(place, holder)), 0
    for cell in sorted(cells(place), key=_reading_first):
        for who in EVERYONE:
            answer = await ask(token, cell.asked, places[who])
            check(VISIBLE_TO[holder], answer.text, asked_for=places[who])
            answered += answer.is_success
    assert answered > 30, "nothing was looked at"


async def walk(
    place: Guarded,
    client: httpx2.AsyncClient,
    places: dict[str, dict[str, str]],
    *,
    visible: Iterable[str],
    may: Caller,
    refusal: tuple[int, str],
) -> None:
    """Ask for everything: first for all that is refused, which changes nothing, then for all that is answered."""
    before = await dump(place, "ann")
    for cell in [each for each in cells(place) if not may(each.row)]:
        answer = await ask(client, cell.asked, places[ASKED_FOR])
        told = "forbidden" if answer.json()["code"] == "out_of_reach" else answer.json()["code"]
        assert (answer.status_code, told) == refusal, (cell, answer.text)
        check(visible, answer.text, asked_for=places[ASKED_FOR])
    assert await dump(place, "ann") == before
    for cell in sorted((cell for cell in cells(place) if may(cell.row)), key=_reading_first):
        answer = await ask(client, cell.asked, places[ASKED_FOR])
        check(visible, answer.text, asked_for=places[ASKED_FOR])
        refused = answer.status_code in (401, 403, 404) or answer.status_code >= 500
        if cell.asked.path not in NOTHING_THERE:
            assert not (answer.is_error if cell.asked.verb == "GET" else refused), (cell, answer.text)


def cells(place: Guarded) -> list[Cell]:
    return [Cell(asked, ROWS[asked.verb, asked.path]) for asked in everything(place.door)]


def _reading_first(cell: Cell) -> tuple[bool, bool, bool]:
    """Order requests so that none takes away what a later one asks for."""
    return cell.asked.verb != "GET", cell.asked.verb == "DELETE", cell.asked.path == "/sessions/{session_id}"


async def dump(place: Guarded, owner: str) -> list[Any]:
    """Return all that an owner has, for comparing."""
    moor = place.embedded(owner)
    tops = [who for who, above in ABOVE.items() if above is None and owner_of(who) == owner]
    lines = [[line async for line in moor.export(f"id-of-{who}", tree=True)] for who in tops]
    heads = [(each.session_id, each.version, each.last_entry) for each in await moor.list(limit=100)]
    runs = [(run.run_id, run.state) for run in await moor.runs()]
    kept = [await moor.approvals(), (await moor.inbox()).items, (await moor.launchers()).items]
    return [lines, heads, runs, kept, [key.key_id for key in (await moor.keys()).items if key.owner == owner]]
