"""`POST /sessions/{session_id}/messages`: post messages, and get the answer later, after a wait, or as a stream."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from moorage.core.answer import Answer
from moorage.core.codec import encode
from moorage.core.entry import ROLES, Kind
from moorage.core.errors import InvalidField, NotFound
from moorage.core.ids import check_label
from moorage.core.key import Scope
from moorage.doors.http.app import Door
from moorage.doors.http.exchange import Exchange
from moorage.doors.http.streams import SSE, LiveStreams
from moorage.doors.http.visit import Visit, Visitor
from moorage.service.about import learn
from moorage.service.streams import Wants

PATH = "/sessions/{session_id}/messages"
MAX_CLIENT_KEY = 250  # each of several messages appends its position


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
    """Add the route for posting messages."""

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


async def stream_answer(live: LiveStreams, exchange: Exchange, visitor: Visitor, moor: Visit, posted: Answer) -> None:
    """Stream the session's events from the message until its run has settled; the outcome comes last, as `done`."""

    async def done() -> bytes:
        try:
            return b"event: done\ndata: %s\n\n" % encode(await moor.executor.as_it_stands(posted))
        except NotFound:  # deleted meanwhile, together with its run
            return b"event: done\ndata: %s\n\n" % encode(posted)

    because = None if posted.run is None else posted.run.because
    first = b"" if because is None else b"event: queued\ndata: %s\n\n" % encode(because)
    hub, after = live.hub(visitor), posted.entries[0].number - 1
    await live.follow(
        exchange,
        visitor,
        lambda: hub.session(visitor.caller, posted.session_id, after),
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
    """Return the messages of a request, with their keys. Check its role and key even if each message has its own."""
    key = exchange.header(b"idempotency-key") or asked.client_key
    if (asked.messages is None) == (asked.content is None):
        raise InvalidField("messages", "and content: give one of the two")
    if asked.messages is None:
        return [{"role": asked.role, "content": asked.content, "client_key": key}]
    if asked.role not in ROLES:
        raise InvalidField("role", f"is {asked.role[:80]!r}; use one of {', '.join(ROLES)}")
    if asked.client_key is not None:
        check_label("client_key", asked.client_key)
    return _keyed(asked.messages, key)


def _keyed(messages: list[str | dict[str, Any]], key: str | None) -> list[Any]:
    """Return messages with a client key each: their own, else the request's key and their position."""
    if key is None:
        return list(messages)
    every = [{"role": "user", "content": each} if isinstance(each, str) else each for each in messages]
    return [{"client_key": f"{key}:{index}", **each} for index, each in enumerate(every)]
