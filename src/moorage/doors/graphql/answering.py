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
from moorage.doors.graphql.media_types import GRAPHQL_JSON, accepted, check_content_type
from moorage.doors.graphql.refusals import InvalidQuery, QueryTooLarge, UnsupportedMediaType
from moorage.doors.graphql.socket import Socket, SocketSettings
from moorage.doors.graphql.streams import COMPLETE, Followed, as_sse
from moorage.doors.http.app import Door, headers_of
from moorage.doors.http.exchange import JSON, Exchange, Receive, Scope, Send
from moorage.doors.http.reading import query_of
from moorage.doors.http.refusals import STATUS, WrongVerb
from moorage.doors.http.streams import HEADERS, SSE, LiveStreams
from moorage.doors.http.visit import Visitor

BAD_REQUEST, UNPROCESSABLE = 400, 422  # GraphQL over HTTP asks for the former where REST has the latter
OWN_STATUS = {**STATUS, UnsupportedMediaType.code: 415}
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
        if isinstance(error, Refused):
            await _answer_whole(exchange, refusal(error))
            return
        status = OWN_STATUS.get(error.code) or edge_of(error).http
        await exchange.answer(
            encoded(refusal(error)),
            status=BAD_REQUEST if status == UNPROCESSABLE else status,
            kind=_document_kind(exchange),
            headers=headers_of(error),
        )

    async def _post(self, exchange: Exchange, visitor: Visitor) -> None:
        check_content_type(exchange)
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
            variables=_object("variables", given.get("variables")),
            extensions=_object("extensions", given.get("extensions")),
        )
        operation = self.engine.operation(request)
        if operation.kind is OperationType.MUTATION:
            raise WrongVerb("GET", ["POST"])
        await self._answer(exchange, visitor, request)

    async def _answer(self, exchange: Exchange, visitor: Visitor, request: Request) -> None:
        operation = self.engine.operation(request)
        if operation.kind is OperationType.SUBSCRIPTION:
            if not accepted(exchange).takes_events:
                raise Refused([InvalidQuery(BY_SSE_OR_SOCKET)])
            await self._stream(exchange, visitor, operation, request)
            return
        answer = await self.engine.answer(operation, request, exchange, visitor)
        if accepted(exchange).kind is SSE:
            await _answer_by_sse(exchange, answer)
        else:
            await _answer_whole(exchange, answer)

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
        await exchange.answer(encoded(answers), kind=_document_kind(exchange))

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


async def _answer_whole(exchange: Exchange, answer: Answer) -> None:
    """Answer with one document; in plain JSON with status 200 whatever it says: a 4xx may be that of a proxy."""
    kind = _document_kind(exchange)
    status = BAD_REQUEST if kind is GRAPHQL_JSON and "data" not in answer else 200
    await exchange.answer(encoded(answer), status=status, kind=kind)


def _document_kind(exchange: Exchange) -> bytes:
    kind = accepted(exchange).kind
    return JSON if kind is SSE else kind


def _read(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # what does not fit is one of these too
        raise InvalidJson("body", f"it is no GraphQL request ({error})") from None


def _object(name: str, text: str | None) -> dict[str, Any] | None:
    if not text:
        return None
    try:
        value = decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidJson(name, f"it is not JSON ({error})") from None
    if value is not None and not isinstance(value, dict):
        raise InvalidField(name, "must be an object")
    return value
