"""Operations carried out: a request in, the bytes of an answer out."""

from __future__ import annotations

from collections.abc import Awaitable
from inspect import isawaitable
from typing import Any

import msgspec
from graphql import ExecutionResult, GraphQLNonNull, GraphQLObjectType, GraphQLSchema, execute
from graphql.execution import Executor
from msgspec import Struct

from moorage.core.codec import encode
from moorage.core.errors import MoorageError
from moorage.doors.graphql.asking import Asking
from moorage.doors.graphql.documents import Operation, Refused
from moorage.doors.graphql.refusals import shown
from moorage.doors.graphql.schema import PLAIN

Answer = dict[str, Any]
Plan = tuple[list[tuple[str, str, Any, Any]], dict[str, Any]]  # plain fields; all others


class Request(Struct, kw_only=True):
    """One operation, as clients send it; what else they send is left alone."""

    query: str | None = None
    variables: dict[str, Any] | None = None
    operationName: str | None = None


async def carried_out(schema: GraphQLSchema, operation: Operation, request: Request, asking: Asking) -> Answer:
    """What a query or a mutation answers. Errors are in it."""
    result = execute(
        schema,
        operation.document,
        context_value=asking,
        variable_values=request.variables,
        operation_name=operation.name,
        executor_class=QuickExecutor,
    )
    return answer_of(await result if isawaitable(result) else result)


def answer_of(result: ExecutionResult) -> Answer:
    """A result as it is answered."""
    errors = [shown(error) for error in result.errors or ()]
    if errors and result.data is None:
        return {"errors": errors} if _never_began(result) else {"errors": errors, "data": None}
    return {"data": result.data, "errors": errors} if errors else {"data": result.data}


def _never_began(result: ExecutionResult) -> bool:
    """Whether the request itself was wrong, such as in its variables."""
    return all(error.path is None for error in result.errors or ())


def refusal(error: Refused | MoorageError) -> Answer:
    """The answer when nothing was done."""
    errors = error.errors if isinstance(error, Refused) else [error]
    return {"errors": [shown(each) for each in errors]}


def encoded(answer: Any) -> bytes:
    """An answer as JSON."""
    try:
        return encode(answer)
    except (msgspec.EncodeError, UnicodeEncodeError, TypeError):  # a fact that JSON cannot carry must not hide the rest
        return encode(msgspec.to_builtins(answer, enc_hook=str))


class QuickExecutor(Executor[Any]):
    """graphql-core's, which reads plain attributes without the ceremony.

    Most of an answer are attributes of our values: texts, numbers, instants. For each of them graphql-core
    builds a path, a description of where it is and a call; read directly, an answer of 20 messages takes
    a third of the time. What has a resolver, is a list or an object, or fails, goes the usual way.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._plans: dict[int, tuple[Plan, Any]] = {}

    def build_per_event_executor(self, payload: Any) -> Executor[Any]:
        """One for an event. What is remembered of selections belongs to one execution, or it would grow for ever."""
        executor = super().build_per_event_executor(payload)
        executor._relevant_sub_fields, executor._plans = {}, {}  # type: ignore[attr-defined]
        return executor

    def execute_fields(
        self, parent_type: Any, source_value: Any, path: Any, grouped_field_set: Any, position_context: Any
    ) -> Any:
        """Read the plain fields; let graphql-core do the rest."""
        plain, rest = self._planned(parent_type, grouped_field_set)
        results: dict[str, Any] = dict.fromkeys(grouped_field_set)
        for response_name, attribute, serialize, details in plain:
            value = getattr(source_value, attribute)
            if value is not None:
                results[response_name] = value if serialize is None else serialize(value)
            elif details is not None:  # it must not be null: let the usual way say so
                rest = {**rest, response_name: details}
        if not rest:
            return results
        found = super().execute_fields(parent_type, source_value, path, rest, position_context)
        if isawaitable(found):
            return _joined(results, found)
        results.update(found)
        return results

    def complete_list_value(
        self, return_type: Any, field_details_list: Any, info: Any, path: Any, result: Any, position_context: Any
    ) -> Any:
        """Read a list of objects of which only plain fields are wanted, such as messages."""
        kind = return_type.of_type.of_type if isinstance(return_type.of_type, GraphQLNonNull) else return_type.of_type
        if isinstance(kind, GraphQLObjectType) and isinstance(result, list):
            plain, rest = self._planned(kind, self.collect_subfields(kind, field_details_list).grouped_field_set)
            if not rest and (rows := _rows(plain, result)) is not None:
                return rows
        return super().complete_list_value(return_type, field_details_list, info, path, result, position_context)

    def _planned(self, parent_type: Any, grouped_field_set: Any) -> Plan:
        """Which of these fields are plain, and which are not; found out once for all items of a list."""
        known = self._plans.get(id(grouped_field_set))
        if known is None:
            plan = _plan(parent_type, grouped_field_set)
            known = self._plans[id(grouped_field_set)] = plan, grouped_field_set  # kept, so that its id stays its own
        return known[0]


def _plan(parent_type: Any, grouped_field_set: Any) -> Plan:
    plain: list[tuple[str, str, Any, Any]] = []
    rest: dict[str, Any] = {}
    for response_name, details in grouped_field_set.items():
        field = parent_type.fields.get(details[0].node.name.value)
        quick = None if field is None else field.extensions.get(PLAIN)
        if quick is None:
            rest[response_name] = details
        else:
            attribute, serialize, is_needed = quick
            plain.append((response_name, attribute, serialize, details if is_needed else None))
    return plain, rest


def _rows(plain: list[tuple[str, str, Any, Any]], items: list[Any]) -> list[dict[str, Any]] | None:
    """Each item's plain fields; None if something is missing that must be there."""
    rows = []
    for item in items:
        row: dict[str, Any] = {}
        for response_name, attribute, serialize, details in plain:
            value = getattr(item, attribute, None)
            if value is None and details is not None:
                return None
            row[response_name] = value if serialize is None or value is None else serialize(value)
        rows.append(row)
    return rows


async def _joined(results: dict[str, Any], awaited: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    results.update(await awaited)
    return results
