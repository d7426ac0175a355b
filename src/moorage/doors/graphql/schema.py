"""The schema of `schema.graphql` with its resolvers.

A public field of a session with a plain value is added to its type here, so a new field appears by itself. A mutation
without a resolver calls the method of the same name.
"""

from __future__ import annotations

from datetime import datetime
from functools import cache
from importlib.resources import files
from types import NoneType
from typing import Any, get_args, get_origin

import graphql as gql
from ariadne import make_executable_schema
from msgspec.structs import fields

from moorage.core.session import PUBLIC_FIELDS, Session
from moorage.doors.graphql.resolvers import BINDABLES, calling

NAME = "schema.graphql"
SESSION = "AgentSession"
OTHERWISE = {"completeSession": "finalize"}  # mutations whose names differ from those of their methods
PLAIN = "plain"  # the extension with which a field tells `plain` how to read it
AS_THEY_ARE = frozenset({"DateTime", "JSON", "Interface", "String", "Int", "Boolean", "Float"})  # our values are typed
_TYPES = {str: "String", int: "Int", float: "Float", bool: "Boolean", datetime: "DateTime", dict: "JSON"}


def schema_text() -> str:
    """Return the text of the schema, with the fields of a session that are generated from its type."""
    written = (files("moorage.doors.graphql") / NAME).read_text(encoding="utf-8")
    return f"{written}\nextend type {SESSION} {{ {' '.join(_made_fields(written))} }}\n"


def _made_fields(written: str) -> list[str]:
    types = {
        kind.name.value: kind
        for kind in gql.parse(written).definitions
        if isinstance(kind, gql.ObjectTypeDefinitionNode)
    }
    known = {snake(field.name.value) for field in types[SESSION].fields or ()}
    kinds = {field.name: field.type for field in fields(Session)}
    return [f"{camel(name)}: {_type_of(kinds[name])}" for name in PUBLIC_FIELDS if name not in known]


def _type_of(kind: Any) -> str:
    """Return the GraphQL type of a plain Python type."""
    origin, parts = get_origin(kind), get_args(kind)
    if NoneType in parts:
        [inner] = [part for part in parts if part is not NoneType]
        return _type_of(inner).removesuffix("!")
    return f"[{_type_of(parts[0])}]!" if origin is list else f"{_TYPES[origin or kind]}!"


@cache
def schema() -> gql.GraphQLSchema:
    """Return the schema, built once."""
    return make_schema()


def make_schema() -> gql.GraphQLSchema:
    """Build a new schema."""
    made = make_executable_schema(schema_text(), *BINDABLES)
    assert made.mutation_type is not None
    for name, field in made.mutation_type.fields.items():
        if field.resolve is None:
            field.resolve = calling(OTHERWISE.get(name) or snake(name).rpartition("_")[0])
    for kind in made.type_map.values():
        if isinstance(kind, gql.GraphQLObjectType) and not kind.name.startswith("__"):
            _read_attributes(kind)
    return made


def _read_attributes(kind: gql.GraphQLObjectType) -> None:
    """Let a field without a resolver return the attribute of its name in snake case."""
    for name, field in kind.fields.items():
        for argument_name, argument in field.args.items():
            argument.out_name = snake(argument_name)
        if field.resolve is None:
            attribute = snake(name)
            field.resolve = _attribute(attribute)
            _note_if_plain(field, attribute)


def _note_if_plain(field: gql.GraphQLField, attribute: str) -> None:
    """Note for a field with a plain value: its attribute, its rendering, and whether it is required."""
    is_needed = isinstance(field.type, gql.GraphQLNonNull)
    kind: Any = field.type.of_type if isinstance(field.type, gql.GraphQLNonNull) else field.type
    if gql.is_leaf_type(kind):
        field.extensions = {PLAIN: (attribute, None if kind.name in AS_THEY_ARE else kind.serialize, is_needed)}


def _attribute(name: str) -> Any:
    def read(source: Any, _: Any) -> Any:
        return getattr(source, name)

    return read


def snake(name: str) -> str:
    """Return `session_id` for `sessionId`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def camel(name: str) -> str:
    """Return `sessionId` for `session_id`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
