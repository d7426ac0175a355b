"""The schema of `schema.graphql` with what answers it."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from ariadne import make_executable_schema
from graphql import GraphQLField, GraphQLNonNull, GraphQLObjectType, GraphQLSchema, is_leaf_type

from moorage.doors.graphql.resolvers import BINDABLES

NAME = "schema.graphql"
PLAIN = "plain"  # where a field notes what `executing` reads without ceremony
AS_THEY_ARE = frozenset({"DateTime", "JSON", "Interface", "String", "Int", "Boolean", "Float"})  # our values are typed


def schema_text() -> str:
    """The schema as it is written."""
    return (files("moorage.doors.graphql") / NAME).read_text(encoding="utf-8")


@cache
def schema() -> GraphQLSchema:
    """The schema, made once."""
    return make_schema()


def make_schema() -> GraphQLSchema:
    """Make the schema anew."""
    made = make_executable_schema(schema_text(), *BINDABLES)
    for kind in made.type_map.values():
        if isinstance(kind, GraphQLObjectType) and not kind.name.startswith("__"):
            _read_attributes(kind)
    return made


def _read_attributes(kind: GraphQLObjectType) -> None:
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


def _note_if_plain(field: GraphQLField, attribute: str) -> None:
    """Note of a field that is a plain value: its attribute, how it is shown, and whether it must be there."""
    is_needed = isinstance(field.type, GraphQLNonNull)
    kind: Any = field.type.of_type if isinstance(field.type, GraphQLNonNull) else field.type
    if is_leaf_type(kind):
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
