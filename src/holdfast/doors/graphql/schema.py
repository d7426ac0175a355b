"""The schema of `schema.graphql` with what answers it."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from ariadne import make_executable_schema
from graphql import GraphQLObjectType, GraphQLSchema

from holdfast.doors.graphql.resolvers import BINDABLES

NAME = "schema.graphql"


def schema_text() -> str:
    """The schema as it is written."""
    return (files("holdfast.doors.graphql") / NAME).read_text(encoding="utf-8")


@cache
def schema() -> GraphQLSchema:
    """The schema, made once."""
    made = make_executable_schema(schema_text(), *BINDABLES, convert_names_case=_attribute_of)
    for kind in made.type_map.values():
        if isinstance(kind, GraphQLObjectType) and not kind.name.startswith("__"):
            _read_attributes(kind)
    return made


def _attribute_of(name: str, *_: Any) -> str:
    return name  # arguments are renamed below, together with the fields


def _read_attributes(kind: GraphQLObjectType) -> None:
    """Let a field without a resolver be the attribute of its name, written as Python does."""
    for name, field in kind.fields.items():
        for argument_name, argument in field.args.items():
            argument.out_name = snake(argument_name)
        if field.resolve is None:
            attribute = snake(name)
            field.resolve = _dictionary(attribute) if kind.name == "PageInfo" else _attribute(attribute)
            field.extensions = {"attribute": attribute} if kind.name != "PageInfo" else {}


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
