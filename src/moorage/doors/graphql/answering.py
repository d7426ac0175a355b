"""GraphQL over HTTP: read requests, execute operations, answer in a media type that the client accepts."""

from __future__ import annotations

from typing import Any

import msgspec
from graphql import OperationType

from moorage.core.errors import InvalidField, InvalidJson, InvalidRequest, MoorageError, edge_of
from moorage.doors.graphql.asking import at_this_door
from moorage.doors.graphql.engine import (
    DocumentRefused,
    Engine,
    Execution,
    GraphqlRequest,
    Response,
    as_sse,
    encoded,
    refusal,
)
from moorage.doors.graphql.limits import InvalidQuery, QueryTooLarge
from moorage.doors.graphql.socket import Socket, SocketSettings
from moorage.doors.http.app import Door, headers_of
from moorage.doors.http.exchange import JSON, AsgiReceive, AsgiScope, AsgiSend, Exchange, names, preferred
from moorage.doors.http.reading import query_of, read_json
from moorage.doors.http.refusals import STATUS, WrongVerb
from moorage.doors.http.streams import HEADERS, SSE, LiveStreams, cursor_of
from moorage.doors.http.visit import Visitor

GRAPHQL_JSON = b"application/graphql-response+json"
COMPLETE = b"event: complete\ndata: \n\n"
BAD_REQUEST, UNPROCESSABLE = 400, 422  # GraphQL over HTTP requires 400 where REST answers 422
BY_SSE_OR_SOCKET = "a subscription comes over a WebSocket, or with `Accept: text/event-stream`"
ONE_ANSWER = "a subscription cannot be part of a batch; send it alone"


class UnsupportedMediaType(InvalidRequest):
    """A body that is not sent as JSON."""

    def __init__(self, given: str) -> None:
        super().__init__(
            f"a GraphQL request needs `Content-Type: application/json`, and its Content-Type is "
            f"{given[:100] or 'missing'!r}",
            content_type=given[:100],
        )


OWN_STATUS = {**STATUS, UnsupportedMediaType.code: 415}


class Answering:
    """Answers requests to /graphql."""

    def __init__(self, door: Door, live: LiveStreams) -> None:
        self._door, self._live = door, live
        self.engine = Engine(door, live)
        self.sockets = SocketSettings()
        self._open = 0  # open WebSockets

    async def socket(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        """Serve a WebSocket until it is closed."""
        self._open += 1
        try:
            is_full = self._open > self._door.deps.settings.server.streams
            await Socket(self.engine, self.sockets, scope, receive, send).run(is_full=is_full)
        finally:
            self._open -= 1

    async def answer(self, exchange: Exchange) -> None:
        """Admit the request and answer it; report errors before the execution in the GraphQL format."""
        at_this_door(exchange)
        try:
            visitor = await self._door.admit(exchange)
            await (self._post if exchange.verb == "POST" else self._get)(exchange, visitor)
        except (MoorageError, DocumentRefused) as error:
            if exchange.status:
                raise
            await self._refuse(exchange, error)

    async def _refuse(self, exchange: Exchange, error: MoorageError | DocumentRefused) -> None:
        if isinstance(error, DocumentRefused):
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
        """Answer the operations of a body: one, or a list of them."""
        check_content_type(exchange)
        body = await exchange.body()
        if body.lstrip()[:1] == b"[":
            await self._answer_batch(exchange, visitor, _read(body, list[GraphqlRequest]))
        else:
            await self._answer(exchange, visitor, self.engine.execution(_read(body, GraphqlRequest), exchange, visitor))

    async def _get(self, exchange: Exchange, visitor: Visitor) -> None:
        """Answer the operation in the query of a URL; never a mutation."""
        given = dict(query_of(exchange))
        request = GraphqlRequest(
            query=given.get("query"),
            operationName=given.get("operationName") or None,
            variables=_object("variables", given.get("variables")),
            extensions=_object("extensions", given.get("extensions")),
        )
        execution = self.engine.execution(request, exchange, visitor)
        if execution.operation.kind is OperationType.MUTATION:
            raise WrongVerb("GET", ["POST"])
        await self._answer(exchange, visitor, execution)

    async def _answer(self, exchange: Exchange, visitor: Visitor, execution: Execution) -> None:
        if execution.is_subscription:
            if not names(exchange.headers.get(b"accept", b""), SSE):
                raise DocumentRefused([InvalidQuery(BY_SSE_OR_SOCKET)])
            await self._stream(exchange, visitor, execution)
            return
        answer = await execution.answer()
        if _kind_for(exchange) is SSE:
            await _answer_by_sse(exchange, answer)
        else:
            await _answer_whole(exchange, answer)

    async def _answer_batch(self, exchange: Exchange, visitor: Visitor, requests: list[GraphqlRequest]) -> None:
        """Answer several operations, one after the other; all together have the cost limit of one."""
        limits = self.engine.limits
        if not requests:
            raise DocumentRefused([InvalidQuery("the batch is empty; put an operation into it")])
        if len(requests) > limits.operations:
            raise DocumentRefused([QueryTooLarge("operations in a batch", limits.operations)])
        left, answers = limits.cost, list[Response]()
        for request in requests:
            try:
                execution = self.engine.execution(request, exchange, visitor)
                if execution.is_subscription:
                    raise DocumentRefused([InvalidQuery(ONE_ANSWER)])
                left -= execution.operation.price.check(request.variables or {}, left)
                if answers:
                    await self._door.admit(exchange)  # each counts as a separate request
                answers.append(await execution.answer())
            except (MoorageError, DocumentRefused) as error:
                answers.append(refusal(error))
        await exchange.answer(encoded(answers), kind=_document_kind(exchange))

    async def _stream(self, exchange: Exchange, visitor: Visitor, execution: Execution) -> None:
        try:
            wanted, rendering = await execution.followed()
            text = exchange.header(b"last-event-id")  # of a browser that reconnects
            await self._live.follow(
                exchange,
                visitor,
                wanted.ref,
                wanted.after if text is None else cursor_of(text),
                render=rendering.rendered_as_sse,
                ending=_complete,
                refusing=lambda error: as_sse(encoded(refusal(error))) + COMPLETE,
            )
        except (MoorageError, DocumentRefused) as error:
            if exchange.status:
                raise
            await _answer_by_sse(exchange, refusal(error))


async def _complete() -> bytes:
    return COMPLETE


async def _answer_by_sse(exchange: Exchange, answer: Response) -> None:
    await exchange.begin(HEADERS)
    await exchange.more(as_sse(encoded(answer)) + COMPLETE, is_last=True)


async def _answer_whole(exchange: Exchange, answer: Response) -> None:
    """Answer with one document. Plain JSON always has status 200, because a 4xx may be that of a proxy."""
    kind = _document_kind(exchange)
    status = BAD_REQUEST if kind is GRAPHQL_JSON and "data" not in answer else 200
    await exchange.answer(encoded(answer), status=status, kind=kind)


def _kind_for(exchange: Exchange) -> bytes:
    """Return the media type for an answer of one document; a wildcard means plain JSON."""
    accept = exchange.headers.get(b"accept", b"")
    return preferred(accept, *((GRAPHQL_JSON,) if names(accept, GRAPHQL_JSON) else ()), JSON, SSE)


def _document_kind(exchange: Exchange) -> bytes:
    kind = _kind_for(exchange)
    return JSON if kind is SSE else kind


def check_content_type(exchange: Exchange) -> None:
    """Raise UnsupportedMediaType unless the body is declared as JSON.

    A page of another site can send a body without a type, or with the type of a form, to any server.
    """
    given = exchange.headers.get(b"content-type", b"")
    if given.partition(b";")[0].strip().lower() != JSON:
        raise UnsupportedMediaType(given.decode("latin-1"))


def _read(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # malformed JSON
        raise InvalidJson("body", f"it is not a GraphQL request ({error})") from None


def _object(name: str, text: str | None) -> dict[str, Any] | None:
    if not text:
        return None
    value = read_json(text, name)
    if value is not None and not isinstance(value, dict):
        raise InvalidField(name, "must be an object")
    return value
