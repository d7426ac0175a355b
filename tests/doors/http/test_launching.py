"""The launcher's protocol at the door: who may use it, whose turns they see, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from moorage.remote import launching
from moorage.service.deps import Caller
from moorage.service.runs import Wish, start_run
from moorage.service.sessions import SessionRequest
from tests.launcher.stage import Stage, echo, on

AGENTS = {"echo": "resume"}


class Visitors:
    """Launchers with various keys at one door."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._clients: list[httpx2.AsyncClient] = []

    def with_key(self, key: str = "local:launch") -> httpx2.AsyncClient:
        assert self.stage.server is not None
        headers = {"Authorization": f"Bearer {key}"}
        self._clients.append(httpx2.AsyncClient(base_url=self.stage.server, headers=headers, timeout=60))
        return self._clients[-1]

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Visitors]:
    async with on(f"sqlite:///{tmp_path / 'moorage.db'}", tmp_path, over_http=True) as stage:
        stage.plays("echo", echo)
        visitors = Visitors(stage)
        yield visitors
        await visitors.close()


async def registered(client: httpx2.AsyncClient, **fields: Any) -> str:
    answer = await client.post("/launchers", json={"name": "one", "slots": 2, **fields})
    assert answer.status_code == 201, answer.text
    launcher_id: str = answer.json()["launcher_id"]
    return launcher_id


async def claim(client: httpx2.AsyncClient, launcher_id: str, **fields: Any) -> list[dict[str, Any]]:
    answer = await client.post(f"/launchers/{launcher_id}/claim", json={"agents": AGENTS, **fields})
    assert answer.status_code == 200, answer.text
    turns: list[dict[str, Any]] = answer.json()["turns"]
    return turns


def code(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


async def test_a_turn_goes_through_the_protocol_from_claim_to_end(door: Visitors) -> None:
    client = door.with_key()
    launcher_id = await registered(client, agents=["echo"], host="far-away", pid=7)
    asked = await door.stage.ask("echo", "hello")
    [taken] = await claim(client, launcher_id, wait=5)
    assert (taken["session"]["session_id"], taken["owner"]) == (asked.session.session_id, "local")
    assert taken["items"][0]["body"]["content"] == "hello"
    turn, epoch = f"/turns/{taken['turn']['turn_id']}", taken["turn"]["epoch"]
    told = {"epoch": epoch, "started": True, "messages": [{"role": "assistant", "content": "hm", "client_key": "k"}]}
    for _ in range(2):
        assert (await client.post(f"{turn}/entries", json=told)).status_code == 200
    beat = {"running": 1, "turns": [{"turn_id": taken["turn"]["turn_id"], "epoch": epoch}]}
    beaten = (await client.post(f"/launchers/{launcher_id}/heartbeat", json=beat)).json()
    assert (beaten["turns"][0]["lost"], beaten["waiting"]) == (False, [])
    end = {
        "epoch": epoch,
        "outcome": "completed",
        "result": "done",
        "messages": [{"role": "assistant", "content": "done"}],
    }
    for _ in range(2):
        assert (await client.post(f"{turn}/finish", json=end)).status_code == 200
    assert (await door.stage.settled(asked.run)).result == "done"
    said = [entry.text for entry in await door.stage.log(asked.session.session_id, "message")]
    assert said == ["hello", "hm", "done"]
    late = await client.post(f"{turn}/entries", json={"epoch": epoch, "update": {"phase": "planning"}})
    assert code(late) == (409, "turn_lost")
    beaten = (await client.post(f"/launchers/{launcher_id}/heartbeat", json=beat)).json()
    assert beaten["turns"][0]["lost"]


async def test_every_route_wants_a_launchers_key(door: Visitors) -> None:
    launcher_id = await registered(door.with_key())
    asked = await door.stage.ask("echo")
    [taken] = await claim(door.with_key(), launcher_id)
    turn_id = taken["turn"]["turn_id"]
    requests = [
        ("POST", "/launchers", {"name": "mine"}),
        ("POST", f"/launchers/{launcher_id}/claim", {"agents": AGENTS}),
        ("POST", f"/launchers/{launcher_id}/heartbeat", {}),
        ("POST", f"/launchers/{launcher_id}/adopt", {"turn_id": turn_id, "epoch": 1}),
        ("POST", f"/turns/{turn_id}/entries", {"epoch": 1, "started": True}),
        ("POST", f"/turns/{turn_id}/finish", {"epoch": 1}),
        ("GET", f"/turns/{turn_id}/approvals/x?epoch=1", None),
        ("GET", "/definitions", None),
    ]
    for key in ("local:read,write,approve,admin", f"token/local/{asked.session.session_id}"):
        client = door.with_key(key)
        for verb, path, body in requests:
            assert code(await client.request(verb, path, json=body)) == (403, "forbidden"), path
    assert (await door.stage.session(asked.session.session_id)).epoch == 1


async def test_turns_of_owners_a_key_does_not_work_for_are_unknown(door: Visitors) -> None:
    mine, theirs = door.with_key("local:launch"), door.with_key("other:launch")
    asked = await door.stage.ask("echo")
    launcher_id, other_id = await registered(mine), await registered(theirs)
    assert await claim(theirs, other_id) == []
    [taken] = await claim(mine, launcher_id)
    turn_id, epoch = taken["turn"]["turn_id"], taken["turn"]["epoch"]
    for owner in ({}, {"owner": "local"}, {"owner": "other"}):
        report = {"epoch": epoch, **owner}
        for path in (f"/turns/{turn_id}/entries", f"/turns/{turn_id}/finish"):
            assert code(await theirs.post(path, json=report)) == (404, "turn_not_found")
        words = await theirs.post(f"/turns/{turn_id}/words", json={**report, "text": "not mine"})
        assert code(words) == (404, "turn_not_found")
        held = {"turn_id": turn_id, **report}
        assert code(await theirs.post(f"/launchers/{other_id}/adopt", json=held)) == (404, "turn_not_found")
        beat = await theirs.post(f"/launchers/{other_id}/heartbeat", json={"turns": [held]})
        assert beat.json() == {
            "turns": [{"turn_id": turn_id, "lost": True, "stop_requested": False, "turn": None}],
            "waiting": [],
            "drain": False,
        }
    news = await theirs.post(
        f"/launchers/{other_id}/claim", json={"room": 0, "known": {turn_id: 1}, "owners": {turn_id: "local"}}
    )
    assert news.json() == {"turns": [], "stop": [turn_id], "waiting": []}
    for what, body in (
        ("claim", {"agents": AGENTS}),
        ("heartbeat", {}),
        ("adopt", {"turn_id": turn_id, "epoch": epoch}),
    ):
        assert code(await theirs.post(f"/launchers/{launcher_id}/{what}", json=body)) == (404, "launcher_not_found")
    assert code(await theirs.post("/launchers", json={"name": "thief", "launcher_id": launcher_id})) == (
        409,
        "id_taken",
    )
    listed = await door.with_key("other:read").get("/launchers")
    assert [each["launcher_id"] for each in listed.json()["items"]] == [other_id]
    assert asked.session.session_id not in listed.text


async def test_one_key_may_work_for_several_owners(door: Visitors) -> None:
    client, deps = door.with_key("local,other:launch"), door.stage.deps
    launcher_id = await registered(client)
    for owner in ("local", "other"):
        await start_run(
            deps,
            Caller(owner=owner, by="tester"),
            "echo",
            "go",
            wish=Wish(),
            session=SessionRequest(session_id="same-id"),
        )
    taken = await claim(client, launcher_id, room=2)
    assert sorted(each["owner"] for each in taken) == ["local", "other"]
    for each in taken:
        end = {"epoch": each["turn"]["epoch"], "owner": each["owner"], "result": each["owner"]}
        assert (await client.post(f"/turns/{each['turn']['turn_id']}/finish", json=end)).status_code == 200
    runs = [await deps.store.run(each["owner"], each["runs"][0]["run_id"]) for each in taken]
    assert {run.result for run in runs} == {"local", "other"}


async def test_a_newer_claim_of_a_launcher_ends_the_one_before(door: Visitors) -> None:
    client = door.with_key()
    launcher_id = await registered(client)
    async with asyncio.timeout(20):  # each waits for 30 seconds
        first = asyncio.create_task(claim(client, launcher_id, wait=30))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(claim(client, launcher_id, wait=30))
        assert await first == []
        await door.stage.ask("echo")
        assert len(await second) == 1


async def test_only_turns_unknown_to_the_launcher_are_given_again(door: Visitors) -> None:
    client = door.with_key()
    launcher_id = await registered(client)
    await door.stage.ask("echo", "one")
    [first] = await claim(client, launcher_id)
    turn = first["turn"]
    assert await claim(client, launcher_id, known={turn["turn_id"]: turn["epoch"]}) == []
    [again] = await claim(client, launcher_id)
    assert (again["turn"]["turn_id"], again["turn"]["epoch"]) == (turn["turn_id"], turn["epoch"] + 1)
    assert [item["given"] for item in again["items"]] == [0]
    started = {"epoch": again["turn"]["epoch"], "started": True}
    assert (await client.post(f"/turns/{turn['turn_id']}/entries", json=started)).status_code == 200
    assert await claim(client, launcher_id) == [], "one that was started is not given out again"


async def test_bad_requests_change_nothing(door: Visitors) -> None:
    client = door.with_key()
    launcher_id = await registered(client)
    await door.stage.ask("echo")
    for path, body in (
        (f"/launchers/{launcher_id}/claim", {"agents": AGENTS, "wait": 31}),
        (f"/launchers/{launcher_id}/claim", {"agents": {"echo": "sometimes"}}),
        (f"/launchers/{launcher_id}/claim", {"agents": AGENTS, "room": -1}),
        (f"/launchers/{launcher_id}/claim", {"agents": AGENTS, "colour": "red"}),
        ("/launchers", {"name": ""}),
        ("/launchers", {"name": "x", "launcher_id": "../x"}),
    ):
        assert (await client.post(path, json=body)).status_code == 422, body
    [taken] = await claim(client, launcher_id)
    turn = f"/turns/{taken['turn']['turn_id']}"
    wrong: list[tuple[str, dict[str, Any]]] = [
        (f"{turn}/finish", {"epoch": 1, "outcome": "lost"}),
        (f"{turn}/finish", {"epoch": 1, "messages": [{"role": "nobody", "content": "x"}]}),
        (f"{turn}/entries", {"epoch": 1, "update": {"phase": "sleeping"}}),
        (f"{turn}/entries", {"epoch": 1, "checkpoint": {"state": [1]}}),
        (f"{turn}/entries", {"started": True}),
    ]
    for path, report in wrong:
        assert (await client.post(path, json=report)).status_code == 422, report
    assert code(await client.post("/turns/nobody:t1/finish", json={"epoch": 1})) == (404, "turn_not_found")
    assert code(await client.post("/launchers/nobody/claim", json={})) == (404, "launcher_not_found")


def test_everything_that_travels_can_be_described() -> None:
    kinds = [launching.LauncherRegistration, launching.Claiming, launching.News, launching.Heartbeat, launching.Beaten]
    kinds += [launching.Held, launching.Report, launching.Reported, launching.TurnEnding]
    schemas, parts = msgspec.json.schema_components(kinds)
    assert len(schemas) == len(kinds)
    assert "Given" in parts
