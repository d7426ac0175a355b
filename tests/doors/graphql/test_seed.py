"""The examples of the requirements document run word for word."""

from __future__ import annotations

from tests.doors.graphql.client import Client
from tests.doors.http.server import Served

CREATE = """
# Create session
mutation {
  createAgentSession(
    agentName: "hello-world"
    initialMessage: "Hello"
  ) {
    sessionId
    taskId
    state
  }
}
"""
FOLLOW = """
# Subscribe to events
subscription {
  agentSessionEvents(sessionId: "abc123") {
    type
    data
    timestamp
  }
}
"""


async def test_a_session_is_created_with_its_first_message(gql: Client, served: Served) -> None:
    made = (await gql.data(CREATE))["createAgentSession"]
    assert made.keys() == {"sessionId", "taskId", "state"}
    assert made["state"] == "ACTIVE"
    session = await served.moorage().get(made["sessionId"])
    assert (session.agent_name, session.task_id, session.interface) == ("hello-world", made["taskId"], "graphql")
    [said] = (await served.moorage().messages(session.id, last=5)).items
    assert (said.role, said.content, said.interface) == ("user", "Hello", "graphql")


async def test_events_are_subscribed_to(gql: Client, served: Served) -> None:
    moor = served.moorage()
    await moor.create("hello-world", session_id="abc123", parent=None)
    async with gql.socket() as socket:
        await socket.subscribe("1", FOLLOW)
        created = (await socket.next())["data"]["agentSessionEvents"]
        await moor.append("abc123", [{"role": "assistant", "content": "Hello! How can I help you today?"}])
        said = (await socket.next())["data"]["agentSessionEvents"]
    assert created["type"] == "created"
    assert said.keys() == {"type", "data", "timestamp"}
    assert said["type"] == "message"
    assert said["data"]["content"] == "Hello! How can I help you today?"
    [entry] = (await moor.messages("abc123", last=1)).items
    assert said["timestamp"] == entry.at.isoformat().replace("+00:00", "Z")


async def test_the_same_subscription_comes_by_server_sent_events(gql: Client, served: Served) -> None:
    moor = served.moorage()
    await moor.create("hello-world", session_id="abc123", parent=None)
    async with gql.sse(FOLLOW) as stream:
        assert (await stream.next())["data"]["agentSessionEvents"]["type"] == "created"
        await moor.append("abc123", ["more"])
        assert (await stream.next())["data"]["agentSessionEvents"]["data"]["content"] == "more"
