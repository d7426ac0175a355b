"""Calls in a session: each is a run with a turn of its own, which this process takes itself if the agent answers here.

An agent that answers at once takes one commit: question, run, turn, answer, end. A slower kind takes two: the first has
the question, the run and the claim, the second the answer and the end; in between the turn is renewed, can be stopped
from any door, and is fenced like any other. Agents with processes of their own are left to a launcher.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from moorage import config
from moorage.agents.inside import run_inside
from moorage.agents.interface import NOT_STARTED, STOPPED, AgentEvent, Job, Limits
from moorage.core.agent import AgentDefinition
from moorage.core.answer import Answer, answer_of
from moorage.core.entry import Kind, text_of
from moorage.core.render import like
from moorage.core.run import Run, Usage, summed, usage_of
from moorage.core.session import Session
from moorage.core.status import Because
from moorage.core.turn import Turn, TurnState
from moorage.core.work import AnotherTurn, TurnEnd
from moorage.launcher.attending import TurnAtWork, failing, turn_end, undisturbed
from moorage.launcher.handles import InProcessHandle
from moorage.service import calls, conversation, runs
from moorage.service.calls import Call, RecordedCall
from moorage.service.deps import Caller, Deps
from moorage.service.records import remember
from moorage.service.sessions import context_for_agent
from moorage.service.turns import TurnDispatcher

LOOK_AGAIN = 1.0  # seconds: a wake-up is a hint and may get lost

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


async def answered(
    deps: Deps, caller: Caller, agent: AgentDefinition, task: Task, hear: HearText | None, tell_why: TellWhy | None
) -> Answer:
    """Ask an agent in a session and wait for the answer. Cancelling the wait stops the run."""
    assert task.session is not None
    call = like(Call, task, agent=agent, tools=tuple(task.tools))
    known = await call.recalled(deps, caller)
    if agent.answers_at_once:
        with suppress(AnotherTurn):  # then it is queued
            job = job_of(deps, task, agent, await memory_of(deps, caller, known), streams=False)
            end = await performed(job, None)
            put = await calls.put_answered(deps, caller, call, known, end)
            if end.context:
                await remember(deps, caller, put.session.session_id, end.context)
            return answer_of(put.run, put.session, text=end.result)
    begins = not agent.is_supervised
    put = await undisturbed(calls.put_waiting(deps, caller, call, known, begins=begins))
    waiting = _Waiting(deps, caller, agent, task, put, hear)
    try:
        return await waiting.answer(tell_why)
    except asyncio.CancelledError:
        await undisturbed(waiting.stop())
        raise


class _Waiting:
    """A stored call that waits for its answer."""

    def __init__(
        self, deps: Deps, caller: Caller, agent: AgentDefinition, task: Task, put: RecordedCall, hear: HearText | None
    ) -> None:
        self._deps, self._caller, self._agent, self._task, self._hear = deps, caller, agent, task, hear
        self._run, self._turn, self._session = put.run, put.turn, put.session
        self._handle: InProcessHandle | None = None
        self._carrying: asyncio.Task[str | None] | None = None

    async def answer(self, tell_why: TellWhy | None) -> Answer:
        check_not_cancelled()
        if self._turn is None:
            await self._wait_for_turn(tell_why)
        text = None
        if self._turn is not None:
            self._carrying = asyncio.create_task(self._carried(self._turn))
            text = await asyncio.shield(self._carrying)
        run = await self._settled()
        return answer_of(run, self._session, text=text)

    async def stop(self) -> None:
        """Stop the call: an agent running here ends its turn itself, any other is told to stop."""
        if self._turn is None:
            await calls.stop_call(self._deps, self._caller, self._run.run_id)
        elif self._handle is not None and self._carrying is not None:
            await self._handle.tell({"type": "stop"})
            await asyncio.wait([self._carrying])
        else:
            await self._at_work(self._turn).finish(TurnEnd(outcome=TurnState.STOPPED, reason=STOPPED))

    async def _wait_for_turn(self, tell_why: TellWhy | None) -> None:
        """Wait until the turn of a queued call begins: here if its agent answers here, else by a launcher."""
        store, is_told = self._deps.store, tell_why is None
        while True:
            seen = store.pulse()
            if not self._agent.is_supervised:
                self._turn = await undisturbed(calls.begin_queued(self._deps, self._caller, self._run))
                check_not_cancelled()
            run = await runs.get_run(self._deps, self._caller, self._run.run_id)
            if not is_told and tell_why is not None and run.because is not None:
                await tell_why(run.because)
            is_told = True
            if self._turn is not None or run.turns or run.is_settled or run.needs_a_person or self._agent.is_supervised:
                return
            await store.wait(seen, LOOK_AGAIN)

    def _at_work(self, turn: Turn) -> TurnAtWork:
        dispatcher = TurnDispatcher(self._deps, interface=self._caller.interface)
        return TurnAtWork(dispatcher, self._deps.own_launcher, self._caller.owner, turn, self._listen)

    async def _carried(self, turn: Turn) -> str | None:
        """Run the turn here, to its end; return the agent's output."""
        work = self._at_work(turn)
        try:
            job = await self._job(turn)
        except Exception as error:
            await work.finish(failing(NOT_STARTED, error))
            raise
        self._handle = InProcessHandle(job)
        await work.attend(self._handle)
        return None if work.end is None else work.end.result

    async def _job(self, turn: Turn) -> Job:
        deps, caller = self._deps, self._caller
        known = await conversation.session_with_window(deps, caller, turn.session_id, deps.settings.window)
        memory = await memory_of(deps, caller, known, self._run)
        job = job_of(deps, self._task, self._agent, memory, streams=self._hear is not None)
        return replace(job, turn_id=turn.turn_id, epoch=turn.epoch, owner=caller.owner, run_id=self._run.run_id)

    def _listen(self, _: Turn, event: AgentEvent) -> None:
        if event["type"] == "chunk" and self._hear is not None:
            self._hear(event["text"])

    async def _settled(self) -> Run:
        """Return the settled run; read the output of an agent elsewhere from the log."""
        hearing = None
        if self._hear is not None and self._agent.is_supervised:
            hearing = asyncio.create_task(self._heard(self._hear))
        try:
            return await runs.wait_for_run(self._deps, self._caller, self._run.run_id)
        finally:
            if hearing is not None:
                hearing.cancel()
                await asyncio.wait([hearing])

    async def _heard(self, hear: HearText) -> None:
        after = self._run.asked_entry or 0
        async for event in conversation.events(self._deps, self._caller, self._run.session_id, after=after):
            if event.type == Kind.MESSAGE and event.data["role"] == "assistant":
                hear(text_of(event.data["content"]))


def check_not_cancelled() -> None:
    """Raise a cancellation that was suppressed while a commit completed."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


# Tasks as jobs for agents that answer in this process -------------------------------------------


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
