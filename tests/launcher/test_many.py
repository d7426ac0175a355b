"""Many at once: a thousand children of one parent, a thousand sessions at work in one launcher."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from moorage.agents.interface import Commands, Emit, Job
from moorage.core.family import FamilyLimits
from moorage.ports import Claimed
from moorage.service.deps import Settings
from moorage.service.turns import TurnDispatcher
from tests.launcher.stage import Stage, echo, on
from tests.launcher.test_families import callbacks

MANY = 1000


@pytest.mark.timeout(180)
async def test_a_thousand_children_that_finish_together_are_all_heard_once(tmp_path: Path) -> None:
    async with on(f"sqlite:///{tmp_path / 'moorage.db'}", tmp_path) as stage:
        stage.deps.settings = Settings(family=FamilyLimits(open_children=2 * MANY))
        authorizer = asyncio.Event()

        async def child(_: Stage, job: Job, __: Emit, ___: Commands) -> str:
            await authorizer.wait()
            return job.prompt

        async def parent(stage: Stage, job: Job, _: Emit, __: Commands) -> str:
            if callbacks(job.prompt):
                return "heard"
            asked = [stage.child_of(job, "child", str(number)) for number in range(MANY)]
            await asyncio.gather(*asked)
            authorizer.set()
            return "waiting"

        stage.plays("child", child)
        stage.plays("parent", parent)
        async with stage.launcher(slots=MANY + 1):
            asked = await stage.ask("parent")
            await stage.until(lambda: _settled(stage, asked.run.run_id))
            await stage.quiet()
        told = [str(each["result"]) for prompt in stage.prompts("parent") for each in callbacks(prompt)]
        assert sorted(map(int, told)) == list(range(MANY))
        assert len(stage.prompts("parent")) < MANY / 2  # they come together, not one by one
        assert await stage.deps.store.check() == []


async def _settled(stage: Stage, run_id: str) -> bool:
    return (await stage.deps.store.run(stage.caller.owner, run_id)).is_settled


@pytest.mark.timeout(180)
async def test_a_thousand_sessions_are_at_work_at_once(tmp_path: Path) -> None:
    async with on(f"sqlite:///{tmp_path / 'moorage.db'}", tmp_path) as stage:
        together = asyncio.Barrier(MANY)

        async def agent(stage: Stage, job: Job, emit: Emit, commands: Commands) -> str:
            await together.wait()  # none ends before all have begun
            return await echo(stage, job, emit, commands)

        stage.plays("agent", agent)
        async with stage.launcher(slots=MANY):
            asked = await asyncio.gather(*[stage.ask("agent", str(number)) for number in range(MANY)])
            await stage.quiet()
            runs = [await stage.settled(each.run) for each in asked]
        assert [run.result for run in runs] == [f"echo: {number}" for number in range(MANY)]
        assert len(stage.jobs) == MANY
        assert {run.turns for run in runs} == {1}


async def test_a_single_turn_is_followed_by_few_claims_that_find_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way, most = 0, 0
    claim = TurnDispatcher.claim

    async def counted(self: TurnDispatcher, *args: Any, **options: Any) -> Claimed | None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            return await claim(self, *args, **options)
        finally:
            under_way -= 1

    monkeypatch.setattr(TurnDispatcher, "claim", counted)
    async with on(f"sqlite:///{tmp_path / 'moorage.db'}", tmp_path) as stage:
        stage.plays("agent", echo)
        async with stage.launcher(slots=16):
            asked = await stage.ask("agent")
            assert (await stage.settled(asked.run)).result == "echo: go"
            await stage.quiet()
    assert most == 2
