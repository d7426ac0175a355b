"""Agents, workers and tools called by name, in a session or in none: the shared part of gRPC and MCP.

In a session each call is a run with a turn of its own (`here`): the agent gets the earlier messages and the context,
and its answer is stored before it is returned. Without a session nothing is stored. Cancelling the wait stops the work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct

from moorage import config
from moorage.agents.interface import AgentEvent
from moorage.asking import here
from moorage.asking.here import HearText, SessionMemory, Task, TellWhy, job_of, performed
from moorage.client import LocalMoorage
from moorage.core.agent import AgentDefinition, AgentRole, Tool, ToolAnswer, Toolbox
from moorage.core.answer import Answer
from moorage.core.errors import IdTaken
from moorage.core.render import like
from moorage.core.turn import Turn
from moorage.launcher.attending import undisturbed
from moorage.launcher.embedded import Embedded
from moorage.service import runs
from moorage.service.calls import call_tool, recalled, stop_call
from moorage.service.deps import Caller, Deps
from moorage.service.sessions import SessionRequest, create_session

log = logging.getLogger(__name__)

T = TypeVar("T")

WORDS_AT_ONCE = 8  # in one chunk, of an answer that comes complete


class Chunk(Struct, frozen=True, kw_only=True):
    """A piece of an answer; the last one has the complete answer."""

    text: str
    answer: Answer | None = None


class NamedAgents:
    """Asks agents for one caller."""

    def __init__(self, moor: LocalMoorage, *, alone: str | None = None, tell_why: TellWhy | None = None) -> None:
        """Set up. `alone`: the only agent or tool of this server, whatever name callers use.

        `tell_why` is called at once with the reason why a run for a task has not started.
        """
        self._moor, self._alone, self._tell_why = moor, alone, tell_why

    # Agents and tools ---------------------------------------------------------------------------

    async def agents(self) -> dict[str, AgentDefinition]:
        """Return the agents and workers that can be asked, by name."""
        every = self._offered(config.agents_of(await self._looked()))
        return {name: agent for name, agent in every.items() if agent.role is not AgentRole.TOOL}

    async def tools(self) -> Toolbox:
        """Return the tools that can be called, by name."""
        return self._offered(config.tools_of(await self._looked()))

    async def _looked(self) -> Deps:
        deps = await self._moor.ready()
        await deps.registered.look()
        return deps

    def _offered(self, every: Mapping[str, T]) -> dict[str, T]:
        return {name: each for name, each in every.items() if self._alone in (None, name)}

    async def agent(self, name: str) -> AgentDefinition:
        """Return an agent or a worker. Raise AgentNotFound or InvalidDefinition."""
        deps, wanted = await self._moor.ready(), self._alone or name
        found = config.find_agent(wanted)
        if found is None:
            await deps.look_for(wanted)
            found = deps.registered.agents().get(wanted)
        if found is None or not found.enabled or found.role is AgentRole.TOOL:
            raise deps.no_agent(name)
        return found

    async def tool(self, name: str) -> Tool | None:
        """Return a tool, or None."""
        found = (await self._toolbox(name)).get(name)
        return None if found is None else found[0]

    async def _toolbox(self, name: str) -> Toolbox:
        """Return all tools; read the store only if this one is not known here."""
        tools = config.tools_of(await self._moor.ready())
        return self._offered(tools if name in tools else config.tools_of(await self._looked()))

    # Asking -------------------------------------------------------------------------------------

    async def execute(self, task: Task, hear: HearText | None = None) -> Answer:
        """Return the whole answer; `hear` gets partial output meanwhile, if its agent streams."""
        agent, deps = await self.agent(task.agent), await self._moor.ready()
        size = f"{len(task.input):,} characters"  # never the input itself
        log.info("Received task: %s - Input: %s - Session: %s", task.task_id or "none", size, task.session or "none")
        if task.session is None or task.memory is not None:
            return await _unkept(deps, self._moor.caller, agent, task, hear)
        return await here.answered(deps, self._moor.caller, agent, task, hear, self._tell_why)

    async def stream(self, task: Task) -> AsyncIterator[Chunk]:
        """Yield the answer while it is produced. The last chunk comes when all of it is stored."""
        said: asyncio.Queue[str | None] = asyncio.Queue()
        work, told = asyncio.create_task(self.execute(task, said.put_nowait)), False
        work.add_done_callback(lambda _: said.put_nowait(None))
        try:
            while (text := await said.get()) is not None:
                told = True
                yield Chunk(text=text)
            answer = work.result()
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait([work])
        pieces = [] if told else in_pieces(answer.text)
        for piece in pieces[:-1]:
            yield Chunk(text=piece)
        yield Chunk(text=pieces[-1] if pieces else "", answer=answer)

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
        """Call a tool; in a session, which is created if unknown, the log has the call and the result."""
        deps, caller, name = await self._moor.ready(), self._moor.caller, self._alone or name
        tools = await self._toolbox(name)
        if session is not None and name in tools and await recalled(deps, caller, session) is None:
            try:
                await create_session(deps, caller, SessionRequest(session_id=session), parent=parent)
            except IdTaken:  # a concurrent call created it
                await recalled(deps, caller, session)
        return await call_tool(deps, caller, tools, name, operation, parameters, session=session, timeout=timeout)


def in_pieces(text: str) -> list[str]:
    """Return a text in chunks of a few words that join to the same text."""
    words = text.split(" ")
    pieces = [" ".join(words[start : start + WORDS_AT_ONCE]) for start in range(0, len(words), WORDS_AT_ONCE)]
    return [f"{piece} " for piece in pieces[:-1]] + pieces[-1:]


# Without a session ------------------------------------------------------------------------------


async def _unkept(deps: Deps, caller: Caller, agent: AgentDefinition, task: Task, hear: HearText | None) -> Answer:
    """Ask an agent without a session, or in one that the caller stores.

    An agent that answers in this process does so. One with processes of its own is started by a launcher of this
    process, on a temporary store.
    """
    if agent.is_supervised:
        return await _by_a_launcher(caller, agent, task, hear)
    job = job_of(deps, task, agent, task.memory or SessionMemory(), streams=hear is not None)
    end = await performed(job, hear)
    return like(Answer, end, status=end.outcome.value)


async def _by_a_launcher(caller: Caller, agent: AgentDefinition, task: Task, hear: HearText | None) -> Answer:
    def listen(_: Turn, event: AgentEvent) -> None:
        if hear is not None and event["type"] == "chunk":
            hear(event["text"])

    deps = config.open_deps("memory://", threaded=True)
    agents, environment = partial(config.agents_of, deps), config.agent_environment("memory://")
    wish = runs.Wish(parameters=task.parameters, tools=tuple(task.tools), called=True)
    async with Embedded(deps, agents, owner=caller.owner, listener=listen, environment=environment):
        run = (await runs.start_run(deps, caller, agent.name, task.input, wish=wish)).run
        try:
            run = await runs.wait_for_run(deps, caller, run.run_id)
        except asyncio.CancelledError:
            await undisturbed(stop_call(deps, caller, run.run_id))
            raise
    await deps.store.close()
    return Answer(
        result=run.result,
        status=run.state.value,
        usage=run.usage,
        error=run.error,
        reason=run.reason,
        metadata={"agent_id": agent.name, **run.metadata},
    )
