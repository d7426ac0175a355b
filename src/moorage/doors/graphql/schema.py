"""The schema of `schema.graphql` with what answers it.

A public field of a session that is a plain value is added to its type here, so that a new one is there at once. A
mutation without a resolver calls the method that it is named after.
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
OTHERWISE = {"completeSession": "finalize"}  # mutations that are not named after their methods
PLAIN = "plain"  # where a field notes what `plain` reads without ceremony
AS_THEY_ARE = frozenset({"DateTime", "JSON", "Interface", "String", "Int", "Boolean", "Float"})  # our values are typed
_TYPES = {str: "String", int: "Int", float: "Float", bool: "Boolean", datetime: "DateTime", dict: "JSON"}


def schema_text() -> str:
    """The schema as it is written, and the fields of a session that are made from its type."""
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
    """A plain type of Python as one of GraphQL."""
    origin, parts = get_origin(kind), get_args(kind)
    if NoneType in parts:
        [inner] = [part for part in parts if part is not NoneType]
        return _type_of(inner).removesuffix("!")
    return f"[{_type_of(parts[0])}]!" if origin is list else f"{_TYPES[origin or kind]}!"


@cache
def schema() -> gql.GraphQLSchema:
    """The schema, made once."""
    return make_schema()


def make_schema() -> gql.GraphQLSchema:
    """Make the schema anew."""
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
    """Let a field without a resolver be the attribute of its name, written as Python does."""
    for name, field in kind.fields.items():
        for argument_name, argument in field.args.items():
            argument.out_name = snake(argument_name)
        if field.resolve is None:
            attribute = snake(name)
            if kind.name == "PageInfo":
                field.resolve = _dictionary(attribute)
            else:
                field.resolve = _attribute(attribute)
                _note_if_plain(field, attribute)


def _note_if_plain(field: gql.GraphQLField, attribute: str) -> None:
    """Note of a field that is a plain value: its attribute, how it is shown, and whether it must be there."""
    is_needed = isinstance(field.type, gql.GraphQLNonNull)
    kind: Any = field.type.of_type if isinstance(field.type, gql.GraphQLNonNull) else field.type
    if gql.is_leaf_type(kind):
        field.extensions = {PLAIN: (attribute, None if kind.name in AS_THEY_ARE else kind.serialize, is_needed)}


def _attribute(name: str) -> Any:
    def read(source: Any, _: Any) -> Any:
        return getattr(source, name)

    return read


def _dictionary(name: str) -> Any:
    def read(source: dict[str, Any], _: Any) -> Any:
        return source.get(name)

    return read


def snake(name: str) -> str:
    """`sessionId` as `session_id`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def camel(name: str) -> str:
    """`session_id` as `sessionId`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
