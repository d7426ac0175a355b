"""Launchers that fall silent, come back late, or never: every turn ends as the rules say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from moorage.agents.interface import Commands, Emit, Job
from moorage.core.errors import SessionRunning, TurnLost
from moorage.core.turn import Retry, TurnState
from moorage.core.work import TurnEnd
from moorage.ports import Claimed
from moorage.service.sessions import finalize_session, suspend_session
from moorage.service.turns import TurnDispatcher
from moorage.testing.work import a_launcher
from tests.launcher.stage import Stage, echo, on

SHORT = timedelta(milliseconds=1)


@pytest.fixture(params=["memory", "sqlite"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'moorage.db'}"
    async with on(url, tmp_path) as made:
        made.plays("echo", echo)
        yield made


async def claimed(
    stage: Stage, dispatcher: TurnDispatcher, launcher: str = "one", retry: Retry = Retry.RESUME
) -> Claimed:
    await dispatcher.expire()
    got = await dispatcher.claim(a_launcher(launcher, "local"), dict.fromkeys(stage.definitions, retry))
    assert got is not None
    return got


async def test_a_turn_not_started_in_time_is_given_out_again_as_it_was(stage: Stage) -> None:
    dispatcher = TurnDispatcher(stage.deps, lease=SHORT, lost_after=timedelta(minutes=5))
    await stage.ask("echo", "hello")
    first = await claimed(stage, dispatcher)
    await asyncio.sleep(0.01)
    second = await claimed(stage, dispatcher, "two")
    assert second.turn.turn_id == first.turn.turn_id
    assert second.turn.epoch > first.turn.epoch
    assert [item.given for item in second.items] == [0]
    with pytest.raises(TurnLost):
        await dispatcher.started("local", first.turn)


async def test_a_silent_turn_is_lost_and_another_is_told_that_it_was_cut_off(stage: Stage) -> None:
    dispatcher = TurnDispatcher(stage.deps, lease=SHORT, lost_after=SHORT)
    asked = await stage.ask("echo", "hello")
    first = await claimed(stage, dispatcher)
    await dispatcher.started("local", first.turn)
    await asyncio.sleep(0.01)
    second = await claimed(stage, dispatcher, "two")
    assert (second.turn.cut_off, second.turn.attempt) == (True, 2)
    assert second.turn.turn_id != first.turn.turn_id
    for late in (
        dispatcher.renew("local", first.turn),
        dispatcher.say("local", first.turn, [{"role": "assistant", "content": "late"}]),
        dispatcher.finish("local", first.turn, TurnEnd(result="late")),
    ):
        with pytest.raises(TurnLost):
            await late
    await dispatcher.finish("local", second.turn, TurnEnd(result="in time"))
    assert (await stage.settled(asked.run)).result == "in time"


@pytest.mark.parametrize(("retry", "turns"), [(Retry.NEVER, 1), (Retry.RESUME, 3)])
async def test_work_that_gets_lost_too_often_fails(stage: Stage, retry: Retry, turns: int) -> None:
    dispatcher = TurnDispatcher(stage.deps, lease=SHORT, lost_after=SHORT)
    asked = await stage.ask("echo", "hello")
    for _ in range(turns):
        given = await claimed(stage, dispatcher, retry=retry)
        await dispatcher.started("local", given.turn)
        await asyncio.sleep(0.01)
        await dispatcher.expire()
    run = await stage.settled(asked.run)
    assert (run.state.value, run.reason) == ("failed", "launcher_lost")


async def test_late_renewal_succeeds_before_reassignment(stage: Stage) -> None:
    dispatcher = TurnDispatcher(stage.deps, lease=SHORT, lost_after=timedelta(minutes=5))
    asked = await stage.ask("echo", "hello")
    turn = (await claimed(stage, dispatcher)).turn
    await dispatcher.started("local", turn)
    await asyncio.sleep(0.01)
    assert (await dispatcher.renew("local", turn)).state is TurnState.RUNNING
    await dispatcher.finish("local", turn, TurnEnd(result="done"))
    assert (await stage.settled(asked.run)).result == "done"


async def test_the_same_end_reported_twice_is_recognised(stage: Stage) -> None:
    dispatcher = TurnDispatcher(stage.deps)
    asked = await stage.ask("echo", "hello")
    turn = (await claimed(stage, dispatcher)).turn
    await dispatcher.started("local", turn)
    for _ in range(2):
        await dispatcher.finish("local", turn, TurnEnd(result="done"))
    with pytest.raises(TurnLost):
        await dispatcher.finish("local", turn, TurnEnd(outcome=TurnState.FAILED))
    assert len(await stage.log(asked.session.session_id, "run_settled")) == 1


async def test_an_adopted_turn_refuses_its_former_life(stage: Stage) -> None:
    dispatcher = TurnDispatcher(stage.deps)
    asked = await stage.ask("echo", "hello")
    turn = (await claimed(stage, dispatcher)).turn
    await dispatcher.started("local", turn)
    mine = await dispatcher.adopt("local", turn, "reborn")
    assert (mine.turn_id, mine.launcher_id) == (turn.turn_id, "reborn")
    with pytest.raises(TurnLost):
        await dispatcher.finish("local", turn, TurnEnd(result="old"))
    await dispatcher.finish("local", mine, TurnEnd(result="new"))
    assert (await stage.settled(asked.run)).result == "new"


async def test_running_session_is_suspended_or_closed_only_by_its_holder(stage: Stage) -> None:
    started, release = asyncio.Event(), asyncio.Event()

    async def slow(_: Stage, __: Job, ___: Emit, ____: Commands) -> str:
        started.set()
        await release.wait()
        return "done"

    stage.plays("slow", slow)
    async with stage.launcher():
        asked = await stage.ask("slow")
        await started.wait()
        session_id = asked.session.session_id
        assert (await stage.session(session_id)).status == "running"
        for attempt in (
            suspend_session(stage.deps, stage.caller, session_id),
            finalize_session(stage.deps, stage.caller, session_id, "completed"),
        ):
            with pytest.raises(SessionRunning):
                await attempt
        release.set()
        await stage.settled(asked.run)
        await suspend_session(stage.deps, stage.caller, session_id)


async def test_a_turn_whose_words_cannot_be_kept_fails_and_is_not_held_for_ever(stage: Stage) -> None:
    async def mad(*_: object) -> str:
        return "half a character: \ud800"

    stage.plays("mad", mad)
    async with stage.launcher():
        run = await stage.settled((await stage.ask("mad")).run)
        assert (run.state.value, run.reason) == ("failed", "not_kept")
        assert (await stage.settled((await stage.ask("echo", "next")).run)).result == "echo: next"
    assert (await stage.session(run.session_id)).live_turn is None


async def test_two_launchers_share_the_work_and_do_nothing_twice(stage: Stage) -> None:
    async with stage.launcher() as one, stage.launcher() as two:
        assert one.launcher_id != two.launcher_id
        asked = [await stage.ask("echo", str(number)) for number in range(60)]
        results = [(await stage.settled(each.run)).result for each in asked]
    assert results == [f"echo: {number}" for number in range(60)]
    assert len(stage.jobs) == 60
