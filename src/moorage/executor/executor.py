"""`AgentExecutor`: words to an agent, and what comes of them."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from moorage.client import Moorage
from moorage.core.errors import AgentNotFound, InvalidField, SessionNotFound
from moorage.core.run import Run, RunState
from moorage.core.session import Session, State
from moorage.core.work import LAUNCHER
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
        to send the initial message twice. With `partial`, agents of this connection are heard word by word.

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
            return replace(answer, status=RUNNING)
        return replace(answer, status=last.type, content=last.content, approvals=last.data.get("approvals", []))

    # What doors are made of ---------------------------------------------------------------------

    async def session(self, agent: str | None, session_id: str | None = None, **birth: Any) -> Session:
        """A session to talk in: the one that is there, awake, or a new one. Raises as `execute_interactive` says."""
        if agent is not None and not await saying.can_start(self.moor, agent):
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

    async def _awake(self, session: Session) -> Session:
        """The session with nobody holding it, so that a launcher may; one that is at work already is left alone."""
        session.check_open()
        if _is_at_work(session) or (session.state is not State.SUSPENDED and session.hold is None):
            return session
        packet = await self.moor.resume(session.session_id)
        return await self.moor.release(session.session_id, token=str(packet.hold.token))

    async def start(
        self, agent: str | None, message: object = None, *, client_key: str | None = None, **birth: Any
    ) -> Started:
        """Make a session, and ask its agent the first thing; nothing is waited for."""
        session = await self.moor.create(agent, **birth)
        if message is None:
            return Started(session=session)
        said = [{"role": "user", "content": message, "client_key": client_key}]
        posted = await saying.post(self.moor, session.session_id, said, token=None, run=True)
        return Started(session=await self.moor.get(session.session_id), run_id=posted.run_id)

    async def say(
        self, ref: str, messages: object, *, token: str | None = None, run: bool = True, wait: float = 0.0
    ) -> Posted:
        """Say something in a session: a text, a message or several.

        A user's message asks for a run if the agent can be started, unless told not to or a token says that you
        drive; of several the last one asks. The answer is waited for, `wait` seconds at most.
        """
        return await self.as_it_stands(await saying.post(self.moor, ref, messages, token=token, run=run), wait=wait)

    async def as_it_stands(self, posted: Posted, *, wait: float = 0.0) -> Posted:
        """The same with the run as it is now, or once it has settled within `wait` seconds."""
        if posted.run_id is None:
            return posted
        run = await self.moor.result(posted.run_id, wait=wait)
        return replace(posted, run=run, reply=await saying.reply_of(self.moor, run))


def _is_at_work(session: Session) -> bool:
    """Whether a launcher drives it. A server tells of a live turn by its hold alone."""
    return session.live_turn is not None or (session.hold is not None and session.hold.holder.startswith(LAUNCHER))


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
