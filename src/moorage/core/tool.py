"""Tools: functions that a session may call, and what comes of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

from msgspec import Struct


class Refused(Exception):
    """A call that makes no sense to the tool; the text says why."""


class Tool(Struct, frozen=True, kw_only=True):
    """A named function with one operation or several."""

    name: str
    description: str
    operations: dict[str, ToolOperation]  # none, if only the tool itself knows them
    endpoints: tuple[str, ...] = ()  # of one that lives elsewhere


class ToolOperation(Struct, frozen=True, kw_only=True):
    """One thing a tool does; `parameters` is a JSON schema."""

    description: str
    parameters: dict[str, Any]


class ToolAnswer(Struct, frozen=True, kw_only=True):
    """What came of a call. A tool that fails says why; that is no error of the request."""

    tool: str
    operation: str
    success: bool
    result: Any = None
    error: str | None = None
    session_id: str | None = None


class Occasion(Struct, frozen=True, kw_only=True):
    """When a tool is called, in which session, and how many seconds whoever calls waits."""

    today: date
    session_id: str | None = None
    timeout: float | None = None


# What is asked: operation, parameters, occasion. It may raise Refused, and what it returns may have to be awaited.
ToolFunction = Callable[[str, dict[str, Any], Occasion], Any]
Toolbox = Mapping[str, tuple[Tool, ToolFunction]]  # by name
