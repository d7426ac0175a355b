"""`/graphql`: GraphQL beside REST, with the same authorizer.

`POST` (or `GET` with `query`) answers queries and mutations as JSON, and subscriptions as server-sent events
to clients that accept them; a WebSocket takes all three. A browser that asks for a page gets GraphiQL, from files of
the package alone. The libraries are loaded with the first request, on a thread: a server without such requests never
loads them.
"""

from __future__ import annotations

import asyncio
import gc
import os
from typing import TYPE_CHECKING

from moorage.doors.http.app import Door, Route
from moorage.doors.http.exchange import AsgiReceive, AsgiScope, AsgiSend, Exchange, RawHeaders
from moorage.doors.http.pages import sending
from moorage.doors.http.streams import LiveStreams
from moorage.doors.http.visit import Visitor

if TYPE_CHECKING:
    from moorage.doors.graphql.answering import Answering

PATH = "/graphql"
FOLDER = os.path.join(os.path.dirname(__file__), "static")
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    b"font-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)  # the editor styles its elements itself; scripts come only from the package's files
SAFE: RawHeaders = [(b"content-security-policy", POLICY), (b"referrer-policy", b"no-referrer")]
show_page = sending(os.path.join(FOLDER, "index.html"), [*SAFE, (b"cache-control", b"no-cache")])


def add_to(door: Door, live: LiveStreams) -> Graphql:
    """Answer at /graphql.

    Unauthorized callers get an error in the GraphQL format, so the routes call the authorizer themselves. The
    operations are described by the GraphQL schema, not by the OpenAPI document.
    """
    graphql = Graphql(door, live)
    door.add(Route(verb="POST", path=PATH, name="graphql", endpoint=graphql.answer, is_open=True))
    door.add(Route(verb="GET", path=PATH, name="graphql_get", endpoint=graphql.answer, is_open=True))
    door.sockets[PATH] = graphql.socket
    for name in sorted(os.listdir(FOLDER)):
        if name.endswith((".js", ".css")):
            send = sending(os.path.join(FOLDER, name), [*SAFE, (b"cache-control", b"max-age=3600")])
            door.add(
                Route(verb="GET", path=f"{PATH}/static/{name}", name="graphql_static", endpoint=send, is_open=True)
            )
    return graphql


class Graphql:
    """The endpoints of GraphQL."""

    def __init__(self, door: Door, live: LiveStreams) -> None:
        self._door, self._live = door, live
        self._loading: asyncio.Task[Answering] | None = None

    async def answer(self, exchange: Exchange, visitor: Visitor) -> None:
        """Answer `POST /graphql` and `GET /graphql`."""
        accepted = exchange.headers.get(b"accept", b"").lower()
        if exchange.verb != "POST" and b"text/html" in accepted and b"query=" not in exchange.scope["query_string"]:
            await show_page(exchange, visitor)  # to a browser that opens it
        else:
            await (await self.loaded()).answer(exchange)

    async def socket(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        """Serve a WebSocket at /graphql."""
        await (await self.loaded()).socket(scope, receive, send)

    async def loaded(self) -> Answering:
        """Load all modules for answers, once; a cancelled caller does not cancel the loading for the others."""
        if self._loading is None:
            self._loading = asyncio.create_task(asyncio.to_thread(self._load))
        return await asyncio.shield(self._loading)

    def _load(self) -> Answering:
        from moorage.doors.graphql.answering import Answering

        answering = Answering(self._door, self._live)
        gc.freeze()  # modules and schema are never garbage; see `serve`
        return answering
