"""GraphQL over HTTP: requests read, operations carried out, answers in the form that the client accepts."""

from __future__ import annotations

from typing import Any

import msgspec
from graphql import OperationType

from moorage.core.codec import decode
from moorage.core.errors import InvalidField, InvalidJson, MoorageError, edge_of
from moorage.doors.graphql.asking import at_this_door
from moorage.doors.graphql.documents import Operation, Refused
from moorage.doors.graphql.engine import Engine
from moorage.doors.graphql.executing import Answer, Request, encoded, refusal
from moorage.doors.graphql.refusals import InvalidQuery, QueryTooLarge
from moorage.doors.graphql.socket import Socket, SocketSettings
from moorage.doors.graphql.streams import COMPLETE, Followed, as_sse
from moorage.doors.http.app import Door, headers_of
from moorage.doors.http.exchange import JSON, Exchange, Receive, Scope, Send
from moorage.doors.http.reading import query_of
from moorage.doors.http.refusals import STATUS, WrongVerb
from moorage.doors.http.streams import HEADERS, SSE, LiveStreams
from moorage.doors.http.visit import Visitor

GRAPHQL_JSON = b"application/graphql-response+json"
BY_SSE_OR_SOCKET = "a subscription comes over a WebSocket, or with `Accept: text/event-stream`"
ONE_ANSWER = "a subscription cannot be part of a batch; send it alone"


class Answering:
    """Answers what comes to /graphql."""

    def __init__(self, door: Door, live: LiveStreams, sockets: SocketSettings | None = None) -> None:
        self._door, self._live = door, live
        self.engine = Engine(door)
        self.sockets = sockets or SocketSettings()
        self._open = 0  # WebSockets

    async def socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a WebSocket until it is closed."""
        self._open += 1
        try:
            is_full = self._open > self._live.settings.in_all
            await Socket(self._door, self._live, self.engine, self.sockets, scope, receive, send).run(is_full=is_full)
        finally:
            self._open -= 1

    async def post(self, exchange: Exchange) -> None:
        """Operations in a body: one, or a list of them."""
        await self._guarded(exchange, self._post)

    async def get(self, exchange: Exchange) -> None:
        """An operation in the query of an address; never a mutation."""
        await self._guarded(exchange, self._get)

    async def _guarded(self, exchange: Exchange, answer: Any) -> None:
        """Admit, answer; say in GraphQL's words what went wrong before there was an operation."""
        at_this_door(exchange)
        try:
            await answer(exchange, await self._door.admit(exchange))
        except (MoorageError, Refused) as error:
            if exchange.status:
                raise
            await self._refuse(exchange, error)

    async def _refuse(self, exchange: Exchange, error: MoorageError | Refused) -> None:
        cause = error.errors[0] if isinstance(error, Refused) else error
        status = 422
        if isinstance(cause, MoorageError):
            status = STATUS.get(cause.code) or edge_of(cause).http
        if isinstance(error, Refused) and status == 422 and GRAPHQL_JSON not in _accepted(exchange):
            status = 200  # so it is with plain JSON: a proxy's 4xx is told from ours by it
        headers = headers_of(cause) if isinstance(cause, MoorageError) else []
        await exchange.answer(encoded(refusal(error)), status=status, kind=_kind(exchange), headers=headers)

    async def _post(self, exchange: Exchange, visitor: Visitor) -> None:
        body = await exchange.body()
        if body.lstrip()[:1] == b"[":
            await self._answer_batch(exchange, visitor, _read(body, list[Request]))
        else:
            await self._answer(exchange, visitor, _read(body, Request))

    async def _get(self, exchange: Exchange, visitor: Visitor) -> None:
        given = dict(query_of(exchange))
        request = Request(
            query=given.get("query"),
            operationName=given.get("operationName") or None,
            variables=_variables(given.get("variables")),
        )
        operation = self.engine.operation(request)
        if operation.kind is OperationType.MUTATION:
            raise WrongVerb("GET", ["POST"])
        await self._answer(exchange, visitor, request)

    async def _answer(self, exchange: Exchange, visitor: Visitor, request: Request) -> None:
        operation = self.engine.operation(request)
        accepted = _accepted(exchange)
        if operation.kind is OperationType.SUBSCRIPTION:
            if SSE not in accepted:
                raise Refused([InvalidQuery(BY_SSE_OR_SOCKET)])
            await self._stream(exchange, visitor, operation, request)
            return
        answer = await self.engine.answer(operation, request, exchange, visitor)
        if SSE in accepted and b"json" not in accepted:
            await _answer_by_sse(exchange, answer)
            return
        status = 422 if "data" not in answer and GRAPHQL_JSON in accepted else 200
        await exchange.answer(encoded(answer), status=status, kind=_kind(exchange))

    async def _answer_batch(self, exchange: Exchange, visitor: Visitor, requests: list[Request]) -> None:
        """Several operations, one after the other; together they may cost what one may."""
        limits = self.engine.limits
        if not 0 < len(requests) <= limits.operations:
            raise Refused([QueryTooLarge("operations in a batch", limits.operations)])
        left, answers = limits.cost, list[Answer]()
        for request in requests:
            try:
                operation = self.engine.operation(request)
                if operation.kind is OperationType.SUBSCRIPTION:
                    raise Refused([InvalidQuery(ONE_ANSWER)])
                left -= operation.price.check(request.variables or {}, left)
                if answers:
                    await self._door.admit(exchange)  # each counts as a request of its own
                answers.append(await self.engine.answer(operation, request, exchange, visitor))
            except (MoorageError, Refused) as error:
                answers.append(refusal(error))
        await exchange.answer(encoded(answers), kind=_kind(exchange))

    async def _stream(self, exchange: Exchange, visitor: Visitor, operation: Operation, request: Request) -> None:
        """A subscription, by server-sent events."""
        try:
            wanted = await self.engine.followed(operation, request, exchange, visitor)
            await self._follow(exchange, visitor, wanted)
        except (MoorageError, Refused) as error:
            if exchange.status:
                raise
            await _answer_by_sse(exchange, refusal(error))

    async def _follow(self, exchange: Exchange, visitor: Visitor, wanted: Followed) -> None:
        hub, after = self._live.hub(visitor), _where(exchange, wanted)

        async def complete() -> bytes:
            return COMPLETE

        await self._live.follow(
            exchange,
            visitor,
            lambda: hub.session(visitor.caller, wanted.ref, after),
            render=wanted.rendering.as_sse,
            ending=complete,
            refusing=lambda error: as_sse(encoded(refusal(error))) + COMPLETE,
        )


def _where(exchange: Exchange, wanted: Followed) -> int | None:
    """Where a stream goes on: what a browser that comes back has seen goes before what it was asked for with."""
    text = exchange.header(b"last-event-id")
    if text is None:
        return wanted.after
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidField("after", f"is {text[:80]!r}; give the id of an event")
    return int(text)


async def _answer_by_sse(exchange: Exchange, answer: Answer) -> None:
    await exchange.begin(HEADERS)
    await exchange.more(as_sse(encoded(answer)) + COMPLETE, is_last=True)


def _accepted(exchange: Exchange) -> bytes:
    return exchange.headers.get(b"accept", b"").lower()


def _kind(exchange: Exchange) -> bytes:
    return GRAPHQL_JSON if GRAPHQL_JSON in _accepted(exchange) else JSON


def _read(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # what does not fit is one of these too
        raise InvalidJson("body", f"it is no GraphQL request ({error})") from None


def _variables(text: str | None) -> dict[str, Any] | None:
    if not text:
        return None
    try:
        value = decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidJson("variables", f"it is not JSON ({error})") from None
    if value is not None and not isinstance(value, dict):
        raise InvalidField("variables", "must be an object")
    return value
