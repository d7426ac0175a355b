"""The OpenAPI document: whole, unambiguous, and true of the server that shows it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from moorage import config
from moorage.client import LocalMoorage, OpenStore
from moorage.core.session import PUBLIC_FIELDS
from moorage.doors.http.app import Door
from moorage.doors.http.exchange import Exchange
from moorage.doors.http.openapi import openapi
from moorage.doors.http.serve import make_door
from moorage.doors.http.visit import Visitor
from moorage.service.deps import Caller
from moorage.testing.faults import PATIENCE
from tests.doors.http.server import address_of, running


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    deps = config.open_deps(f"memory://{tmp_path}", threaded=True)
    yield make_door(deps)
    await deps.store.close()


def operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for verbs in document["paths"].values() for operation in verbs.values()]


async def test_every_operation_has_a_name_of_its_own(door: Door) -> None:
    names = Counter(operation["operationId"] for operation in operations(openapi(door.routes)))
    assert [name for name, count in names.items() if count > 1] == []


async def test_every_reference_leads_somewhere(door: Door) -> None:
    document = openapi(door.routes)
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(_references(document)) == known, "both ways: nothing dangles, nothing is left over"


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [each for inner in value.values() for each in _references(inner)]
    return [each for inner in value for each in _references(inner)] if isinstance(value, list) else []


async def test_a_session_has_its_public_fields(door: Door) -> None:
    session = openapi(door.routes)["components"]["schemas"]["Session"]
    assert set(session["required"]) == set(PUBLIC_FIELDS)


async def test_once_keys_are_needed_the_document_says_so(door: Door) -> None:
    assert {} in openapi(door.routes, needs_key=False)["security"]
    document = openapi(door.routes, needs_key=True)
    assert document["security"] == [{"key": []}]
    without = {each["operationId"] for each in operations(document) if each.get("security") == []}
    assert without == {"healthz", "readyz", "openapi", "docs", "web"}


async def test_openapi_has_the_constraints_of_each_field(door: Door) -> None:
    document = openapi(door.routes)
    [sort] = [each for each in document["paths"]["/sessions"]["get"]["parameters"] if each["name"] == "sort"]
    assert sort["schema"]["enum"] == ["-created", "created", "-updated", "updated"]
    assert "created" in document["paths"]["/sessions"]["get"]["parameters"][1]["schema"]["enum"]


async def test_two_types_of_one_name_are_told(door: Door) -> None:
    from msgspec import Struct, defstruct

    from moorage.doors.http.app import Route

    class Session(Struct):
        other: int

    run = defstruct("Run", [("other", int)])
    odd = Route(verb="GET", path="/odd", name="odd", endpoint=nothing, summary="odd", body=run, answer=Session)
    with pytest.raises(TypeError, match="two types are called"):
        openapi([*door.routes, odd])


async def nothing(_: Exchange, __: Visitor) -> None:
    """Answer nothing."""


async def test_one_name_for_a_session_in_every_path(door: Door) -> None:
    document = openapi(door.routes)
    places = {place for path in document["paths"] for place in re.findall(r"{(\w+)}", path)}
    assert "session_id" in places
    assert "ref" not in places
    for path, verbs in document["paths"].items():
        for operation in verbs.values():
            named = [each["name"] for each in operation["parameters"] if each["in"] == "path"]
            assert named == re.findall(r"{(\w+)}", path), path


async def test_openapi_links_match_their_target_parameters(door: Door) -> None:
    document = openapi(door.routes)
    known = {each["operationId"]: each for each in operations(document)}
    links = [
        link
        for operation in known.values()
        for answer in operation["responses"].values()
        for link in answer.get("links", {}).values()
    ]
    assert len(links) > 40
    for link in links:
        needed = {each["name"] for each in known[link["operationId"]]["parameters"] if each["in"] == "path"}
        assert set(link["parameters"]) == needed, link


async def test_a_line_that_does_not_validate_and_an_error_are_two_types(door: Door) -> None:
    schemas = openapi(door.routes)["components"]["schemas"]
    assert "expected" in schemas["Problem"]["properties"]
    assert "code" in schemas["ProblemDetails"]["properties"]


async def test_a_file_to_import_is_a_body_that_generators_know(door: Door) -> None:
    paths = openapi(door.routes)["paths"]
    for path in ("/import", "/import/histories"):
        [content] = paths[path]["post"]["requestBody"]["content"].items()
        assert content == ("application/octet-stream", {"schema": {"type": "string", "format": "binary"}})


# The server accepts exactly the values of the document; Schemathesis looks for more --------------

NEWER = "\U0003fffd"  # not assigned yet
KEY = {"idempotency-key": "other"}
ASKED: list[tuple[int, str, str, dict[str, Any]]] = [
    (200, "GET", "/sessions/s/messages?last=5&after=2", {}),
    (200, "POST", "/sessions/s/suspend", {"json": {"version": 1.0}}),
    (422, "POST", "/sessions/s/suspend", {"json": {"version": 1.5}}),
    (422, "POST", "/sessions/s/suspend", {"json": {"version": "1"}}),
    (201, "POST", "/sessions", {"json": {"session_id": ""}}),
    (201, "POST", "/agent-sessions/create", {"json": {"session_id": ""}}),
    (201, "POST", "/sessions", {"json": {"task_id": f"new {NEWER}"}}),
    (422, "POST", "/sessions", {"json": {"task_id": "control \x9b"}}),
    (422, "POST", "/sessions", {"json": {"task_id": "hidden \U000e0041"}}),
    (422, "POST", "/sessions", {"json": {"task_id": "zero\u200bwidth"}}),
    (422, "POST", "/sessions", {"json": {"ttl_seconds": 9e-7}}),
    (201, "POST", "/sessions/s/checkpoints", {"json": {"checkpoint": {}, "idempotency_key": "k"}, "headers": KEY}),
    (422, "POST", "/sessions/s/checkpoints", {"json": {"checkpoint": {}, "idempotency_key": ""}, "headers": KEY}),
    (422, "POST", "/sessions/s/messages", {"json": {"messages": [{"role": "user", "content": "x"}], "role": "boss"}}),
    (422, "POST", "/sessions/s/messages", {"json": {"messages": ["x"], "content": "y"}}),
    (200, "GET", "/events?types=message&types=phase", {}),
    (200, "GET", "/events?types=message,phase", {}),
    (200, "GET", "/last-lines?sessions=s&sessions=t", {}),
    (200, "GET", f"/last-lines?sessions={','.join(['s'] * 100)}", {}),
    (422, "GET", f"/last-lines?sessions={','.join(['s'] * 101)}", {}),
    (200, "GET", "/sessions?created_after=2026-01-05T09:30:00Z", {}),
    (422, "GET", "/sessions?created_after=0.5", {}),
    (422, "POST", "/delegations", {"json": {"agent": "a", "new_id": "no id"}}),
    (200, "POST", "/delegations", {"json": {"agent": "a", "new_id": "", "create": True}}),
    (422, "POST", "/delegations", {"json": {"session_id": ""}}),
]


@pytest.mark.parametrize(("status", "verb", "path", "request_"), ASKED)
async def test_server_agrees_with_its_document(
    door: Door, status: int, verb: str, path: str, request_: dict[str, Any]
) -> None:
    moor = LocalMoorage(OpenStore(lambda: door.deps), Caller())
    await moor.create(session_id="s", parent=None)
    await moor.append("s", ["one", "two", "three"])
    async with running(door) as server, httpx2.AsyncClient(base_url=address_of(server), timeout=PATIENCE) as http:
        answer = await http.request(verb, path, **request_)
    assert answer.status_code == status, answer.text


async def test_window_after_a_number_has_only_later_messages(door: Door) -> None:
    moor = LocalMoorage(OpenStore(lambda: door.deps), Caller())
    await moor.create(session_id="s", parent=None)
    await moor.append("s", [{"role": "system", "content": "be kind"}, "one", "two", "three"])
    assert [entry.number for entry in (await moor.messages("s", last=9, after=3)).items] == [4, 5]
    assert [entry.number for entry in (await moor.messages("s", last=1, after=3)).items] == [5]
    assert [entry.number for entry in (await moor.messages("s", last=9, after=2, before=5)).items] == [3, 4]
    assert (await moor.messages("s", last=9, after=5)).items == []
