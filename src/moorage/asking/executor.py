"""`AgentExecutor`: prompts to an agent, and its answers."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

from msgspec.structs import replace

from moorage.api import Moorage
from moorage.asking.interaction import WAITING_FOR_INPUT, ExecutionEvent, Interaction
from moorage.connection import Connection
from moorage.core.answer import Answer, SessionAnswer, as_it_stands
from moorage.core.entry import Entry
from moorage.core.errors import AgentNotFound, InvalidDefinition, RunNotFound, SessionNotFound
from moorage.core.run import Run
from moorage.core.session import Session, State


class AgentExecutor:
    """Runs agents for callers of a door: one question at a time, or a conversation."""

    def __init__(self, moor: Moorage) -> None:
        self.moor = cast(Connection, moor)  # every connection of ours is one

    # A conversation -----------------------------------------------------------------------------

    def execute_interactive(
        self,
        agent: str | None,
        session_id: str | None = None,
        initial_message: object = None,
        *,
        client_key: str | None = None,
        partial: bool = False,
        **birth: Any,
    ) -> Interaction:
        """Return a conversation with an agent as a stream of events, in a new session or in the one `session_id` names.

        A suspended session is resumed; an unknown id creates a session. `birth` are further options of a new session:
        name, purpose, metadata, parent, task_id, project_dir, ttl. With `client_key` the initial message can be sent
        twice without harm. With `partial`, agents of this connection, or of its server, are streamed word by word: as
        events of type `chunk`; a message's `rest` is the text that was in no chunk.

        Any agent may answer in any session. Raises, when it is opened: AgentNotFound, SessionClosed, HeldByAnother.
        """
        return Interaction(
            self.moor,
            lambda: self.session(agent, session_id, **birth),
            initial_message,
            agent=agent,
            key=client_key,
            partial=partial,
        )

    # One question -------------------------------------------------------------------------------

    async def execute_single_turn(
        self,
        agent: str | None,
        message: object,
        context: dict[str, Any] | None = None,
        *,
        session_id: str | None = None,
        client_key: str | None = None,
        timeout: float | None = None,
        **birth: Any,
    ) -> Answer:
        """Ask an agent, and wait until it has answered, asks a person, or `timeout` seconds have passed.

        The answer's `status` is that of its run; waiting_for_input if the agent asks a person (`approvals`), suspended
        if the session was paused meanwhile; running or queued on a timeout: the run continues. `context` is first
        stored in the session's context, where the agent finds it. A repetition with the same `client_key` in the same
        session gets the answer of the same run. The rest is as for `execute_interactive`.
        """

        async def opened() -> Session:
            session = await self.session(agent, session_id, **birth)
            if context:
                await self.moor.context.merge(session.session_id, context)
            return session

        async with Interaction(self.moor, opened, agent=agent) as talk:
            reply = await talk.send(message, client_key=client_key)
            try:
                async with asyncio.timeout(timeout):
                    last = await _persons_move(talk)
            except TimeoutError:
                last = None
        if reply.run_id is not None:
            reply = as_it_stands(reply, await self.moor.get_run(reply.run_id))
        if last is None or (reply.run is not None and reply.run.is_settled):
            return reply
        return replace(reply, status=last.type, result=last.content, approvals=last.data.get("approvals", []))

    # Calls for doors ----------------------------------------------------------------------------

    async def session(self, agent: str | None, session_id: str | None = None, **birth: Any) -> Session:
        """Return a session for a conversation: an existing one, resumed, or a new one. See `execute_interactive`."""
        if agent is not None:
            with suppress(InvalidDefinition):  # its start reports that
                if not (await self.moor.agent(agent)).get("enabled", True):
                    raise AgentNotFound(agent)
        if session_id is None:
            return await self.moor.create(agent, **birth)
        try:
            found = await self.moor.get(session_id)
        except SessionNotFound:
            return await self.moor.create(agent, session_id=session_id, **birth)
        return await self._awake(found)

    async def _awake(self, session: Session) -> Session:
        """Return the session, resumed if it is suspended. An agent does not resume what a person may have suspended."""
        session.check_open()
        is_free = session.state is not State.SUSPENDED and session.hold is None
        if is_free or self.moor.asks_from() is not None:
            return session
        return (await self.moor.resume(session.session_id, hold=False)).session

    async def start(
        self,
        agent: str | None,
        message: object = None,
        *,
        client_key: str | None = None,
        idempotency_key: str | None = None,
        **birth: Any,
    ) -> SessionAnswer:
        """Create a session and ask its agent the first prompt, both or neither, without waiting.

        Raises AgentNotFound if the agent to ask cannot be started.
        """
        if message is None or agent is None:
            session = await self.moor.create(agent, idempotency_key=idempotency_key, **birth)
            if message is not None:
                said = {"role": "user", "content": message, "client_key": client_key}
                await self.moor.post(session.session_id, [said], run=False)
            return SessionAnswer(session_id=session.session_id, session=await self.moor.get(session.session_id))
        return await self.moor.start(agent, message, idempotency_key=idempotency_key, **birth)

    async def say(self, ref: str, messages: object, *, wait: float = 0.0, **how: Any) -> Answer:
        """Post to a session: a text, a message, or several messages in one commit.

        A user's message asks for a run as `Moorage.send` says, which also tells `how`; of several the last one asks.
        Wait for the answer, at most `wait` seconds.
        """
        return await self.answered(await self.moor.post(ref, messages, **how), wait)

    async def answered(self, posted: Answer, wait: float) -> Answer:
        """Return the posted messages with the answer, if it comes within `wait` seconds."""
        is_over = posted.run is not None and posted.run.is_settled
        return await self.as_it_stands(posted, wait=wait) if wait or is_over else posted

    async def as_it_stands(self, posted: Answer, *, wait: float = 0.0) -> Answer:
        """Return the same with the current run, or the settled one if it settles within `wait` seconds."""
        if posted.run_id is None:
            return posted
        try:
            run = await self.moor.result(posted.run_id, wait=wait)
        except RunNotFound:
            await self.moor.get(posted.session_id)  # raises SessionGone if the session was deleted meanwhile
            raise
        return as_it_stands(posted, run, await self.said(run))

    async def said(self, run: Run) -> Entry | None:
        """Return the entry that has a settled run's result."""
        if run.result_entry is None:
            return None
        page = await self.moor.log(run.session_id, after=run.result_entry - 1, before=run.result_entry + 1)
        return page.items[0] if page.items else None


async def _persons_move(talk: Interaction) -> ExecutionEvent | None:
    """Return the event that it is a person's turn, or that the conversation is over."""
    async for event in talk:
        if event.type == WAITING_FOR_INPUT or event.is_last:
            return event
    return None


@dataclass
class PipelineContext:
    """The context of a pipeline step: the results collected so far, and the executor that asks agents.

    `examples/pipeline` shows steps and a pipeline that use it.
    """

    pipeline_id: str
    executor: AgentExecutor
    values: dict[str, Any] = field(default_factory=dict)
    agent_session_id: str | None = None  # of the running step, if it has one

    async def collect(self, name: str, value: Any) -> None:
        """Store the result of a step in the context of the pipeline's session."""
        self.values[name] = value
        await self.executor.moor.context.put(self.pipeline_id, name, value)
