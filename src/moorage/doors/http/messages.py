"""`POST /sessions/{session_id}/messages`: post messages, and get the answer later, after a wait, or as a stream.

`GET /last-lines`: the beginning of the newest message of each of several sessions, for lists.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from moorage.core.answer import Answer
from moorage.core.codec import encode
from moorage.core.entry import ROLES, Entry, Kind, text_of
from moorage.core.errors import InvalidField, NotFound
from moorage.core.ids import check_label
from moorage.core.key import Scope
from moorage.core.query import LogQuery, Page
from moorage.doors.http.app import Door
from moorage.doors.http.exchange import Exchange
from moorage.doors.http.streams import SSE, LiveStreams
from moorage.doors.http.visit import Visit, Visitor
from moorage.service.about import learn
from moorage.service.streams import Wants

PATH = "/sessions/{session_id}/messages"
MAX_CLIENT_KEY = 250  # each of several messages appends its position
MAX_LINES = 100  # sessions at once
LINE_LENGTH = 200  # characters


class PostMessages(Struct, kw_only=True, forbid_unknown_fields=True):
    """One message (`content`, `role`) or several (`messages`), and what is to come of them."""

    content: str | list[dict[str, Any]] | None = None
    messages: list[str | dict[str, Any]] | None = None
    role: str = "user"
    agent_name: str | None = None
    parameters: dict[str, Any] | None = None
    client_key: Annotated[str, Meta(max_length=MAX_CLIENT_KEY)] | None = None
    token: str | None = None
    run: bool | None = None
    queue: bool = False
    wake: bool = True
    wait: Annotated[float, Meta(ge=0, le=60)] = 0.0
    stream: bool = False


def add_to(door: Door, live: LiveStreams) -> None:
    """Add the routes."""

    @door.route("POST", PATH, Scope.WRITE, body=PostMessages, answer=Answer, status=201, or_as=(SSE.decode(),))
    async def post_messages(exchange: Exchange, visitor: Visitor, asked: PostMessages) -> None:
        """Send messages to a session; a user's message asks its agent for an answer."""
        moor = await door.visit_to_change(exchange, visitor)
        posted = await moor.post(
            exchange.params["session_id"],
            _messages(exchange, asked),
            agent=asked.agent_name,
            parameters=asked.parameters,
            token=asked.token,
            run=asked.run,
            queue=asked.queue,
            wake=asked.wake,
        )
        posted = await moor.executor.answered(posted, 0.0 if asked.stream else asked.wait)
        learn(session=posted.session_id, task=posted.entries[0].task_id, run=posted.run_id)
        if asked.stream:
            await stream_answer(live, exchange, visitor, moor, posted)
        else:
            await exchange.answer(encode(posted), status=201)

    @door.route("GET", "/last-lines", Scope.READ, to_token=False, query=LastLinesRequest, answer=Page[LastLine])
    async def last_lines(exchange: Exchange, visitor: Visitor, asked: LastLinesRequest) -> None:
        """Return the beginning of the newest message of each of these sessions; sessions without one are left out."""
        refs = list(filter(None, asked.sessions))
        if not 0 < len(refs) <= MAX_LINES:
            raise InvalidField("sessions", f"names {len(refs)}; give 1 to {MAX_LINES}, separated by commas")
        found = [await _newest_message(door, visitor.caller.owner, ref) for ref in dict.fromkeys(refs)]
        await exchange.answer(encode(Page([_line_of(entry) for entry in found if entry is not None])))


async def stream_answer(live: LiveStreams, exchange: Exchange, visitor: Visitor, moor: Visit, posted: Answer) -> None:
    """Stream the session's events from the message until its run has settled; the outcome comes last, as `done`."""

    async def done() -> bytes:
        try:
            return b"event: done\ndata: %s\n\n" % encode(await moor.executor.as_it_stands(posted))
        except NotFound:  # deleted meanwhile, together with its run
            return b"event: done\ndata: %s\n\n" % encode(posted)

    because = None if posted.run is None else posted.run.because
    first = b"" if because is None else b"event: queued\ndata: %s\n\n" % encode(because)
    await live.follow(
        exchange,
        visitor,
        posted.session_id,
        posted.entries[0].number - 1,
        until=end_of(posted),
        ending=done,
        first=first,
        waits=because is None or not because.needs_a_person,
    )


def end_of(posted: Answer) -> Wants:
    """Return a test for the last event of an answer: the end of its run; without a run, the posted message."""
    if posted.run_id is None:
        return lambda event: event.id >= posted.entries[-1].number
    return lambda event: event.type == Kind.RUN_SETTLED and event.data["run_id"] == posted.run_id


def _messages(exchange: Exchange, asked: PostMessages) -> list[Any]:
    """Return the messages of a request, each with its own key, else with the request's key and its position.

    Check the role and the key of the request even if each message has its own.
    """
    key = exchange.header(b"idempotency-key") or asked.client_key
    if (asked.messages is None) == (asked.content is None):
        raise InvalidField("messages", "and content: give one of the two")
    if asked.messages is None:
        return [{"role": asked.role, "content": asked.content, "client_key": key}]
    if asked.role not in ROLES:
        raise InvalidField("role", f"is {asked.role[:80]!r}; use one of {', '.join(ROLES)}")
    if asked.client_key is not None:
        check_label("client_key", asked.client_key)
    if key is None:
        return list(asked.messages)
    every = [{"role": "user", "content": each} if isinstance(each, str) else each for each in asked.messages]
    return [{"client_key": f"{key}:{index}", **each} for index, each in enumerate(every)]


# Last lines -------------------------------------------------------------------------------------


class LastLinesRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """The sessions to look at."""

    sessions: Annotated[list[str], Meta(description="ids or names; several, or separated by commas")]


class LastLine(Struct, frozen=True, kw_only=True):
    """The newest message of a session, on one line."""

    session_id: str
    number: int
    role: str | None
    at: datetime
    line: str


async def _newest_message(door: Door, owner: str, ref: str) -> Entry | None:
    try:
        entries = await door.deps.store.log(owner, ref, LogQuery(limit=1, kinds=(Kind.MESSAGE,), newest_first=True))
    except NotFound:  # deleted since the list was made
        return None
    return entries[0] if entries else None


def _line_of(entry: Entry) -> LastLine:
    text = " ".join(text_of(entry.content)[: LINE_LENGTH * 4].split()) or _tool_names(entry)
    line = text if len(text) <= LINE_LENGTH else f"{text[:LINE_LENGTH]}…"
    return LastLine(session_id=str(entry.session_id), number=entry.number, role=entry.role, at=entry.at, line=line)


def _tool_names(entry: Entry) -> str:
    """Describe a message that has tool calls and no text."""
    parts = entry.content if isinstance(entry.content, list) else []
    return ", ".join(str(part.get("name") or part["type"]) for part in parts)
