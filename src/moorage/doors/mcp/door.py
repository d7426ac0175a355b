"""`/mcp`: the Model Context Protocol over HTTP, with the same authorizer as everything else.

The library takes a second to load, so it is loaded with the first request, on a thread: a server without such requests
never loads it. `HEAD /mcp` only tells whether a caller is admitted; that is how `moorage mcp` finds a server.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from moorage.core.errors import AccessError, StoreUnavailable
from moorage.core.extras import missing
from moorage.doors.http.app import Door, Route
from moorage.doors.http.exchange import MAX_BODY, Exchange
from moorage.doors.http.streams import LiveStreams
from moorage.doors.http.visit import Visitor

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from moorage.doors.mcp.server import McpServer

PATH = "/mcp"
IDLE_SESSION = 1800.0  # seconds; the library's own default from 2.2 on
VISIT = "moorage.visit"  # the key of a request's scope that has its caller's view of Moorage


def add_to(door: Door, live: LiveStreams, *, stateless: bool = False) -> Mcp:
    """Add /mcp. `stateless`: requests of one client may reach several processes, so none keeps state."""
    mcp = Mcp(door, live, stateless=stateless)
    for verb in ("POST", "GET", "DELETE"):
        door.add(Route(verb=verb, path=PATH, name=f"mcp_{verb.lower()}", endpoint=mcp.answer))
    door.on_close(mcp.close)
    return mcp


class Mcp:
    """The endpoint of MCP."""

    def __init__(self, door: Door, live: LiveStreams, *, stateless: bool) -> None:
        self._door, self._live, self._stateless = door, live, stateless
        self._starting: asyncio.Future[StreamableHTTPSessionManager] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._server: McpServer | None = None  # created on first use
        self._stop = asyncio.Event()

    async def answer(self, exchange: Exchange, visitor: Visitor) -> None:
        """Answer any request to /mcp."""
        if find_spec("mcp") is None:
            raise missing("mcp", "MCP")
        if exchange.verb == "HEAD":
            await exchange.answer(b"")
            return
        manager = await self._started()
        with self._live.places.place_for(visitor), self._hearing(exchange):
            mine = replace(visitor.caller, interface="mcp", holder=_holder(exchange, visitor))
            exchange.scope[VISIT] = self._door.visit(exchange, replace(visitor, caller=mine))
            exchange.scope["user"] = _principal(visitor)
            await self._while_admitted(exchange, asyncio.ensure_future(exchange.pass_to(manager.handle_request)))

    async def _while_admitted(self, exchange: Exchange, answering: asyncio.Future[None]) -> None:
        """Let the library answer while the caller has access; then close the connection."""
        access = self._door.access(exchange, self._live.settings.heartbeat)
        try:
            while not (await asyncio.wait([answering], timeout=access.every))[0]:
                await access.check()
        except AccessError:
            await exchange.abort()
        finally:
            if not answering.done():
                answering.cancel()
                await asyncio.wait([answering])
        if not answering.cancelled():
            answering.result()

    def _hearing(self, exchange: Exchange) -> AbstractContextManager[None]:
        """Note that a client of the older protocol gets notifications, while its stream is open."""
        client = exchange.header(b"mcp-session-id")
        return self._server.stream_of(client) if self._server and client and exchange.verb == "GET" else nullcontext()

    async def _started(self) -> StreamableHTTPSessionManager:
        """Start the library's side, once; a cancelled caller does not cancel the start for the others."""
        if self._stop.is_set():
            raise StoreUnavailable("this server is stopping; try again in a moment")
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_future()
            self._keeper = asyncio.create_task(self._keep(self._starting))
        return await asyncio.shield(self._starting)

    async def _keep(self, starting: asyncio.Future[StreamableHTTPSessionManager]) -> None:
        """Keep the library's side open until the server stops: one task has to enter and to leave it."""
        try:
            manager = await asyncio.to_thread(self._load)
            async with manager.run():
                starting.set_result(manager)
                await self._stop.wait()
        except Exception as error:
            self._starting = None  # the next attempt may succeed
            if starting.done():
                raise
            starting.set_exception(error)

    def _load(self) -> StreamableHTTPSessionManager:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from moorage.doors.mcp.changes import supported
        from moorage.doors.mcp.server import McpServer

        limits = self._door.deps.settings.server
        self._server = McpServer(_visit_of, is_stateless=self._stateless, leaves_work=self._stop.is_set)
        bounds = supported(StreamableHTTPSessionManager, max_sessions=limits.streams)
        if not bounds and not self._stateless:  # before 2.2, only a timeout ends sessions that their clients have left
            bounds = {"session_idle_timeout": IDLE_SESSION}
        return StreamableHTTPSessionManager(
            self._server, stateless=self._stateless, max_request_body_size=MAX_BODY, **bounds
        )

    async def close(self) -> None:
        """End all sessions of the protocol; their agents continue."""
        self._stop.set()
        if self._server is not None:
            self._server.end_streams()
        if self._keeper is not None:
            with suppress(asyncio.CancelledError):
                await asyncio.wait([self._keeper])


def _visit_of(ctx: Any) -> Any:
    return ctx.request.scope[VISIT]


def _holder(exchange: Exchange, visitor: Visitor) -> str:
    """Return the name under which the caller holds sessions: their own, else that of their session of the protocol."""
    session = exchange.header(b"mcp-session-id")
    if exchange.header(b"x-moorage-holder") is not None or not session or not session.isalnum():
        return visitor.caller.holder
    return visitor.caller.held_as(f"mcp-{session[:64]}")


def _principal(visitor: Visitor) -> Any:
    """Return the owner of a session of the protocol: its id is no password."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    who = visitor.key_id or visitor.session_id
    return AuthenticatedUser(AccessToken(token="", client_id=visitor.caller.owner, scopes=[], subject=who))
