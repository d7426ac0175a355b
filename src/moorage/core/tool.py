"""Tools: functions that a session may call, and their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

from msgspec import Struct

from moorage.core.brief import brief

NUMBERS = ("integer", "number")  # types in JSON schemas


class Refused(Exception):
    """A call that is invalid for the tool; the text says why."""


@brief("name", "description")
class Tool(Struct, frozen=True, kw_only=True):
    """A named function with one operation or several."""

    name: str
    description: str
    operations: dict[str, ToolOperation]  # empty if only the tool itself knows them
    endpoints: tuple[str, ...] = ()  # of a remote tool

    def fitting(self, given: Mapping[str, Any]) -> str:
        """Return the first operation that accepts all given parameters and needs no others, else the first of all."""
        return next(
            (name for name, each in self.operations.items() if each.takes(given)), next(iter(self.operations), "")
        )

    def read(self, operation: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters, with texts converted to numbers where the operation wants numbers."""
        known = self.operations.get(operation)
        properties = {} if known is None else known.parameters.get("properties", {})
        return {name: _number(value, properties.get(name)) for name, value in given.items()}


class ToolOperation(Struct, frozen=True, kw_only=True):
    """One operation of a tool; `parameters` is a JSON schema."""

    description: str
    parameters: dict[str, Any]

    def takes(self, given: Mapping[str, Any]) -> bool:
        """Return whether it accepts all given parameters and needs no others."""
        needed = set(self.parameters.get("required", ()))
        return given.keys() <= self.parameters.get("properties", {}).keys() and needed <= given.keys()


def _number(value: Any, schema: Any) -> Any:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if not isinstance(value, str) or kind not in NUMBERS:
        return value
    try:
        return int(value) if kind == "integer" else float(value)
    except ValueError:
        return value  # the tool refuses it with its own message


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
    """The circumstances of a tool call: the time, the session, and how many seconds the caller waits."""

    today: date
    session_id: str | None = None
    timeout: float | None = None


# A tool function gets operation, parameters and occasion. It may raise Refused or return an awaitable.
ToolFunction = Callable[[str, dict[str, Any], Occasion], Any]
Toolbox = Mapping[str, tuple[Tool, ToolFunction]]  # by name
