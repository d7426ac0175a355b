"""Plain selections are read quickly, and answer as graphql-core does."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

import pytest
from graphql import ExecutionResult, OperationDefinitionNode, execute, parse, validate

from moorage import sync
from moorage.core.query import Page
from moorage.doors.graphql.schema import SUFFIX, quickened, schema
from moorage.service.conversation import windows_of
from moorage.service.sessions import pages_of, sessions_of

QUERY = '{{ agentSession(sessionId: "s") {{ {} }} }}'
REWRITTEN = (
    "sessionId state",
    "id: sessionId children { nodes { sessionId agentName } }",
    "history(last: 2) { nodes { number kind said: text } pageInfo { hasNextPage } }",
    "parent { sessionId } children { nodes { parent { state phase } } }",
    "sessionId @skip(if: true) history(last: 2) { nodes { number } }",
)
AS_THEY_ARE = (
    "... { sessionId }",
    "sessionId sessionId",
    "sessionId @skip(if: true) state",
)


class Asked:
    """Resolvers' context with two sessions that never change."""

    def __init__(self) -> None:
        moor = sync.connect("memory://")
        self._session = moor.create(session_id="s", agent="a")
        self._child = moor.create(session_id="t", parent="s")
        self._entries = moor.append("s", ["one", "two"])
        self.visitor, self.session_id = self, None

    def check(self, *_: object) -> None:
        pass

    async def call(self, *_: object, **__: object) -> Any:
        return self._session

    async def session_with_history(self, *_: object) -> Any:
        return self._session

    async def read(self, service: Any, *_: object, **__: object) -> Any:
        found = {sessions_of: self._session, pages_of: Page(items=[self._child]), windows_of: Page(items=self._entries)}
        return found[service]


def answers(query: str) -> tuple[bool, ExecutionResult, ExecutionResult]:
    """Return whether a query is rewritten, and its answers without and with that."""
    document, asked = parse(query), Asked()
    [operation] = document.definitions
    assert isinstance(operation, OperationDefinitionNode)
    quick = quickened(schema(), document, operation)
    found = [asyncio.run(_awaited(execute(*each, context_value=asked))) for each in ((schema(), document), quick)]
    return quick[1] is not document, found[0], found[1]


async def _awaited(result: Any) -> ExecutionResult:
    answer: ExecutionResult = await result
    return answer


@pytest.mark.parametrize("selection", [*REWRITTEN, *AS_THEY_ARE])
def test_rewritten_query_answers_the_same(selection: str) -> None:
    is_rewritten, plainly, quickly = answers(QUERY.format(selection))
    assert (plainly.errors, quickly.errors) == (None, None)
    assert repr(quickly.data) == repr(plainly.data)  # in the same order, too
    assert is_rewritten is (selection in REWRITTEN)


def test_clients_see_nothing_of_the_fields_for_plain_selections() -> None:
    query = '{ __schema { types { fields { name } } } agentSession(sessionId: "s") { sessionId } }'
    is_rewritten, _, shown = answers(query)
    assert not is_rewritten
    assert SUFFIX not in repr(shown.data)
    assert not [name for kind in schema().type_map.values() for name in getattr(kind, "fields", ()) if SUFFIX in name]


def test_query_of_the_benchmark_is_valid_and_rewritten() -> None:
    """It names every public field of a session, so a field that is added may need a selection."""
    document = parse(importlib.import_module("bench.graphql").QUERY)
    [operation] = document.definitions
    assert isinstance(operation, OperationDefinitionNode)
    assert validate(schema(), document) == []
    assert quickened(schema(), document, operation)[1] is not document
