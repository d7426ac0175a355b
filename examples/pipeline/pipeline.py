"""Pipelines whose steps are agents, and which survive: the process, the person who takes a night to answer, kill -9.

A pipeline is a session, and every agent step a session below it. The steps store
their results in the pipeline's context, so a second run continues from there. A step asks its agent with an idempotency
key: asked twice, the same run answers, and nothing is done twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from moorage import Conflict, Moorage
from moorage.executor import AgentExecutor, PipelineContext


class PipelineSuspended(Exception):
    """A step waits for a person: answer what its agent asks in `session_id`, then run the pipeline again."""

    def __init__(self, step: str, session_id: str, approvals: Sequence[dict[str, Any]]) -> None:
        self.step, self.session_id, self.approvals = step, session_id, list(approvals)
        super().__init__(f"step {step} waits for a person in session {session_id}")


class StepFailed(Exception):
    """An agent did not come to an answer; run the pipeline again to try once more."""


class Step(Protocol):
    """One step: it has a name, and gives something to be collected under it."""

    @property
    def name(self) -> str: ...

    async def run(self, context: PipelineContext) -> Any: ...


@dataclass(frozen=True)
class CodeStep:
    """A step that is a function of what was collected. It may run again after a crash."""

    name: str
    work: Callable[[dict[str, Any]], Awaitable[Any]]

    async def run(self, context: PipelineContext) -> Any:
        return await self.work(context.values)


@dataclass(frozen=True)
class AgentStep:
    """A step that asks an agent. `prompt` is filled in from what was collected."""

    name: str
    agent: str
    prompt: str

    async def run(self, context: PipelineContext) -> Any:
        """The agent's answer. Raises PipelineSuspended while it waits for a person, and StepFailed."""
        context.agent_session_id = f"{context.pipeline_id}.{self.name}"
        failures = context.values.get(f"{self.name}.failures", 0)
        turn = await context.executor.execute_single_turn(
            self.agent,
            self.prompt.format(**context.values),
            session_id=context.agent_session_id,
            client_key=f"attempt-{failures + 1}",  # asked again after a crash, the same run answers
            parent=context.pipeline_id,
            purpose=f"step {self.name}",
        )
        if turn.status == "completed":
            return turn.text.strip()
        if turn.status in ("waiting_for_input", "suspended"):
            raise PipelineSuspended(self.name, turn.session_id, turn.approvals)
        await context.collect(f"{self.name}.failures", failures + 1)
        raise StepFailed(f"step {self.name}: {turn.error or turn.status}")


@dataclass(frozen=True)
class Pipeline:
    """Steps, one after another."""

    name: str
    steps: Sequence[Step]

    async def run(self, moor: Moorage, pipeline_id: str) -> dict[str, Any]:
        """Go on from where it is, to the end or to the next question; what was collected.

        The id is the pipeline's: a new one begins it, the same one goes on with it.
        """
        context = await self._opened(moor, pipeline_id)
        for step in self.steps:
            if step.name in context.values:
                continue
            await moor.update(pipeline_id, phase="executing", metadata={"step": step.name})
            try:
                await context.collect(step.name, await step.run(context))
            except PipelineSuspended as waits:
                await moor.suspend(pipeline_id, checkpoint=_place(step, waits), reason=str(waits))
                raise
        await moor.finalize(pipeline_id, "completed", summary=f"{len(self.steps)} steps")
        return context.values

    async def _opened(self, moor: Moorage, pipeline_id: str) -> PipelineContext:
        executor = AgentExecutor(moor)
        try:
            await executor.session(None, pipeline_id, purpose=f"pipeline {self.name}", parent=None)
        except Conflict as refusal:
            if refusal.code != "session_closed":  # what is over can still be looked at
                raise
        return PipelineContext(pipeline_id, executor, await moor.context.get(pipeline_id))


def _place(step: Step, waits: PipelineSuspended) -> dict[str, Any]:
    return {"step": step.name, "agent_session_id": waits.session_id, "approvals": waits.approvals}
