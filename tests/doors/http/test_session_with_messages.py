"""GET /sessions/{session_id}?messages=N: a session with its last messages, in one answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from moorage import config
from moorage.client import LocalMoorage, OpenStore
from moorage.core.render import to_json
from moorage.doors.http.serve import make_door
from moorage.service.deps import Caller, Deps


@pytest.fixture
async def deps(tmp_path: Path) -> AsyncIterator[Deps]:
    deps = config.open_deps(f"sqlite:///{tmp_path / 'moorage.db'}", threaded=True)
    yield deps
    await deps.store.close()


@pytest.fixture
async def http(deps: Deps) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(app=make_door(deps))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        yield http


async def test_messages_are_those_of_the_window(http: httpx2.AsyncClient, deps: Deps) -> None:
    moor = LocalMoorage(OpenStore(lambda: deps), Caller())
    session = await moor.create("agent", name="trip")
    await moor.append("trip", [{"role": "system", "content": "be brief"}, *map(str, range(30))])

    got = await http.get("/sessions/trip", params={"messages": 20})

    window = await moor.messages(session.id, last=20)
    assert got.json() == {**to_json(await moor.get("trip")), "messages": to_json(window.items)}
    assert len(got.json()["messages"]) == 21  # the system message stays
    assert "messages" not in (await http.get("/sessions/trip")).json()


async def test_unchanged_session_is_304(http: httpx2.AsyncClient, deps: Deps) -> None:
    moor = LocalMoorage(OpenStore(lambda: deps), Caller())
    session = await moor.create("agent")
    path = f"/sessions/{session.id}?messages=5"
    tag = (await http.get(path)).headers["etag"]

    assert (await http.get(path, headers={"If-None-Match": tag})).status_code == 304
    await moor.append(session.id, "news")
    again = await http.get(path, headers={"If-None-Match": tag})

    assert again.status_code == 200
    assert [entry["content"] for entry in again.json()["messages"]] == ["news"]


@pytest.mark.parametrize("number", ["0", "-1", "many", "1.5", ""])
async def test_a_wrong_number_is_refused(http: httpx2.AsyncClient, deps: Deps, number: str) -> None:
    session = await LocalMoorage(OpenStore(lambda: deps), Caller()).create("agent")

    got = await http.get(f"/sessions/{session.id}", params={"messages": number})

    assert got.status_code == 422
    assert got.headers["content-type"] == "application/problem+json"


async def test_the_document_tells_of_it(http: httpx2.AsyncClient) -> None:
    document = (await http.get("/openapi.json")).json()

    parameters = {each["name"]: each for each in document["paths"]["/sessions/{session_id}"]["get"]["parameters"]}
    assert parameters["messages"]["schema"]["type"] == "integer"
    session = document["components"]["schemas"]["Session"]
    assert session["properties"]["messages"]["items"] == {"$ref": "#/components/schemas/Entry"}
    assert "messages" not in session["required"]
