"""An interaction: one conversation with an agent, as a stream of events into which the next input can be sent.

All events come from the session's log, so input from other interfaces appears here too, and an interrupted connection
continues where it was. `waiting_for_input` is not in the log: it tells that all events have been sent and that the
session waits for a person's input. It comes once, until the session changes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from moorage.connection import Connection
from moorage.core.answer import Answer
from moorage.core.approval import Approval
from moorage.core.entry import SESSION_DELETED, Event, Kind, problem_in, text_of
from moorage.core.errors import SessionGone, SessionRunning
from moorage.core.run import Run
from moorage.core.session import BY_PERSON, Session
from moorage.core.turn import TurnState
from moorage.service.conversation import deletion_of
from moorage.service.words import Transcript

STOP_WITHIN = 20.0  # seconds: an agent has five between being asked to stop and being killed
CUT_OFF_BY = (TurnState.FAILED.value, TurnState.LOST.value)  # ends of a turn before its agent answered
SETTLED = (Kind.APPROVAL_DECIDED, Kind.APPROVAL_EXPIRED, Kind.APPROVAL_WITHDRAWN)

# The types of events.
MESSAGE, CHUNK, WAITING_FOR_INPUT, PROBLEM = "message", "chunk", "waiting_for_input", "problem"
CUT_OFF = "cut_off"  # the turn ended before its agent answered; the next one has begun
SUSPENDED, COMPLETED = "suspended", "completed"
FAILED = "failed"  # the session, or a run: nothing will answer its prompt, and the session is unchanged

Open = Callable[[], Awaitable[Session]]


class ExecutionEvent(Struct, frozen=True, kw_only=True):
    """An event of an interaction."""

    type: str
    data: dict[str, Any]
    timestamp: datetime
    is_last: bool = False  # whether no event follows

    @property
    def content(self) -> str:
        """Return the readable text of the event."""
        return str(self.data.get("content") or "")


class Interaction:
    """A conversation with an agent. `async with` closes it; otherwise it ends with its last event."""

    def __init__(
        self,
        moor: Connection,
        open_session: Open,
        first: object = None,
        *,
        agent: str | None = None,
        key: str | None = None,
        partial: bool = False,
    ) -> None:
        """Set up the conversation. `first` is sent at once, with the client key `key`. `partial` adds events of type
        `chunk`.

        `agent` answers, whichever agent the session has; without one, the session's own.
        """
        self._moor, self._open_session, self._first, self._key, self._partial = moor, open_session, first, key, partial
        self._agent = agent
        self._session: Session | None = None
        self._events: deque[ExecutionEvent] = deque()
        self._approvals: dict[str, Approval] = {}
        self._outstanding: set[str] = set()  # runs that have not settled
        self.earlier: list[Run] = []  # earlier requests that are still open
        self._own: set[int] = set()  # entries that were posted here
        self._cut_off: str | None = None  # why the last turn ended, if its agent had not answered
        self._moves, self._told = 1, 0  # number of events that may make it the person's turn: in all, and reported
        self._transcript = Transcript() if partial else None
        self._news = asyncio.Event()
        self._order = asyncio.Lock()  # the id of a sent message is known before its events are read
        self._beginning, self._has_begun, self._is_over = asyncio.Lock(), False, False
        self._following: asyncio.Task[None] | None = None
        self._until_closed = ExitStack()

    @property
    def session_id(self) -> str:
        """The id of the session, once it is open."""
        return self.session.session_id

    @property
    def session(self) -> Session:
        """The session at the time of opening."""
        assert self._session is not None, "it is not open"
        return self._session

    @property
    def is_answered(self) -> bool:
        """Return whether all requests are answered."""
        return not self._outstanding

    @property
    def approvals(self) -> list[Approval]:
        """Return the pending approvals."""
        return list(self._approvals.values())

    # The stream ---------------------------------------------------------------------------------

    async def open(self) -> Interaction:
        """Find or create the session, and send the first message. Reading the first event does this, too."""
        await self._begin()
        return self

    async def __aenter__(self) -> Interaction:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> Interaction:
        return self

    async def __anext__(self) -> ExecutionEvent:
        await self._begin()
        while True:
            if self._events:
                return await self._handed_out(self._events.popleft())
            if self._is_over:
                raise StopAsyncIteration
            if self._told != self._moves and (self._approvals or not self._outstanding):
                self._told = self._moves
                if self._transcript is not None:
                    self._transcript.end_line()
                return _waiting(self.session_id, self.approvals)
            if self._following is not None and self._following.done() and not self._following.cancelled():
                self._following.result()  # raises what went wrong
            self._news.clear()
            await self._news.wait()

    async def close(self) -> None:
        """Stop following. The session and its runs continue."""
        self._is_over = True
        self._until_closed.close()
        if self._following is not None and not self._following.done():
            self._following.cancel()
            await asyncio.wait([self._following])

    def repeat(self) -> None:
        """Send `waiting_for_input` again if the session waits for a person."""
        self._move()

    # Actions of a person ------------------------------------------------------------------------

    async def send(self, content: object, *, client_key: str | None = None) -> Answer:
        """Send the next input. It is stored at once and answered in the agent's next turn."""
        await self._begin()
        return await self._say(content, client_key)

    async def _say(self, content: object, client_key: str | None) -> Answer:
        async with self._order:
            guest = None if self._agent == self.session.agent_name else self._agent
            reply = await self._moor.send(self.session_id, content, agent=guest, client_key=client_key)
            self._own.add(reply.message.number)
            # A message with a key may have been posted and answered before.
            if reply.run_id and not (client_key and (await self._moor.get_run(reply.run_id)).is_settled):
                self._outstanding.add(reply.run_id)
            self._move()
        return reply

    async def decide(self, decision: str, *, approval_id: str | None = None, note: str | None = None) -> list[Approval]:
        """Decide one pending approval or all of them, and return the decided ones."""
        await self._begin()
        async with self._order:
            wanted = [each for each in self.approvals if approval_id in (None, each.approval_id)]
            decided = [await self._moor.decide(each.approval_id, decision, note=note) for each in wanted]
            for approval in decided:
                self._approvals.pop(approval.approval_id, None)
            await self._moor.launch(self.session.root_session_id)  # this connection may not have launched anything yet
            self._move()
        return decided

    async def suspend(self, reason: str | None = None, *, checkpoint: dict[str, Any] | None = None) -> Session:
        """Suspend the session, and close this conversation.

        If this connection's launcher has a turn, it is released as cut off: its run and its questions stay open, and
        continue with the session. Raises SessionRunning if another launcher has it, such as a server's.
        """
        await self._begin()
        try:
            session = await self._moor.suspend(self.session_id, checkpoint=checkpoint, reason=reason)
        except SessionRunning:
            session = await self._moor.suspend_own(self.session_id, checkpoint=checkpoint, reason=reason)
        await self.close()
        return session

    async def stop(self) -> list[str]:
        """Stop the runs of the session and its descendants, wait for the session's own runs, and return the ids."""
        await self._begin()
        told = await self._moor.stop(self.session_id)
        for run_id in tuple(self._outstanding):
            await self._moor.result(run_id, wait=STOP_WITHIN)
        return told

    async def look(self) -> Session:
        """Return the current session."""
        return await self._moor.get(self.session_id)

    async def complete(self, summary: str | None = None, *, outcome: str = "completed") -> Session:
        """Close the session for good."""
        await self._begin()
        return await self._moor.finalize(self.session_id, outcome, summary=summary)

    # Internals ----------------------------------------------------------------------------------

    async def _begin(self) -> None:
        if self._has_begun:
            return
        async with self._beginning:
            if not self._has_begun:
                await self._open()
                self._has_begun = True

    async def _open(self) -> None:
        self._session = await self._open_session()
        approvals = await self._moor.approvals(self.session_id)
        self._approvals = {each.approval_id: each for each in approvals}
        self.earlier = (await self._moor.runs(session=self.session_id, open_only=True)).items[::-1]
        self._outstanding.update(run.run_id for run in self.earlier)
        if self._partial:
            self._until_closed.enter_context(self._moor.words_heard(self.session_id, self._hear_words))
        self._following = asyncio.create_task(self._follow(self._session.last_entry))
        self._following.add_done_callback(lambda _: self._news.set())
        if self.earlier:
            await self._moor.launch(self.session.root_session_id)
        if self._first is not None:
            await self._say(self._first, self._key)

    async def _follow(self, after: int) -> None:
        try:
            await self._hear(after)
        except SessionGone as gone:  # before its stream had begun
            self._tell(_deleted(deletion_of(gone, after + 1)))

    async def _hear(self, after: int) -> None:
        async for event in self._moor.events(self.session_id, after=after):
            async with self._order:
                self._note(event)
                if (ending := _ending(event)) is not None:
                    self._tell(ending)
                    if ending.is_last:
                        return

    def _note(self, event: Event) -> None:
        if event.type == Kind.MESSAGE and event.id not in self._own:
            self._tell(_said(event, self._transcript))
        elif event.type == Kind.PROBLEM:
            self._tell(_of(event, PROBLEM, str(problem_in(event.data))))
        elif event.type == Kind.TURN_ENDED:
            self._cut_off = event.data.get("reason") if event.data["outcome"] in CUT_OFF_BY else None
        elif event.type == Kind.ERROR and self._cut_off is not None:
            self._cut_off = event.data["error"]
        elif event.type == Kind.TURN_STARTED and self._cut_off is not None:
            self._tell(_of(event, CUT_OFF, self._cut_off))
            self._cut_off = None
        elif event.type == Kind.RUN_SETTLED:
            self._cut_off = None
            self._settle(event)
        elif event.type == Kind.APPROVAL_REQUESTED:
            self._ask(event)
        elif event.type in SETTLED:
            self._approvals.pop(event.data["approval_id"], None)
            self._move()

    def _settle(self, event: Event) -> None:
        is_ours = event.data["run_id"] in self._outstanding
        self._outstanding.discard(event.data["run_id"])
        if is_ours and event.data["outcome"] != "completed":
            self._tell(_of(event, FAILED, f"the run is {event.data['outcome']}"))
        self._move()

    def _ask(self, event: Event) -> None:
        asked = event.data
        self._approvals[asked["approval_id"]] = Approval(
            approval_id=asked["approval_id"],
            session_id=event.session_id,
            question=asked["question"],
            plan=asked.get("plan"),
            options=tuple(asked.get("options") or ()),
            asked_at=event.timestamp,
        )
        self._move()

    def _hear_words(self, text: str, begins: bool) -> None:
        assert self._transcript is not None
        if words := self._transcript.piece(text, begins=begins):
            self._tell(_now(CHUNK, self.session_id, words))

    def _tell(self, event: ExecutionEvent) -> None:
        self._events.append(event)
        self._news.set()

    def _move(self) -> None:
        self._moves += 1
        self._news.set()

    async def _handed_out(self, event: ExecutionEvent) -> ExecutionEvent:
        if event.is_last:
            await self.close()
        if event.type == FAILED and "run_id" in event.data:  # the log has the failure, not the reason
            run = await self._moor.get_run(event.data["run_id"])
            return replace(event, data={**event.data, "error": run.error, "content": run.error or event.content})
        return event


# Events -----------------------------------------------------------------------------------------


def _said(event: Event, transcript: Transcript | None) -> ExecutionEvent:
    """Return the event for a message of the log: its text as `content`, and its parts if it has some.

    With a transcript of earlier chunks, `rest` is the text that they do not have.
    """
    content = event.data["content"]
    text, parts = text_of(content), {"parts": content} if isinstance(content, list) else {}
    data = {**event.data, "session_id": event.session_id, "content": text, **parts}
    if transcript is not None and event.data["role"] == "assistant":
        data["rest"] = transcript.message(text)
    return ExecutionEvent(type=MESSAGE, data=data, timestamp=event.timestamp)


def _waiting(session_id: str, approvals: list[Approval]) -> ExecutionEvent:
    """Return the event that it is a person's turn: to answer the agent's question, or to say the next thing."""
    questions = [
        {"approval_id": each.approval_id, "question": each.question, "options": list(each.options), "plan": each.plan}
        for each in approvals
    ]
    return _now(WAITING_FOR_INPUT, session_id, "\n".join(each.question for each in approvals), approvals=questions)


def _now(kind: str, session_id: str, content: str, **more: Any) -> ExecutionEvent:
    """Return an event that is not in the log."""
    data = {"session_id": session_id, "content": content, **more}
    return ExecutionEvent(type=kind, data=data, timestamp=datetime.now(UTC))


def _of(event: Event, kind: str, content: str | None, *, is_last: bool = False) -> ExecutionEvent:
    """Return the event for an entry of the log."""
    data = {**event.data, "session_id": event.session_id, "content": content or ""}
    return ExecutionEvent(type=kind, data=data, timestamp=event.timestamp, is_last=is_last)


def _ending(event: Event) -> ExecutionEvent | None:
    """Return the event for a log entry that may end a conversation; None for other entries."""
    if event.type == Kind.SUSPENDED:
        by_person = event.data.get("suspended_by") == BY_PERSON  # what its agent suspends, the next input wakes
        return _of(event, SUSPENDED, event.data.get("reason"), is_last=by_person)
    if event.type == Kind.FINALIZED:
        kind = COMPLETED if event.data["outcome"] == "completed" else FAILED
        return _of(event, kind, event.data.get("summary"), is_last=True)
    return _deleted(event) if event.type == SESSION_DELETED else None


def _deleted(event: Event) -> ExecutionEvent:
    return _of(event, FAILED, "the session was deleted", is_last=True)
