"""GraphQL over HTTP as its specification has it: media types, methods, parameters and statuses.

The table asks what the audits of the npm package `graphql-http` ask, and runs everywhere. The audits themselves run
where npm can fetch them.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from tests.doors.graphql.client import Client
from tests.doors.http.server import Served
from tests.npm import fetched

JSON, GRAPHQL, EVENTS = "application/json", "application/graphql-response+json", "text/event-stream"
QUERY = "{ __typename }"
NAMED = "query Query { __typename }"
TYPE = "query Type($name: String!) { __type(name: $name) { name } }"
NO_SYNTAX, NO_FIELD = "{", "{ nothingOfThatName }"
TOO_COSTLY = "{ agentSessions(limit: 1000) { children(first: 1000) { nodes { state } } } }"
NO_VARIABLE = {"query": "query Q($id: ID!) { __typename }", "variables": {"id": None}}
AUDITS = """
const { auditServer } = require("graphql-http");
auditServer({ url: process.argv[1] }).then((results) => console.log(JSON.stringify(
  results.map(({ id, name, status, reason }) => ({ id, name, status, reason })),
)));
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Nothing here depends on the store."""
    return f"memory://{tmp_path}"


class Case(NamedTuple):
    """A request, and what has to come back."""

    status: int
    body: Any = None  # bytes are sent as they are, everything else as JSON
    accept: str | None = None
    content_type: str | None = JSON
    params: dict[str, str] | None = None  # of a GET
    kind: str | None = None  # of the answer
    is_fine: bool | None = None  # has data and no errors; False: has errors and no data

    async def asked(self, http: httpx2.AsyncClient) -> httpx2.Response:
        headers = {"accept": self.accept} if self.accept else {}
        if self.params is not None:
            return await http.get("/graphql", params=self.params, headers=headers)
        if self.content_type is not None:
            headers["content-type"] = self.content_type
        content = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        return await http.post("/graphql", content=content, headers=headers)

    async def wrong(self, http: httpx2.AsyncClient) -> list[str]:
        """Return what is not as it should be."""
        answer = await self.asked(http)
        kind, told = answer.headers["content-type"], json.loads(answer.content.decode("utf-8", "strict"))
        found = [] if answer.status_code == self.status else [f"its status is {answer.status_code}"]
        if self.kind is not None and kind != self.kind:
            found.append(f"it comes as {kind}")
        if self.is_fine is not None and (("data" in told) is not self.is_fine or ("errors" in told) is self.is_fine):
            found.append(f"it says {told}")
        return found


def parameters() -> dict[str, Case]:
    """Parameters of each type, null included."""
    wrong: dict[str, list[Any]] = {
        "query": [{"obj": "ect"}, 0, False, ["array"]],
        "operationName": [{"obj": "ect"}, 0, False, ["array"]],
        "variables": ["string", 0, False, ["array"]],
        "extensions": ["string", 0, False, ["array"]],
    }
    refused = {
        f"{name} is {value!r}": Case(400, {"query": QUERY, name: value}, is_fine=False)
        for name, values in wrong.items()
        for value in values
    }
    nothing = {
        f"{name} is null for {accept}": Case(200, {"query": QUERY, name: None}, accept, is_fine=True)
        for name in ("variables", "operationName", "extensions")
        for accept in (JSON, GRAPHQL)
    }
    good: dict[str, dict[str, Any]] = {
        "a query": {"query": QUERY},
        "an operation's name": {"query": NAMED, "operationName": "Query"},
        "variables": {"query": TYPE, "variables": {"name": "sometype"}},
        "extensions": {"query": QUERY, "extensions": {"some": "value"}},
    }
    taken = {
        f"{name} for {accept}": Case(200, body, accept, kind=accept, is_fine=True)
        for name, body in good.items()
        for accept in (JSON, GRAPHQL)
    }
    return refused | nothing | taken


CASES = parameters() | {
    # Media types
    "answers in the type that is accepted": Case(200, {"query": QUERY}, GRAPHQL, kind=GRAPHQL),
    "answers in plain JSON": Case(200, {"query": QUERY}, JSON, kind=JSON),
    "answers in plain JSON whoever takes anything": Case(200, {"query": QUERY}, "*/*", kind=JSON),
    "answers in plain JSON whoever takes any application": Case(200, {"query": QUERY}, "application/*", kind=JSON),
    "answers in plain JSON whoever does not say": Case(200, {"query": QUERY}, kind=JSON),
    "answers in plain JSON whoever takes nothing of ours": Case(200, {"query": QUERY}, "image/png", kind=JSON),
    "prefers GraphQL's type": Case(200, {"query": QUERY}, f"{JSON}, {GRAPHQL}", kind=GRAPHQL),
    "reads weights": Case(200, {"query": QUERY}, f"{GRAPHQL};q=0.5, {JSON};q=0.9", kind=JSON),
    "reads a weight of 0": Case(200, {"query": QUERY}, f"{GRAPHQL};q=0, */*;q=0.1", kind=JSON),
    "reads types in any case": Case(200, {"query": QUERY}, "Application/GraphQL-Response+JSON", kind=GRAPHQL),
    "reads types with parameters": Case(200, {"query": QUERY}, f"{GRAPHQL}; charset=utf-8", kind=GRAPHQL),
    "one document goes before events": Case(200, {"query": QUERY}, f"{EVENTS}, {JSON}", kind=JSON),
    "takes UTF-8": Case(
        200, '{"query": "{ __type(name: \\"Läuft🏃\\") { name } }"}'.encode(), None, f"{JSON}; charset=utf-8"
    ),
    "takes a type in any case": Case(200, {"query": QUERY}, None, "Application/JSON;charset=UTF-8"),
    # Methods and bodies
    "a query by GET": Case(200, params={"query": QUERY}, is_fine=True),
    "variables by GET": Case(
        200, None, JSON, params={"query": TYPE, "variables": '{"name": "sometype"}'}, is_fine=True
    ),
    "variables by GET for GraphQL's type": Case(
        200, None, GRAPHQL, params={"query": TYPE, "variables": '{"name": "sometype"}'}, is_fine=True
    ),
    "variables by GET that are no object": Case(400, params={"query": TYPE, "variables": "[]"}, is_fine=False),
    "extensions by GET that are no object": Case(400, params={"query": QUERY, "extensions": "5"}, is_fine=False),
    "no query by GET": Case(400, params={}, is_fine=False),
    "a mutation by GET": Case(405, None, GRAPHQL, params={"query": "mutation { __typename }"}, is_fine=False),
    "a body without a type": Case(415, {"query": QUERY}, None, None, is_fine=False),
    "a body as text": Case(415, {"query": QUERY}, None, "text/plain;charset=UTF-8", is_fine=False),
    "a body as a form": Case(415, {"query": QUERY}, None, "application/x-www-form-urlencoded", is_fine=False),
    "no body": Case(400, b"", is_fine=False),
    "no query": Case(400, {"qeury": QUERY}, is_fine=False),
    "no query, for plain JSON": Case(400, {"qeury": QUERY}, JSON, is_fine=False),
    "no query, for GraphQL's type": Case(400, {"notquery": QUERY}, GRAPHQL, is_fine=False),
    "no JSON, for plain JSON": Case(400, b'{ "not a JSON', JSON, is_fine=False),
    "no JSON, for GraphQL's type": Case(400, b'{ "not a JSON', GRAPHQL, is_fine=False),
    # Documents
    "no syntax, for plain JSON": Case(200, {"query": NO_SYNTAX}, JSON, is_fine=False),
    "no field, for plain JSON": Case(200, {"query": NO_FIELD}, JSON, is_fine=False),
    "no variable, for plain JSON": Case(200, NO_VARIABLE, JSON, is_fine=False),
    "no syntax, for GraphQL's type": Case(400, {"query": NO_SYNTAX}, GRAPHQL, kind=GRAPHQL, is_fine=False),
    "no field, for GraphQL's type": Case(400, {"query": NO_FIELD}, GRAPHQL, kind=GRAPHQL, is_fine=False),
    "no variable, for GraphQL's type": Case(400, NO_VARIABLE, GRAPHQL, kind=GRAPHQL, is_fine=False),
    "too costly, for plain JSON": Case(200, {"query": TOO_COSTLY}, JSON, is_fine=False),
    "too costly, for GraphQL's type": Case(400, {"query": TOO_COSTLY}, GRAPHQL, is_fine=False),
}


async def test_every_case_of_the_specification_is_answered_as_it_says(gql: Client) -> None:
    wrong = {name: found for name, case in CASES.items() if (found := await case.wrong(gql.http))}
    assert wrong == {}


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (EVENTS, EVENTS),
        (f"{EVENTS}, */*", EVENTS),
        (f"{JSON};q=0.1, {EVENTS};q=0.2", EVENTS),
        (f"{EVENTS};q=0, {JSON};q=0.1", JSON),
        (f"{EVENTS};q=0.1, {GRAPHQL}", GRAPHQL),
    ],
)
async def test_a_query_is_answered_by_events_only_where_they_are_preferred(gql: Client, accept: str, kind: str) -> None:
    answer = await gql.post({"query": QUERY}, accept=accept)
    assert (answer.status_code, answer.headers["content-type"]) == (200, kind)


async def test_a_body_that_does_not_come_as_json_changes_nothing(gql: Client, served: Served) -> None:
    body = json.dumps({"query": 'mutation { createAgentSession(sessionId: "s") { state } }'})
    for kind in ("text/plain", "multipart/form-data; boundary=x", "application/graphql", ""):
        answer = await gql.http.post("/graphql", content=body, headers={"content-type": kind})
        assert answer.status_code == 415
        assert answer.json()["errors"][0]["extensions"] == {"code": "unsupported_media_type", "content_type": kind}
    assert (await served.moorage().list()).items == []


async def test_a_page_of_another_origin_is_refused_before_its_body_is_looked_at(gql: Client, served: Served) -> None:
    own, foreign = served.url, "http://127.0.0.1:1"
    for origin, kind, status in ((own, JSON, 200), (own, "text/plain", 415), (foreign, JSON, 403), (foreign, "", 403)):
        headers = {"origin": origin, "content-type": kind, "accept": GRAPHQL}
        answer = await gql.http.post("/graphql", content=json.dumps({"query": QUERY}), headers=headers)
        assert (answer.status_code, answer.headers["content-type"]) == (status, GRAPHQL), (origin, kind)


async def test_all_audits_of_graphql_http_pass(served: Served) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no Node.js on this machine to run the audits of graphql-http")
    modules = await asyncio.to_thread(fetched, "graphql-http", "graphql-http@1.23.1", "graphql@16")
    process = await asyncio.create_subprocess_exec(
        *(node, "-e", AUDITS, f"{served.url}/graphql"),
        env={"NODE_PATH": str(modules)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    told, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, told.decode()
    results = json.loads(told)
    assert [each for each in results if each["status"] != "ok"] == []
    assert len(results) == 61
