"""Live streams: `GET /events` and `GET /sessions/{session_id}/events`, as server-sent events or as JSON pages.

`GET /sessions/{session_id}/words` streams the words of a session's agent before they are a message.

An event's `id` is its number in the log, or its cursor over all sessions; a reader that reconnects with the last one it
saw (`Last-Event-ID`) continues right after it. A reader that is too slow loses the connection, not events: the unread
ones are in the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from moorage.core.codec import encode
from moorage.core.entry import SESSION_DELETED, Event, Kind
from moorage.core.errors import AccessError, InvalidField, MoorageError
from moorage.core.key import Scope
from moorage.core.query import Page, check_numbers
from moorage.doors.http.app import Door
from moorage.doors.http.exchange import JSON, ClientDisconnected, Exchange
from moorage.doors.http.visit import Visitor
from moorage.service.conversation import PAGE, check_feed_cursor, newest_event, session_page
from moorage.service.streams import Hub, Render, Stream, Told, Wants
from moorage.service.words import Spoken

SESSION, WORDS = "/sessions/{session_id}/events", "/sessions/{session_id}/words"
SSE = b"text/event-stream"
HEADERS = [(b"content-type", SSE), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
# Neither ends with an empty line: that would end an event, and some readers take one without data for a message.
GREETING = b"retry: 1000\n"  # milliseconds until a browser reconnects
HEARTBEAT = b":\n"
AT_ONCE = 64 * 1024  # bytes of a write
TYPES = (*Kind, SESSION_DELETED)


class StreamSettings(Struct, frozen=True, kw_only=True):
    """Limits on the times of streams."""

    heartbeat: float = 15.0  # seconds of silence before a keep-alive
    drained_within: float = 30.0  # seconds for a reader to take what was sent


class SessionEventsRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """The wanted events of a session."""

    after: Annotated[str, Meta(description="a cursor, or `end`; `Last-Event-ID` goes before it")] = "0"
    types: Annotated[list[str], Meta(description="only these; several, or separated by commas")] | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=1000, description="of a JSON page")] = 100


class EventsRequest(SessionEventsRequest, kw_only=True, forbid_unknown_fields=True):
    """The wanted events of all sessions."""

    session: Annotated[str, Meta(description="only of this session")] | UnsetType = UNSET


def add_to(door: Door, settings: StreamSettings | None = None) -> LiveStreams:
    """Add the streams' routes."""
    live = LiveStreams(door, settings or StreamSettings())
    door.on_close(live.close)
    door.on_close(door.words.close)
    streamed: dict[str, Any] = {"scope": Scope.READ, "or_as": (SSE.decode(),)}
    events = {**streamed, "answer": Page[Event]}
    door.route("GET", "/events", name="events", to_token=False, query=EventsRequest, **events)(live.everything)
    door.route("GET", SESSION, name="session_events", query=SessionEventsRequest, **events)(live.session)
    door.route("GET", WORDS, answer=Spoken, **streamed)(live.words)
    return live


def as_refusal(error: MoorageError) -> bytes:
    """Return the last event of a stream whose reader lost access."""
    return b"event: refused\ndata: %s\n\n" % encode(error.to_dict())


def as_event(event: Event) -> bytes:
    """Return an event as it is sent."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.id, event.type.encode(), encode(event))


class LiveStreams:
    """The streams of one server."""

    def __init__(self, door: Door, settings: StreamSettings) -> None:
        self._door, self.settings, self.places = door, settings, door.places
        self._hubs: dict[str, Hub] = {}
        self.is_closing = False

    async def close(self) -> None:
        """End all streams; their readers reconnect, to the next server."""
        self.is_closing = True
        for hub in self._hubs.values():
            hub.close()

    # Routes -------------------------------------------------------------------------------------

    async def session(self, exchange: Exchange, visitor: Visitor, asked: SessionEventsRequest) -> None:
        """Return the events of a session: a JSON page; with `Accept: text/event-stream` a stream."""
        deps, caller, ref = self._door.deps, visitor.caller, exchange.params["session_id"]
        after = cursor_of(exchange.header(b"last-event-id") or asked.after)
        wants = _wants(asked, also=(SESSION_DELETED,))
        if wants_stream(exchange):
            await self.follow(exchange, visitor, ref, after, wants)
            return
        check_numbers(after)
        session = await deps.store.get(caller.owner, ref)
        read = partial(session_page, deps, caller, session.session_id)
        await _answer_page(exchange, read, session.last_entry if after is None else after, asked.limit, wants)

    async def everything(self, exchange: Exchange, visitor: Visitor, asked: EventsRequest) -> None:
        """Return the events of all sessions: a JSON page; with `Accept: text/event-stream` a stream."""
        deps, caller, ref = self._door.deps, visitor.caller, asked.session
        after, session_id = cursor_of(exchange.header(b"last-event-id") or asked.after), None
        if ref is not UNSET:
            session_id = (await deps.store.get(caller.owner, ref)).session_id
        wants = _wants(asked, session_id=session_id)
        if wants_stream(exchange):
            await self.follow(exchange, visitor, None, after, wants)
            return
        cursor = await newest_event(deps, caller, None) if after is None else after
        check_feed_cursor(cursor)
        await _answer_page(exchange, partial(deps.store.feed, caller.owner), cursor, asked.limit, wants)

    async def words(self, exchange: Exchange, visitor: Visitor) -> None:
        """Return the partial output of a session's agent, as one piece; with `Accept: text/event-stream` a stream."""
        owner, words = visitor.caller.owner, self._door.words
        session_id = (await self._door.visit(exchange, visitor).get(exchange.params["session_id"])).session_id
        if not wants_stream(exchange):
            await exchange.answer(encode(words.said(owner, session_id)))
            return
        with words.heard(owner, session_id) as subscription, self.places.place_for(visitor):

            async def next_pieces(within: float) -> list[bytes] | None:
                if self.is_closing:
                    return None
                spoken = await subscription.next(within)
                return [] if spoken is None else [b"event: words\ndata: %s\n\n" % encode(spoken)]

            await exchange.begin(HEADERS)
            await self._send(exchange, next_pieces, subscription.stop)
        await exchange.more(b"", is_last=True)

    # Streams ------------------------------------------------------------------------------------

    async def follow(
        self,
        exchange: Exchange,
        visitor: Visitor,
        ref: str | None,
        after: int | None,
        wants: Wants | None = None,
        *,
        render: Render = as_event,
        until: Wants | None = None,
        ending: Callable[[], Awaitable[bytes]] | None = None,
        refusing: Callable[[MoorageError], bytes] = as_refusal,
        is_bare: bool = False,
        first: bytes = b"",
        waits: bool = True,
    ) -> None:
        """Send the events of a session, or of all, until they end, one is the last, the client goes, or access ends.

        `first` is sent first, `ending` last, `refusing` instead when access ends. Without `waits`, there is nothing in
        between. A bare stream has events only: no greeting, no keep-alives.
        """
        async with self.joined(visitor, ref, after, wants) as stream:

            async def next_pieces(within: float) -> list[bytes] | None:
                return None if stream.ended else _rendered(stream, await stream.next(within), render, until)

            begins = [] if is_bare else [(b"last-event-id", b"%d" % stream.after)]  # where to go on if it breaks off
            await exchange.begin([*HEADERS, *begins])
            try:
                if first:
                    await self._write(exchange, [first])
                if waits:
                    await self._send(exchange, next_pieces, stream.stop, is_bare=is_bare)
                if ending is not None and not self.is_closing:
                    await self._write(exchange, [await ending()])
            except AccessError as error:
                await self._write(exchange, [refusing(error)])
        await exchange.more(b"", is_last=True)

    @asynccontextmanager
    async def joined(
        self, visitor: Visitor, ref: str | None, after: int | None, wants: Wants | None = None
    ) -> AsyncIterator[Stream]:
        """Join the stream of a session, or without `ref` of all, during the block. Raise TooManyStreams."""
        caller = visitor.caller
        if (hub := self._hubs.get(caller.owner)) is None:
            hub = self._hubs[caller.owner] = Hub(self._door.deps_of(caller.owner), caller.owner)
        with self.places.place_for(visitor):
            joining = hub.everything(caller, after, wants) if ref is None else hub.session(caller, ref, after, wants)
            stream = await joining
            if self.is_closing:
                stream.stop()
            try:
                yield stream
            finally:
                hub.leave(stream)

    async def _send(
        self,
        exchange: Exchange,
        next_pieces: Callable[[float], Awaitable[list[bytes] | None]],
        stop: Callable[[], None],
        *,
        is_bare: bool = False,
    ) -> None:
        """Send pieces until they are None or the client disconnects; send keep-alives in between, unless bare."""
        watching = asyncio.create_task(exchange.disconnected())
        watching.add_done_callback(lambda _: stop())
        access, silent = self._door.access(exchange, self.settings.heartbeat), [] if is_bare else [HEARTBEAT]
        try:
            if not is_bare:
                await self._write(exchange, [GREETING])
            while exchange.verb != "HEAD" and not watching.done():
                if (pieces := await next_pieces(self.settings.heartbeat)) is None:
                    break
                await access.check()
                await self._write(exchange, pieces or silent)
            if watching.done():
                raise ClientDisconnected
        finally:
            watching.cancel()

    async def _write(self, exchange: Exchange, pieces: Iterable[bytes]) -> None:
        try:
            for some in _in_writes(pieces):
                async with asyncio.timeout(self.settings.drained_within):
                    await exchange.more(some)
        except TimeoutError:
            await exchange.abort()
            raise ClientDisconnected from None


def _rendered(stream: Stream, told: list[Told], render: Render, until: Wants | None) -> list[bytes]:
    """Return the bytes of these events; the one that `until` accepts is the last one of the stream."""
    pieces = []
    for each in told:
        pieces.append(each.rendered(render))
        if until is not None and until(each.event):
            stream.stop()
            break
    return pieces


def _in_writes(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield pieces joined into writes of limited size, unless a single piece is larger."""
    some: list[bytes] = []
    size = 0
    for piece in pieces:
        if some and size + len(piece) > AT_ONCE:
            yield b"".join(some)
            some, size = [], 0
        some.append(piece)
        size += len(piece)
    if some:
        yield b"".join(some)


async def _answer_page(
    exchange: Exchange, read: Callable[[int, int], Awaitable[list[Event]]], after: int, limit: int, wants: Wants | None
) -> None:
    """Answer with the events after a cursor; `next` is the cursor to continue from, if there are more."""
    found: list[Event] = []
    at_once = limit + 1 if wants is None else max(limit + 1, PAGE)  # a filter may skip many
    while True:
        events = await read(after, at_once)
        found += [event for event in events if wants is None or wants(event)]
        if len(found) > limit or len(events) < at_once:
            break
        after = events[-1].id
    is_more, found = len(found) > limit, found[:limit]
    await exchange.answer(encode(Page(found, str(found[-1].id) if is_more else None)))


def cursor_of(text: str) -> int | None:
    """Return the cursor that a text names; None for the end. Raises InvalidField."""
    if text == "end":
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidField("after", f"is {text[:80]!r}; give the id of an event, or `end`")
    return int(text)


def _wants(asked: SessionEventsRequest, *, session_id: str | None = None, also: tuple[str, ...] = ()) -> Wants | None:
    """Return the filter of a request; None passes every event."""
    types = None if asked.types is UNSET else frozenset((*asked.types, *also))
    if types is not None and (unknown := types - set(TYPES)):
        raise InvalidField("types", f"has {', '.join(sorted(unknown))[:80]!r}; use some of {', '.join(TYPES)}")
    if types is None and session_id is None:
        return None
    return lambda event: (types is None or event.type in types) and session_id in (None, event.session_id)


def wants_stream(exchange: Exchange) -> bool:
    """Return whether the request names a stream. `*/*` gets a finite answer, since a stream never ends."""
    return exchange.preferred(JSON, SSE) == SSE
