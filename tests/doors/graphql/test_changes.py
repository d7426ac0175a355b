"""Mutations: everything a session goes through, by this door."""

from __future__ import annotations

import asyncio
from typing import Any

from moorage import config
from moorage.launcher.embedded import Embedded
from tests.doors.graphql.client import Client
from tests.doors.http.server import Served


async def test_a_session_lives_and_ends(gql: Client, served: Served) -> None:
    made = await gql.data("""mutation { createAgentSession(
      agentName: "planner", sessionId: "s", sessionName: "plan", taskId: "t", purpose: "p", projectDir: "/srv",
      labels: ["urgent"], metadata: {colour: "red", password: "x"}, ttlSeconds: 3600
    ) { sessionId sessionName state redacted metadata expiresAt purpose projectDir taskId labels } }""")
    session = made["createAgentSession"]
    assert session.pop("expiresAt") is not None
    assert session == {
        "sessionId": "s",
        "sessionName": "plan",
        "state": "CREATED",
        "redacted": ["password"],
        "metadata": {"colour": "red", "password": "[redacted]"},
        "purpose": "p",
        "projectDir": "/srv",
        "taskId": "t",
        "labels": ["urgent"],
    }
    sent = (
        await gql.data("""mutation { sendMessageToSession(sessionId: "plan", message: "go on") {
      sessionId runId run { state } reply { text } message { number text role interface } session { state lastEntry }
    } }""")
    )["sendMessageToSession"]
    assert sent["message"] == {"number": 2, "text": "go on", "role": "USER", "interface": "graphql"}
    assert (sent["runId"], sent["run"], sent["reply"]) == (None, None, None)
    assert sent["session"] == {"state": "ACTIVE", "lastEntry": 2}
    suspended = await gql.data("""mutation { suspendSession(sessionId: "s", reason: "wait", checkpoint: {step: 3}) {
      state checkpointId } }""")
    assert suspended == {"suspendSession": {"state": "SUSPENDED", "checkpointId": "3"}}
    back = (
        await gql.data("""mutation { resumeSession(sessionId: "s", hold: true, holder: "me") {
      sessionId state hold { holder token } checkpoint context messages { text } inbox session { hold { token } }
    } }""")
    )["resumeSession"]
    token = back["hold"].pop("token")
    assert token
    assert back == {
        "sessionId": "s",
        "state": "ACTIVE",
        "hold": {"holder": "local:me"},
        "checkpoint": {"step": 3},
        "context": {},
        "messages": [{"text": "go on"}],
        "inbox": [],
        "session": {"hold": {"token": None}},
    }
    done = await gql.data(
        """mutation ($token: String) {
      completeSession(sessionId: "s", summary: "done", token: $token) { state status summary finalizedAt } }""",
        token=token,
    )
    assert done["completeSession"]["state"] == done["completeSession"]["status"] == "COMPLETED"
    forked = await gql.data("""mutation { forkSession(sessionId: "s", at: 2, newSessionId: "f", agentName: "b",
      sessionName: "again", purpose: "q", metadata: {n: 1}, taskId: "u") {
      sessionId forkedFrom sessionName agentName purpose metadata taskId history { nodes { text } } } }""")
    assert forked["forkSession"] == {
        "sessionId": "f",
        "forkedFrom": "s",
        "sessionName": "again",
        "agentName": "b",
        "purpose": "q",
        "metadata": {"colour": "red", "password": "[redacted]", "n": 1},
        "taskId": "u",
        "history": {"nodes": [{"text": "go on"}]},
    }
    gone = await gql.data('mutation { deleteSession(sessionId: "s") { sessionIds deletedSessions } }')
    assert gone == {"deleteSession": {"sessionIds": ["s"], "deletedSessions": 1}}


async def test_a_session_is_closed_with_another_outcome(gql: Client) -> None:
    await gql.data('mutation { createAgentSession(sessionId: "s") { state } }')
    closed = await gql.data('mutation { completeSession(sessionId: "s", outcome: ABANDONED) { state } }')
    assert closed == {"completeSession": {"state": "ABANDONED"}}


async def test_a_question_is_answered(gql: Client, served: Served) -> None:
    await served.moorage().create(session_id="s", parent=None)
    asked = await served.moorage().request_approval("s", "Apply?", options=["later"])
    decided = await gql.data(
        """mutation ($id: ID!) { decideApproval(approvalId: $id, decision: "later", note: "tomorrow", by: "anna") {
      state decision note decidedBy } }""",
        id=asked.approval_id,
    )
    assert decided["decideApproval"] == {
        "state": "ANSWERED",
        "decision": "later",
        "note": "tomorrow",
        "decidedBy": "anna",
    }
    assert await gql.data("{ approvals { state } }") == {"approvals": []}
    kept = await gql.data('{ agentSession(sessionId: "s") { approvals(pendingOnly: false) { state } } }')
    assert kept == {"agentSession": {"approvals": [{"state": "ANSWERED"}]}}


async def test_a_message_is_answered_by_the_sessions_agent(gql: Client, served: Served) -> None:
    async with Embedded(served.deps, config.agents, owner="local"):
        made = await gql.data('mutation { createAgentSession(agentName: "echo-agent") { sessionId } }')
        sent = await gql.data(
            """mutation ($id: ID!) { sendMessageToSession(sessionId: $id, message: "hello") {
          runId run { runId state result } reply { role text } } }""",
            id=made["createAgentSession"]["sessionId"],
        )
    reply = sent["sendMessageToSession"]
    assert reply["run"]["state"] == "COMPLETED"
    assert reply["run"]["runId"] == reply["runId"]
    assert reply["reply"]["role"] == "ASSISTANT"
    assert "hello" in reply["reply"]["text"]


async def test_asked_twice_with_one_key_is_done_once(gql: Client, served: Served) -> None:
    query = """mutation { createAgentSession(agentName: "echo-agent", initialMessage: "Hello", idempotencyKey: "k") {
      sessionId lastEntry } }"""
    answers = [await gql.data(query) for _ in range(2)]
    assert answers[0] == answers[1]
    session_id = answers[0]["createAgentSession"]["sessionId"]
    assert [entry.text for entry in (await served.moorage().messages(session_id, last=9)).items] == ["Hello"]
    send = """mutation ($id: ID!) { sendMessageToSession(sessionId: $id, message: "more", clientKey: "m", wait: 0) {
      message { number } } }"""
    assert await gql.data(send, id=session_id) == await gql.data(send, id=session_id)


async def test_the_headers_name_the_parent_unless_the_mutation_does(gql: Client, served: Served) -> None:
    for name in ("one", "two"):
        await served.moorage().create(session_id=name, parent=None)

    async def parent_of(arguments: str) -> Any:
        query = f"mutation {{ createAgentSession{arguments} {{ parentSessionId parent {{ sessionId }} }} }}"
        answer = await gql.post({"query": query}, **{"x-agent-session-id": "one"})
        return answer.json()["data"]["createAgentSession"]["parentSessionId"]

    assert await parent_of('(agentName: "a")') == "one"
    assert await parent_of('(parentSessionName: "two")') == "two"
    assert await parent_of('(parentSessionId: "two")') == "two"
    assert await parent_of("(parentSessionName: null)") is None


async def test_changes_of_one_request_are_made_in_order_and_seen(gql: Client) -> None:
    answer = await gql.data("""mutation {
      a: createAgentSession(sessionId: "s", initialMessage: "one") { history { nodes { text } } }
      b: sendMessageToSession(sessionId: "s", message: "two") { session { history { nodes { text } } } }
      c: suspendSession(sessionId: "s") { state history { nodes { text } } }
    }""")
    said = [each["text"] for each in answer["c"]["history"]["nodes"]]
    assert [each["text"] for each in answer["a"]["history"]["nodes"]] == ["one"]
    assert [each["text"] for each in answer["b"]["session"]["history"]["nodes"]] == said == ["one", "two"]


async def test_two_doors_at_once_lose_no_word(gql: Client, served: Served) -> None:
    await served.moorage().create(session_id="s", parent=None)

    async def by_graphql(number: int) -> None:
        await gql.data(f'mutation {{ sendMessageToSession(sessionId: "s", message: "g{number}") {{ sessionId }} }}')

    async def by_rest(number: int) -> None:
        answer = await gql.http.post("/sessions/s/messages", json={"content": f"r{number}"})
        assert answer.status_code == 201

    await asyncio.gather(*(say(number) for number in range(20) for say in (by_graphql, by_rest)))
    said = (await served.moorage().messages("s", last=100)).items
    assert {entry.text for entry in said} == {f"{door}{number}" for door in "gr" for number in range(20)}
    assert {(entry.text[0], entry.interface) for entry in said} == {("g", "graphql"), ("r", "rest")}


async def test_memory_is_stored_read_listed_and_deleted(gql: Client) -> None:
    for key, value in (("b", "{n: 1}"), ("a", "null"), ("c", '"x"')):
        wanted = f'setMemory(namespace: "n", key: "{key}", value: {value}) {{ key version }}'
        assert (await gql.data(f"mutation {{ {wanted} }}"))["setMemory"] == {"key": key, "version": 1}
    found = await gql.data('{ memory(namespace: "n", key: "b") { content form size version expiresAt } }')
    assert found["memory"] == {"content": {"n": 1}, "form": "json", "size": 7, "version": 1, "expiresAt": None}
    assert (await gql.data('{ memory(namespace: "n", key: "none") { key } }'))["memory"] is None
    listed = await gql.data('{ memories(namespace: "n", limit: 1, after: "a") { key } }')
    assert listed["memories"] == [{"key": "b"}]
    refused = await gql.ask('mutation { setMemory(namespace: "n", key: "b", value: 2, version: 0) { version } }')
    assert refused["errors"][0]["extensions"]["code"] == "version_conflict"
    assert (await gql.data('mutation { deleteMemory(namespace: "n", key: "", prefix: true) }'))["deleteMemory"]
    assert (await gql.data('{ memories(namespace: "n") { key } }'))["memories"] == []
