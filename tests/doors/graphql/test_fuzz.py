"""Queries that make no sense: each gets an answer with an error that has a code, and the server goes on."""

from __future__ import annotations

import json
import random
import re
from importlib.resources import files

import pytest

from tests.doors.graphql.client import Client
from tests.fuzz.inputs import SEED, kept, many, no_stalls, tried

ROUNDS = many(300)
TOKEN = re.compile(r'"[^"]*"|\$?\w+|[^\w\s]')
SCHEMA = files("moorage.doors.graphql").joinpath("schema.graphql").read_text(encoding="utf-8")
WORDS = sorted(set(re.findall(r"\w+", SCHEMA)))
ODD = (*"{}()[]:!@$|&=", "...", '"', '"""', "null", "-1", "1e999", "9" * 40, '"\\u0000"', '"../x"', "#", "\ud7ff")
QUERIES = (
    "{ agentSessions { sessionId purpose parent { sessionId } children { nodes { sessionId } } } }",
    '{ agentSession(sessionId: "demo") { status history(last: 5) { nodes { role text } } approvals { question } } }',
    "query Q($id: ID!) { agentSession(sessionId: $id) { ...F } } fragment F on AgentSession { metadata purpose }",
    "{ approvals(pendingOnly: false) { question sessionId } __schema { types { name fields { name } } } }",
    'mutation { sendMessageToSession(sessionId: "demo", content: "hello") { status } }',
)


def damaged(chance: random.Random) -> str:
    """A query with some of its tokens left out, doubled, or in the place of others."""
    tokens = TOKEN.findall(chance.choice(QUERIES))
    for _ in range(chance.randrange(1, 6)):
        place = chance.randrange(len(tokens))
        piece = chance.choice([(), tokens[place : place + 2] * 2, (chance.choice(WORDS),), (chance.choice(ODD),)])
        tokens[place : place + chance.randrange(2)] = piece
        tokens = tokens or ["{"]
    return " ".join(tokens)


def body(chance: random.Random) -> bytes:
    variables = chance.choice([None, {}, {"id": "demo"}, {"id": [None]}, {"id": {"a": 1}}, 3, "x"])
    return json.dumps({"query": damaged(chance), "variables": variables}).encode()


async def is_refused(gql: Client, sent: bytes) -> bool:
    with tried("graphql", sent):
        answer = await gql.http.post("/graphql", content=sent, headers={"content-type": "application/json"})
        assert answer.status_code < 500, (sent, answer.text)
        errors = answer.json().get("errors", []) if "json" in answer.headers["content-type"] else []
        codes = {error.get("extensions", {}).get("code") for error in errors}
        assert not codes & {None, "internal_error"}, (sent, errors)
        return answer.is_error or bool(errors)


@pytest.mark.timeout(120 + ROUNDS // 10)
async def test_damaged_queries_are_refused_with_a_code_and_the_server_goes_on(gql: Client) -> None:
    chance = random.Random(SEED)
    async with no_stalls():
        for sent in kept("graphql"):
            await is_refused(gql, sent)
        refused = [await is_refused(gql, body(chance)) for _ in range(ROUNDS)]
    assert sum(refused) > ROUNDS / 2, "hardly anything was damaged"
    assert "agentSessions" in await gql.data("{ agentSessions { sessionId } }")
