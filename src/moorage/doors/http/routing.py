"""Routes: requests and the endpoints that answer them, in a tree of path segments.

Finding a route costs a few lookups, however many routes there are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

from msgspec import Struct

from moorage.core.key import Scope
from moorage.remote.operations import Operation

Handler = Callable[..., Awaitable[None]]  # of an exchange, a visitor and the request, if the route has a type for it


class Route(Struct, frozen=True, kw_only=True):
    """One kind of request, its endpoint, and its facts for the OpenAPI document."""

    verb: str
    path: str
    name: str
    endpoint: Handler
    scope: Scope | None = None  # without one, any visitor may call it
    or_scope: Scope | None = None  # an alternative scope
    to_token: bool = True  # else it concerns all of an owner's sessions or more, which no session's token reaches
    is_open: bool = False  # answered before the authorizer
    summary: str | None = None  # without one, it is not in the document
    query: type[Struct] | None = None  # the type of the query, as which it is passed to the endpoint
    body: Any = None  # the same of the body; None: it has none; `bytes`: a file, which the endpoint reads
    may_be_empty: bool = False  # whether a file may be empty
    answer: Any = None  # the type of the answer; None: text
    kind: str = "application/json"
    status: int = 200
    or_as: tuple[str, ...] = ()  # other text types of a 200, on request
    operation: Operation | None = None  # the row of the table it was generated from, with all other facts


class RouteNode:
    """A node of the tree."""

    __slots__ = ("below", "name", "routes", "variable")

    def __init__(self) -> None:
        self.below: dict[str, RouteNode] = {}
        self.variable: RouteNode | None = None
        self.name = ""
        self.routes: dict[str, Route] = {}  # by verb


class Routes:
    """The endpoints of all routes."""

    def __init__(self) -> None:
        self._root = RouteNode()

    def add(self, route: Route) -> None:
        """Add a route."""
        node, path = self._root, route.path
        for segment in path.strip("/").split("/"):
            if segment.startswith("{"):
                if node.variable is None:
                    node.variable = RouteNode()
                    node.variable.name = segment.strip("{}")
                assert node.variable.name == segment.strip("{}"), f"two names for one place in {path}"
                node = node.variable
            else:
                node = node.below.setdefault(segment, RouteNode())
        assert route.verb not in node.routes, f"{route.verb} {path} is there already"
        node.routes[route.verb] = route

    def find(self, path: str) -> tuple[RouteNode, dict[str, str]] | None:
        """Return the node of a path (still percent-encoded) and the values of its variable segments."""
        node, params = self._root, {}
        for segment in path.strip("/").split("/"):
            if (literal := node.below.get(segment)) is not None:
                node = literal
            elif node.variable is not None and segment:
                node = node.variable
                params[node.name] = unquote(segment, errors="replace") if "%" in segment else segment
            else:
                return None
        return (node, params) if node.routes else None
