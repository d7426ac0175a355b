"""The execution of operations, for HTTP and WebSocket: a request in, an answer or a subscription out.

`service.streams` produces the events of a subscription; this module renders them. Equal subscriptions get equal
answers, so an event is rendered once for all of them.
"""

from __future__ import annotations

from inspect import isawaitable
from typing import Any

import msgspec
from graphql import ExecutionResult, OperationType, subscribe
from msgspec import Struct

from moorage.core.codec import encode
from moorage.core.errors import MoorageError
from moorage.core.event import Event
from moorage.doors.graphql.asking import OperationContext, WantedEvents
from moorage.doors.graphql.documents import DocumentCache, DocumentRefused, ParsedOperation
from moorage.doors.graphql.limits import QueryLimits
from moorage.doors.graphql.refusals import InvalidQuery, QueryTooCostly, shown
from moorage.doors.graphql.schema import schema
from moorage.doors.http.app import Door
from moorage.doors.http.exchange import Exchange
from moorage.doors.http.visit import Visitor

Response = dict[str, Any]


class GraphqlRequest(Struct, kw_only=True):
    """One operation as clients send it; unknown fields are ignored."""

    query: str | None = None
    variables: dict[str, Any] | None = None
    operationName: str | None = None
    extensions: dict[str, Any] | None = None  # unused, but a value of another type is an error


class Engine:
    """Answers operations on one server."""

    def __init__(self, door: Door) -> None:
        allowed = door.deps.settings.server
        self._door = door
        self.limits = QueryLimits(depth=allowed.graphql_depth, cost=allowed.graphql_cost)
        self.schema = schema()
        self.documents = DocumentCache(self.schema, self.limits)

    def execution(self, request: GraphqlRequest, exchange: Exchange, visitor: Visitor) -> Execution:
        """Return the execution of the operation that a request names, validated and within the limits.

        Raises:
            InvalidQuery: the request has no query.
            DocumentRefused: its query is invalid, or exceeds a limit.
        """
        if request.query is None:
            raise InvalidQuery('there is no query; send one as JSON: {"query": "{ … }"}')
        operation = self.documents.operation(request.query, request.operationName)
        try:
            operation.price.check(request.variables or {}, self.limits.cost)
        except QueryTooCostly as error:
            raise DocumentRefused([error]) from None
        return Execution(operation, request.variables, OperationContext(self._door.visit(exchange, visitor), visitor))


class Execution(Struct, frozen=True):
    """An operation with its variables, for one visitor."""

    operation: ParsedOperation
    variables: dict[str, Any] | None
    context: OperationContext | None  # None: events are rendered alike for all visitors

    @property
    def is_subscription(self) -> bool:
        """Return whether it is a subscription."""
        return self.operation.kind is OperationType.SUBSCRIPTION

    async def answer(self) -> Response:
        """Execute a query or a mutation and return its answer, errors included."""
        result = self.operation.execute(self.variables, self.context)
        return answer_of(await result if isawaitable(result) else result)

    async def followed(self) -> tuple[WantedEvents, Execution]:
        """Return the events that a subscription follows, and the execution that renders them. Raise DocumentRefused."""
        operation = self.operation
        stream: Any = subscribe(
            operation.schema,
            operation.document,
            context_value=self.context,
            variable_values=self.variables,
            operation_name=operation.name,
        )
        stream = await stream if isawaitable(stream) else stream
        if isinstance(stream, ExecutionResult):
            raise DocumentRefused([*(stream.errors or ())])
        wanted = None if self.context is None else self.context.wanted
        assert wanted is not None, "the source of a subscription says what is wanted"
        if not operation.is_same_for_all:
            return wanted, self
        if operation.rendering is None:
            operation.rendering = Execution(operation, self.variables, None)
        return wanted, operation.rendering

    def rendered(self, event: Event) -> bytes:
        """Return the answer of a subscription for an event."""
        result = self.operation.execute(self.variables, self.context, event)
        assert isinstance(result, ExecutionResult), "an event is resolved without waiting"
        return encoded(answer_of(result))

    def rendered_as_sse(self, event: Event) -> bytes:
        """Return the answer as a server-sent event."""
        return as_sse(self.rendered(event), event.id)


# Answers ----------------------------------------------------------------------------------------


def answer_of(result: ExecutionResult) -> Response:
    """Return the answer for a result; without an execution, such as for invalid variables, it has no data."""
    errors = [shown(error) for error in result.errors or ()]
    if errors and result.data is None:
        has_begun = any(error.path is not None for error in result.errors or ())
        return {"errors": errors, "data": None} if has_begun else {"errors": errors}
    return {"data": result.data, "errors": errors} if errors else {"data": result.data}


def refusal(error: DocumentRefused | MoorageError) -> Response:
    """Return the answer for a refused operation."""
    errors = error.errors if isinstance(error, DocumentRefused) else [error]
    return {"errors": [shown(each) for each in errors]}


def encoded(answer: Any) -> bytes:
    """Return an answer as JSON."""
    try:
        return encode(answer)
    except (msgspec.EncodeError, UnicodeEncodeError, TypeError):  # JSON cannot encode a value: keep the rest
        return encode(msgspec.to_builtins(answer, enc_hook=str))


def as_sse(answer: bytes, number: int | None = None) -> bytes:
    """Return an answer as an event of graphql-sse; with a number, a reconnecting browser continues after it."""
    place = b"" if number is None else b"id: %d\n" % number
    return b"%sevent: next\ndata: %s\n\n" % (place, answer)
