"""Running an agent inside the launcher: its limits, its stop, and its single result.

Launchers call `run_inside`. Whatever the agent does, its events end with exactly one result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moorage.agents.interface import (
    AGENT_FAILED,
    IDLE_TIMEOUT,
    NO_ANSWER,
    STOPPED,
    TIMED_OUT,
    AgentCommand,
    AgentEvent,
    Commands,
    Emit,
    InProcess,
    Job,
    Secret,
    failed,
)
from moorage.core.agent import AgentKind
from moorage.core.errors import Unsupported

if TYPE_CHECKING:
    import asyncio


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
    teller = _EventRelay(emit)
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
    """Passes events on, up to the first result, and collects the output so far."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self.is_over = False
        self._pieces: list[str] = []
        self._waits: set[str] = set()
        self.spoken = 0  # number of events so far

    async def emit(self, event: AgentEvent) -> None:
        if self.is_over:
            return
        self.spoken += 1
        if event["type"] == "chunk":
            self._pieces.append(event["text"])
        elif event["type"] == "message":
            self._pieces = []
        elif event["type"] == "approval" and event["wait"]:
            self._waits.add(event["id"])
        self.is_over = event["type"] == "result"
        await self._emit(event)

    async def conclude(self, ending: AgentEvent) -> None:
        """End with this event, unless the agent has ended already."""
        await self.emit(ending | {"text": ending["text"] or "".join(self._pieces)})

    def heard(self, command: AgentCommand) -> None:
        self.spoken += 1
        self._waits.discard(str(command.get("id")))

    @property
    def is_waiting(self) -> bool:
        """Return whether a question of the agent waits for its answer."""
        return bool(self._waits)


async def _watched(job: Job, agent: InProcess, teller: _EventRelay, commands: Commands) -> None:
    import asyncio

    answers: asyncio.Queue[AgentCommand] = asyncio.Queue()
    work = asyncio.ensure_future(agent.run(job, teller.emit, answers))
    ears = asyncio.ensure_future(_hear_stop(commands, answers, teller))
    clock = asyncio.ensure_future(_time_up(job, teller))
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
    import asyncio

    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()


async def _hear_stop(commands: Commands, answers: asyncio.Queue[AgentCommand], teller: _EventRelay) -> AgentEvent:
    """Pass commands on to the agent until a stop command."""
    while True:
        command = await commands.get()
        if command.get("type") == "stop":
            reason = str(command.get("reason") or STOPPED)
            return {"type": "result", "outcome": "stopped", "text": "", "said": False, "reason": reason}
        if command.get("type") == "decision":
            teller.heard(command)
            answers.put_nowait(command)


async def _time_up(job: Job, teller: _EventRelay) -> AgentEvent:
    """Wait until one of the job's limits is reached; the time of an open question does not count."""
    import asyncio

    tick, limits = 0.05, job.limits
    used = idle = 0.0
    loop, spoken = asyncio.get_running_loop(), teller.spoken
    before = loop.time()
    while True:
        await asyncio.sleep(tick)
        now = loop.time()
        passed, before = now - before, now
        if teller.is_waiting:
            passed = 0.0
        used, idle = used + passed, 0.0 if teller.spoken != spoken else idle + passed
        spoken = teller.spoken
        if limits.timeout is not None and used >= limits.timeout:
            return failed(TIMED_OUT, f"it took longer than {limits.timeout:g} seconds")
        if limits.idle_timeout is not None and idle >= limits.idle_timeout:
            return failed(IDLE_TIMEOUT, f"it was silent for {limits.idle_timeout:g} seconds")
