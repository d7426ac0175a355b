"""Agents that live inside the launcher."""

from __future__ import annotations

import os

from moorage.agents.inside import run_inside
from moorage.agents.interface import Commands, Emit, InProcess, Job
from moorage.core.agent import AgentDefinition


class _Inside:
    """Any of them: which one, the job says."""

    async def run(self, job: Job, emit: Emit, commands: Commands) -> None:
        """Do the job in this process."""
        await run_inside(job, emit, commands, os.environ.get)


def inside(agent: AgentDefinition) -> InProcess | None:
    """The agent, if it lives in the launcher; None if it needs a supervisor."""
    return None if agent.is_supervised else _Inside()
