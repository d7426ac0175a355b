"""A row of the table of tools: its name, the types of request and answer, and its effect on sessions.

The JSON schemas that hosts see come from those types, and calls are parsed into them, so the two always agree.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any, get_type_hints

import msgspec
from msgspec import Struct

from moorage.core.key import Scope
from moorage.core.render import to_json
from moorage.doors.http.reading import read_fields
from moorage.doors.mcp.calls import ToolCall

Schema = dict[str, Any]
ToolDocument = dict[str, Any]


class ToolOutput(Struct, frozen=True, kw_only=True):
    """The answer of a tool: a document, its text form, and whether it is an error."""

    document: ToolDocument
    text: str | None = None  # None: the document as text
    failed: bool = False


class McpTool:
    """One tool of the table."""

    def __init__(
        self,
        name: str,
        title: str,
        request: type[Struct],
        answer: type[Struct],
        call: Callable[[ToolCall, Any], Awaitable[Any]],
        scope: Scope = Scope.WRITE,
        *,
        destroys: bool = False,
        repeatable: bool = False,
    ) -> None:
        """Set up the row. `destroys`: it may delete something. `repeatable`: a repetition has no further effect."""
        self.name, self.title, self.request, self.answer = name, title, request, answer
        self._call, self.scope, self.destroys = call, scope, destroys
        self.reads = scope is Scope.READ
        self.repeatable = repeatable or self.reads

    @property
    def description(self) -> str:
        """Return the description: the docstring of its request."""
        return " ".join(str(self.request.__doc__).split())

    @cached_property
    def input_schema(self) -> Schema:
        """Return the schema of its request."""
        return schema_of(self.request)

    @cached_property
    def output_schema(self) -> Schema:
        """Return the schema of its answer."""
        return schema_of(self.answer)

    async def __call__(self, call: ToolCall, arguments: ToolDocument) -> ToolOutput:
        """Call the tool. Raise MoorageError."""
        call.check_scope(self.scope)
        value = await self._call(call, read_fields(without_empty(arguments), self.request))
        return ToolOutput(document=to_json(value), failed=bool(getattr(value, "failed", False)))


TOOLS: dict[str, McpTool] = {}
Function = Callable[[ToolCall, Any], Awaitable[Struct]]


def tool(
    title: str, scope: Scope = Scope.WRITE, *, destroys: bool = False, repeatable: bool = False
) -> Callable[[Function], Function]:
    """Register a function as a tool of that name; its annotations give the types of request and answer."""

    def put(function: Function) -> Function:
        (_, asks, answer), name = get_type_hints(function).values(), function.__name__
        TOOLS[name] = McpTool(name, title, asks, answer, function, scope, destroys=destroys, repeatable=repeatable)
        return function

    return put


def without_empty(arguments: ToolDocument) -> ToolDocument:
    """Return the arguments without sessions whose name is empty: models fill in every field they know."""
    return {name: value for name, value in arguments.items() if value != "" or name not in ("session_id", "parent")}


def schema_of(kind: type[Struct]) -> Schema:
    """Return a type as a JSON schema with an object at its root."""
    _, every = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    root = dict(every.pop(kind.__name__))
    root.pop("title", None)
    root.pop("description", None)
    return {**root, "$defs": every} if every else root
