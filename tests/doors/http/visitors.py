"""A whole door that wants keys, a family of one owner behind it, and one request for each thing it answers to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

import httpx2

from moorage import config
from moorage.client import LocalMoorage, OpenStore
from moorage.connection import LaunchOptions
from moorage.doors.http.app import Door
from moorage.doors.http.openapi import described
from moorage.doors.http.serve import make_door
from moorage.service.deps import Caller, Deps
from moorage.testing.faults import PATIENCE
from tests.doors.http.server import address_of, running

SECRET = "wombat"  # in all that ann says


class Asked(NamedTuple):
    """A request; places in its path and its texts are filled in."""

    verb: str
    path: str
    body: Any = None
    query: Mapping[str, Any] = MappingProxyType({})


BODIES: dict[tuple[str, str], Any] = {  # of what refuses an empty one
    ("PUT", "/sessions/{session_id}/context"): {"a": 1},
    ("PATCH", "/sessions/{session_id}/context"): {"a": 1},
    ("PUT", "/sessions/{session_id}/context/{key}"): 1,
    ("PATCH", "/sessions/{session_id}/context/{key}"): {"a": 1},
    ("POST", "/sessions"): {"parent_session_id": "{session_id}"},
    ("POST", "/sessions/{session_id}/compact"): {"summary": "they met"},
    ("POST", "/sessions/{session_id}/rename"): {"session_name": None},
    ("POST", "/sessions/{session_id}/checkpoints"): {"checkpoint": {"step": 2}},
    ("POST", "/sessions/{session_id}/approvals"): {"question": "Really?"},
    ("POST", "/approvals/{approval_id}/decision"): {"decision": "approve"},
    ("POST", "/runs"): {"session": "{session_id}", "prompt": "hello", "wait": 0},
    ("POST", "/delegations"): {"agent": "planner", "session_id": "{session_id}"},
    ("POST", "/agents"): {"definition": {"name": "mine", "kind": "command", "command": ["cat"]}},
    ("PUT", "/agents/{name}"): {"definition": {"name": "greeter", "kind": "command", "command": ["cat"]}},
    ("POST", "/tools/{tool}"): {"parameters": {"location": "Rome"}, "session_id": "{session_id}"},
    ("POST", "/sessions/{session_id}/messages"): {"content": "hello"},
    ("POST", "/sessions/{session_id}/records"): {"writes": []},
    ("POST", "/sessions/{session_id}/records/{namespace}"): {"keys": ["{record_key}"]},
    ("PUT", "/sessions/{session_id}/records/{namespace}/{record_key}"): 1,
    ("POST", "/records/{namespace}/{record_key}"): {"session_ids": ["{session_id}"]},
    ("POST", "/memory"): {"writes": []},
    ("POST", "/memory/{namespace}"): {"keys": ["{record_key}"]},
    ("PUT", "/memory/{namespace}/{record_key}"): 1,
    ("POST", "/agent-sessions/create"): {"parent_session_id": "{session_id}"},
    ("POST", "/agent-sessions/list"): {"parent_session_id": "{session_id}"},
    ("POST", "/agent-sessions/{session_id}/messages"): {"content": "hello", "wait": 0},
    ("POST", "/launchers"): {"name": "mine"},
    ("POST", "/launchers/{launcher_id}/claim"): {"agents": {"echo-agent": "resume"}},
    ("POST", "/launchers/{launcher_id}/adopt"): {"turn_id": "{turn_id}", "epoch": 1},
    ("POST", "/turns/{turn_id}/entries"): {"epoch": 1, "messages": ["hello"]},
    ("POST", "/turns/{turn_id}/finish"): {"epoch": 1},
}
QUERIES: dict[tuple[str, str], dict[str, Any]] = {
    ("GET", "/sessions"): {"parent": "{session_id}"},
    ("GET", "/runs"): {"session": "{session_id}"},
    ("GET", "/approvals"): {"session": "{session_id}"},
    ("GET", "/inbox"): {"session": "{session_id}"},
    ("GET", "/search"): {"q": SECRET},
    ("GET", "/resume-verdict"): {"agent": "planner", "host": "{session_id}"},
    ("GET", "/events"): {"session": "{session_id}"},
    ("GET", "/last-lines"): {"sessions": "{session_id}"},
    ("GET", "/turns/{turn_id}/approvals/{approval_id}"): {"epoch": 1},
}


def everything(door: Door) -> list[Asked]:
    """One request for each route."""
    routes = [(route.verb, route.path) for route in described(door.routes)]
    return [Asked(*route, BODIES.get(route), QUERIES.get(route, {})) for route in routes]


class Guarded:
    """A door that wants keys, and those who come."""

    def __init__(self, door: Door, url: str) -> None:
        self.door, self.url = door, url
        self._clients: list[httpx2.AsyncClient] = []

    def visitor(self, key: str, **headers: str) -> httpx2.AsyncClient:
        """Return a client with a key that accepts no streams."""
        headers = {"authorization": f"Bearer {key}", "accept": "application/json", **headers}
        self._clients.append(httpx2.AsyncClient(base_url=self.url, timeout=PATIENCE, headers=headers))
        return self._clients[-1]

    def embedded(self, owner: str) -> LocalMoorage:
        """The same store without the door."""
        moor = LocalMoorage(
            OpenStore(lambda: self.door.deps), Caller(owner=owner, by=owner, interface="test", holder="test")
        )
        moor.launching = LaunchOptions(launches=False)
        return moor

    async def key(self, owner: str, *scopes: str) -> str:
        """A new key."""
        return (await self.embedded(owner).create_key(scopes=scopes, name=f"{owner}'s")).text

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


@asynccontextmanager
async def guarded(url: str) -> AsyncIterator[Guarded]:
    """The whole door on a store."""
    deps: Deps = config.open_deps(url, threaded=True)
    door = make_door(deps)
    try:
        async with running(door) as server:
            place = Guarded(door, address_of(server))
            try:
                yield place
            finally:
                await place.close()
    finally:
        await deps.store.close()


async def settle_in(place: Guarded, owner: str) -> dict[str, str]:
    """A family with everything that a session may have; where it all is."""
    moor, told = place.embedded(owner), f"{SECRET} of {owner}"
    await moor.create("planner", session_id=f"top-{owner}", parent=None)
    session = await moor.create(
        "planner", session_id=f"s-{owner}", name=f"plan-{owner}", purpose=told, metadata={"why": told},
        parent=f"top-{owner}", project_dir=f"/{SECRET}",
    )  # fmt: skip
    await moor.create(session_id=f"child-{owner}", parent=session.id, purpose=told)
    await moor.append(session.id, [told, f"{told} again"])
    number = (await moor.save_checkpoint(session.id, {"step": told})).number
    await moor.context.put(session.id, "tone", told)
    await moor.delegate("planner", task_id=session.task_id)
    await moor.create(session_id=f"asks-{owner}", parent=session.id)
    await moor.records.put(session.id, "notes", "note", told)
    await moor.memory.put("notes", "note", told)
    approval = await moor.request_approval(f"asks-{owner}", f"{told}?")
    run = (await moor.run("echo-agent", told, mode="async_poll", session_id=f"runs-{owner}", parent=session.id)).run
    [item] = (await moor.inbox(f"runs-{owner}")).items
    await moor.create(session_id=f"gone-{owner}", name=f"{SECRET}-{owner}", parent=None)
    await moor.delete(f"gone-{owner}", reason=told)
    launch = place.visitor(await place.key(owner, "launch"))
    launcher = (await launch.post("/launchers", json={"name": told})).json()["launcher_id"]
    wish = {"agents": {"echo-agent": "resume"}}
    [turn] = (await launch.post(f"/launchers/{launcher}/claim", json=wish)).json()["turns"]
    return {
        "session_id": session.id,
        "key": "tone",
        "namespace": "notes",
        "record_key": "note",
        "number": str(number),
        "approval_id": approval.approval_id,
        "run_id": run.run_id,
        "item_id": item.item_id,
        "launcher_id": launcher,
        "turn_id": turn["turn"]["turn_id"],
        "key_id": (await moor.keys()).items[0].key_id,
        "name": "greeter",
        "tool": "weather-tool",
    }


def filled(value: Any, places: dict[str, str]) -> Any:
    """The same with the places filled in."""
    if isinstance(value, str):
        return value.format_map(places)
    if isinstance(value, dict):
        return {name: filled(each, places) for name, each in value.items()}
    return [filled(each, places) for each in value] if isinstance(value, list) else value


async def ask(client: httpx2.AsyncClient, asked: Asked, places: dict[str, str]) -> httpx2.Response:
    """Make the request of these places."""
    body: dict[str, Any] = {} if asked.body is None else {"json": filled(asked.body, places)}
    path, query = filled(asked.path, places), filled(dict(asked.query), places)
    return await client.request(asked.verb, path, params=query, **body)
