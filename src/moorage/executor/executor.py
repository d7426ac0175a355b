"""`AgentExecutor`: words to an agent, and what comes of them."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from moorage.client import Moorage
from moorage.core.errors import AgentNotFound, InvalidDefinition, InvalidField, SessionNotFound
from moorage.core.run import Run, RunState
from moorage.core.session import Session, State
from moorage.core.status import Because
from moorage.executor import events, saying
from moorage.executor.events import ExecutionEvent
from moorage.executor.interaction import Interaction
from moorage.executor.saying import Posted

RUNNING = "running"


class Started(Struct, frozen=True, kw_only=True):
    """A session that was made, and the work that its first message asked for."""

    session: Session
    run_id: str | None = None


class SingleTurn(Struct, frozen=True, kw_only=True):
    """What came of asking an agent one thing.

    `status` is completed, failed, waiting_for_input (`approvals` has what the agent asks a person), suspended (the
    session was paused meanwhile, the question waits in it) or running (time was up; the run goes on).
    """

    session_id: str
    status: str
    content: str = ""
    run_id: str | None = None
    error: str | None = None
    approvals: list[dict[str, Any]] = field(default_factory=list)
    because: Because | None = None  # why the run has not started


class AgentExecutor:
    """Runs agents for whoever has a connection: one question at a time, or a conversation."""

    def __init__(self, moor: Moorage) -> None:
        self.moor = moor

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
        """A conversation with an agent, as a stream of events: in a new session, or in the one `session_id` names.

        A suspended session is taken up again; an unknown id is that of a new session. `birth` is what a new one
        is told besides: name, purpose, metadata, parent, task_id, project_dir, ttl. `client_key` makes it harmless
        to send the initial message twice. With `partial`, agents of this connection, or of the server it goes to, are
        heard word by word: as events of type `chunk`; a message's `rest` is what no chunk has told.

        Raises, when it is opened: AgentNotFound, SessionClosed, HeldByAnother; InvalidField if the session is
        another agent's.
        """
        return Interaction(
            self.moor,
            lambda: self.session(agent, session_id, **birth),
            initial_message,
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
    ) -> SingleTurn:
        """Ask an agent one thing, and wait until it has answered, asks a person, or `timeout` seconds are over.

        `context` is put into the session's context first, where the agent finds it. Asked again with the same
        `client_key` in the same session, the same run answers. The rest is as for `execute_interactive`.
        """
        session = await self.session(agent, session_id, **birth)
        if context:
            await self.moor.context.merge(session.session_id, context)
        async with Interaction(self.moor, lambda: _at_once(session)) as talk:
            reply = await talk.send(message, client_key=client_key)
            try:
                async with asyncio.timeout(timeout):
                    last = await _persons_move(talk)
            except TimeoutError:
                last = None
        return await self._outcome(session.session_id, reply.run_id, last)

    async def _outcome(self, session_id: str, run_id: str | None, last: ExecutionEvent | None) -> SingleTurn:
        run = None if run_id is None else await self.moor.get_run(run_id)
        answer = _answer(session_id, run)
        if run is not None and run.is_settled:
            return answer
        if last is None:
            return replace(answer, status=RUNNING, because=None if run is None else run.because)
        return replace(answer, status=last.type, content=last.content, approvals=last.data.get("approvals", []))

    # What doors are made of ---------------------------------------------------------------------

    async def session(self, agent: str | None, session_id: str | None = None, **birth: Any) -> Session:
        """A session to talk in: the one that is there, awake, or a new one. Raises as `execute_interactive` says."""
        if agent is not None and not (await self._definition(agent)).get("enabled", True):
            raise AgentNotFound(agent)
        if session_id is None:
            return await self.moor.create(agent, **birth)
        try:
            found = await self.moor.get(session_id)
        except SessionNotFound:
            return await self.moor.create(agent, session_id=session_id, **birth)
        if agent not in (None, found.agent_name):
            why = f"is {agent!r}, but session {found.session_id} is one of {found.agent_name or 'no agent'}"
            raise InvalidField("agent", why)
        return await self._awake(found)

    async def _definition(self, agent: str) -> dict[str, Any]:
        """An agent as it is defined; nothing of one whose file is wrong. Raises AgentNotFound."""
        try:
            return await self.moor.agent(agent)
        except InvalidDefinition:
            return {}

    async def _awake(self, session: Session) -> Session:
        """The session with its agent free to go on. An agent does not resume what a person may have suspended."""
        session.check_open()
        is_free = session.state is not State.SUSPENDED and session.hold is None
        if is_free or self.moor._surrounding_session() is not None:
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
    ) -> Started:
        """Make a session, and ask its agent the first thing, both or neither; nothing is waited for.

        Raises AgentNotFound if something is asked of an agent that cannot be started.
        """
        if message is None or agent is None:
            session = await self.moor.create(agent, idempotency_key=idempotency_key, **birth)
            if message is not None:
                said = {"role": "user", "content": message, "client_key": client_key}
                await self.moor._post(session.session_id, [said], run=False)
            return Started(session=await self.moor.get(session.session_id))
        asked = await self.moor._start(agent, message, idempotency_key=idempotency_key, **birth)
        return Started(session=asked.session, run_id=asked.run.run_id)

    async def say(
        self,
        ref: str,
        messages: object,
        *,
        token: str | None = None,
        run: bool | None = None,
        queue: bool = False,
        wake: bool = True,
        wait: float = 0.0,
    ) -> Posted:
        """Say something in a session: a text, a message or several, which come in at once.

        A user's message asks for a run as `Moorage.send` says; of several the last one asks. The answer is waited for,
        `wait` seconds at most.
        """
        posted = await self.moor._post(ref, messages, token=token, run=run, queue=queue, wake=wake)
        is_over = posted.run is not None and posted.run.is_settled
        return await self.as_it_stands(posted, wait=wait) if wait or is_over else posted

    async def as_it_stands(self, posted: Posted, *, wait: float = 0.0) -> Posted:
        """The same with the run as it is now, or once it has settled within `wait` seconds."""
        if posted.run_id is None:
            return posted
        run = await self.moor.result(posted.run_id, wait=wait)
        return replace(posted, run=run, reply=await saying.reply_of(self.moor, run))


async def _at_once(session: Session) -> Session:
    return session


async def _persons_move(talk: Interaction) -> ExecutionEvent | None:
    """The event with which it is a person's move, or all is over."""
    async for event in talk:
        if event.type == events.WAITING_FOR_INPUT or event.is_last:
            return event
    return None


def _answer(session_id: str, run: Run | None) -> SingleTurn:
    """What a run says of itself."""
    if run is None:
        return SingleTurn(session_id=session_id, status=RUNNING)
    status = events.COMPLETED if run.state is RunState.COMPLETED else events.FAILED
    error = None if status == events.COMPLETED else run.error or f"the run is {run.state.value}"
    return SingleTurn(session_id=session_id, status=status, content=run.result or "", run_id=run.run_id, error=error)
