"""Who may ask what: keys, owners, session tokens, Host and Origin, as at every door of the server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from moorage.doors.http.authorizer import Authorizer, Rates
from moorage.service import keys
from tests.doors.graphql.client import Client, raw_socket
from tests.doors.http.server import OwnerAuthorizer, Served, serving

EVENTS = "subscription ($id: ID!) { agentSessionEvents(sessionId: $id) { id type } }"


@asynccontextmanager
async def known(served: Served, *scopes: str, owner: str = "local") -> AsyncIterator[Client]:
    """A client with a key."""
    key = await served.moorage().create_key(owner=owner, scopes=scopes or ("read", "write"))
    async with Client(served.url, key.text) as client:
        yield client


@asynccontextmanager
async def of_session(served: Served, session_id: str) -> AsyncIterator[Client]:
    """A client with a session's own token."""
    async with Client(served.url, await keys.session_token(served.deps, "local", session_id)) as client:
        yield client


async def codes(client: Client, query: str, **variables: Any) -> list[str]:
    answer = await client.ask(query, **variables)
    return [each["extensions"]["code"] for each in answer.get("errors", ())]


async def test_requests_without_a_key_are_refused(gql: Client, served: Served) -> None:
    async with known(served) as friend:
        for query in (
            "{ __schema { types { name } } }",
            "{ __typename }",
            "{ agentSessions { state } }",
            "{ nope }",
            "{",
        ):
            answer = await gql.post({"query": query})
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            [error] = answer.json()["errors"]
            assert error["extensions"] == {"code": "unauthorized"}
        assert (await friend.data("{ __schema { queryType { name } } }"))["__schema"]["queryType"]["name"] == "Query"


async def test_with_keys_on_a_socket_needs_one_in_its_first_message(gql: Client, served: Served) -> None:
    async with known(served) as friend:
        for payload in (
            None,
            {},
            {"authorization": "Bearer moor_nobody_x"},
            {"Authorization": "Basic eHg="},
            ["x"],
            "x",
        ):
            async with raw_socket(served.url) as socket:
                await socket.say(type="connection_init", payload=payload)
                code, reason = await socket.closed()
                assert (code, reason.split(":")[1].strip()) == (4403, "unauthorized")
        key = friend.headers["authorization"]
        for ok in ({"authorization": key}, {"Authorization": key}, {"x-api-key": key.removeprefix("Bearer ")}):
            async with gql.socket(ok) as socket:
                await socket.subscribe("1", "{ __typename }")
                assert await socket.next() == {"data": {"__typename": "Query"}}
        async with gql.socket({"x": "y"}, additional_headers={"authorization": key}) as socket:
            await socket.subscribe("1", "{ __typename }")
            assert await socket.next() == {"data": {"__typename": "Query"}}


async def test_scopes_are_those_of_rest(served: Served) -> None:
    await served.moorage().create(session_id="s", parent=None)
    asked = await served.moorage().request_approval("s", "Apply?")
    read = '{ agentSession(sessionId: "s") { state history { nodes { text } } } }'
    write = 'mutation { sendMessageToSession(sessionId: "s", message: "x") { runId session { state } } }'
    decide = f'mutation {{ decideApproval(approvalId: "{asked.approval_id}", decision: "approve") {{ state }} }}'
    async with known(served, "read") as reader, known(served, "write") as writer, known(served, "approve") as decider:
        assert [await codes(reader, each) for each in (read, write, decide)] == [[], ["forbidden"], ["forbidden"]]
        assert [await codes(writer, each) for each in (read, write, decide)] == [[], [], ["forbidden"]]
        assert await codes(decider, read) == ["forbidden"]
        async with decider.socket() as socket:
            await socket.subscribe("1", EVENTS, id="s")
            assert (await socket.hear())["payload"][0]["extensions"]["code"] == "forbidden"
        assert await codes(decider, decide) == []


async def test_owners_see_nothing_of_each_other(served: Served) -> None:
    async with known(served, owner="anna") as anna, known(served, owner="bert") as bert:
        await anna.data('mutation { createAgentSession(sessionId: "s", initialMessage: "secret") { owner } }')
        assert (await anna.data('{ agentSession(sessionId: "s") { owner } }'))["agentSession"]["owner"] == "anna"
        assert (await bert.data("{ agentSessions { sessionId } }"))["agentSessions"] == []
        for query in (
            '{ agentSession(sessionId: "s") { state } }',
            '{ agentSessions(parent: "s") { state } }',
            '{ approvals(sessionId: "s") { state } }',
            'mutation { sendMessageToSession(sessionId: "s", message: "x") { runId } }',
            'mutation { suspendSession(sessionId: "s") { state } }',
            'mutation { resumeSession(sessionId: "s") { state } }',
            'mutation { completeSession(sessionId: "s") { state } }',
            'mutation { forkSession(sessionId: "s") { state } }',
            'mutation { deleteSession(sessionId: "s") { runs } }',
        ):
            assert await codes(bert, query) == ["session_not_found"], query
        async with bert.socket() as socket:
            await socket.subscribe("1", EVENTS, id="s")
            told = await socket.hear()
            assert (told["type"], told["payload"][0]["extensions"]["code"]) == ("error", "session_not_found")
        async with bert.sse(EVENTS, id="s") as stream:
            assert (await stream.next())["errors"][0]["extensions"]["code"] == "session_not_found"
            assert await stream.hear() == ("complete", None)
        await bert.data('mutation { createAgentSession(sessionId: "s") { owner } }')
        async with bert.socket() as theirs, anna.socket() as hers:
            for socket in (theirs, hers):
                await socket.subscribe("1", EVENTS, id="s")
            assert (await theirs.next())["data"]["agentSessionEvents"]["type"] == "created"
            assert [each["data"]["agentSessionEvents"]["type"] for each in await hers.some(2)] == ["created", "message"]
            await bert.data('mutation { sendMessageToSession(sessionId: "s", message: "mine") { runId } }')
            assert (await theirs.next())["data"]["agentSessionEvents"] == {"id": "2", "type": "message"}
            await anna.data('mutation { suspendSession(sessionId: "s") { state } }')
            assert (await hers.next())["data"]["agentSessionEvents"] == {"id": "3", "type": "suspended"}


async def test_a_sessions_token_reaches_down_and_not_up(served: Served) -> None:
    moor = served.moorage()
    for name, parent in (("top", None), ("mine", "top"), ("below", "mine"), ("beside", "top")):
        await moor.create(session_id=name, parent=parent)
    asked = await moor.request_approval("below", "Apply?")
    await moor.create_key(scopes=["admin"])  # from now on every caller needs a key
    async with of_session(served, "mine") as agent:
        seen = await agent.data("""{ agentSession(sessionId: "mine") { parentSessionId
          children { nodes { sessionId parent { sessionId } approvals { question } } } } }""")
        assert seen["agentSession"]["children"]["nodes"] == [
            {"sessionId": "below", "parent": {"sessionId": "mine"}, "approvals": [{"question": "Apply?"}]}
        ]
        for query in (
            '{ agentSession(sessionId: "mine") { parent { sessionId history { nodes { text } } } } }',
            '{ agentSession(sessionId: "below") { parent { parent { sessionId } } } }',
            '{ agentSession(sessionId: "top") { state } }',
            '{ agentSession(sessionId: "beside") { state } }',
            "{ agentSessions { state } }",
            '{ agentSessions(parent: "top") { state } }',
            "{ approvals { state } }",
            'mutation { sendMessageToSession(sessionId: "beside", message: "x") { runId } }',
            'mutation { createAgentSession(parentSessionName: "top") { state } }',
            "mutation { createAgentSession(parentSessionName: null) { state } }",
            'mutation { deleteSession(sessionId: "mine") { runs } }',
            'mutation { forkSession(sessionId: "mine") { state } }',
            f'mutation {{ decideApproval(approvalId: "{asked.approval_id}", decision: "approve") {{ state }} }}',
        ):
            found = await codes(agent, query)
            assert found in (["out_of_reach"], ["forbidden"]), (query, found)
        made = await agent.data("mutation { createAgentSession { parentSessionId } }")
        assert made == {"createAgentSession": {"parentSessionId": "mine"}}
        assert (await agent.data('{ agentSessions(parent: "mine") { sessionId } }'))["agentSessions"]
        async with agent.socket() as socket:
            await socket.subscribe("1", EVENTS, id="below")
            assert (await socket.next())["data"]["agentSessionEvents"]["type"] == "created"
            await socket.subscribe("2", EVENTS, id="top")
            while (told := await socket.hear())["id"] == "1":
                assert told["type"] == "next"
            assert (told["type"], told["payload"][0]["extensions"]["code"]) == ("error", "out_of_reach")


async def test_a_revoked_key_begins_nothing_more_on_an_open_socket(served: Served) -> None:
    made = await served.moorage().create_key(scopes=["read"])
    async with Client(served.url, made.text) as client, client.socket() as socket:
        await socket.subscribe("1", "{ __typename }")
        assert [(await socket.hear())["type"] for _ in range(2)] == ["next", "complete"]
        await served.moorage().revoke_key(made.key.key_id)
        served.deps.known_keys.clear()  # a key that was just seen counts for another moment
        await socket.subscribe("2", "{ __typename }")
        told = await socket.hear()
        assert (told["type"], told["payload"][0]["extensions"]["code"]) == ("error", "unauthorized")


@pytest.mark.parametrize(
    "headers", [{"host": "evil.example"}, {"origin": "https://evil.example"}, {"origin": "null"}], ids=str
)
async def test_without_keys_only_this_machine_is_answered(gql: Client, served: Served, headers: dict[str, str]) -> None:
    refused = "not_local" if "host" in headers else "foreign_origin"
    answer = await gql.post({"query": "{ __typename }"}, **headers)
    assert answer.status_code == 403
    assert answer.json()["errors"][0]["extensions"]["code"] == refused
    if "origin" in headers:
        async with raw_socket(served.url, additional_headers=headers) as socket:
            await socket.say(type="connection_init")
            code, reason = await socket.closed()
            assert (code, reason.split(":")[1].strip()) == (4403, refused)


async def test_operations_on_a_socket_count_as_requests(url: str) -> None:
    def strict(deps: Any) -> Authorizer:
        return Authorizer(deps, rates=Rates(per_second=0.001, burst=4))

    async with serving(url, authorizer=strict) as served:
        made = await served.moorage().create_key(scopes=["read"])
        async with Client(served.url, made.text) as client, client.socket() as socket:
            heard = []
            for number in range(5):
                await socket.subscribe(str(number), "{ __typename }")
                heard.append((await socket.hear())["type"])
                if heard[-1] == "next":
                    assert (await socket.hear())["type"] == "complete"
            assert heard == ["next", "next", "next", "error", "error"]
            answer = await client.post({"query": "{ __typename }"})
            assert (answer.status_code, answer.json()["errors"][0]["extensions"]["code"]) == (429, "rate_limited")
            assert int(answer.headers["retry-after"]) > 0


async def test_a_batch_counts_as_the_requests_it_holds(url: str) -> None:
    def strict(deps: Any) -> Authorizer:
        return Authorizer(deps, rates=Rates(per_second=0.001, burst=3))

    async with serving(url, authorizer=strict) as served:
        made = await served.moorage().create_key(scopes=["read"])
        async with Client(served.url, made.text) as client:
            answers = (await client.post([{"query": "{ __typename }"}] * 5)).json()
            assert ["errors" in each for each in answers] == [False, False, False, True, True]


async def test_the_owner_is_the_gates_word(url: str) -> None:
    async with serving(url, authorizer=OwnerAuthorizer) as served:
        await served.moorage("anna").create(session_id="s", parent=None)
        async with Client(served.url, **{"x-owner": "anna"}) as anna, Client(served.url) as other:
            assert (await anna.data("{ agentSessions { owner } }"))["agentSessions"] == [{"owner": "anna"}]
            assert (await other.data("{ agentSessions { owner } }"))["agentSessions"] == []


async def test_token_of_a_session_reaches_no_memory(served: Served) -> None:
    await served.moorage().create(session_id="s", parent=None)
    async with of_session(served, "s") as token, known(served, "read") as reader:
        for query in (
            '{ memory(namespace: "n", key: "k") { key } }',
            '{ memories(namespace: "n") { key } }',
            'mutation { setMemory(namespace: "n", key: "k", value: 1) { key } }',
            'mutation { deleteMemory(namespace: "n", key: "k") }',
        ):
            assert await codes(token, query) == ["out_of_reach"]
            assert await codes(reader, query) == (["forbidden"] if query.startswith("mutation") else [])
