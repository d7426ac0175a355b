"""What a row of the table of tools says: its name, what it asks and answers as types, and what it does to sessions.

The JSON schemas that hosts see come from those types, and calls are read into them, so the two cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct

from moorage.core.key import Scope
from moorage.core.render import to_json
from moorage.doors.http.reading import read_fields
from moorage.doors.mcp.calls import Call

Schema = dict[str, Any]
Document = dict[str, Any]


class Answer(Struct, frozen=True, kw_only=True):
    """What a tool answers: a document, the same in words, and whether it is a failure."""

    document: Document
    text: str | None = None  # None: the document
    failed: bool = False


class Tool:
    """One tool of the table."""

    def __init__(
        self,
        name: str,
        title: str,
        request: type[Struct],
        answer: type[Struct],
        call: Callable[[Call, Any], Awaitable[Any]],
        scope: Scope = Scope.WRITE,
        *,
        destroys: bool = False,
        repeatable: bool = False,
    ) -> None:
        """`destroys`: what was there may be gone. `repeatable`: asking twice does no more than asking once."""
        self.name, self.title, self.request, self.answer = name, title, request, answer
        self._call, self.scope, self.destroys = call, scope, destroys
        self.reads = scope is Scope.READ
        self.repeatable = repeatable or self.reads

    @property
    def description(self) -> str:
        """What it does: the text of its request."""
        return " ".join(str(self.request.__doc__).split())

    @cached_property
    def input_schema(self) -> Schema:
        """What it asks."""
        return schema_of(self.request)

    @cached_property
    def output_schema(self) -> Schema:
        """What it answers."""
        return schema_of(self.answer)

    async def __call__(self, call: Call, arguments: Document) -> Answer:
        """Ask it. Raises MoorageError."""
        call.check_scope(self.scope)
        value = await self._call(call, read_fields(without_empty(arguments), self.request))
        return Answer(document=to_json(value), failed=bool(getattr(value, "failed", False)))


def without_empty(arguments: Document) -> Document:
    """Return the arguments without sessions whose name is empty: models fill in every field they know."""
    return {name: value for name, value in arguments.items() if value != "" or name not in ("session_id", "parent")}


def schema_of(kind: type[Struct]) -> Schema:
    """A type as a JSON schema with an object at its root."""
    _, every = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    root = dict(every.pop(kind.__name__))
    root.pop("title", None)
    root.pop("description", None)
    return {**root, "$defs": every} if every else root
