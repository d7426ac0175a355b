"""What both ways in share, HTTP and WebSocket: the schema, the documents, the limits."""

from __future__ import annotations

from msgspec.structs import replace

from moorage.doors.graphql.asking import Asking
from moorage.doors.graphql.documents import Documents, Operation, Refused
from moorage.doors.graphql.executing import Answer, Request, carried_out
from moorage.doors.graphql.limits import QueryLimits
from moorage.doors.graphql.refusals import InvalidQuery, QueryTooCostly
from moorage.doors.graphql.schema import schema
from moorage.doors.graphql.streams import Followed, followed
from moorage.doors.http.app import Door
from moorage.doors.http.exchange import Exchange
from moorage.doors.http.visit import Visitor


class Engine:
    """Answers operations on one server."""

    def __init__(self, door: Door, limits: QueryLimits | None = None) -> None:
        allowed = door.deps.settings.server
        usual = replace(QueryLimits(), depth=allowed.graphql_depth, cost=allowed.graphql_cost)
        self._door, self.limits = door, limits or usual
        self.schema = schema()
        self.documents = Documents(self.schema, self.limits)

    def operation(self, request: Request) -> Operation:
        """Return the operation that a request names, known to be sound and not too much.

        Raises:
            InvalidQuery: the request has no query.
            Refused: its query is wrong, or asks for too much.
        """
        if request.query is None:
            raise InvalidQuery('there is no query; send one as JSON: {"query": "{ … }"}')
        operation = self.documents.operation(request.query, request.operationName)
        try:
            operation.price.check(request.variables or {}, self.limits.cost)
        except QueryTooCostly as error:
            raise Refused([error]) from None
        return operation

    async def answer(self, operation: Operation, request: Request, exchange: Exchange, visitor: Visitor) -> Answer:
        """Carry out a query or a mutation."""
        return await carried_out(operation, request, self._asking(exchange, visitor))

    async def followed(self, operation: Operation, request: Request, exchange: Exchange, visitor: Visitor) -> Followed:
        """Look at a subscription. Raises Refused."""
        return await followed(operation, request, self._asking(exchange, visitor))

    def _asking(self, exchange: Exchange, visitor: Visitor) -> Asking:
        return Asking(self._door.visit(exchange, visitor), visitor)
