"""Routes as a tree of path segments: finding one costs a few lookups, however many there are."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote


class Node:
    """A place in the tree."""

    __slots__ = ("below", "name", "routes", "variable")

    def __init__(self) -> None:
        self.below: dict[str, Node] = {}
        self.variable: Node | None = None
        self.name = ""
        self.routes: dict[str, Any] = {}  # by verb


class Routes:
    """What answers which request."""

    def __init__(self) -> None:
        self._root = Node()

    def add(self, verb: str, path: str, route: Any) -> None:
        """Answer `verb path` by a route."""
        node = self._root
        for segment in path.strip("/").split("/"):
            if segment.startswith("{"):
                if node.variable is None:
                    node.variable = Node()
                    node.variable.name = segment.strip("{}")
                assert node.variable.name == segment.strip("{}"), f"two names for one place in {path}"
                node = node.variable
            else:
                node = node.below.setdefault(segment, Node())
        assert verb not in node.routes, f"{verb} {path} is there already"
        node.routes[verb] = route

    def find(self, path: str) -> tuple[Node, dict[str, str]] | None:
        """The place of a path (still percent-encoded) and what stands in its variable segments."""
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
