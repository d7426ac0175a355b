"""What a hand-written route says of itself, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from moorage.core.key import Scope


class Described(Struct, frozen=True, kw_only=True):
    """A route in words and types."""

    name: str
    summary: str
    scope: Scope | None = None
    body: Any = None  # the type of the request's body; None: it has none; `bytes`: a file
    may_be_empty: bool = False  # whether a file with nothing in it will do
    answer: Any = None  # the type of the answer; None: text
    kind: str = "application/json"
    status: int = 200
    or_as: tuple[str, ...] = ()  # in which other kinds of text a 200 may come, if asked to
    is_open: bool = False  # to whoever can reach the server, without a key
    query: type[Struct] | None = None  # what may stand in the query
