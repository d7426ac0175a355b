"""Running an agent inside the launcher: its limits, its stop, and its single result.

Launchers call `run_inside`. Whatever the agent does, its events end with exactly one result.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

from moorage.agents.allowance import Allowance
from moorage.agents.interface import (
    AGENT_FAILED,
    NO_ANSWER,
    STOPPED,
    AgentCommand,
    AgentEvent,
    Commands,
    Emit,
    InProcess,
    Job,
    Secret,
    failed,
    stopped,
)
from moorage.core.agent import AgentKind
from moorage.core.errors import Unsupported

TICK = 0.05  # seconds between two checks of the limits


def agent_inside(kind: AgentKind, secret: Secret | None = None) -> InProcess:
    """Return the agent of a kind that runs in the launcher; load only that kind. `secret` reads variables."""
    if kind is AgentKind.BUILTIN:
        from moorage.agents.builtin import BuiltIn

        return BuiltIn()
    if kind is AgentKind.OPENAI:
        from moorage.agents.openai import OpenAi

        return OpenAi(secret)
    if kind is AgentKind.GRPC:
        from moorage.agents.grpc import Remote

        return Remote(secret)
    raise Unsupported(f"agents of kind {kind} cannot be run here yet", kind=kind.value)


async def run_inside(job: Job, emit: Emit, commands: Commands, secret: Secret | None = None) -> None:
    """Do a job in this process and event loop."""
    teller = _EventRelay(emit, job)
    try:
        agent = agent_inside(job.agent.kind, secret)
        if job.agent.kind is AgentKind.BUILTIN:
            await agent.run(job, teller.emit, commands)  # it ends before any command can arrive
        else:
            await _watched(job, agent, teller, commands)
    except Exception as error:
        await teller.conclude(failed(AGENT_FAILED, f"{type(error).__name__}: {error}"))
    await teller.conclude(failed(NO_ANSWER, "it ended without a result"))


class _EventRelay:
    """Passes events on, up to the first result; collects the output so far, and keeps the time limits."""

    def __init__(self, emit: Emit, job: Job) -> None:
        self._emit = emit
        self.is_over = False
        self._pieces: list[str] = []
        self._allowance = Allowance(job.limits.timeout, job.limits.idle_timeout, monotonic())

    async def emit(self, event: AgentEvent) -> None:
        if self.is_over:
            return
        self._allowance.heard(monotonic())
        if event["type"] == "chunk":
            self._pieces.append(event["text"])
        elif event["type"] == "message":
            self._pieces = []
        elif event["type"] == "approval" and event["wait"]:
            self._allowance.wait_for(event["id"], monotonic())
        self.is_over = event["type"] == "result"
        await self._emit(event)

    async def conclude(self, ending: AgentEvent) -> None:
        """End with this event, unless the agent has ended already."""
        await self.emit(ending | {"text": ending["text"] or "".join(self._pieces)})

    def heard(self, command: AgentCommand) -> None:
        """Note the answer to a question of the agent."""
        self._allowance.go_on(str(command.get("id")), monotonic())

    async def time_up(self) -> AgentEvent:
        """Wait until a limit is reached; the time of an open question does not count."""
        while True:
            if (used_up := self._allowance.is_used_up(monotonic())) is not None:
                return failed(*used_up)
            await asyncio.sleep(TICK)


async def _watched(job: Job, agent: InProcess, teller: _EventRelay, commands: Commands) -> None:
    answers: asyncio.Queue[AgentCommand] = asyncio.Queue()
    work = asyncio.ensure_future(agent.run(job, teller.emit, answers))
    ears = asyncio.ensure_future(_hear_stop(commands, answers, teller))
    clock = asyncio.ensure_future(teller.time_up())
    try:
        await asyncio.wait((work, ears, clock), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
            return
        ending = ears.result() if ears.done() else clock.result()
        await _cancelled(work)
        await teller.conclude(ending)
    finally:
        for task in (work, ears, clock):
            await _cancelled(task)


async def _cancelled(task: asyncio.Future[Any]) -> None:
    """Cancel a task and wait for its end; ignore its errors."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()


async def _hear_stop(commands: Commands, answers: asyncio.Queue[AgentCommand], teller: _EventRelay) -> AgentEvent:
    """Pass commands on to the agent until a stop command."""
    while True:
        command = await commands.get()
        if command.get("type") == "stop":
            return stopped(str(command.get("reason") or STOPPED))
        if command.get("type") == "decision":
            teller.heard(command)
            answers.put_nowait(command)
