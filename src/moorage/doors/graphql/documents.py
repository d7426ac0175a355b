"""Documents: parse, validate and price each text once, and keep the result for later requests with the same text."""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from typing import Any

import graphql as gql

from moorage.core.errors import MoorageError
from moorage.doors.graphql.limits import Price, QueryLimits, check_shape, fragments_of
from moorage.doors.graphql.plain import quickened
from moorage.doors.graphql.refusals import InvalidQuery, QueryTooDeep, QueryTooLarge

MOST_CHARACTERS = 256 * 1024  # of all cached documents; parsed, one takes up to 200 bytes
MOST_ERRORS = 5  # of one document: finding more costs more


class DocumentRefused(Exception):
    """Nothing was executed; the errors tell why."""

    def __init__(self, errors: list[gql.GraphQLError | MoorageError]) -> None:
        self.errors = errors


class ParsedOperation:
    """One operation of a document."""

    def __init__(
        self, schema: gql.GraphQLSchema, document: gql.DocumentNode, node: gql.OperationDefinitionNode
    ) -> None:
        self.schema, self.document, self.node = schema, document, node
        self._quick_schema, self._quick_document = quickened(schema, document, node)
        self.name = None if node.name is None else node.name.value
        self.kind: gql.OperationType = node.operation
        self.price = Price(schema, node, fragments_of(document))
        self.rendering: Any = None  # of events, shared by all followers with the same document

    def execute(self, variables: dict[str, Any] | None, context: object, root: object = None) -> Any:
        """Return the result, or an awaitable of it."""
        return gql.execute(
            self._quick_schema,
            self._quick_document,
            root_value=root,
            context_value=context,
            variable_values=variables,
            operation_name=self.name,
        )

    @cached_property
    def is_same_for_all(self) -> bool:
        """Return whether variables are used only as arguments of the root field: then events are rendered once."""
        roots = self.node.selection_set.selections
        if len(roots) != 1 or not isinstance(roots[0], gql.FieldNode) or roots[0].directives:
            return False
        finder = _VariableFinder()
        for part in (roots[0].selection_set, *fragments_of(self.document).values()):
            if part is not None:
                gql.visit(part, finder)
        return not finder.found


class _VariableFinder(gql.Visitor):
    """Finds out whether a node uses a variable."""

    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def enter_variable(self, node: gql.VariableNode, *_: Any) -> None:
        self.found = True


class DocumentCache:
    """The valid documents that were used last."""

    def __init__(self, schema: gql.GraphQLSchema, limits: QueryLimits, most: int = MOST_CHARACTERS) -> None:
        self._schema, self._limits, self._most = schema, limits, most
        self._known: OrderedDict[str, dict[str | None, ParsedOperation]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._known)

    def operation(self, text: str, name: str | None) -> ParsedOperation:
        """Return the requested operation. Raise DocumentRefused."""
        operations = self._known.get(text)
        if operations is None:
            operations = self._read(text)
            self._keep(text, operations)
        else:
            self._known.move_to_end(text)
        return _chosen(operations, name)

    def _keep(self, text: str, operations: dict[str | None, ParsedOperation]) -> None:
        self._known[text] = operations
        self._size += len(text)
        while self._size > self._most:
            forgotten, _ = self._known.popitem(last=False)
            self._size -= len(forgotten)

    def _read(self, text: str) -> dict[str | None, ParsedOperation]:
        limits = self._limits
        try:
            if len(text) > limits.text:
                raise QueryTooLarge("characters", limits.text)
            if text.count("#") > limits.tokens:
                raise QueryTooLarge("comments", limits.tokens)
            document = gql.parse(text, max_tokens=limits.tokens)
            check_shape(document, limits)
        except MoorageError as error:
            raise DocumentRefused([error]) from None
        except RecursionError:
            raise DocumentRefused([QueryTooDeep(limits.depth)]) from None
        except gql.GraphQLError as error:
            raise DocumentRefused([_told(error, limits)]) from None
        if errors := gql.validate(self._schema, document, max_errors=MOST_ERRORS):
            raise DocumentRefused([*errors])
        nodes = [each for each in document.definitions if isinstance(each, gql.OperationDefinitionNode)]
        operations = [ParsedOperation(self._schema, document, node) for node in nodes]
        return {each.name: each for each in operations}


def _told(error: gql.GraphQLError, limits: QueryLimits) -> gql.GraphQLError | MoorageError:
    """Return the error of the parser; for its limits, an error of Moorage."""
    if error.message.startswith("Syntax Error: Document contains more tha"):
        return QueryTooLarge("words and signs", limits.tokens)
    return QueryTooDeep(limits.depth) if error.message.startswith("Syntax Error: Document is nested too") else error


def _chosen(operations: dict[str | None, ParsedOperation], name: str | None) -> ParsedOperation:
    if name:
        found = operations.get(name)
    else:
        found = next(iter(operations.values())) if len(operations) == 1 else None
    if found is None:
        known = ", ".join(str(each) for each in operations if each)[:200]
        raise DocumentRefused([InvalidQuery(f"operationName is {name!r}; the document has: {known or 'none'}")])
    return found
