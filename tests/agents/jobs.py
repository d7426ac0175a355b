"""Jobs for agents inside the launcher, and what they say."""

from __future__ import annotations

import asyncio
from typing import Any

from moorage.agents.builtin import DEFINITIONS
from moorage.agents.inside import run_inside
from moorage.agents.interface import AgentCommand, AgentEvent, Job, Limits, Secret
from moorage.core.agent import definition_of


def job_of(table: dict[str, Any] | str, **facts: Any) -> Job:
    """A job for an agent: one that comes along, by name, or one that a table describes."""
    agent = DEFINITIONS[table] if isinstance(table, str) else definition_of({"name": "tested", **table})
    facts = {"limits": Limits.of(agent), "prompt": "hello", **facts}
    return Job(agent=agent, session_id="session-1", turn_id="session-1:t1", epoch=1, **facts)


class Doing:
    """A job that is being done."""

    def __init__(self, job: Job, secret: Secret | None = None) -> None:
        self.events: list[AgentEvent] = []
        self.commands: asyncio.Queue[AgentCommand] = asyncio.Queue()
        self._news = asyncio.Event()
        self.task = asyncio.ensure_future(run_inside(job, self._hear, self.commands, secret))

    async def _hear(self, event: AgentEvent) -> None:
        self.events.append(event)
        self._news.set()

    async def until(self, kind: str) -> AgentEvent:
        """The first event of a kind, as soon as it is there."""
        async with asyncio.timeout(20):
            while not (found := [event for event in self.events if event["type"] == kind]):
                self._news.clear()
                await self._news.wait()
            return found[0]

    async def result(self) -> AgentEvent:
        """How it ended: with one result, the last event of all."""
        async with asyncio.timeout(20):
            await self.task
        results = [event for event in self.events if event["type"] == "result"]
        assert results == self.events[-1:]
        return results[0]

    def text(self) -> str:
        """Return the partial output."""
        return "".join(event["text"] for event in self.events if event["type"] == "chunk")


async def result_of(job: Job, secret: Secret | None = None) -> AgentEvent:
    """Do a job to its end."""
    return await Doing(job, secret).result()
