"""Subscriptions: the streams that every door has, in GraphQL's words.

Where the events come from is `service.streams`; here is only how one reads. Whoever subscribes with the same
words reads the same, so an event is put into words once, however many follow.
"""

from __future__ import annotations

from inspect import isawaitable
from typing import Any

from graphql import ExecutionResult, GraphQLSchema, create_source_event_stream
from graphql.execution import Executor

from moorage.core.event import Event
from moorage.doors.graphql.asking import Asking
from moorage.doors.graphql.documents import Operation, Refused
from moorage.doors.graphql.executing import QuickExecutor, Request, answer_of, encoded
from moorage.doors.graphql.resolvers import Wanted

COMPLETE = b"event: complete\ndata: \n\n"


class Rendering:
    """Events in the words of one subscription."""

    def __init__(self, executor: Executor[Any]) -> None:
        self._executor = executor

    def answer(self, event: Event) -> bytes:
        """What a subscription says of an event."""
        result = self._executor.build_per_event_executor(event).execute_operation(False)
        assert isinstance(result, ExecutionResult), "an event is resolved without waiting"
        return encoded(answer_of(result))

    def as_sse(self, event: Event) -> bytes:
        """The same as a server-sent event."""
        return as_sse(self.answer(event), event.id)


class Followed:
    """A subscription that was looked at and may begin."""

    def __init__(self, wanted: Wanted, rendering: Rendering) -> None:
        self.ref, self.after, self.rendering = wanted.ref, wanted.after, rendering


async def followed(schema: GraphQLSchema, operation: Operation, request: Request, asking: Asking) -> Followed:
    """What a subscription is about. Raises Refused."""
    executor = QuickExecutor.build(
        schema,
        operation.document,
        context_value=asking,
        raw_variable_values=request.variables,
        operation_name=operation.name,
    )
    if isinstance(executor, list):
        raise Refused([*executor])
    source = create_source_event_stream(executor)
    source = await source if isawaitable(source) else source
    if not isinstance(source, Wanted):
        raise Refused([*(source.errors or ())] if isinstance(source, ExecutionResult) else [])
    return Followed(source, _rendering(operation, executor))


def _rendering(operation: Operation, executor: Executor[Any]) -> Rendering:
    if not operation.is_same_for_all:
        return Rendering(executor)
    if operation.rendering is None:
        executor.context_value = None  # no visitor's
        operation.rendering = Rendering(executor)
    rendering: Rendering = operation.rendering
    return rendering


def as_sse(answer: bytes, number: int | None = None) -> bytes:
    """An answer as an event of graphql-sse; with a number, a browser that comes back goes on after it."""
    place = b"" if number is None else b"id: %d\n" % number
    return b"%sevent: next\ndata: %s\n\n" % (place, answer)
