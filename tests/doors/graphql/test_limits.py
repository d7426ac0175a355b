"""Queries above the limits are refused before any work, and cheaply."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from time import thread_time
from typing import Any

import pytest
from graphql import get_introspection_query

from moorage.core.errors import MoorageError
from moorage.doors.graphql.engine import DocumentCache, DocumentRefused
from moorage.doors.graphql.limits import QueryLimits
from moorage.doors.graphql.schema import schema
from tests.doors.graphql.client import Client
from tests.doors.http.server import Served

AS_JSON = {"content-type": "application/json"}
CHEAP = 0.25  # seconds of a processor, on a busy machine


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Nothing here depends on the store."""
    return f"memory://{tmp_path}"


def nested(depth: int, name: str = "parent") -> str:
    return '{ agentSession(sessionId: "s") ' + f"{{ {name} " * depth + "{ sessionId }" + " }" * depth + " }"


def doubling(levels: int) -> str:
    """Fragments that spread each other twice: a few lines that ask for 2 to the power of `levels` fields."""
    fragments = [
        f"fragment F{n} on AgentSession {{ a{n}: parent {{ ...F{n + 1} }} b{n}: parent {{ ...F{n + 1} }} }}"
        for n in range(levels)
    ]
    last = f"fragment F{levels} on AgentSession {{ sessionId }}"
    return '{ agentSession(sessionId: "s") { ...F0 } } ' + " ".join([*fragments, last])


def introspection(levels: int) -> str:
    return "{ __schema { types { " + "fields { type { " * levels + "name" + " } }" * levels + " } } }"


MANY = "agentSessions(limit: 1000) { children(first: 1000) { nodes { history(last: 1000) { nodes { text } } } } }"
CYCLE = '{ agentSession(sessionId: "s") { ...A } } fragment A on AgentSession { parent { ...B } } fragment B on AgentSession { parent { ...A } }'  # noqa: E501  one line, as it is sent
BOMBS = {
    "depth": (nested(30), "query_too_deep"),
    "depth beyond all": (nested(600), "query_too_deep"),
    "braces": ("{" * 1900, "invalid_query"),
    "depth by fragments": (
        '{ agentSession(sessionId: "s") { ...F0 } } '
        + " ".join(f"fragment F{n} on AgentSession {{ parent {{ ...F{n + 1} }} }}" for n in range(40))
        + " fragment F40 on AgentSession { sessionId }",
        "query_too_deep",
    ),
    "inline fragments": ("{ " + "... { " * 100 + "__typename" + " }" * 101, "query_too_deep"),
    "aliases": ("{ " + " ".join(f"a{n}: __typename" for n in range(200)) + " }", "query_too_large"),
    "aliases of sessions": (
        "{ " + " ".join(f'a{n}: agentSession(sessionId: "s") {{ state }}' for n in range(100)) + " }",
        "query_too_large",
    ),
    "one field again and again": ("{ " + "__typename " * 1500 + " }", "query_too_large"),
    "fields": ('{ agentSession(sessionId: "s") { ' + "sessionId taskId state phase status " * 99 + " } "
               'agentSessions { ' + "sessionId taskId state phase status " * 99 + " } }", "query_too_large"),
    "directives": ("{ __typename " + "@skip(if: false) " * 300 + "}", "query_too_large"),
    "a megabyte": ("{ __typename } #" + "x" * 1_000_000, "query_too_large"),
    "a megabyte of fields": ("{ " + "agentSessions { state } " * 45_000 + "}", "query_too_large"),
    "words": ("query (" + "$a: Int " * 700 + ") { __typename }", "query_too_large"),
    "comments": ("#\n" * 30_000 + "{ __typename }", "query_too_large"),
    "a cycle of fragments": (CYCLE, "invalid_query"),
    "a fragment of itself": ("{ ...A } fragment A on Query { ...A }", "invalid_query"),
    "doubling fragments": (doubling(14), "query_too_costly"),
    "lists of lists of lists": (f"{{ {MANY} }}", "query_too_costly"),
    "a list by a variable": ("query ($n: Int = 1000) " + f"{{ {MANY.replace('1000', '$n')} }}", "query_too_costly"),
    "introspection in circles": (introspection(5), "invalid_query"),
    "introspection again and again": (
        "{ " + " ".join(f"a{n}: __schema {{ types {{ name }} }}" for n in range(20)) + " }",
        "query_too_costly",
    ),
    "changes": (
        "mutation { " + " ".join(f'a{n}: createAgentSession(agentName: "x") {{ state }}' for n in range(60)) + " }",
        "query_too_large",
    ),
    "a long list of values": (
        '{ agentSession(sessionId: "s") { history(last: [' + "1 " * 1990 + "]) { nodes { text } } } }",
        "query_too_large",
    ),
}  # fmt: skip


@pytest.fixture
def documents() -> DocumentCache:
    return DocumentCache(schema(), QueryLimits())


def refused(documents: DocumentCache, query: str, **variables: Any) -> list[str]:
    """The codes with which a query is refused."""
    try:
        documents.operation(query, None).price.check(variables, QueryLimits().cost)
    except DocumentRefused as error:
        return [getattr(each, "code", "invalid_query") for each in error.errors]
    except MoorageError as error:
        return [error.code]
    return []


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused_cheaply(documents: DocumentCache, bomb: str) -> None:
    query, code = BOMBS[bomb]
    refused(documents, "{ __typename }")  # what is loaded on first use is
    began = thread_time()
    assert code in refused(documents, query)
    assert thread_time() - began < CHEAP


async def test_bombs_touch_nothing_and_are_told_by_their_code(gql: Client, served: Served) -> None:
    for query, code in BOMBS.values():
        answer = await gql.post({"query": query})
        assert answer.json()["errors"][0]["extensions"]["code"] == code
        assert "data" not in answer.json()
    assert (await served.moorage().list()).items == []
    answering = await served.graphql.loaded()
    assert len(answering.engine.documents) <= 4  # those that are sound, and only too dear


def test_common_queries_are_within_the_limits(documents: DocumentCache) -> None:
    everything = "sessionId agentName state status phase metadata createdAt updatedAt summary parentSessionId"
    for query in (
        get_introspection_query(),
        get_introspection_query(specified_by_url=True, directive_is_repeatable=True, schema_description=True,
                                input_value_deprecation=True),
        f"{{ agentSessions(limit: 1000) {{ {everything} }} }}",
        f"{{ agentSessions {{ {everything} history(last: 20) {{ nodes {{ role text at by }} }} }} }}",
        nested(16),
        doubling(6),
    ):  # fmt: skip
        assert refused(documents, query) == []


@pytest.mark.parametrize(
    ("variables", "codes"),
    [({}, []), ({"n": 10}, []), ({"n": 1000}, ["query_too_costly"]), ({"n": "1000"}, ["query_too_costly"]),
     ({"n": 10**30}, ["query_too_costly"]), ({"n": -1}, ["query_too_costly"]), ({"n": None}, ["query_too_costly"])],
)  # fmt: skip
def test_page_size_in_a_variable_counts(documents: DocumentCache, variables: dict[str, Any], codes: list[str]) -> None:
    query = """query ($n: Int! = 20) { agentSessions(limit: $n) { children(first: 50) { nodes {
      sessionId state } } } }"""
    assert refused(documents, query, **variables) == codes


def test_the_same_words_are_read_once_and_only_so_many_are_kept() -> None:
    documents = DocumentCache(schema(), QueryLimits(), most=200)
    first = documents.operation("{ __typename }", None)
    assert documents.operation("{ __typename }", None) is first
    for number in range(10, 60):
        documents.operation(f"{{ a{number}: __typename }}", None)
    assert len(documents) == 200 // len("{ a10: __typename }")
    assert documents.operation("{ __typename }", None) is not first
    long = "{ __typename } #" + "x" * 300
    assert documents.operation(long, None) is not documents.operation(long, None)
    assert len(documents) == 0


# At the door ------------------------------------------------------------------------------------


async def test_batches_are_answered_in_order_and_bounded(gql: Client, served: Served) -> None:
    await served.moorage().create(session_id="s", parent=None)
    batch = [
        {"query": "{ __typename }"},
        {"query": "{ nope }"},
        {"query": '{ agentSession(sessionId: "s") { state } }'},
    ]
    answers = (await gql.post(batch)).json()
    assert answers[0] == {"data": {"__typename": "Query"}}
    assert answers[1]["errors"][0]["extensions"]["code"] == "invalid_query"
    assert answers[2] == {"data": {"agentSession": {"state": "CREATED"}}}
    empty = (await gql.post([])).json()["errors"][0]
    assert (empty["extensions"]["code"], "empty" in empty["message"]) == ("invalid_query", True)
    for size in (11, 5_000):
        answer = (await gql.post([{"query": "mutation { createAgentSession { state } }"}] * size)).json()
        assert answer["errors"][0]["extensions"]["code"] == "query_too_large"
    assert len((await served.moorage().list()).items) == 1


async def test_a_batch_costs_no_more_than_one_request_may(gql: Client) -> None:
    dear = "{ agentSessions(limit: 1000) { sessionId state phase status metadata taskId agentName } }"
    answers = (await gql.post([{"query": dear}] * 5)).json()
    codes = [each.get("errors", [{"extensions": {"code": None}}])[0]["extensions"]["code"] for each in answers]
    assert codes == [None, None, "query_too_costly", "query_too_costly", "query_too_costly"]


async def test_no_subscription_in_a_batch(gql: Client) -> None:
    batch = [{"query": 'subscription { agentSessionEvents(sessionId: "s") { id } }'}]
    [answer] = (await gql.post(batch)).json()
    assert answer["errors"][0]["extensions"]["code"] == "invalid_query"


def huge() -> Iterator[tuple[str, Any, str]]:
    create = "mutation ($m: JSON) { createAgentSession(metadata: $m) { state } }"
    yield create, {"m": {"k": "x" * 100_000}}, "metadata_too_large"
    yield create, {"m": {str(number): number for number in range(50_000)}}, "metadata_too_large"
    yield (
        "mutation ($m: String!) { createAgentSession(sessionId: $m) { state } }",
        {"m": "x" * 5_000_000},
        "invalid_query",
    )
    send = 'mutation ($m: String!) { sendMessageToSession(sessionId: "s", message: $m) { runId } }'
    yield send, {"m": "x" * 3_000_000}, "message_too_large"
    yield send, {"m": ["x"] * 90_000}, "invalid_query"
    yield send, {"m": ["x"] * 100_000}, "request_too_large"
    yield "query ($n: Int) { agentSessions(limit: $n) { state } }", {"n": 10**18}, "invalid_query"


async def test_huge_variables_are_refused(gql: Client, served: Served) -> None:
    await served.moorage().create(session_id="s", parent=None)
    for query, variables, code in huge():
        assert await gql.code(query, **variables) == code, code
    deep = '{"query":"{ __typename }","variables":{"a":' + "[" * 90_000 + "]" * 90_000 + "}}"
    answer = await gql.http.post("/graphql", content=deep, headers=AS_JSON)
    assert answer.json()["errors"][0]["extensions"]["code"] == "invalid_json"
    too_long = json.dumps({"query": "{ __typename }", "x": "x" * 9_000_000})
    long = await gql.http.post("/graphql", content=too_long, headers=AS_JSON)
    assert (long.status_code, long.json()["errors"][0]["extensions"]["code"]) == (413, "request_too_large")
    assert (await served.moorage().get("s")).last_entry == 1


async def test_limits_may_be_set(served: Served, gql: Client) -> None:
    from moorage.service.deps import ServerSettings, Settings
    from tests.doors.http.server import serving

    served.deps.settings = Settings(server=ServerSettings(graphql_depth=3, graphql_cost=50))
    async with serving(served.deps) as other, Client(other.url) as asked:
        assert await asked.code(nested(4)) == "query_too_deep"
        assert await asked.code("{ agentSessions { sessionId state } }") == "query_too_costly"
        assert await asked.data("{ agentSessions(limit: 10) { sessionId } }") == {"agentSessions": []}
