"""The limits of a query, and the errors of one that exceeds them. All is counted before anything is executed.

There are two checks. The shape is checked before validation, because validation compares fields with each other, so a
long list of them is expensive. The cost is checked once the types are known: a field costs 1, a field that reads the
store 10, a change 100, and the selections within a list count as often as the list may have items.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import graphql as gql
from msgspec import Struct

from moorage.core.errors import InvalidRequest
from moorage.core.query import MAX_LIMIT

Fragments = dict[str, gql.FragmentDefinitionNode]
Variables = Mapping[str, Any]

PAGE_SIZES = ("limit", "first", "last")
ASKS_STORE, CHANGES = 10, 100
INTROSPECTION = {"__schema": 5_000, "__type": 200, "__typename": 1}


class QueryLimits(Struct, frozen=True, kw_only=True):
    """The limits of a query."""

    text: int = 64 * 1024  # characters
    tokens: int = 2_000
    fields: int = 500
    same_name: int = 60  # fields with the same name in the answer: validation compares them with each other
    aliases: int = 50
    directives: int = 50
    depth: int = 20
    cost: int = 20_000
    operations: int = 10  # in a batch


class InvalidQuery(InvalidRequest):
    """A document that is not valid GraphQL, does not fit this schema, or lacks a required part."""


class QueryTooLarge(InvalidRequest):
    """A request with too much text, or too many tokens, fields, aliases or operations."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"a request may have {limit:,} {what}, not more; ask for less at once", what=what, limit=limit)


class QueryTooDeep(InvalidRequest):
    """A query with selections nested beyond the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"selections may be nested {limit} deep, not deeper; ask again from further below", limit=limit
        )


class QueryTooCostly(InvalidRequest):
    """A query for more values than one answer may have."""

    def __init__(self, cost: int, limit: int) -> None:
        super().__init__(
            f"this asks for up to {cost:,} values, and {limit:,} are allowed; take smaller pages or fewer fields",
            cost=cost,
            limit=limit,
        )


# The shape --------------------------------------------------------------------------------------


def check_shape(document: gql.DocumentNode, limits: QueryLimits) -> None:
    """Raise QueryTooLarge, QueryTooDeep, or InvalidQuery for fragments that contain themselves."""
    shape = _Shape(document, limits)
    executable = (gql.OperationDefinitionNode, gql.FragmentDefinitionNode)
    selections = [each.selection_set for each in document.definitions if isinstance(each, executable)]
    if any(1 + shape.height(each) > limits.depth for each in selections):
        raise QueryTooDeep(limits.depth)
    for each in selections:
        shape.count(each)


class _Shape:
    """Counts the parts of a document."""

    def __init__(self, document: gql.DocumentNode, limits: QueryLimits) -> None:
        self._limits, self._fragments = limits, fragments_of(document)
        self._parts: Counter[str] = Counter()
        self._names: Counter[str] = Counter()
        self._heights: dict[str, int] = {}

    def count(self, selections: gql.SelectionSetNode) -> None:
        """Count fields, aliases and directives. Raise an error as soon as there are too many."""
        for each in selections.selections:
            self._parts["directives"] += len(each.directives or ())
            if isinstance(each, gql.FieldNode):
                name = (each.alias or each.name).value
                self._parts["fields"] += 1
                self._parts["aliases"] += each.alias is not None
                self._names[name] += 1
                if self._names[name] > self._limits.same_name:
                    raise QueryTooLarge("fields of one name", self._limits.same_name)
            for what in ("fields", "aliases", "directives"):
                if self._parts[what] > (limit := getattr(self._limits, what)):
                    raise QueryTooLarge(what, limit)
            if (inner := getattr(each, "selection_set", None)) is not None:
                self.count(inner)

    def height(self, selections: gql.SelectionSetNode, within: tuple[str, ...] = ()) -> int:
        """Return the depth of selections inside these fragments. Raise InvalidQuery if one contains itself."""
        deepest = 0
        for each in selections.selections:
            if isinstance(each, gql.FragmentSpreadNode):
                deepest = max(deepest, self._height_of(each.name.value, within))
            elif (inner := getattr(each, "selection_set", None)) is not None:
                deepest = max(deepest, 1 + self.height(inner, within))
        return deepest

    def _height_of(self, name: str, within: tuple[str, ...]) -> int:
        if name in within:
            raise InvalidQuery(f"the fragment {name[:80]} contains itself; leave one of its spreads out")
        if name not in self._fragments:
            return 0  # validation reports it
        if len(within) > self._limits.depth:
            raise QueryTooDeep(self._limits.depth)
        if name not in self._heights:
            self._heights[name] = self.height(self._fragments[name].selection_set, (*within, name))
        return self._heights[name]


def fragments_of(document: gql.DocumentNode) -> Fragments:
    """Return the fragments of a document by name."""
    return {each.name.value: each for each in document.definitions if isinstance(each, gql.FragmentDefinitionNode)}


# The cost ---------------------------------------------------------------------------------------


class Price:
    """The cost of one operation; constant unless a variable sets the length of a list."""

    def __init__(self, schema: gql.GraphQLSchema, operation: gql.OperationDefinitionNode, fragments: Fragments) -> None:
        self._schema, self._fragments = schema, fragments
        root = schema.get_root_type(operation.operation)
        assert root is not None, "validated"
        self._selections, self._root = operation.selection_set, root
        self._defaults = {each.variable.name.value: each.default_value for each in operation.variable_definitions or ()}
        self._by_fragment: dict[str, int] = {}
        self._varies = False
        cost = self._of(self._selections, root, {})
        self._fixed = None if self._varies else cost

    def check(self, variables: Variables, limit: int) -> int:
        """Return the cost. Raise QueryTooCostly."""
        cost = self._fixed
        if cost is None:
            self._by_fragment.clear()
            cost = self._of(self._selections, self._root, variables)
        if cost > limit:
            raise QueryTooCostly(cost, limit)
        return cost

    def _of(self, selections: gql.SelectionSetNode, kind: gql.GraphQLObjectType, variables: Variables) -> int:
        cost = 0
        for each in selections.selections:
            if isinstance(each, gql.FieldNode):
                cost += self._of_field(each, kind, variables)
            elif isinstance(each, gql.FragmentSpreadNode):
                cost += self._of_fragment(each.name.value, variables)
            else:
                cost += self._of(each.selection_set, kind, variables)  # type: ignore[attr-defined]  # an inline one
        return cost

    def _of_fragment(self, name: str, variables: Variables) -> int:
        """Return the cost of a fragment, counted once: fragments may spread each other without end."""
        if name not in self._by_fragment:
            fragment = self._fragments[name]
            kind = self._schema.get_type(fragment.type_condition.name.value)
            assert isinstance(kind, gql.GraphQLObjectType), "validated: there are no abstract types"
            self._by_fragment[name] = self._of(fragment.selection_set, kind, variables)
        return self._by_fragment[name]

    def _of_field(self, field: gql.FieldNode, kind: gql.GraphQLObjectType, variables: Variables) -> int:
        name = field.name.value
        if name in INTROSPECTION:
            return INTROSPECTION[name]
        definition = kind.fields[name]
        own = CHANGES if kind is self._schema.mutation_type else ASKS_STORE if definition.args else 1
        inner = gql.get_named_type(definition.type)
        if field.selection_set is None or not isinstance(inner, gql.GraphQLObjectType):
            return own
        return own + self._length(field, kind, variables) * self._of(field.selection_set, inner, variables)

    def _length(self, field: gql.FieldNode, kind: gql.GraphQLObjectType, variables: Variables) -> int:
        """Return the maximum number of items of a field."""
        allowed = kind.fields[field.name.value].args
        name = next((each for each in PAGE_SIZES if each in allowed), None)
        if name is None:
            return 1
        written = allowed[name].ast_node
        usual = None if written is None else written.default_value
        given: Any = next((each.value for each in field.arguments or () if each.name.value == name), usual)
        if isinstance(given, gql.VariableNode):
            self._varies = True
            given = variables.get(given.name.value, self._defaults.get(given.name.value) or usual)
        if isinstance(given, gql.IntValueNode):
            given = int(given.value[:10])
        return min(given, MAX_LIMIT) if isinstance(given, int) and given > 0 else MAX_LIMIT
