"""`/agent-sessions/…`: the routes of an earlier API, for clients that were written for it.

This is only a translation: every route makes the same calls as ours, and answers in the format of that API. Its stream
has lines `data: {"type", "data", "timestamp"}` and no others, not even blank ones, so that a client can read it line by
line without a parser for server-sent events; `data.content` is always a text.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from moorage.core.answer import Answer
from moorage.core.codec import encode
from moorage.core.entry import SESSION_DELETED, Event, Kind, check_message, problem_in, text_of
from moorage.core.errors import InvalidField, MoorageError
from moorage.core.key import Scope
from moorage.core.render import to_json
from moorage.core.status import Reason
from moorage.doors.http.app import Door, Handler
from moorage.doors.http.exchange import Exchange
from moorage.doors.http.messages import end_of
from moorage.doors.http.reading import complete_arguments
from moorage.doors.http.streams import SSE, LiveStreams
from moorage.doors.http.visit import USUAL_WAIT, Visit, Visitor
from moorage.remote.operations import Operation, variants

ROOT, ONE = "/agent-sessions", "/agent-sessions/{session_id}"
SAME = {  # routes with the same requests and answers as ours
    "get": Operation("get", "GET", ONE, Scope.READ),
    "suspend": Operation("suspend", "POST", f"{ONE}/suspend", Scope.WRITE),
    "complete": Operation("finalize", "POST", f"{ONE}/complete", Scope.WRITE),
}
TOLD = frozenset(
    (Kind.MESSAGE, Kind.PHASE, Kind.ERROR, Kind.PROBLEM, Kind.APPROVAL_REQUESTED, Kind.RUN_SETTLED, SESSION_DELETED)
)


[CREATE] = variants("create")
_New: Any = CREATE.request


class CreateSession(_New, kw_only=True, forbid_unknown_fields=True):  # type: ignore[misc, call-arg]  # of our own route
    """A session to be made, and what is said in it first."""

    initial_message: str | None = None


class ListSessions(Struct, kw_only=True, forbid_unknown_fields=True):
    """Which sessions."""

    state: str | None = None
    agent_name: str | None = None
    task_id: str | None = None
    parent_session_id: str | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50
    cursor: str | None = None


class SendMessageBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """Something to say, by either of two names."""

    message: str | None = None
    content: str | None = None
    stream: bool = False
    wait: Annotated[float, Meta(ge=0, le=60)] = USUAL_WAIT
    token: str | None = None
    queue: bool = False
    wake: bool = True


class Resume(Struct, kw_only=True, forbid_unknown_fields=True):
    """A request to go on with a session: by its agent, or with `hold` by the caller."""

    hold: bool = False
    holder: str | None = None


def add_to(door: Door, live: LiveStreams) -> None:
    """Answer the routes."""
    for name, operation in SAME.items():
        door.add_operation(operation, f"agent_sessions_{name}")
    routes = AgentSessionRoutes(door, live)

    def add(endpoint: Handler, path: str, name: str, scope: Scope = Scope.WRITE, **told: Any) -> None:
        door.route("POST", path, scope, name=f"agent_sessions_{name}", answer=dict[str, Any], **told)(endpoint)

    add(routes.create, f"{ROOT}/create", "create", body=CreateSession, status=201)
    add(routes.list, f"{ROOT}/list", "list", Scope.READ, body=ListSessions)
    add(routes.messages, f"{ONE}/messages", "messages", body=SendMessageBody, or_as=(SSE.decode(),))
    add(routes.resume, f"{ONE}/resume", "resume", body=Resume)


class AgentSessionRoutes:
    """The routes' endpoints."""

    def __init__(self, door: Door, live: LiveStreams) -> None:
        self._door, self._live = door, live

    async def create(self, exchange: Exchange, visitor: Visitor, asked: CreateSession) -> None:
        """Create a session (as an earlier API did).

        Its agent is asked the first message; the answer does not wait for it.
        """
        if asked.initial_message is not None:
            check_message(asked.initial_message, "initial_message")  # before anything is created
        moor = self._door.visit(exchange, visitor)
        wanted = complete_arguments(CREATE, exchange, CREATE.arguments(asked))
        await moor.check_operation(CREATE, wanted)
        started = await moor.executor.start(wanted.pop("agent", None), asked.initial_message, **wanted)
        fields = ("session_id", "session_name", "task_id", "agent_name", "state", "created_at")
        answer = {name: getattr(started.session, name) for name in fields}
        answer |= {"run_id": started.run_id, "because": started.session.because}
        await exchange.answer(encode(answer), status=201)

    async def list(self, exchange: Exchange, visitor: Visitor, asked: ListSessions) -> None:
        """List sessions, newest first (as an earlier API did).

        A session's token gets those right below its own session, or below one that it names.
        """
        moor, parent = self._door.visit(exchange, visitor), asked.parent_session_id or visitor.session_id
        await moor.check_access("parent", parent)
        page = await moor.list(
            state=None if asked.state is None else asked.state.lower(),
            agent=asked.agent_name,
            task_id=asked.task_id,
            parent=parent,
            limit=asked.limit,
            cursor=asked.cursor,
        )
        await exchange.answer(encode({"sessions": to_json(page.items), "total": len(page.items), "next": page.next}))

    async def messages(self, exchange: Exchange, visitor: Visitor, asked: SendMessageBody) -> None:
        """Send a message and return the answer (as an earlier API did)."""
        if (asked.message is None) == (asked.content is None):
            raise InvalidField("message", "or content: give one of the two")
        moor = await self._door.visit_to_change(exchange, visitor)
        content, key = asked.content if asked.message is None else asked.message, exchange.header(b"idempotency-key")
        posted = await moor.executor.say(
            exchange.params["session_id"],
            [{"role": "user", "content": content, "client_key": key}],
            run=True,
            token=asked.token,
            queue=asked.queue,
            wake=asked.wake,
            wait=0.0 if asked.stream else asked.wait,
        )
        if asked.stream:
            await self._stream(exchange, visitor, posted)
        else:
            await exchange.answer(encode(await _answered(moor, posted)))

    async def _stream(self, exchange: Exchange, visitor: Visitor, posted: Answer) -> None:
        """Stream the agent's output line by line until its run has settled."""
        because, first = None if posted.run is None else posted.run.because, b""
        if because is not None:
            # Simple clients print every content, so an event that only tells of waiting has none.
            content = "" if because.reason is Reason.LAUNCHER_BUSY else because.reason.value
            data = {"run_id": posted.run_id, "because": because, "content": content}
            first = _line("queued", data, self._door.deps.clock.now())
        said = posted.entries[-1].number
        await self._live.follow(
            exchange,
            visitor,
            posted.session_id,
            said if posted.run_id is not None else said - 1,
            lambda event: event.type in TOLD,
            render=as_line,
            until=end_of(posted),
            refusing=self._refusal,
            is_bare=True,
            first=first,
            waits=because is None or not because.needs_a_person,
        )

    def _refusal(self, error: MoorageError) -> bytes:
        return _line("error", {**error.to_dict(), "content": error.message}, self._door.deps.clock.now())

    async def resume(self, exchange: Exchange, visitor: Visitor, asked: Resume) -> None:
        """Resume a session (as an earlier API did).

        Its agent continues, or with `hold` the caller drives it.
        """
        moor = await self._door.visit_to_change(exchange, visitor)
        packet = to_json(await moor.resume(exchange.params["session_id"], hold=asked.hold, holder=asked.holder))
        session = packet["session"]
        await exchange.answer(encode({"session_id": session["session_id"], "state": session["state"], **packet}))


async def _answered(moor: Visit, posted: Answer) -> dict[str, Any]:
    """Return the answer in the format of that API; without one, the outcome so far."""
    run, said = posted.run, "" if posted.reply is None else posted.reply.text
    told = {"content": said, "session_id": posted.session_id, "turn_id": None, "run_id": posted.run_id}
    if run is None:
        return {**told, "state": None, "because": None}
    page = await moor.log(run.session_id, after=run.asked_entry or 0, kinds=(Kind.TURN_STARTED,), limit=1)
    turn_id = page.items[0].data["turn_id"] if page.items and page.items[0].data else None
    told |= {"content": said or run.error or "", "turn_id": turn_id}
    return {**told, "state": run.state.value, "because": run.because}


def as_line(event: Event) -> bytes:
    """Return an event as a line of that API."""
    return _line(event.type, {**event.data, "content": _content(event)}, event.timestamp)


def _line(kind: str, data: dict[str, Any], at: datetime) -> bytes:
    return b"data: %s\n" % encode({"type": kind, "data": data, "timestamp": at})


def _content(event: Event) -> str:
    if event.type == Kind.MESSAGE:
        return text_of(event.data["content"])
    if event.type == Kind.PROBLEM:
        return str(problem_in(event.data))
    return str(event.data.get(_WORDS.get(event.type, "reason")) or "")


_WORDS: dict[str, str] = {Kind.ERROR: "error", Kind.PHASE: "to", Kind.APPROVAL_REQUESTED: "question"}
