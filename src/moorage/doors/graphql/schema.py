"""The schema of `schema.graphql` with its resolvers.

A public field of a session with a plain value is added to its type here, so a new field appears by itself. A mutation
without a resolver calls the method of the same name.

Plain selections, which select only attributes of our values (texts, numbers, instants), are read without graphql-core.
For each attribute it builds a path, an info object and a call: an answer of 20 messages took 7.98 times the processor
time that it takes by REST. Read directly it takes 2.35 times as much (`python -m bench.graphql`). So a second schema
has, beside every field that returns objects, a field that returns them as a scalar, already read. An operation is
rewritten to use those fields where possible, once, after it was validated against the public schema; its answer is the
same.
"""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import datetime
from functools import cache, partial
from importlib.resources import files
from inspect import isawaitable
from types import NoneType
from typing import Any, get_args, get_origin

import graphql as gql
from ariadne import make_executable_schema
from msgspec.structs import fields

from moorage.core.session import PUBLIC_FIELDS, Session
from moorage.doors.graphql.resolvers import BINDABLES, calling

SESSION = "AgentSession"
OTHERWISE = {"completeSession": "finalize"}  # mutations whose names differ from those of their methods
PLAIN = "plain"  # the extension of a field that tells how to read it directly
SUFFIX = "__plain"
READ = gql.GraphQLScalarType("PlainObject", serialize=lambda value: value)
AS_THEY_ARE = frozenset({"DateTime", "JSON", "Interface", "String", "Int", "Boolean", "Float"})  # our values are typed
_TYPES = {str: "String", int: "Int", float: "Float", bool: "Boolean", datetime: "DateTime", dict: "JSON"}


def schema_text() -> str:
    """Return the text of the schema, with the fields of a session that are generated from its type."""
    written = (files("moorage.doors.graphql") / "schema.graphql").read_text(encoding="utf-8")
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
            attribute, kind = snake(name), gql.get_nullable_type(field.type)
            field.resolve = partial(_attribute, attribute)
            if gql.is_leaf_type(kind):  # a plain value: note how to read and render it, and whether it is required
                render = None if kind.name in AS_THEY_ARE else kind.serialize
                field.extensions = {PLAIN: (attribute, render, kind is not field.type)}


def _attribute(name: str, source: Any, _: Any) -> Any:
    return getattr(source, name)


def snake(name: str) -> str:
    """Return `session_id` for `sessionId`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def camel(name: str) -> str:
    """Return `sessionId` for `session_id`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


# Plain selections -------------------------------------------------------------------------------


def quickened(
    schema: gql.GraphQLSchema, document: gql.DocumentNode, operation: gql.OperationDefinitionNode
) -> tuple[gql.GraphQLSchema, gql.DocumentNode]:
    """Return the schema and the document to execute an operation with, unchanged if it has no plain selection."""
    kind = schema.get_root_type(operation.operation)
    selections = operation.selection_set
    inner = selections if kind is None or _asks_for_schema(selections) else _within(kind, selections)
    if inner == selections:
        return schema, document
    fragments = (each for each in document.definitions if isinstance(each, gql.FragmentDefinitionNode))
    definitions = (_changed(operation, selection_set=inner), *fragments)
    return quick_schema(), gql.DocumentNode(definitions=definitions, loc=document.loc)


@cache
def quick_schema() -> gql.GraphQLSchema:
    """Return the schema with its fields for plain selections, built once; clients never see it."""
    schema = make_schema()
    for kind in schema.type_map.values():
        if isinstance(kind, gql.GraphQLObjectType) and not kind.name.startswith("__"):
            for name, field in tuple(kind.fields.items()):
                if isinstance(gql.get_named_type(field.type), gql.GraphQLObjectType):
                    kind.fields[name + SUFFIX] = _read_field(field)
    return schema


def _asks_for_schema(selections: gql.SelectionSetNode) -> bool:
    names = (each.name.value for each in selections.selections if isinstance(each, gql.FieldNode))
    return not {"__schema", "__type"}.isdisjoint(names)


def _within(kind: gql.GraphQLObjectType, selections: gql.SelectionSetNode) -> gql.SelectionSetNode:
    """Return the selections on a type, rewritten; unchanged if fields may have to be merged."""
    if not _has_only_different_fields(selections):
        return selections
    changed: gql.SelectionSetNode = _changed(
        selections, selections=tuple(_field(kind, each) for each in selections.selections)
    )
    return changed


def _has_only_different_fields(selections: gql.SelectionSetNode) -> bool:
    names = [_response_name(each) for each in selections.selections if isinstance(each, gql.FieldNode)]
    return len(set(names)) == len(names) == len(selections.selections)


def _field(kind: gql.GraphQLObjectType, node: Any) -> Any:
    field = kind.fields.get(node.name.value)
    inner = None if field is None else gql.get_named_type(field.type)
    if not isinstance(inner, gql.GraphQLObjectType) or node.selection_set is None:
        return node
    if _is_plain(inner, node.selection_set):
        return _changed(node, alias=node.alias or node.name, name=gql.NameNode(value=node.name.value + SUFFIX))
    return _changed(node, selection_set=_within(inner, node.selection_set))


def _is_plain(kind: gql.GraphQLObjectType, selections: gql.SelectionSetNode) -> bool:
    return _has_only_different_fields(selections) and all(
        PLAIN in getattr(kind.fields.get(each.name.value), "extensions", {}) and not each.directives
        for each in selections.selections
        if isinstance(each, gql.FieldNode)
    )


def _response_name(node: gql.FieldNode) -> str:
    return (node.alias or node.name).value


def _changed(node: Any, **changes: Any) -> Any:
    return type(node)(**{key: getattr(node, key) for key in node.keys} | changes)


def _read_field(field: gql.GraphQLField) -> gql.GraphQLField:
    """Return a field with the same arguments and resolver that returns objects as they are read."""
    kind: Any = gql.get_named_type(field.type)
    resolve: Any = field.resolve

    def read(source: Any, info: gql.GraphQLResolveInfo[Any], **arguments: Any) -> Any:
        found = resolve(source, info, **arguments)
        selections: Any = info.field_nodes[0].selection_set
        return _read_later(kind, selections, found) if isawaitable(found) else _read(kind, selections, found)

    is_needed = isinstance(field.type, gql.GraphQLNonNull)
    return gql.GraphQLField(gql.GraphQLNonNull(READ) if is_needed else READ, args=field.args, resolve=read)


async def _read_later(kind: gql.GraphQLObjectType, selections: Any, found: Awaitable[Any]) -> Any:
    return _read(kind, selections, await found)


def _read(kind: gql.GraphQLObjectType, selections: gql.SelectionSetNode, found: Any) -> Any:
    """Return the selected attributes of an object, or of each in a list."""
    wanted = [
        (_response_name(node), *kind.fields[node.name.value].extensions[PLAIN])
        for node in selections.selections
        if isinstance(node, gql.FieldNode)
    ]
    if isinstance(found, list):
        return [None if each is None else _row(kind, wanted, each) for each in found]
    return None if found is None else _row(kind, wanted, found)


def _row(kind: gql.GraphQLObjectType, wanted: list[tuple[str, str, Any, bool]], item: Any) -> dict[str, Any]:
    row = {}
    for response_name, attribute, serialize, is_needed in wanted:
        value = getattr(item, attribute)
        if value is None and is_needed:
            raise gql.GraphQLError(f"Cannot return null for non-nullable field {kind.name}.{attribute}.")
        row[response_name] = value if serialize is None or value is None else serialize(value)
    return row
