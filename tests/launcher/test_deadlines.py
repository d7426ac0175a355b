"""Questions that run out of time while no caller looks: their agents are told by the launcher."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from moorage.agents.interface import Commands, Emit, Job
from moorage.config import entropy, open_store
from moorage.core.turn import Launcher
from moorage.service.deps import Deps
from moorage.service.turns import OWNERS_AT_ONCE, TurnDispatcher
from moorage.testing.builders import NOON, FakeClock
from tests.launcher.stage import PATIENCE, Stage


async def test_agent_that_waits_is_told_that_its_question_has_expired(stage: Stage) -> None:
    told: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def asking(stage: Stage, job: Job, emit: Emit, commands: Commands) -> str:
        await emit({"type": "approval", "id": "1", "question": "May I?", "expires_in": 0.5, "wait": True})
        told.set_result(await commands.get())
        return "fine"

    stage.plays("asking", asking)
    async with stage.launcher():
        asked = await stage.ask("asking")
        answer = await asyncio.wait_for(told, PATIENCE)  # meanwhile no caller reads the session
        assert (answer["type"], answer["decision"]) == ("decision", "expired")
        assert (await stage.settled(asked.run)).result == "fine"


async def test_session_whose_question_has_expired_gets_its_next_turn(stage: Stage) -> None:
    again = asyncio.Event()

    async def asking(stage: Stage, job: Job, emit: Emit, commands: Commands) -> str:
        if len(stage.jobs) == 1:
            await emit({"type": "approval", "id": "1", "question": "May I?", "expires_in": 0.5})
            return "asked"
        again.set()
        return "fine"

    stage.plays("asking", asking)
    async with stage.launcher():
        asked = await stage.ask("asking")
        await asyncio.wait_for(again.wait(), PATIENCE)  # meanwhile no caller reads the session
        assert '"state":"expired"' in stage.jobs[1].prompt
        assert (await stage.settled(asked.run)).result == "fine"


async def test_questions_of_many_owners_are_checked_some_at_a_time() -> None:
    clock, store = FakeClock(), open_store("memory://", threaded=False)
    dispatcher = TurnDispatcher(Deps(store, clock, entropy))
    owners = tuple(f"owner-{number:03}" for number in range(2 * OWNERS_AT_ONCE + 1))
    launcher = Launcher(launcher_id="one", name="test", registered_at=NOON, seen_at=NOON, slots=1, owners=owners)
    seen, approvals = list[str](), store.approvals

    async def looked_at(owner: str, *query: Any) -> Any:
        seen.append(owner)
        return await approvals(owner, *query)

    store.approvals = looked_at  # type: ignore[assignment, method-assign]
    for _ in range(3):
        await dispatcher.claim(launcher, {})
        await dispatcher.claim(launcher, {})  # a claim a moment later checks nothing
        clock.forward(timedelta(seconds=1))
    assert seen == list(owners)
