"""Operations carried out: a request in, the bytes of an answer out."""

from __future__ import annotations

from inspect import isawaitable
from typing import Any

import msgspec
from graphql import ExecutionResult, execute
from msgspec import Struct

from moorage.core.codec import encode
from moorage.core.errors import MoorageError
from moorage.doors.graphql.asking import Asking
from moorage.doors.graphql.documents import Operation, Refused
from moorage.doors.graphql.refusals import shown

Answer = dict[str, Any]


class Request(Struct, kw_only=True):
    """One operation, as clients send it; what else they send is left alone."""

    query: str | None = None
    variables: dict[str, Any] | None = None
    operationName: str | None = None
    extensions: dict[str, Any] | None = None  # there are none, but one of another type is a mistake


async def carried_out(operation: Operation, request: Request, asking: Asking) -> Answer:
    """What a query or a mutation answers. Errors are in it."""
    result = execute(
        operation.quick_schema,
        operation.quick_document,
        context_value=asking,
        variable_values=request.variables,
        operation_name=operation.name,
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
