"""Steps of the clock are no death: every judge of leases extends them first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from moorage import config
from moorage.core.status import Reason
from moorage.core.turn import LOST_AFTER, Launcher, Retry
from moorage.ports import Claimed, Store
from moorage.service import deps as service
from moorage.service.deps import Caller, Deps
from moorage.service.leases import arrive, extend_leases, note_beat
from moorage.service.sessions import get_session
from moorage.service.turns import TurnDispatcher
from moorage.testing.builders import OWNER, FakeClock
from moorage.testing.work import AGENT, launch, renew, start, states_of, taken

MOMENT, SECOND = timedelta(milliseconds=200), timedelta(seconds=1)
STEPS = [timedelta(minutes=20), timedelta(hours=2), timedelta(minutes=-20), timedelta(hours=-2)]
FORWARD = STEPS[:2]
SETTLING = timedelta(seconds=service.SETTLING)


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
    """Return the dependencies of a new process."""
    return Deps(store, clock, config.entropy)


def a_launcher(clock: FakeClock, name: str = "launcher-1") -> Launcher:
    return Launcher(launcher_id=name, name=name, registered_at=clock.now(), seen_at=clock.now())


async def at_work(store: Store, clock: FakeClock) -> Claimed:
    """A started turn of another process, which has renewed its lease just now."""
    await TurnDispatcher(process(store, clock)).register(a_launcher(clock))
    await launch(store, "s-1", "run-1", at=clock.now())
    claimed = await taken(store, at=clock.now())
    await start(store, claimed, clock.now())
    return claimed


async def state(store: Store) -> str:
    return (await states_of(store, "s-1"))[0]


@pytest.mark.parametrize("by", STEPS, ids=str)
async def test_step_loses_no_turn_and_silence_after_it_does(store: Store, clock: FakeClock, by: timedelta) -> None:
    await at_work(store, clock)
    dispatcher = TurnDispatcher(process(store, clock))
    await dispatcher.expire()
    clock.forward(MOMENT)
    clock.step(by)

    await dispatcher.expire()
    assert await state(store) == "running"
    for _ in range(10):
        clock.forward(LOST_AFTER / 10 - SECOND)
        await dispatcher.expire()
    assert await state(store) == "running"
    clock.forward(10 * SECOND)
    await dispatcher.expire()
    assert await state(store) == "lost"


@pytest.mark.parametrize("by", STEPS, ids=str)
async def test_process_that_begins_after_a_step_loses_no_turn(store: Store, clock: FakeClock, by: timedelta) -> None:
    await at_work(store, clock)
    clock.forward(MOMENT)
    clock.step(by)

    await TurnDispatcher(process(store, clock)).expire()
    assert await state(store) == "running"


@pytest.mark.parametrize("by", [*STEPS, timedelta(0)], ids=str)
async def test_processes_that_live_shortly_lose_a_dead_turn_in_the_end(
    store: Store, clock: FakeClock, by: timedelta
) -> None:
    await at_work(store, clock)
    clock.forward(MOMENT)
    clock.step(by)
    for number in range(4):
        dispatcher = TurnDispatcher(process(store, clock))
        await dispatcher.register(a_launcher(clock, f"short-{number}"))
        await dispatcher.expire()
        assert await state(store) == "running"
        clock.forward(LOST_AFTER / 4)

    await TurnDispatcher(process(store, clock)).expire()
    assert await state(store) == "lost"


async def test_process_on_another_boot_extends_leases_unless_a_server_lives(store: Store, clock: FakeClock) -> None:
    await at_work(store, clock)
    await note_beat(store, "server", clock.now())
    other = FakeClock(clock.forward(LOST_AFTER), boot="boot-2")
    await TurnDispatcher(process(store, other)).expire()
    assert await state(store) == "running"

    other.forward(LOST_AFTER)
    await note_beat(store, "server", other.now())
    await TurnDispatcher(process(store, other)).expire()
    assert await state(store) == "lost"


@pytest.mark.parametrize("by", FORWARD, ids=str)
async def test_step_right_before_a_process_registers_is_noticed(store: Store, clock: FakeClock, by: timedelta) -> None:
    await at_work(store, clock)
    clock.step(by)
    await TurnDispatcher(process(store, clock)).register(a_launcher(clock, "launcher-2"))
    await TurnDispatcher(process(store, clock)).expire()
    assert await state(store) == "running"


@pytest.mark.parametrize("by", FORWARD, ids=str)
async def test_server_that_lives_through_a_step_loses_no_turn(store: Store, clock: FakeClock, by: timedelta) -> None:
    await at_work(store, clock)
    server = process(store, clock)
    await arrive(server, "server")
    await TurnDispatcher(server).expire()
    clock.step(by)
    await TurnDispatcher(server).expire()
    assert await state(store) == "running"


async def test_turn_of_a_launcher_in_this_process_is_never_lost(store: Store, clock: FakeClock) -> None:
    deps = process(store, clock)
    dispatcher, launcher = TurnDispatcher(deps), a_launcher(clock)
    await dispatcher.register(launcher)
    await launch(store, "s-1", "run-1", at=clock.now())
    claimed = await dispatcher.claim(replace(launcher, owners=(OWNER,)), {AGENT: Retry.RESUME})
    assert claimed is not None
    await dispatcher.started(OWNER, claimed.turn)
    clock.forward(2 * LOST_AFTER)
    await TurnDispatcher(deps).expire()
    assert await state(store) == "running"

    await dispatcher.register(replace(launcher, draining=True))  # it has left
    await TurnDispatcher(deps).expire()
    assert await state(store) == "lost"


@pytest.mark.parametrize("by", STEPS, ids=str)
async def test_launcher_in_this_process_is_there_after_a_step(store: Store, clock: FakeClock, by: timedelta) -> None:
    deps = process(store, clock)
    await TurnDispatcher(deps).register(a_launcher(clock))
    await launch(store, "s-1", "run-1", at=clock.now())
    clock.step(by)
    queued = await get_session(deps, Caller(owner=OWNER), "s-1")
    assert queued.because is not None
    assert queued.because.reason is Reason.LAUNCHER_BUSY


async def test_lease_that_is_written_late_by_the_time_before_a_step_costs_no_turn(
    store: Store, clock: FakeClock
) -> None:
    """A launcher's process has read the clock, waits for the store, and writes after the leases were extended."""
    claimed = await at_work(store, clock)
    dispatcher = TurnDispatcher(process(store, clock))
    await dispatcher.expire()
    before = clock.now()
    clock.step(FORWARD[1])
    await dispatcher.expire()

    await renew(store, claimed, before)
    await dispatcher.expire()
    assert await state(store) == "running"

    clock.forward(SETTLING / 2)
    await renew(store, claimed, clock.now())  # as launchers do every few seconds
    clock.forward(SETTLING)
    await dispatcher.expire()
    assert await state(store) == "running"


@pytest.mark.parametrize("looks", [True, False], ids=["others look", "nobody else looks"])
async def test_judge_who_read_the_clock_before_it_was_set_back_loses_no_turn(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, looks: bool
) -> None:
    claimed = await at_work(store, clock)
    deps = process(store, clock)
    await TurnDispatcher(deps).expire()
    clock.step(FORWARD[1])
    await TurnDispatcher(deps).expire()
    clock.forward(SETTLING)
    find = store.overdue

    async def late(*args: Any) -> Any:
        """Look for what is due, after the clock was set back and the launcher has renewed."""
        monkeypatch.undo()
        clock.step(-FORWARD[1])
        if looks:
            await TurnDispatcher(deps).expire()
        await renew(store, claimed, clock.now())
        return await find(*args)

    monkeypatch.setattr(store, "overdue", late)
    assert await TurnDispatcher(deps).expire() == 1
    assert await state(store) == "running"


@pytest.mark.parametrize("writer", ["extends", "renews"])
async def test_lease_is_of_the_time_of_its_commit(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, writer: str
) -> None:
    """A process is stopped right before it commits a lease, and the clock steps meanwhile."""
    claimed = await at_work(store, clock)
    deps = process(store, clock)
    dispatcher = TurnDispatcher(deps)
    await dispatcher.expire()
    apply = store.apply

    async def late(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        clock.step(FORWARD[1])
        return await apply(*args, **options)

    monkeypatch.setattr(store, "apply", late)
    if writer == "extends":
        await extend_leases(store, deps.watch.look)
    else:
        await dispatcher.renew(OWNER, claimed.turn)
    turn = await store.find_turn(OWNER, claimed.turn.turn_id)
    assert turn.lease_until is not None
    assert turn.lease_until > clock.now()


@pytest.mark.parametrize("noticed", [True, False], ids=["another task looked", "nobody looked"])
async def test_clock_that_steps_before_the_judgement_costs_no_turn(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, noticed: bool
) -> None:
    """A turn is due, its launcher renews, and the process is stopped during a step, before it judges the turn."""
    claimed = await at_work(store, clock)
    deps = process(store, clock)
    dispatcher = TurnDispatcher(deps)
    await dispatcher.expire()
    clock.forward(LOST_AFTER + SECOND)
    apply = store.apply

    async def late(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        await renew(store, claimed, clock.now())
        clock.step(FORWARD[1])
        if noticed:
            deps.watch.look()
            clock.forward(SETTLING)
        return await apply(*args, **options)

    monkeypatch.setattr(store, "apply", late)
    assert await dispatcher.expire() == 1
    assert await state(store) == "running"


async def test_step_and_back_between_two_judgements_costs_no_turn(store: Store, clock: FakeClock) -> None:
    deps = process(store, clock)
    claimed = await at_work(store, clock)
    dispatcher = TurnDispatcher(deps)
    await dispatcher.expire()
    clock.step(-FORWARD[1])
    await dispatcher.renew(OWNER, claimed.turn)
    clock.step(FORWARD[1])

    await dispatcher.expire()
    assert await state(store) == "running"


async def test_clock_is_judged_by_its_own_time_whatever_the_time_of_an_event(store: Store, clock: FakeClock) -> None:
    """A hook stores an event of two hours ago in a session whose launcher fell silent before that."""
    await at_work(store, clock)
    clock.forward(timedelta(hours=3))
    await launch(store, "s-2", "run-2", at=clock.now())
    await start(store, await taken(store, at=clock.now()), clock.now())
    deps = process(store, clock)
    late = Deps(store, FakeClock(clock.now() - timedelta(hours=2)), config.entropy, beside=deps)

    await get_session(late, Caller(owner=OWNER), "s-1")

    assert await state(store) == "lost"
    await TurnDispatcher(deps).expire()
    assert await states_of(store, "s-2") == ["running"]
