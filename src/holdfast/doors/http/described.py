"""What a hand-written route says of itself, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from holdfast.core.key import Scope


class Described(Struct, frozen=True, kw_only=True):
    """A route in words and types."""

    name: str
    summary: str
    scope: Scope | None = None
    body: Any = None  # the type of the request's body; None: it has none
    needs_body: bool = True
    takes: str = "application/json"
    answer: Any = None  # the type of the answer; None: text
    kind: str = "application/json"
    status: int = 200
    query: dict[str, tuple[Any, str]] = {}  # names with their types and what they are for
