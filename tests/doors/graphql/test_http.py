"""GraphQL over HTTP: how requests may come, and how answers go."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.doors.graphql.client import Client, Events
from tests.doors.http.server import Served

RESPONSE = "application/graphql-response+json"
AS_JSON = {"content-type": "application/json"}
MADE = 'mutation { createAgentSession(sessionId: "made") { state } }'


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Nothing here depends on the store."""
    return f"memory://{tmp_path}"


async def test_a_query_may_come_in_an_address(gql: Client, served: Served) -> None:
    await served.moorage().create(session_id="s", parent=None)
    params = {
        "query": "query Q($id: ID!) { agentSession(sessionId: $id) { state } } query R { __typename }",
        "operationName": "Q",
        "variables": json.dumps({"id": "s"}),
    }
    answer = await gql.http.get("/graphql", params=params)
    assert answer.json() == {"data": {"agentSession": {"state": "CREATED"}}}
    assert answer.headers["content-type"] == "application/json"


async def test_a_change_may_not(gql: Client, served: Served) -> None:
    answer = await gql.http.get("/graphql", params={"query": MADE})
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json()["errors"][0]["extensions"]["code"] == "method_not_allowed"
    assert (await served.moorage().list()).items == []


async def test_a_subscription_may_come_in_an_address_too(gql: Client, served: Served) -> None:
    await served.moorage().create(session_id="s", parent=None)
    params = {"query": 'subscription { agentSessionEvents(sessionId: "s") { id } }'}
    async with gql.http.stream("GET", "/graphql", params=params, headers={"accept": "text/event-stream"}) as response:
        stream = Events(response)
        assert await stream.next() == {"data": {"agentSessionEvents": {"id": "1"}}}
        assert stream.id == 1


@pytest.mark.parametrize(
    ("query", "accept", "status"),
    [
        ("{ __typename }", "application/json", 200),
        ("{ __typename }", RESPONSE, 200),
        ("{ nope }", "application/json", 200),
        ("{ nope }", RESPONSE, 400),
        ("{", "*/*", 200),
        ("{", RESPONSE, 400),
        ('{ agentSession(sessionId: "nobody") { state } }', RESPONSE, 200),  # it was carried out
        ("query ($n: Int!) { agentSessions(limit: $n) { state } }", "application/json", 200),
        ("query ($n: Int!) { agentSessions(limit: $n) { state } }", RESPONSE, 400),
        ('subscription { agentSessionEvents(sessionId: "s") { id } }', RESPONSE, 400),
        ('subscription { agentSessionEvents(sessionId: "s") { id } }', "application/json", 200),
    ],
)
async def test_statuses_are_those_of_graphql_over_http(gql: Client, query: str, accept: str, status: int) -> None:
    answer = await gql.post({"query": query}, accept=accept)
    assert answer.status_code == status
    assert answer.headers["content-type"] == (RESPONSE if accept == RESPONSE else "application/json")
    assert ("errors" in answer.json()) is (query != "{ __typename }")
    assert ("data" in answer.json()) is (query == "{ __typename }" or "nobody" in query)
    assert answer.headers["x-request-id"]


async def test_a_query_may_be_answered_by_server_sent_events(gql: Client) -> None:
    async with gql.sse("{ __typename }") as stream:
        assert await stream.next() == {"data": {"__typename": "Query"}}
        assert await stream.hear() == ("complete", None)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "invalid_json"),
        (b"{", 400, "invalid_json"),
        (b"5", 400, "invalid_json"),
        (b'"{ __typename }"', 400, "invalid_json"),
        (b"\xff\xfe", 400, "invalid_json"),
        (b"[5]", 400, "invalid_json"),
        (b'{"query": 5}', 400, "invalid_json"),
        (b'{"query": "{ __typename }", "variables": "x"}', 400, "invalid_json"),
        (b'{"query": "{ __typename }", "operationName": 5}', 400, "invalid_json"),
        (b'{"query": "{ __typename }", "extensions": []}', 400, "invalid_json"),
        (b"{}", 400, "invalid_query"),
        (b'{"query": null}', 400, "invalid_query"),
        (b'{"query": ""}', 200, "invalid_query"),
        (b'{"query": "{ __typename }", "operationName": "X"}', 200, "invalid_query"),
        (b'{"query": "query A { __typename } query B { __typename }"}', 200, "invalid_query"),
        (b'{"query": "fragment A on Query { __typename }"}', 200, "invalid_query"),
        (b'{"query": "type A { b: Int }"}', 200, "invalid_query"),
        (b'{"query": "{ agentSessions(limit: 5.5) { state } }"}', 200, "invalid_query"),
        (b'{"query": "{ agentSessions(state: active) { state } }"}', 200, "invalid_query"),
        (b'{"query": "{ agentSession { state } }"}', 200, "invalid_query"),
        ('{"query": "{ agentSession(sessionId: \\"\\ud800\\") { state } }"}'.encode("utf-8", "surrogatepass"), 400,
         "invalid_json"),
    ],
)  # fmt: skip
async def test_unreadable_request_is_a_graphql_error(gql: Client, body: bytes, status: int, code: str) -> None:
    answer = await gql.http.post("/graphql", content=body, headers=AS_JSON)
    assert answer.status_code == status
    assert answer.json()["errors"][0]["extensions"]["code"] == code
    assert answer.json()["errors"][0]["message"]


async def test_unknown_request_fields_are_ignored(gql: Client) -> None:
    more = {"query": "query A { __typename }", "operationName": "A", "variables": None, "extensions": {"x": 1}, "id": 1}
    assert (await gql.post(more)).json() == {"data": {"__typename": "Query"}}
    packed = gzip.compress(json.dumps(more).encode())
    answer = await gql.http.post("/graphql", content=packed, headers={**AS_JSON, "content-encoding": "gzip"})
    assert answer.json() == {"data": {"__typename": "Query"}}


async def test_an_escaped_half_character_is_refused(gql: Client, served: Served) -> None:
    query = b'"query": "mutation ($m: String!) { createAgentSession(purpose: $m) { state } }"'
    body = b'{%s, "variables": {"m": "\\ud800"}}' % query
    answer = (await gql.http.post("/graphql", content=body, headers=AS_JSON)).json()
    assert answer["errors"][0]["extensions"]["code"] in ("invalid_json", "invalid_purpose")
    assert (await served.moorage().list()).items == []


async def test_an_error_that_is_ours_is_not_told_but_logged(
    gql: Client, served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("the secret of the house")

    monkeypatch.setattr(served.deps.store, "get", broken)
    answer = await gql.ask('{ agentSession(sessionId: "s") { state } }')
    assert answer["errors"][0]["extensions"] == {"code": "internal_error"}
    assert "secret" not in json.dumps(answer)
    assert "the secret of the house" in caplog.text


async def test_a_part_that_fails_leaves_the_rest(gql: Client, served: Served) -> None:
    await served.moorage().create(session_id="s", parent=None)
    answer = await gql.ask('{ a: agentSession(sessionId: "s") { state } b: agentSession(sessionId: "x") { state } }')
    assert answer["data"] == {"a": {"state": "CREATED"}, "b": None}
    assert [(each["path"], each["locations"]) for each in answer["errors"]] == [(["b"], [{"line": 1, "column": 45}])]


# The page ----------------------------------------------------------------------------------------


async def test_a_browser_gets_a_page_that_needs_nothing_from_elsewhere(gql: Client) -> None:
    answer = await gql.http.get("/graphql", headers={"accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "default-src 'none'" in policy
    page = answer.text
    assert "://" not in page
    assert "<script>" not in page
    for tag in ("src", "href"):
        for part in page.split(f'{tag}="')[1:]:
            name = part.split('"')[0]
            if name.startswith("data:"):
                continue
            found = await gql.http.get(f"/{name}")
            assert found.status_code == 200
            assert found.headers["content-type"].split(";")[0] in ("text/javascript", "text/css")
            again = await gql.http.get(f"/{name}", headers={"if-none-match": found.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")


async def test_only_the_pages_own_files_are_served(gql: Client) -> None:
    for name in ("hashes.txt", "nobody.js", "..%2fschema.graphql", "%2e%2e%2fdoor.py", "LICENCES.txt"):
        assert (await gql.http.get(f"/graphql/static/{name}")).status_code == 404


def test_vendored_files_match_their_hashes() -> None:
    subprocess.run([sys.executable, "scripts/graphiql.py", "--check"], check=True)


def test_a_server_loads_the_libraries_only_when_it_is_asked() -> None:
    code = "import sys, moorage.doors.http.serve; print([m for m in ('graphql', 'ariadne') if m in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert told.stdout.strip() == "[]"
