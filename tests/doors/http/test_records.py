"""`/sessions/{session_id}/records` and `/memory`, as programs without our client use them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from moorage import config
from moorage.core.record import MAX_INLINE
from moorage.doors.http.serve import make_door
from moorage.testing.faults import PATIENCE
from tests.doors.http.server import address_of, running


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    deps = config.open_deps(f"sqlite:///{tmp_path / 'moorage.db'}", threaded=True)
    async with running(make_door(deps)) as server, httpx2.AsyncClient(timeout=PATIENCE) as client:
        client.base_url = address_of(server)
        await client.post("/sessions", json={"session_id": "one"})
        yield client
    await deps.store.close()


PLACES = ["/sessions/one/records", "/memory"]


@pytest.mark.parametrize("base", PLACES)
async def test_json_value_is_put_read_listed_and_deleted(http: httpx2.AsyncClient, base: str) -> None:
    written = await http.put(f"{base}/notes/a%2Fb%20c", json={"x": [1, None]})
    assert written.json() == {"namespace": "notes", "key": "a/b c", "version": 1}
    found = (await http.get(f"{base}/notes/a%2Fb%20c")).json()
    assert (found["value"], found["form"], found["size"], found["version"]) == ({"x": [1, None]}, "json", 14, 1)
    assert (await http.get(f"{base}/notes", params={"prefix": "a/"})).json()["items"] == [found]
    assert (await http.post(f"{base}/notes", json={"keys": ["none", "a/b c"]})).json()["items"] == [None, found]
    assert (await http.delete(f"{base}/notes/a%2Fb%20c")).is_success
    gone = await http.get(f"{base}/notes/a%2Fb%20c")
    assert (gone.status_code, gone.json()["code"]) == (404, "record_not_found")


@pytest.mark.parametrize("base", PLACES)
async def test_bytes_come_back_as_base64(http: httpx2.AsyncClient, base: str) -> None:
    await http.put(f"{base}/notes/raw", content=b"\xff\0", headers={"content-type": "application/octet-stream"})
    found = (await http.get(f"{base}/notes/raw")).json()
    assert (found["form"], found["base64"]) == ("bytes", "/wA=")
    assert "value" not in found


@pytest.mark.parametrize("base", PLACES)
async def test_version_that_is_not_there_is_refused(http: httpx2.AsyncClient, base: str) -> None:
    for version, status in ((0, 200), (0, 409), (1, 200), (1, 409)):
        answer = await http.put(f"{base}/notes/k", json=1, params={"version": version})
        assert answer.status_code == status, answer.text
    assert answer.json()["code"] == "version_conflict"


@pytest.mark.parametrize("base", PLACES)
async def test_large_value_is_put_and_read_whole(http: httpx2.AsyncClient, base: str) -> None:
    text = "x" * (2 * MAX_INLINE)
    assert (await http.put(f"{base}/notes/large", json=text)).is_success
    assert (await http.get(f"{base}/notes/large")).json()["value"] == text
    [listed] = (await http.get(f"{base}/notes")).json()["items"]
    assert (listed["parts"], "value" in listed, isinstance(listed["upload"], str)) == (3, False, True)


async def test_page_of_large_values_ends_early_and_goes_on(http: httpx2.AsyncClient) -> None:
    for number in range(12):
        await http.put(f"/memory/notes/{number:02d}", json="x" * (MAX_INLINE - 2))
    seen, pages, after = list[str](), 0, dict[str, str]()
    while pages == 0 or after:
        page = (await http.get("/memory/notes", params=after)).json()
        seen, pages = seen + [each["key"] for each in page["items"]], pages + 1
        after = {"after": page["next"]} if page["next"] else {}
    assert seen == [f"{number:02d}" for number in range(12)]


async def test_records_and_messages_are_written_in_one_commit(http: httpx2.AsyncClient) -> None:
    writes: list[dict[str, Any]] = [
        {"op": "put", "namespace": "n", "key": "state", "value": {"step": 1}},
        {"op": "append", "namespace": "n", "prefix": "log/", "base64": "AAE="},
    ]
    said = [{"role": "assistant", "content": "done", "client_key": "1"}]
    done = (await http.post("/sessions/one/records", json={"writes": writes, "messages": said})).json()
    assert [each["key"] for each in done["records"]] == ["state", "log/000000000001"]
    assert [entry["content"] for entry in done["entries"]] == ["done"]
    other = {**writes[0], "version": 7, "key": "k"}
    refused = await http.post("/sessions/one/records", json={"writes": [*writes, other]})
    assert refused.status_code == 409
    assert len((await http.get("/sessions/one/records/n")).json()["items"]) == 2


async def test_records_of_the_owner_are_written_in_the_same_commit(http: httpx2.AsyncClient) -> None:
    own: dict[str, Any] = {"op": "put", "namespace": "n", "key": "own", "value": 1}
    shared: dict[str, Any] = {"op": "put", "namespace": "n", "key": "shared", "value": 2, "version": 0}
    done = (await http.post("/sessions/one/records", json={"writes": [own], "memory": [shared]})).json()
    assert [[each["key"] for each in done[part]] for part in ("records", "memory")] == [["own"], ["shared"]]
    refused = await http.post("/sessions/one/records", json={"writes": [own], "memory": [shared]})
    assert refused.status_code == 409
    assert (await http.get("/sessions/one/records/n/own")).json()["version"] == 1
    assert (await http.get("/memory/n/shared")).json()["value"] == 2


async def test_value_is_given_once(http: httpx2.AsyncClient) -> None:
    for write in ({}, {"value": 1, "base64": "AAE="}):
        asked = {"writes": [{"op": "put", "namespace": "n", "key": "k", **write}]}
        assert (await http.post("/memory", json=asked)).json()["code"] == "invalid_value"


async def test_change_for_another_version_of_the_session_is_refused(http: httpx2.AsyncClient) -> None:
    for version, status in (("2", 412), ("1", 200)):
        answer = await http.put("/sessions/one/records/n/k", json=1, headers={"if-match": f'"{version}"'})
        assert answer.status_code == status, answer.text
