"""Subscriptions: the streams that every door has, in GraphQL's words.

Where the events come from is `service.streams`; here is only how one reads. Whoever subscribes with the same
words reads the same, so an event is put into words once, however many follow.
"""

from __future__ import annotations

from inspect import isawaitable
from typing import Any

from graphql import ExecutionResult, execute, subscribe

from moorage.core.event import Event
from moorage.doors.graphql.asking import Asking, Wanted
from moorage.doors.graphql.documents import Operation, Refused
from moorage.doors.graphql.executing import Request, answer_of, encoded

COMPLETE = b"event: complete\ndata: \n\n"


class Rendering:
    """Events in the words of one subscription."""

    def __init__(self, operation: Operation, variables: dict[str, Any] | None, asking: Asking | None) -> None:
        self._operation, self._variables, self._asking = operation, variables, asking

    def answer(self, event: Event) -> bytes:
        """What a subscription says of an event."""
        result = execute(
            self._operation.quick_schema,
            self._operation.quick_document,
            root_value=event,
            context_value=self._asking,
            variable_values=self._variables,
            operation_name=self._operation.name,
        )
        assert isinstance(result, ExecutionResult), "an event is resolved without waiting"
        return encoded(answer_of(result))

    def as_sse(self, event: Event) -> bytes:
        """The same as a server-sent event."""
        return as_sse(self.answer(event), event.id)


class Followed:
    """A subscription that was looked at and may begin."""

    def __init__(self, wanted: Wanted, rendering: Rendering) -> None:
        self.ref, self.after, self.rendering = wanted.ref, wanted.after, rendering


async def followed(operation: Operation, request: Request, asking: Asking) -> Followed:
    """What a subscription is about. Raises Refused."""
    stream: Any = subscribe(
        operation.schema,
        operation.document,
        context_value=asking,
        variable_values=request.variables,
        operation_name=operation.name,
    )
    stream = await stream if isawaitable(stream) else stream
    if isinstance(stream, ExecutionResult):
        raise Refused([*(stream.errors or ())])
    assert asking.wanted is not None, "the source of a subscription says what is wanted"
    return Followed(asking.wanted, _rendering(operation, request, asking))


def _rendering(operation: Operation, request: Request, asking: Asking) -> Rendering:
    if not operation.is_same_for_all:
        return Rendering(operation, request.variables, asking)
    if operation.rendering is None:
        operation.rendering = Rendering(operation, request.variables, None)  # no visitor's
    rendering: Rendering = operation.rendering
    return rendering


def as_sse(answer: bytes, number: int | None = None) -> bytes:
    """An answer as an event of graphql-sse; with a number, a browser that comes back goes on after it."""
    place = b"" if number is None else b"id: %d\n" % number
    return b"%sevent: next\ndata: %s\n\n" % (place, answer)
