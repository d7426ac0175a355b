"""The desk: hand in a task, get an answer, whole or in pieces.

With a session the agent is told what was said before and what the context has, and its answer is kept before it is
given. Agents that live in a launcher's process answer right here; those with processes of their own do it as a run
that a launcher takes. Whoever stops waiting stops the work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from moorage import config
from moorage.agents.inside import answer_inside
from moorage.agents.interface import Event, Job, Limits
from moorage.client import Moorage
from moorage.core.agent import AgentDefinition, AgentKind, AgentRole
from moorage.core.tool import Tool, ToolAnswer, Toolbox
from moorage.service import memory as memories
from moorage.service.deps import Deps
from moorage.service.memory import NOTHING, Memory
from moorage.service.tools import call_tool
from moorage.tasks import supervised

log = logging.getLogger(__name__)

WORDS_AT_ONCE = 8  # of an answer that comes whole, in one chunk


class Task(Struct, frozen=True, kw_only=True):
    """What is asked of whom."""

    agent: str
    input: str
    task_id: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    tools: list[str] = field(default_factory=list)
    session: str | None = None  # an id or a name; one that is not known is made
    parent: str | None = None  # of a session that has to be made
    memory: Memory | None = None  # what the agent is told, if whoever asks keeps the session
    timeout: float | None = None  # seconds until nobody waits for the answer any more
    role: AgentRole = AgentRole.AGENT  # which of the two may be asked; an agent's door takes workers, too


class Answer(Struct, frozen=True, kw_only=True):
    """What came of it. A failure of the agent's own is an answer, not an error."""

    output: str
    success: bool = True
    error: str = ""
    reason: str = ""  # of a failure
    metadata: dict[str, Any] = field(default_factory=dict)
    context: dict[str, Any] = field(default_factory=dict)  # what the agent wants remembered, if nothing is kept here


class Chunk(Struct, frozen=True, kw_only=True):
    """A piece of an answer; the last has the answer itself."""

    text: str
    answer: Answer | None = None


class TaskDesk:
    """Takes tasks in the name of one caller."""

    def __init__(self, moor: Moorage, *, alone: str | None = None, tell_why: supervised.TellWhy | None = None) -> None:
        """`alone`: there is nobody but this agent or tool here, whatever whoever asks calls it.

        `tell_why` is told at once why a run for a task has not started.
        """
        self._moor, self._alone, self._tell_why = moor, alone, tell_why

    # Whom there is to ask -----------------------------------------------------------------------

    async def agents(self) -> dict[str, AgentDefinition]:
        """Agents and workers that can be asked, by name."""
        deps = await self._looked()
        every = config.agents_of(deps).items()
        return {name: agent for name, agent in every if agent.role is not AgentRole.TOOL and self._offers(name)}

    async def tools(self) -> Toolbox:
        """Tools that can be called, by name."""
        deps = await self._looked()
        return {name: tool for name, tool in config.tools_of(deps).items() if self._offers(name)}

    async def _looked(self) -> Deps:
        deps = await self._moor._ready()
        await deps.registered.look()
        return deps

    def _offers(self, name: str) -> bool:
        return self._alone in (None, name)

    async def agent(self, name: str) -> AgentDefinition:
        """One of them. Raises AgentNotFound, InvalidDefinition."""
        deps, wanted = await self._moor._ready(), self._alone or name
        found = config.find_agent(wanted)
        if found is None:
            await deps.look_for(wanted)
            found = deps.registered.agents().get(wanted)
        if found is None or not found.enabled or found.role is AgentRole.TOOL:
            raise deps.no_agent(name)
        return found

    async def tool(self, name: str) -> Tool | None:
        """One of the tools, or None."""
        found = (await self._toolbox(name)).get(name)
        return None if found is None or not self._offers(name) else found[0]

    async def _toolbox(self, name: str) -> Toolbox:
        """All tools; the store is asked only if this one is not known here."""
        deps = await self._moor._ready()
        tools = config.tools_of(deps)
        return tools if name in tools else config.tools_of(await self._looked())

    # Asking -------------------------------------------------------------------------------------

    async def execute(self, task: Task) -> Answer:
        """The whole answer."""
        agent, deps = await self.agent(task.agent), await self._moor._ready()
        _log_received(task)
        memory = await self._recalled(deps, task, agent)
        if agent.is_supervised:
            return await supervised.answered(self._moor, agent, task, memory, tell_why=self._tell_why)
        return await self._answered(deps, task, agent, memory, None)

    async def stream(self, task: Task) -> AsyncIterator[Chunk]:
        """The answer while it is made. The last chunk comes when all of it is kept."""
        agent, deps = await self.agent(task.agent), await self._moor._ready()
        _log_received(task)
        memory = await self._recalled(deps, task, agent)
        said: asyncio.Queue[str] = asyncio.Queue()
        if agent.is_supervised:
            work = asyncio.create_task(
                supervised.answered(self._moor, agent, task, memory, said.put_nowait, tell_why=self._tell_why)
            )
        else:
            work = asyncio.create_task(self._answered(deps, task, agent, memory, said.put_nowait))
        told = False
        try:
            async for text in _until_done(said, work):
                told = True
                yield Chunk(text=text)
            answer = work.result()
        finally:
            await _ended(work)
        pieces = [] if told else in_pieces(answer.output)
        for piece in pieces[:-1]:
            yield Chunk(text=piece)
        yield Chunk(text=pieces[-1] if pieces else "", answer=answer)

    async def _recalled(self, deps: Deps, task: Task, agent: AgentDefinition) -> Memory:
        if task.memory is not None:
            return task.memory
        if task.session is None:
            return NOTHING
        return await memories.recall(deps, self._moor._caller, task.session, agent=agent.name, parent=task.parent)

    async def _answered(
        self, deps: Deps, task: Task, agent: AgentDefinition, memory: Memory, hear: supervised.Hear | None
    ) -> Answer:
        """Ask an agent that answers in this process, and keep what was said.

        One that answers at once has question and answer kept together; of others the question is kept before it
        is put, so that it is not lost with a server that dies meanwhile.
        """
        caller, asked = self._moor._caller, {"role": "user", "content": task.input}
        if at_once := agent.kind is AgentKind.BUILTIN:
            before = [asked]
        else:
            before = []
            await memories.keep(deps, caller, memory, [asked])
        ending, values = await _performed(job_of(deps, task, agent, memory, streams=hear is not None), hear)
        answer = _answer_of(ending)
        if not answer.success:
            if at_once:
                await memories.keep(deps, caller, memory, before)
            await memories.keep_error(deps, caller, memory, answer.error)
            return answer
        await memories.keep(deps, caller, memory, [*before, {"role": "assistant", "content": answer.output}])
        await memories.keep_context(deps, caller, memory, values)
        return answer if memory.session is not None else replace(answer, context=values)

    # Tools --------------------------------------------------------------------------------------

    async def call_tool(
        self,
        name: str,
        operation: str | None,
        parameters: dict[str, Any],
        *,
        session: str | None = None,
        parent: str | None = None,
        timeout: float | None = None,
    ) -> ToolAnswer:
        """Call a tool; in a session, which is made if it is not known, the log has the call and the result."""
        deps, caller, name = await self._moor._ready(), self._moor._caller, self._alone or name
        tools = {each: tool for each, tool in (await self._toolbox(name)).items() if self._offers(each)}
        if session is not None and name in tools:
            await memories.recall(deps, caller, session, agent=None, parent=parent)
        return await call_tool(deps, caller, tools, name, operation, parameters, session=session, timeout=timeout)


def _log_received(task: Task) -> None:
    """Say that a task has come and how long its input is, never the input itself."""
    session = task.session or "none"
    size = f"{len(task.input):,} characters"
    log.info("Received task: %s - Input: %s - Session: %s", task.task_id or "none", size, session)


def job_of(deps: Deps, task: Task, agent: AgentDefinition, memory: Memory, *, streams: bool) -> Job:
    """A task as a job for an agent in this process."""
    limits = Limits.of(agent)
    known = [each for each in (limits.timeout, task.timeout) if each is not None]
    return Job(
        agent=agent,
        owner=memory.session.owner if memory.session is not None else "local",
        session_id=task.session or "",
        task_id=task.task_id or None,
        turn_id=deps.new_id(),
        epoch=0,
        prompt=task.input,
        parameters=task.parameters,
        tools=task.tools,
        history=memory.history,
        context=memory.context,
        turns=memory.turns,
        streams=streams,
        system_prompt=agent.system_prompt,
        limits=replace(limits, timeout=min(known) if known else None),
    )


async def _performed(job: Job, hear: supervised.Hear | None) -> tuple[Event, dict[str, Any]]:
    """How a job ended, and what its agent wants remembered; what it says meanwhile is heard."""
    values: dict[str, Any] = {}
    endings: list[Event] = []

    async def emit(event: Event) -> None:
        if event["type"] == "chunk" and hear is not None:
            hear(event["text"])
        elif event["type"] == "context":
            values.update(event["values"])
        elif event["type"] == "result":
            endings.append(event)

    await answer_inside(job, emit, config.environment)
    return endings[0], values


def _answer_of(ending: Event) -> Answer:
    success = ending["outcome"] == "completed"
    error = "" if success else str(ending.get("error") or f"the agent {ending['outcome']}")
    return Answer(
        output=ending["text"],
        success=success,
        error=error,
        reason=str(ending.get("reason") or ""),
        metadata=ending.get("metadata") or {},
    )


def in_pieces(text: str) -> list[str]:
    """A text in pieces of some words, which put together are the text again."""
    words = text.split(" ")
    pieces = [" ".join(words[start : start + WORDS_AT_ONCE]) for start in range(0, len(words), WORDS_AT_ONCE)]
    return [f"{piece} " for piece in pieces[:-1]] + pieces[-1:]


async def _until_done(said: asyncio.Queue[str], work: asyncio.Task[Answer]) -> AsyncIterator[str]:
    """What is said, as long as there is somebody to say it."""
    while not work.done() or not said.empty():
        if not said.empty():
            yield said.get_nowait()
            continue
        word = asyncio.ensure_future(said.get())
        try:
            await asyncio.wait((word, work), return_when=asyncio.FIRST_COMPLETED)
            if word.done():
                yield word.result()
        finally:
            word.cancel()


async def _ended(work: asyncio.Task[Answer]) -> None:
    """Have the work end, if it has not; its failure has been told or is nobody's business any more."""
    if not work.done():
        work.cancel()
        await asyncio.wait([work])
