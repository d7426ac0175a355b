"""Steps of the clock are no death: leases are extended before any is judged, whoever judges."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from moorage import config
from moorage.core.turn import LOST_AFTER, Launcher, Retry
from moorage.ports import Claimed, Store
from moorage.service.deps import Deps
from moorage.service.servers import arrive, note_beat
from moorage.service.turns import TurnDesk
from moorage.testing.builders import OWNER, FakeClock
from moorage.testing.work import AGENT, launch, start, states_of, taken

MOMENT, SECOND = timedelta(milliseconds=200), timedelta(seconds=1)
STEPS = [timedelta(minutes=20), timedelta(hours=2), timedelta(minutes=-20), timedelta(hours=-2)]
FORWARD = STEPS[:2]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path / 'db'}"}
    url = urls.get(request.param) or request.getfixturevalue("postgres_url")
    opened = config.open_store(url, threaded=True)
    yield opened
    await opened.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def process(store: Store, clock: FakeClock) -> Deps:
    """What a process that has just begun knows."""
    return Deps(store, clock, config.entropy)


def a_launcher(clock: FakeClock, name: str = "launcher-1") -> Launcher:
    return Launcher(launcher_id=name, name=name, registered_at=clock.now(), seen_at=clock.now())


async def at_work(store: Store, clock: FakeClock) -> Claimed:
    """A started turn of another process, which has renewed its lease just now."""
    await TurnDesk(process(store, clock)).register(a_launcher(clock))
    await launch(store, "s-1", "run-1", at=clock.now())
    claimed = await taken(store, at=clock.now())
    await start(store, claimed, clock.now())
    return claimed


async def state(store: Store) -> str:
    return (await states_of(store, "s-1"))[0]


@pytest.mark.parametrize("by", STEPS, ids=str)
async def test_step_loses_no_turn_and_silence_after_it_does(store: Store, clock: FakeClock, by: timedelta) -> None:
    await at_work(store, clock)
    desk = TurnDesk(process(store, clock))
    await desk.expire()
    clock.forward(MOMENT)
    clock.step(by)

    await desk.expire()
    assert await state(store) == "running"
    for _ in range(10):
        clock.forward(LOST_AFTER / 10 - SECOND)
        await desk.expire()
    assert await state(store) == "running"
    clock.forward(10 * SECOND)
    await desk.expire()
    assert await state(store) == "lost"


@pytest.mark.parametrize("by", STEPS, ids=str)
async def test_process_that_begins_after_a_step_loses_no_turn(store: Store, clock: FakeClock, by: timedelta) -> None:
    await at_work(store, clock)
    clock.forward(MOMENT)
    clock.step(by)

    await TurnDesk(process(store, clock)).expire()
    assert await state(store) == "running"


@pytest.mark.parametrize("by", [*STEPS, timedelta(0)], ids=str)
async def test_processes_that_live_shortly_lose_a_dead_turn_in_the_end(
    store: Store, clock: FakeClock, by: timedelta
) -> None:
    await at_work(store, clock)
    clock.forward(MOMENT)
    clock.step(by)
    for number in range(4):
        desk = TurnDesk(process(store, clock))
        await desk.register(a_launcher(clock, f"short-{number}"))
        await desk.expire()
        assert await state(store) == "running"
        clock.forward(LOST_AFTER / 4)

    await TurnDesk(process(store, clock)).expire()
    assert await state(store) == "lost"


async def test_process_on_another_boot_extends_leases_unless_a_server_lives(store: Store, clock: FakeClock) -> None:
    await at_work(store, clock)
    await note_beat(store, "server", clock.now())
    other = FakeClock(clock.forward(LOST_AFTER), boot="boot-2")
    await TurnDesk(process(store, other)).expire()
    assert await state(store) == "running"

    other.forward(LOST_AFTER)
    await note_beat(store, "server", other.now())
    await TurnDesk(process(store, other)).expire()
    assert await state(store) == "lost"


@pytest.mark.parametrize("by", FORWARD, ids=str)
async def test_step_right_before_a_process_registers_is_noticed(store: Store, clock: FakeClock, by: timedelta) -> None:
    await at_work(store, clock)
    clock.step(by)
    await TurnDesk(process(store, clock)).register(a_launcher(clock, "launcher-2"))
    await TurnDesk(process(store, clock)).expire()
    assert await state(store) == "running"


@pytest.mark.parametrize("by", FORWARD, ids=str)
async def test_server_that_lives_through_a_step_loses_no_turn(store: Store, clock: FakeClock, by: timedelta) -> None:
    await at_work(store, clock)
    server = process(store, clock)
    await arrive(server, "server")
    await TurnDesk(server).expire()
    clock.step(by)
    await TurnDesk(server).expire()
    assert await state(store) == "running"


async def test_turn_of_a_launcher_in_this_process_is_never_lost(store: Store, clock: FakeClock) -> None:
    deps = process(store, clock)
    desk, launcher = TurnDesk(deps), a_launcher(clock)
    await desk.register(launcher)
    await launch(store, "s-1", "run-1", at=clock.now())
    claimed = await desk.claim("launcher-1", (OWNER,), {AGENT: Retry.RESUME})
    assert claimed is not None
    await desk.started(OWNER, claimed.turn)
    clock.forward(2 * LOST_AFTER)
    await TurnDesk(deps).expire()
    assert await state(store) == "running"

    await desk.register(replace(launcher, draining=True))  # it has left
    await TurnDesk(deps).expire()
    assert await state(store) == "lost"
