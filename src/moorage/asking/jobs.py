"""Tasks as jobs for agents that answer in this process, and the ends of such jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from moorage import config
from moorage.agents.inside import run_inside
from moorage.agents.interface import AgentEvent, Job, Limits
from moorage.core.agent import AgentDefinition
from moorage.core.render import like
from moorage.core.run import Run, Usage, summed, usage_of
from moorage.core.session import Session
from moorage.core.status import Because
from moorage.core.work import TurnEnd
from moorage.launcher.attending import turn_end
from moorage.service.deps import Caller, Deps
from moorage.service.sessions import context_for_agent

HearText = Callable[[str], None]
TellWhy = Callable[[Because], Awaitable[None]]


class SessionMemory(Struct, frozen=True, kw_only=True):
    """The facts of a session that its agent gets."""

    history: list[dict[str, Any]] = field(default_factory=list)  # role and content of earlier messages
    context: dict[str, Any] = field(default_factory=dict)
    turns: int = 0  # number of earlier turns


class Task(Struct, frozen=True, kw_only=True):
    """A prompt for an agent, with its options."""

    agent: str
    input: str
    task_id: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    tools: list[str] = field(default_factory=list)
    session: str | None = None  # an id or a name; an unknown one is created
    parent: str | None = None  # the calling session, which becomes the parent of a new one
    memory: SessionMemory | None = None  # the conversation, if the caller keeps the session
    timeout: float | None = None  # seconds until the caller stops waiting


async def memory_of(deps: Deps, caller: Caller, session: Session | None, run: Run | None = None) -> SessionMemory:
    """Return the history and context of a session before the newest run; empty for a session not yet created."""
    if session is None:
        return SessionMemory()
    said = [each for each in session.messages or [] if run is None or each.number != run.asked_entry]
    return SessionMemory(
        history=[{"role": each.role, "content": each.content} for each in said],
        context=await context_for_agent(deps, caller, session),
        turns=session.turns - (run is not None),
    )


def job_of(deps: Deps, task: Task, agent: AgentDefinition, memory: SessionMemory, *, streams: bool) -> Job:
    """Return a task as a job for an agent in this process."""
    limits = Limits.of(agent)
    known = [each for each in (limits.timeout, task.timeout) if each is not None]
    return like(
        Job,
        memory,
        agent=agent,
        session_id=task.session or "",
        task_id=task.task_id or None,
        turn_id=deps.new_id(),
        epoch=0,
        prompt=task.input,
        parameters=task.parameters,
        tools=task.tools,
        streams=streams,
        system_prompt=agent.system_prompt,
        limits=replace(limits, timeout=min(known) if known else None),
    )


async def performed(job: Job, hear: HearText | None) -> TurnEnd:
    """Run a job for a waiting caller and return its end; `hear` gets the agent's output meanwhile."""
    context: dict[str, Any] = {}
    usage: Usage = {}
    endings: list[AgentEvent] = []

    async def emit(event: AgentEvent) -> None:
        nonlocal usage
        if event["type"] == "chunk" and hear is not None:
            hear(event["text"])
        elif event["type"] == "context":
            context.update(event["values"])
        elif event["type"] == "usage":
            usage = summed(usage, usage_of(event))
        elif event["type"] == "result":
            endings.append(event)

    await run_inside(job, emit, asyncio.Queue(), config.environment)
    return turn_end(endings[0], [], usage, context)
