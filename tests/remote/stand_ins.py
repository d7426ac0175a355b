"""The least that answers messages and streams, where no door does yet."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from holdfast.core.codec import encode
from holdfast.core.key import Scope
from holdfast.core.render import to_json
from holdfast.doors.http.answers import document
from holdfast.doors.http.app import Door, Route
from holdfast.doors.http.exchange import Exchange
from holdfast.doors.http.reading import read_body, read_fields_of
from holdfast.doors.http.visit import Visitor

PAGE = 100


class MessagesRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    content: Any = None
    messages: Any = None
    role: str = "user"
    client_key: str | None = None
    token: str | None = None
    run: bool = True
    wait: float = 0.0


class EventsQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    after: str = "0"


def add_to(door: Door) -> None:
    async def post(exchange: Exchange, visitor: Visitor) -> None:
        request = read_body(await exchange.body(), MessagesRequest)
        given = {name: getattr(request, name) for name in request.__struct_fields__}
        posted = await door.visit(exchange, visitor).post(exchange.params["ref"], **given)
        await exchange.answer(document(posted), status=201)

    async def events(exchange: Exchange, visitor: Visitor) -> None:
        query = read_fields_of(exchange, EventsQuery)
        hf, ref = door.visit(exchange, visitor), exchange.params.get("ref")
        if exchange.header(b"accept") == "application/json":
            await page(exchange, hf, ref, query.after)
            return
        hf_events = hf.events(ref, after=query.after)
        if ref is not None:
            await hf.get(ref)
        await exchange.begin([(b"content-type", b"text/event-stream")])
        async for event in hf_events:
            data = encode(to_json(event))
            await exchange.more(b"id: %d\nevent: %s\ndata: %s\n\n" % (event.id, event.type.encode(), data))
        await exchange.more(b"", is_last=True)

    async def page(exchange: Exchange, hf: Any, ref: str | None, after: str) -> None:
        found = []
        async for event in hf.events(ref, after=after, follow=False):
            found.append(to_json(event))
            if len(found) > PAGE:
                break
        more, found = len(found) > PAGE, found[:PAGE]
        await exchange.answer(encode({"items": found, "next": str(found[-1]["id"]) if more else None}))

    door.add("POST", "/sessions/{ref}/messages", Route("post", post, Scope.WRITE))
    door.add("GET", "/sessions/{ref}/events", Route("events", events, Scope.READ))
    door.add("GET", "/events", Route("events", events, Scope.READ))
