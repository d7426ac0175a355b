"""Tasks for agents with processes of their own: a run that a launcher takes, in the session or in none.

In a session of the agent's own, the run is put to that session. In another agent's session it is put to a child of it,
always the same one: an agent's process works for one session of its own. Without a session, a launcher of this
process does it on a store that is thrown away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from moorage import config
from moorage.client import Moorage
from moorage.core.agent import AgentDefinition
from moorage.core.codec import encode_text
from moorage.core.errors import IdTaken, MoorageError, SessionNotFound
from moorage.core.run import Run, RunState
from moorage.core.session import Session
from moorage.core.status import Because
from moorage.service import memory as memories
from moorage.service import runs
from moorage.service.deps import Deps
from moorage.service.memory import Memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from moorage.tasks.desk import Answer, Task

Hear = Callable[[str], None]
TellWhy = Callable[[Because], Awaitable[None]]


async def answered(
    moor: Moorage,
    agent: AgentDefinition,
    task: Task,
    memory: Memory,
    hear: Hear | None = None,
    *,
    tell_why: TellWhy | None = None,
) -> Answer:
    """Have the agent do it, and say how it ended."""
    if memory.session is None:
        return await _in_no_session(moor, agent, task, hear)
    deps, caller = await moor._ready(), moor._caller
    own = memory.session.agent_name == agent.name
    session = memory.session if own else await _child(moor, memory.session, agent.name)
    if not own:
        await memories.keep(deps, caller, memory, [{"role": "user", "content": task.input}])
    asked = await runs.ask(deps, caller, session.session_id, prompt_of(task))
    if tell_why is not None and asked.run.because is not None:
        await tell_why(asked.run.because)
    run = await _waited_for(moor, deps, asked.run, hear)
    answer = _answer_of(run, agent)
    if not own and answer.success:
        await memories.keep(deps, caller, memory, [{"role": "assistant", "content": answer.output}])
    return answer


def prompt_of(task: Task) -> str:
    """What the agent is told: programs have no other way to hear of parameters."""
    return task.input if not task.parameters else f"{task.input}\n\nParameters: {encode_text(task.parameters)}"


async def _child(moor: Moorage, parent: Session, agent: str) -> Session:
    """The session of this agent below another's."""
    name = f"{parent.session_id[:60]}.{agent[:60]}"
    try:
        return await moor.get(name)
    except SessionNotFound:
        pass
    try:
        return await moor.create(agent, session_id=name, parent=parent.session_id)
    except IdTaken:  # somebody was faster
        return await moor.get(name)


async def _waited_for(moor: Moorage, deps: Deps, run: Run, hear: Hear | None) -> Run:
    """The run once it has settled. Whoever stops waiting stops it."""
    hearing = None if hear is None else asyncio.create_task(_heard(moor, run, hear))
    try:
        return await runs.wait_for_run(deps, moor._caller, run.run_id)
    except asyncio.CancelledError:
        await asyncio.shield(_stopped(deps, moor, run.run_id))
        raise
    finally:
        if hearing is not None:
            hearing.cancel()
            await asyncio.wait([hearing])


async def _stopped(deps: Deps, moor: Moorage, run_id: str) -> None:
    try:
        await runs.stop_run(deps, moor._caller, run_id)
    except MoorageError:
        return  # it is over, or gone


async def _heard(moor: Moorage, run: Run, hear: Hear) -> None:
    """Tell what the agent says, as far as the log has it."""
    async for event in moor.events(run.session_id, after=run.asked_entry or 0):
        if event.type == "message" and event.data["role"] == "assistant":
            content = event.data["content"]
            hear(content if isinstance(content, str) else encode_text(content))


async def _in_no_session(moor: Moorage, agent: AgentDefinition, task: Task, hear: Hear | None) -> Answer:
    """By a launcher of this process, on a store of its own that nobody ever sees."""

    def listen(_: str, event: dict[str, Any]) -> None:
        if hear is not None and event["type"] == "chunk":
            hear(event["text"])

    private = Moorage(lambda: config.open_deps("memory://", threaded=True), moor._caller, url="memory://")
    async with private:
        reply = await private.run(agent.name, prompt_of(task), mode="async_poll", parent=None)
        try:
            with private._heard_by(listen):
                run = await runs.wait_for_run(await private._ready(), moor._caller, reply.run.run_id)
        except asyncio.CancelledError:
            await asyncio.shield(private.stop_run(reply.run.run_id))
            raise
        return _answer_of(run, agent)


def _answer_of(run: Run, agent: AgentDefinition) -> Answer:
    from moorage.tasks.desk import Answer

    metadata = {"agent_id": agent.name, "run_id": run.run_id}
    if run.state is RunState.COMPLETED:
        return Answer(output=run.result or "", metadata=metadata)
    waits = "" if run.because is None else f" ({run.because.reason.value})"
    error = run.error or f"the run is {run.state.value}{waits}"
    return Answer(output=run.result or "", success=False, error=error, reason=run.reason or "", metadata=metadata)
