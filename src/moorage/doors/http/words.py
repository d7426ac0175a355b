"""`GET /sessions/{session_id}/words`: what the agent of a session is just saying, before it is a message."""

from __future__ import annotations

from moorage.core.codec import encode
from moorage.core.key import Scope
from moorage.doors.http.app import Door, Route
from moorage.doors.http.described import Described
from moorage.doors.http.exchange import Exchange
from moorage.doors.http.reach import check_one
from moorage.doors.http.streams import SSE, LiveStreams, wants_stream
from moorage.doors.http.visit import Visitor
from moorage.service.words import Spoken

PATH = "/sessions/{session_id}/words"
TOLD = "What the agent of a session is just saying"


def add_to(door: Door, live: LiveStreams) -> None:
    """Let what is being said be heard."""
    door.on_close(door.words.close)

    async def words(exchange: Exchange, visitor: Visitor) -> None:
        moor, ref = door.visit(exchange, visitor), exchange.params["session_id"]
        if visitor.session_id is not None:
            await check_one(moor, visitor, "ref", ref)
        session = await moor.get(ref)
        if not wants_stream(exchange):
            await exchange.answer(encode(door.words.said(visitor.caller.owner, session.session_id)))
            return
        with door.words.heard(visitor.caller.owner, session.session_id) as hearer:

            async def next_piece(within: float) -> bytes | None:
                spoken = await hearer.next(within)
                return None if spoken is None else b"event: words\ndata: %s\n\n" % encode(spoken)

            await live.relay(exchange, visitor, next_piece, hearer.stop)

    described = Described(
        name="words",
        summary=f"{TOLD}: so far, as one piece; with `Accept: text/event-stream` a stream, as it says it",
        scope=Scope.READ,
        answer=Spoken,
        or_as=(SSE.decode(),),
    )
    door.add("GET", PATH, Route(described.name, words, Scope.READ), described)
