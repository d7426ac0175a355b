"""How the newest message of each of several sessions begins."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.doors.http.server import Served


async def lines(http: httpx2.AsyncClient, sessions: str) -> list[dict[str, Any]]:
    answer = await http.get("/last-lines", params={"sessions": sessions})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


async def test_the_newest_message_of_each_session_on_one_line(served: Served, http: httpx2.AsyncClient) -> None:
    moor = served.moorage()
    for name in ("a", "b", "silent"):
        await moor.create(session_id=name)
    await moor.append("a", [{"role": "user", "content": "first"}, {"role": "assistant", "content": "second\n\n  line"}])
    await moor.append("b", [{"role": "assistant", "content": [{"type": "tool_call", "id": "1", "name": "search"}]}])
    await moor.update("a", phase="planning")
    found = await lines(http, "a,b,silent,unknown,a")
    assert [(each["session_id"], each["role"], each["line"]) for each in found] == [
        ("a", "assistant", "second line"),
        ("b", "assistant", "search"),
    ]


async def test_a_line_of_a_megabyte_is_cut(served: Served, http: httpx2.AsyncClient) -> None:
    moor = served.moorage()
    await moor.create(session_id="a")
    await moor.append("a", [{"role": "user", "content": "x" * 1_000_000}])
    [found] = await lines(http, "a")
    assert found["line"] == "x" * 200 + "…"


async def test_another_owner_s_sessions_are_unknown(served: Served, http: httpx2.AsyncClient) -> None:
    other = served.moorage("somebody-else")
    await other.create(session_id="theirs")
    await other.append("theirs", "secret")
    assert await lines(http, "theirs") == []


@pytest.mark.parametrize("sessions", ["", ",", ",".join(map(str, range(101)))])
async def test_none_and_too_many_are_refused(http: httpx2.AsyncClient, sessions: str) -> None:
    answer = await http.get("/last-lines", params={"sessions": sessions})
    assert answer.status_code == 422
