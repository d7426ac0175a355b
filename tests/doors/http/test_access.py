"""Who gets in, how often, and what a browser on another page gets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import uvicorn

from moorage import config
from moorage.doors.http.authorizer import Authorizer, Rates
from moorage.doors.http.serve import make_door
from moorage.service.deps import Deps
from moorage.service.keys import create_key, revoke_key
from moorage.testing.faults import PATIENCE
from tests.doors.http.server import address_of, running

Opened = tuple[Deps, httpx2.AsyncClient]


@asynccontextmanager
async def opened(url: str, authorizer: Callable[[Deps], Authorizer] = Authorizer) -> AsyncIterator[Opened]:
    deps = config.open_deps(url, threaded=True)
    try:
        async with running(make_door(deps, authorizer(deps))) as server, client_of(server) as http:
            yield deps, http
    finally:
        await deps.store.close()


def client_of(server: uvicorn.Server) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=address_of(server), timeout=PATIENCE)


def as_(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


async def test_a_key_that_asks_too_often_is_told_when_to_come_back(url: str) -> None:
    async with opened(url, lambda deps: Authorizer(deps, rates=Rates(per_second=1, burst=3))) as (deps, http):
        one, other = [(await create_key(deps)).text for _ in range(2)]
        answers = [await http.get("/sessions", headers=as_(one)) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert (answers[3].json()["code"], answers[3].headers["retry-after"]) == ("rate_limited", "1")
        assert answers[3].headers["content-type"] == "application/problem+json"
        assert (await http.get("/sessions", headers=as_(other))).status_code == 200
        await asyncio.sleep(answers[3].json()["retry_after"])
        assert (await http.get("/sessions", headers=as_(one))).status_code == 200


async def test_where_all_may_come_each_address_has_its_rate(url: str) -> None:
    def authorizer(deps: Deps) -> Authorizer:
        return Authorizer(deps, any_host=True, rates=Rates(per_second=0.01, burst=2))

    async with opened(url, authorizer) as (_, http):
        elsewhere = {"host": "sessions.example.org", "origin": "https://sessions.example.org"}
        answers = [await http.get("/sessions", headers=elsewhere) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]


async def test_a_key_made_elsewhere_shuts_an_open_server_for_good(url: str) -> None:
    async with opened(url) as (deps, http), asyncio.timeout(PATIENCE):
        assert (await http.get("/sessions")).status_code == 200
        made = await create_key(deps)
        while (await http.get("/sessions")).status_code == 200:  # noqa: ASYNC110  there is no event to wait for
            await asyncio.sleep(0)
        assert (await http.get("/sessions")).headers["www-authenticate"] == "Bearer"
        assert (await http.get("/sessions", headers={"x-api-key": made.text})).status_code == 200
        await revoke_key(deps, made.key.key_id)
        for headers in ({}, as_(made.text)):
            assert (await http.get("/sessions", headers=headers)).status_code == 401


LOCAL: dict[str, Any] = {"localhost": "http://localhost:3000", "address": "http://127.0.0.1:9", "six": "http://[::1]:9"}


@pytest.mark.parametrize("origin", LOCAL.values(), ids=LOCAL)
async def test_no_page_of_another_origin_may_read_an_answer(url: str, origin: str) -> None:
    async with opened(url) as (_, http):
        asks = {"origin": origin, "access-control-request-method": "POST"}
        for answer in (
            await http.options("/sessions", headers=asks),
            await http.get("/sessions", headers={"origin": origin}),
            await http.post("/sessions", json={}, headers={"origin": origin}),
            await http.get("/healthz", headers={"origin": origin}),
        ):
            assert [name for name in answer.headers if name.startswith("access-control-")] == []
        assert (await http.options("/sessions", headers=asks)).status_code == 405


HOSTS = ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "0.0.0.0", ""]


@pytest.mark.parametrize("host", HOSTS)
async def test_a_name_that_only_looks_local_is_refused(url: str, host: str) -> None:
    async with opened(url) as (_, http):
        for path in ("/sessions", "/events", "/metrics", "/agents"):
            answer = await http.get(path, headers={"host": host})
            assert (answer.status_code, answer.json()["code"]) == (403, "not_local"), path


@pytest.mark.parametrize("origin", ["null", "https://evil.example", "http://localhost.evil.example", "file://"])
async def test_a_page_from_elsewhere_is_refused(url: str, origin: str) -> None:
    async with opened(url) as (_, http):
        answer = await http.post("/sessions", json={}, headers={"origin": origin})
        assert (answer.status_code, answer.json()["code"]) == (403, "foreign_origin")


async def test_key_decides_under_its_own_name(url: str) -> None:
    async with opened(url) as (deps, http):

        async def decided_by(**headers: str) -> str:
            made = await http.post("/sessions", json={}, headers=headers)
            asked = f"/sessions/{made.json()['session_id']}/approvals"
            approval = (await http.post(asked, json={"question": "Go on?"}, headers=headers)).json()["approval_id"]
            decision = {"decision": "approve", "by": "eve"}
            answer = await http.post(f"/approvals/{approval}/decision", json=decision, headers=headers)
            by: str = answer.json()["decided_by"]
            return by

        assert await decided_by() == "eve"
        key = await create_key(deps, name="ann", scopes=["read", "write", "approve"])
        assert await decided_by(**as_(key.text)) == "ann:eve"
