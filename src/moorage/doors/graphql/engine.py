"""The execution of operations, for HTTP and WebSocket: a request in, an answer or a subscription out.

A document is parsed, validated and priced once, and kept for later requests with the same text.
`service.streams` produces the events of a subscription; this module renders them. Equal subscriptions get equal
answers, so an event is rendered once for all of them.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from functools import cached_property
from inspect import isawaitable
from typing import Any

import graphql as gql
import msgspec
from msgspec import Struct

from moorage.core.codec import encode
from moorage.core.entry import Event
from moorage.core.errors import MoorageError
from moorage.doors.graphql.asking import OperationContext, WantedEvents
from moorage.doors.graphql.limits import (
    InvalidQuery,
    Price,
    QueryLimits,
    QueryTooCostly,
    QueryTooDeep,
    QueryTooLarge,
    check_shape,
    fragments_of,
)
from moorage.doors.graphql.schema import quickened, schema
from moorage.doors.http.app import Door
from moorage.doors.http.exchange import Exchange
from moorage.doors.http.refusals import Unexpected
from moorage.doors.http.streams import LiveStreams
from moorage.doors.http.visit import Visitor

log = logging.getLogger(__name__)

MOST_CHARACTERS = 256 * 1024  # of all cached documents; parsed, one takes up to 200 bytes
MOST_ERRORS = 5  # of one document: finding more costs more

Response = dict[str, Any]


class GraphqlRequest(Struct, kw_only=True):
    """One operation as clients send it; unknown fields are ignored."""

    query: str | None = None
    variables: dict[str, Any] | None = None
    operationName: str | None = None
    extensions: dict[str, Any] | None = None  # unused, but a value of another type is an error


class Engine:
    """Answers operations on one server."""

    def __init__(self, door: Door, live: LiveStreams) -> None:
        allowed = door.deps.settings.server
        self.door, self.live = door, live
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
        return Execution(operation, request.variables, OperationContext(self.door.visit(exchange, visitor), visitor))


class Execution(Struct, frozen=True):
    """An operation with its variables, for one visitor."""

    operation: ParsedOperation
    variables: dict[str, Any] | None
    context: OperationContext | None  # None: events are rendered alike for all visitors

    @property
    def is_subscription(self) -> bool:
        """Return whether it is a subscription."""
        return self.operation.kind is gql.OperationType.SUBSCRIPTION

    async def answer(self) -> Response:
        """Execute a query or a mutation and return its answer, errors included."""
        result = self.operation.execute(self.variables, self.context)
        return answer_of(await result if isawaitable(result) else result)

    async def followed(self) -> tuple[WantedEvents, Execution]:
        """Return the events that a subscription follows, and the execution that renders them. Raise DocumentRefused."""
        operation = self.operation
        stream: Any = gql.subscribe(
            operation.schema,
            operation.document,
            context_value=self.context,
            variable_values=self.variables,
            operation_name=operation.name,
        )
        stream = await stream if isawaitable(stream) else stream
        if isinstance(stream, gql.ExecutionResult):
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
        assert isinstance(result, gql.ExecutionResult), "an event is resolved without waiting"
        return encoded(answer_of(result))

    def rendered_as_sse(self, event: Event) -> bytes:
        """Return the answer as a server-sent event."""
        return as_sse(self.rendered(event), event.id)


# Documents --------------------------------------------------------------------------------------


class DocumentRefused(Exception):
    """Nothing was executed; the errors tell why."""

    def __init__(self, errors: list[gql.GraphQLError | MoorageError]) -> None:
        self.errors = errors


class ParsedOperation:
    """One operation of a document."""

    def __init__(
        self, schema: gql.GraphQLSchema, document: gql.DocumentNode, node: gql.OperationDefinitionNode
    ) -> None:
        self.schema, self.document, self.node = schema, document, node
        self._quick_schema, self._quick_document = quickened(schema, document, node)
        self.name = None if node.name is None else node.name.value
        self.kind: gql.OperationType = node.operation
        self.price = Price(schema, node, fragments_of(document))
        self.rendering: Any = None  # of events, shared by all followers with the same document

    def execute(self, variables: dict[str, Any] | None, context: object, root: object = None) -> Any:
        """Return the result, or an awaitable of it."""
        return gql.execute(
            self._quick_schema,
            self._quick_document,
            root_value=root,
            context_value=context,
            variable_values=variables,
            operation_name=self.name,
        )

    @cached_property
    def is_same_for_all(self) -> bool:
        """Return whether variables are used only as arguments of the root field: then events are rendered once."""
        roots = self.node.selection_set.selections
        if len(roots) != 1 or not isinstance(roots[0], gql.FieldNode) or roots[0].directives:
            return False
        finder = _VariableFinder()
        for part in (roots[0].selection_set, *fragments_of(self.document).values()):
            if part is not None:
                gql.visit(part, finder)
        return not finder.found


class _VariableFinder(gql.Visitor):
    """Finds out whether a node uses a variable."""

    found = False

    def enter_variable(self, node: gql.VariableNode, *_: Any) -> None:
        self.found = True


class DocumentCache:
    """The valid documents that were used last."""

    def __init__(self, schema: gql.GraphQLSchema, limits: QueryLimits, most: int = MOST_CHARACTERS) -> None:
        self._schema, self._limits, self._most = schema, limits, most
        self._known: OrderedDict[str, dict[str | None, ParsedOperation]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._known)

    def operation(self, text: str, name: str | None) -> ParsedOperation:
        """Return the requested operation. Raise DocumentRefused."""
        operations = self._known.get(text)
        if operations is None:
            operations = self._known[text] = self._read(text)
            self._size += len(text)
            while self._size > self._most:
                self._size -= len(self._known.popitem(last=False)[0])
        else:
            self._known.move_to_end(text)
        return _chosen(operations, name)

    def _read(self, text: str) -> dict[str | None, ParsedOperation]:
        limits = self._limits
        try:
            if len(text) > limits.text:
                raise QueryTooLarge("characters", limits.text)
            if text.count("#") > limits.tokens:
                raise QueryTooLarge("comments", limits.tokens)
            document = gql.parse(text, max_tokens=limits.tokens)
            check_shape(document, limits)
        except MoorageError as error:
            raise DocumentRefused([error]) from None
        except RecursionError:
            raise DocumentRefused([QueryTooDeep(limits.depth)]) from None
        except gql.GraphQLError as error:
            raise DocumentRefused([_told(error, limits)]) from None
        if errors := gql.validate(self._schema, document, max_errors=MOST_ERRORS):
            raise DocumentRefused([*errors])
        nodes = [each for each in document.definitions if isinstance(each, gql.OperationDefinitionNode)]
        operations = [ParsedOperation(self._schema, document, node) for node in nodes]
        return {each.name: each for each in operations}


def _told(error: gql.GraphQLError, limits: QueryLimits) -> gql.GraphQLError | MoorageError:
    """Return the error of the parser; for its limits, an error of Moorage."""
    if error.message.startswith("Syntax Error: Document contains more tha"):
        return QueryTooLarge("words and signs", limits.tokens)
    return QueryTooDeep(limits.depth) if error.message.startswith("Syntax Error: Document is nested too") else error


def _chosen(operations: dict[str | None, ParsedOperation], name: str | None) -> ParsedOperation:
    found = next(iter(operations.values())) if len(operations) == 1 and not name else operations.get(name)
    if found is None:
        known = ", ".join(str(each) for each in operations if each)[:200]
        raise DocumentRefused([InvalidQuery(f"operationName is {name!r}; the document has: {known or 'none'}")])
    return found


# Answers ----------------------------------------------------------------------------------------


def answer_of(result: gql.ExecutionResult) -> Response:
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


def shown(error: gql.GraphQLError | MoorageError) -> dict[str, Any]:
    """Return an error as clients see it: its message, location, code and facts."""
    if isinstance(error, MoorageError):
        return _of_ours(error)
    cause = error.original_error
    if isinstance(cause, MoorageError):
        told = _of_ours(cause)
    elif cause is None or isinstance(cause, gql.GraphQLError):
        told = {"message": error.message, "extensions": {"code": InvalidQuery.code}}
    else:  # a bug in a resolver
        log.error("a resolver failed", exc_info=cause)
        told = _of_ours(Unexpected())
    if error.locations:
        told["locations"] = [{"line": each.line, "column": each.column} for each in error.locations]
    if error.path:
        told["path"] = error.path
    return told


def _of_ours(error: MoorageError) -> dict[str, Any]:
    return {"message": error.message, "extensions": {**error.facts, "code": error.code}}


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
