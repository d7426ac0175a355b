"""Errors of this door alone, and the GraphQL form of all errors."""

from __future__ import annotations

import logging
from typing import Any

from graphql import GraphQLError

from moorage.core.errors import InvalidRequest, MoorageError
from moorage.doors.http.refusals import Unexpected

log = logging.getLogger(__name__)


class InvalidQuery(InvalidRequest):
    """A document that is not valid GraphQL, does not fit this schema, or lacks a required part."""


class UnsupportedMediaType(InvalidRequest):
    """A body that is not sent as JSON."""

    def __init__(self, given: str) -> None:
        super().__init__(
            f"a GraphQL request needs `Content-Type: application/json`, and its Content-Type is "
            f"{given[:100] or 'missing'!r}",
            content_type=given[:100],
        )


class QueryTooLarge(InvalidRequest):
    """A request with too much text, or too many tokens, fields, aliases or operations."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"a request may have {limit:,} {what}, not more; ask for less at once", what=what, limit=limit)


class QueryTooDeep(InvalidRequest):
    """A query with selections nested beyond the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"selections may be nested {limit} deep, not deeper; ask again from further below", limit=limit
        )


class QueryTooCostly(InvalidRequest):
    """A query for more values than one answer may have."""

    def __init__(self, cost: int, limit: int) -> None:
        super().__init__(
            f"this asks for up to {cost:,} values, and {limit:,} are allowed; take smaller pages or fewer fields",
            cost=cost,
            limit=limit,
        )


def shown(error: GraphQLError | MoorageError) -> dict[str, Any]:
    """Return an error as clients see it: its message, location, code and facts."""
    if isinstance(error, MoorageError):
        return _of_ours(error)
    cause = error.original_error
    told: dict[str, Any] = _of_ours(cause) if isinstance(cause, MoorageError) else _of_theirs(error, cause)
    if error.locations:
        told["locations"] = [{"line": each.line, "column": each.column} for each in error.locations]
    if error.path:
        told["path"] = error.path
    return told


def _of_ours(error: MoorageError) -> dict[str, Any]:
    return {"message": error.message, "extensions": {**error.facts, "code": error.code}}


def _of_theirs(error: GraphQLError, cause: Exception | None) -> dict[str, Any]:
    """Return the extensions of an error of graphql-core; log an exception of a resolver as a bug."""
    if cause is None or isinstance(cause, GraphQLError):
        return {"message": error.message, "extensions": {"code": InvalidQuery.code}}
    log.error("a resolver failed", exc_info=cause)
    return _of_ours(Unexpected())
