"""Tools: functions that a session may call, and what comes of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

from msgspec import Struct

from moorage.core.brief import brief

NUMBERS = ("integer", "number")  # as JSON schemas call them


class Refused(Exception):
    """A call that makes no sense to the tool; the text says why."""


@brief("name", "description")
class Tool(Struct, frozen=True, kw_only=True):
    """A named function with one operation or several."""

    name: str
    description: str
    operations: dict[str, ToolOperation]  # none, if only the tool itself knows them
    endpoints: tuple[str, ...] = ()  # of one that lives elsewhere

    def fitting(self, given: Mapping[str, Any]) -> str:
        """Return the first operation that takes all that is given and needs no more, else the first of all."""
        return next(
            (name for name, each in self.operations.items() if each.takes(given)), next(iter(self.operations), "")
        )

    def read(self, operation: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters with numbers where the operation wants some and they came as texts."""
        known = self.operations.get(operation)
        properties = {} if known is None else known.parameters.get("properties", {})
        return {name: _number(value, properties.get(name)) for name, value in given.items()}


class ToolOperation(Struct, frozen=True, kw_only=True):
    """One thing a tool does; `parameters` is a JSON schema."""

    description: str
    parameters: dict[str, Any]

    def takes(self, given: Mapping[str, Any]) -> bool:
        """Whether it knows all that is given, and is given all that it needs."""
        needed = set(self.parameters.get("required", ()))
        return given.keys() <= self.parameters.get("properties", {}).keys() and needed <= given.keys()


def _number(value: Any, schema: Any) -> Any:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if not isinstance(value, str) or kind not in NUMBERS:
        return value
    try:
        return int(value) if kind == "integer" else float(value)
    except ValueError:
        return value  # the tool refuses it in its own words


@brief("tool", "operation", "success", "result", "error")
class ToolAnswer(Struct, frozen=True, kw_only=True):
    """The result of a call. A failure of the tool is an answer with a reason, not an error of the request."""

    tool: str
    operation: str
    success: bool
    result: Any = None
    error: str | None = None
    session_id: str | None = None


class Occasion(Struct, frozen=True, kw_only=True):
    """When a tool is called, in which session, and how many seconds the caller waits."""

    today: date
    session_id: str | None = None
    timeout: float | None = None


# A tool gets operation, parameters and occasion. It may raise Refused, and may return an awaitable.
ToolFunction = Callable[[str, dict[str, Any], Occasion], Any]
Toolbox = Mapping[str, tuple[Tool, ToolFunction]]  # by name
