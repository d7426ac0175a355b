"""The table of tools: each row is a function. Its signature is the schema that hosts see and the check of every call,
and its docstring is the description, so they always agree.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cached_property
from inspect import signature
from typing import Any, get_type_hints

import msgspec
from mcp_types import CallToolResult, TextContent
from msgspec import Struct, defstruct
from msgspec.structs import asdict

from moorage.core.codec import encode_text
from moorage.core.key import Scope
from moorage.core.render import to_json
from moorage.doors.http.reading import read_fields
from moorage.doors.mcp.calls import ToolCall

Schema = dict[str, Any]
ToolDocument = dict[str, Any]
Function = Callable[..., Awaitable[Struct]]  # of a call and the tool's arguments


class McpTool:
    """One tool of the table."""

    def __init__(
        self, function: Function, title: str, scope: Scope, *, destroys: bool = False, repeatable: bool = False
    ) -> None:
        """Set up the row. `destroys`: it may delete something. `repeatable`: a repetition has no further effect."""
        self._function, self.name = function, function.__name__
        self.title, self.description = title, " ".join(str(function.__doc__).split())
        self.scope, self.reads, self.destroys = scope, scope is Scope.READ, destroys
        self.repeatable = repeatable or self.reads

    @cached_property
    def _types(self) -> dict[str, Any]:
        return get_type_hints(self._function, include_extras=True)

    @cached_property
    def request(self) -> type[Struct]:
        """Return the type of its arguments, with a field for each parameter after the call."""
        _, *parameters = signature(self._function).parameters.values()
        fields = [
            (each.name, self._types[each.name], msgspec.NODEFAULT if each.default is each.empty else each.default)
            for each in parameters
        ]
        return defstruct(self.name, fields, frozen=True, forbid_unknown_fields=True)

    @cached_property
    def input_schema(self) -> Schema:
        """Return the schema of its arguments."""
        return schema_of(self.request)

    @cached_property
    def output_schema(self) -> Schema:
        """Return the schema of its answer."""
        return schema_of(self._types["return"])

    async def __call__(self, call: ToolCall, arguments: ToolDocument) -> CallToolResult:
        """Call the tool. Raise MoorageError."""
        call.check_scope(self.scope)
        given = asdict(read_fields(without_empty(arguments), self.request))
        value = await self._function(call, **given)
        return tool_result(to_json(value), failed=bool(getattr(value, "failed", False)))


TOOLS: dict[str, McpTool] = {}


def tool(title: str, scope: Scope = Scope.WRITE, **effects: bool) -> Callable[[Function], Function]:
    """Add a function to the table."""

    def put(function: Function) -> Function:
        TOOLS[function.__name__] = McpTool(function, title, scope, **effects)
        return function

    return put


def tool_result(document: ToolDocument, text: str | None = None, *, failed: bool = False) -> CallToolResult:
    """Return the answer of a tool. Without a text, it has the document as text, too."""
    content = TextContent(text=encode_text(document) if text is None else text)
    return CallToolResult(content=[content], structured_content=document, is_error=failed)


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
