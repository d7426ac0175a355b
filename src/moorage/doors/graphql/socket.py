"""GraphQL over a WebSocket, with the protocol `graphql-transport-ws`.

::

    connection_init ──→ connection_ack          within a few seconds, once, with a key where one is needed
    subscribe {id} ──→ next {id} …, complete {id}        or error {id}
    complete {id} ──→                           the client wants no more of it
    ping ⇄ pong                                 at any time

A connection that breaks these rules is closed with a code that tells which rule. Each operation passes the authorizer:
a revoked key starts no further operation, and its streams end. A client that reads too slowly loses the connection, not
events.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from moorage.core.codec import encode
from moorage.core.errors import MoorageError
from moorage.doors.graphql.asking import at_this_door
from moorage.doors.graphql.engine import DocumentRefused, Engine, Execution, GraphqlRequest, encoded, refusal
from moorage.doors.http.app import request_id
from moorage.doors.http.exchange import AsgiReceive, AsgiScope, AsgiSend, ClientDisconnected, Exchange
from moorage.doors.http.refusals import TooManyStreams, Unexpected
from moorage.doors.http.visit import Visitor
from moorage.service.about import working_on

log = logging.getLogger(__name__)

SUBPROTOCOL = "graphql-transport-ws"
CREDENTIALS = frozenset(
    {
        "authorization", "x-api-key", "x-agent-session-id", "x-agent-session-name", "x-agent-run-id",
        "x-moorage-interface", "x-moorage-by", "x-moorage-holder",
    }
)  # fmt: skip
MAX_REASON = 120  # bytes; a close frame has room for 123

INVALID, UNAUTHORIZED, FORBIDDEN, NO_SUCH_PROTOCOL = 4400, 4401, 4403, 4406
TOO_SLOW_TO_INIT, TAKEN, TOO_MANY_INITS, TRY_LATER = 4408, 4409, 4429, 1013


class SocketSettings(Struct, frozen=True, kw_only=True):
    """The time limits of a socket, and the number of its concurrent operations."""

    init_within: float = 5.0  # seconds
    operations: int = 200  # concurrent


class Said(Struct, kw_only=True):
    """A message of the client."""

    type: str
    id: str | None = None
    payload: Any = None


class Closed(Exception):
    """Raised to close the connection; it has the reason."""

    def __init__(self, code: int, reason: str) -> None:
        self.code, self.reason = code, reason


class Socket:
    """One connection."""

    def __init__(
        self, engine: Engine, settings: SocketSettings, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend
    ) -> None:
        self._door, self._live, self._engine, self._settings = engine.door, engine.live, engine, settings
        self._receive, self._send = receive, send
        self._offered = scope.get("subprotocols", ())
        self._exchange = Exchange({**scope, "method": "GET"}, receive, send, request_id(scope, self._door.deps))
        at_this_door(self._exchange)
        self._is_admitted = self._was_begun = False
        self._running: dict[str, asyncio.Task[None]] = {}  # by the client's ids
        self._tasks: set[asyncio.Task[None]] = set()  # including those that are being ended

    async def run(self, *, is_full: bool = False) -> None:
        """Serve until either side closes. If the server `is_full`, tell the client to try again later."""
        await self._receive()  # the client wants to connect
        known = SUBPROTOCOL in self._offered
        await self._send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL if known else None})
        try:
            if is_full:
                raise Closed(TRY_LATER, "too many connections; try again later")
            if not known:
                raise Closed(NO_SUCH_PROTOCOL, f"speak {SUBPROTOCOL}")
            await self._init()
            await self._listen()
        except Closed as closed:
            reason = closed.reason.encode()[:MAX_REASON].decode(errors="ignore")
            with suppress(OSError):
                await self._send({"type": "websocket.close", "code": closed.code, "reason": reason})
        except (ClientDisconnected, OSError):
            pass
        finally:
            await self._end()

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # Messages of the client ---------------------------------------------------------------------

    async def _init(self) -> None:
        """Wait for the client's `connection_init`, with a timeout."""
        try:
            async with asyncio.timeout(self._settings.init_within):
                while not self._is_admitted:
                    await self._hear(await self._next())
        except TimeoutError:
            raise Closed(TOO_SLOW_TO_INIT, "Connection initialisation timeout") from None

    async def _listen(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._live.settings.heartbeat):
                    said = await self._next()
            except TimeoutError:
                await self._say(b'{"type":"ping"}')
            else:
                await self._hear(said)

    async def _next(self) -> Said:
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            raise ClientDisconnected
        try:
            return msgspec.json.decode(message.get("text") or b"", type=Said)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Closed(INVALID, f"Invalid message: {error}") from None

    async def _hear(self, said: Said) -> None:
        if said.type == "connection_init":
            await self._admit(said.payload)
        elif said.type == "subscribe":
            self._begin(said)
        elif said.type == "complete":
            if (task := self._running.pop(said.id or "", None)) is not None:
                task.cancel()
        elif said.type == "ping":
            await self._say(b'{"type":"pong"}')
        elif said.type != "pong":
            raise Closed(INVALID, f"Invalid message: its type is {said.type[:40]!r}")

    async def _admit(self, payload: Any) -> None:
        """Admit the client by the key in the message or by its headers."""
        if self._was_begun:
            raise Closed(TOO_MANY_INITS, "Too many initialisation requests")
        self._was_begun = True
        for name, value in (payload if isinstance(payload, dict) else {}).items():
            if name.lower() in CREDENTIALS and isinstance(value, str):
                self._exchange.headers[name.lower().encode()] = value.encode()
        try:
            await self._door.admit(self._exchange)
        except MoorageError as error:
            raise Closed(FORBIDDEN, f"Forbidden: {error.code}: {error.message}") from None
        await self._say(b'{"type":"connection_ack"}')
        self._is_admitted = True

    # Operations ---------------------------------------------------------------------------------

    def _begin(self, said: Said) -> None:
        if not self._is_admitted:
            raise Closed(UNAUTHORIZED, "Unauthorized")
        if not said.id:
            raise Closed(INVALID, "Invalid message: subscribe has no id")
        if said.id in self._running:
            raise Closed(TAKEN, f"Subscriber for {said.id} already exists")
        try:
            request = msgspec.convert(said.payload, GraphqlRequest)
        except msgspec.ValidationError as error:
            raise Closed(INVALID, f"Invalid message: {error}") from None
        task = self._running[said.id] = asyncio.create_task(self._operate(said.id, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _operate(self, name: str, request: GraphqlRequest) -> None:
        with suppress(ClientDisconnected, OSError), working_on(request_id=self._exchange.request_id):
            try:
                await self._carry_out(name, request)
            except (MoorageError, DocumentRefused) as error:
                await self._fail(name, error)
            except (ClientDisconnected, OSError):
                raise
            except Exception:
                log.exception("an operation failed")
                await self._fail(name, Unexpected())

    async def _carry_out(self, name: str, request: GraphqlRequest) -> None:
        if len(self._running) > self._settings.operations:
            raise TooManyStreams(self._settings.operations, "on this connection")
        visitor = await self._door.admit(self._exchange)
        execution = self._engine.execution(request, self._exchange, visitor)
        if execution.is_subscription:
            await self._follow(name, execution, visitor)
        else:
            answer = encoded(await execution.answer())
            await self._say(b'{"id":%s,"type":"next","payload":%s}' % (encode(name), answer))
            await self._complete(name)

    async def _follow(self, name: str, execution: Execution, visitor: Visitor) -> None:
        wanted, rendering = await execution.followed()
        render = rendering.rendered
        head = b'{"id":%s,"type":"next","payload":' % encode(name)
        access = self._door.access(self._exchange, self._live.settings.heartbeat)
        async with self._live.joined(visitor, wanted.ref, wanted.after) as stream:
            while not stream.ended:
                told = await stream.next(self._live.settings.heartbeat)
                await access.check()
                for each in told:
                    await self._say(b"%s%s}" % (head, each.rendered(render)))
        if not self._live.is_closing:  # else the client reconnects, to the next server
            await self._complete(name)

    async def _complete(self, name: str) -> None:
        self._running.pop(name, None)  # the client may use the id again as soon as it reads the message
        await self._say(b'{"id":%s,"type":"complete"}' % encode(name))

    async def _fail(self, name: str, error: MoorageError | DocumentRefused) -> None:
        self._running.pop(name, None)
        await self._say(b'{"id":%s,"type":"error","payload":%s}' % (encode(name), encoded(refusal(error)["errors"])))

    async def _say(self, text: bytes) -> None:
        """Send a message; close the connection if the client does not read."""
        try:
            async with asyncio.timeout(self._live.settings.drained_within):
                await self._send({"type": "websocket.send", "text": text.decode()})
        except TimeoutError:
            await self._exchange.abort()
            raise ClientDisconnected from None
