"""Steps of the clock at a server: every part of it that judges leases knows what the others have seen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest

from moorage import config
from moorage.core.turn import LOST_AFTER
from moorage.doors.http import launching
from moorage.doors.http.app import Door
from moorage.doors.http.authorizer import Authorizer
from moorage.ports import Store
from moorage.service.deps import Deps
from moorage.service.launchers import all_launchers
from moorage.service.leases import arrive
from moorage.service.turns import TurnDispatcher
from moorage.testing.builders import OWNER, FakeClock
from moorage.testing.work import launch, start, taken
from tests.doors.http.server import OwnerAuthorizer, Served, address_of, running, serving

SHORT, LONG = timedelta(minutes=20), timedelta(hours=2)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = config.open_store(f"sqlite:///{tmp_path / 'db'}", threaded=True)
    yield opened
    await opened.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def deps(store: Store, clock: FakeClock) -> Deps:
    """A server that has served for a while, and a turn that is at work."""
    deps = Deps(store, clock, config.entropy)
    await arrive(deps, "server")
    await TurnDispatcher(deps).expire()
    await launch(store, "s-1", "run-1", at=clock.now())
    await start(store, await taken(store, at=clock.now()), clock.now())
    return deps


async def status(served: Served) -> str:
    """Return the session's status from a request."""
    async with served.client(headers={"x-owner": OWNER}) as client:
        return str((await client.get("/sessions/s-1")).json()["status"])


async def test_request_uses_the_clock_step_seen_by_a_claim(deps: Deps, clock: FakeClock) -> None:
    async with serving(deps, authorizer=OwnerAuthorizer) as served:
        clock.step(SHORT)
        await TurnDispatcher(deps).expire()  # a launcher's claim sees the first step, and a request the second
        clock.step(LONG)
        assert await status(served) == "running"


async def test_request_loses_no_turn_of_the_launcher_in_its_server(deps: Deps, clock: FakeClock) -> None:
    deps.launchers.add("launcher-1")
    async with serving(deps, authorizer=OwnerAuthorizer) as served:
        clock.forward(2 * LOST_AFTER)
        assert await status(served) == "running"
        deps.launchers.clear()
        assert await status(served) == "queued"


async def test_process_started_after_a_clock_step_uses_the_noted_clock(deps: Deps, clock: FakeClock) -> None:
    door = Door(deps, Authorizer(deps))
    launching.add_to(door)
    async with running(door) as server, httpx2.AsyncClient(base_url=address_of(server)) as client:
        await client.post("/launchers", json={"name": "far", "slots": 1, "agents": []})
        [known] = await all_launchers(deps.store)
        assert (known.boot, known.zero_at) == (clock.boot, clock.now())

        clock.step(SHORT)
        await client.post(f"/launchers/{known.launcher_id}/heartbeat", json={"running": 0})
        [known] = await all_launchers(deps.store)
        assert (known.zero_at, known.seen_at) == (clock.now(), clock.now())
    assert (await deps.store.find_turn(OWNER, "s-1:t1")).lost_at == clock.now() + LOST_AFTER
