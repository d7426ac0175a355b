"""A question of an agent that is told to stop: it is withdrawn at once, so that no answer moves the agent again."""

from __future__ import annotations

import asyncio

import pytest

from moorage.agents.interface import Commands, Emit, Job
from moorage.core.errors import ApprovalClosed
from moorage.service import runs
from moorage.service.approvals import decide_approval, list_approvals
from tests.launcher.stage import PATIENCE, Stage


async def test_stop_withdraws_the_question_of_an_agent_that_does_not_end(stage: Stage) -> None:
    asks, may_end = asyncio.Event(), asyncio.Event()

    async def deaf(stage: Stage, job: Job, emit: Emit, commands: Commands) -> str:
        await emit({"type": "approval", "id": "1", "question": "May I?", "wait": True})
        asks.set()
        await may_end.wait()  # it heeds no stop
        return "done"

    stage.plays("deaf", deaf)
    async with stage.launcher():
        asked = await stage.ask("deaf")
        await asyncio.wait_for(asks.wait(), PATIENCE)

        async def is_pending() -> bool:
            return bool(await list_approvals(stage.deps, stage.caller))

        await stage.until(is_pending)
        [approval] = await list_approvals(stage.deps, stage.caller)
        await runs.stop_run(stage.deps, stage.caller, asked.run.run_id)
        with pytest.raises(ApprovalClosed):
            await decide_approval(stage.deps, stage.caller, approval.approval_id, "approve")
        assert (await stage.session(asked.session_id)).pending_approvals == 0
        may_end.set()
        assert (await stage.settled(asked.run)).state.value == "stopped"
