#!/usr/bin/env python3
"""Writes docs/reference/graphql.md and graphql-types.md: every type and field of the schema with its description.

`python scripts/graphql_reference.py` writes them, `--check` only says whether they are fresh.
"""

from __future__ import annotations

import sys
from pathlib import Path

from graphql import (
    GraphQLArgument,
    GraphQLEnumType,
    GraphQLNamedType,
    GraphQLObjectType,
    GraphQLScalarType,
    print_ast,
)

from moorage.doors.graphql.schema import schema

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"
ROOTS = ("Query", "Mutation", "Subscription")
BUILT_IN = {"String", "Int", "Float", "Boolean", "ID"}

HEAD = """# GraphQL

The schema of `/graphql` ([how to use it](../graphql.md)). `!` is never null, `[…]` a list. Wherever a `sessionId` is
taken, a session's name will do. Values are those of [REST](rest.md) and [Python](python.md); errors have the same
[codes](errors.md). [Types](graphql-types.md) have a page of their own. Both pages are made from
`src/moorage/doors/graphql/schema.graphql`.
"""
TYPES = """# GraphQL types

The object types of the [GraphQL schema](graphql.md).
"""


def main() -> int:
    """Write the pages, or compare them."""
    if "--check" in sys.argv[1:]:
        return int(any(path.read_text(encoding="utf-8") != text for path, text in pages().items()))
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    return 0


def pages() -> dict[Path, str]:
    """Return the text of each page."""
    every = schema().type_map
    own = [each for name, each in every.items() if not name.startswith("__") and name not in BUILT_IN]
    objects = [each for each in own if isinstance(each, GraphQLObjectType) and each.name not in ROOTS]
    enums = [each for each in own if isinstance(each, GraphQLEnumType)]
    scalars = [each for each in own if isinstance(each, GraphQLScalarType)]
    parts = [HEAD, *(_object(every[name]) for name in ROOTS)]
    parts += ["## Enumerations\n", "| name | values |\n|---|---|", *(_enum(each) for each in enums), ""]
    parts += ["## Scalars\n", "| name | |\n|---|---|"]
    parts += [f"| `{each.name}` | {_plain(each.description)} |" for each in scalars]
    types = [TYPES, *(_object(each) for each in objects)]
    return {
        REFERENCE / "graphql.md": "\n".join(parts).rstrip() + "\n",
        REFERENCE / "graphql-types.md": "\n".join(types).rstrip() + "\n",
    }


def _object(kind: GraphQLNamedType) -> str:
    assert isinstance(kind, GraphQLObjectType)
    said = f"{_plain(kind.description)}\n\n" if kind.description else ""
    made = {field.name.value for each in kind.extension_ast_nodes for field in each.fields or ()}
    rows = [
        f"| `{name}` | `{field.type}` | {_told(field.description, field.args)} |"
        for name, field in kind.fields.items()
        if name not in made
    ]
    rows += ["| … | | every other field of [a session](session.md), in camel case |"] if made else []
    return "\n".join([f"## {kind.name}\n\n{said}| field | type | |\n|---|---|---|", *rows, ""])


def _told(description: str | None, arguments: dict[str, GraphQLArgument]) -> str:
    said = [_plain(description)] if description else []
    if arguments:
        said.append(", ".join(_argument(name, each) for name, each in arguments.items()))
    return "<br>".join(said)


def _argument(name: str, argument: GraphQLArgument) -> str:
    written = argument.ast_node
    usual = f" = {print_ast(written.default_value)}" if written is not None and written.default_value else ""
    said = f" ({_plain(argument.description).rstrip('.')})" if argument.description else ""
    return f"`{name}: {argument.type}{usual}`{said}"


def _enum(kind: GraphQLEnumType) -> str:
    return f"| `{kind.name}` | {', '.join(f'`{name}`' for name in kind.values)} |"


def _plain(text: str | None) -> str:
    return " ".join((text or "").split())


if __name__ == "__main__":
    raise SystemExit(main())
