"""GraphQL, REST and Python say the same of the same thing, field by field."""

from __future__ import annotations

from typing import Any

import pytest
from graphql import GraphQLEnumType, GraphQLList, GraphQLNonNull, GraphQLObjectType, get_named_type, is_leaf_type

from moorage.core.approval import Approval, ApprovalState
from moorage.core.entry import ROLES, Entry, Event
from moorage.core.family import Deletion
from moorage.core.query import STATUSES
from moorage.core.record import Record
from moorage.core.render import to_json
from moorage.core.run import Join, Mode, Run, RunState
from moorage.core.session import OUTCOMES, PUBLIC_FIELDS, Hold, Phase, State
from moorage.core.status import Because, Child, LastRun, Reason, WaitingFor
from moorage.doors.graphql.schema import camel, schema, snake
from moorage.service.records import WrittenRecord
from tests.doors.graphql.client import Client
from tests.doors.http.server import Served

SCHEMA = schema()
MORE = {
    "MemoryRecord": {"content"},
    "AgentSession": {"redacted", "checkpoint_id", "parent", "children", "history", "approvals"},
    "Entry": {"text"},
}
FIELDS: dict[str, tuple[str, ...]] = {
    "AgentSession": PUBLIC_FIELDS,
    "Entry": Entry.__struct_fields__,
    "Approval": Approval.__struct_fields__,
    "Run": Run.__struct_fields__,
    "Deletion": Deletion.__struct_fields__,
    "AgentSessionEvent": Event.__struct_fields__,
    "Hold": Hold.__struct_fields__,
    "WaitingFor": WaitingFor.__struct_fields__,
    "AwaitedChild": Child.__struct_fields__,
    "Because": Because.__struct_fields__,
    "LastRun": LastRun.__struct_fields__,
    "MemoryRecord": tuple(name for name in Record.__struct_fields__ if name not in ("value", "parts")),
    "WrittenMemory": WrittenRecord.__struct_fields__,
}
WORDS: dict[str, Any] = {
    "SessionState": State,
    "SessionPhase": Phase,
    "SessionStatus": STATUSES,
    "SessionOutcome": OUTCOMES,
    "ApprovalState": ApprovalState,
    "Role": ROLES,
    "RunState": RunState,
    "RunMode": Mode,
    "RunJoin": Join,
    "BecauseReason": Reason,
}


def kind(name: str) -> GraphQLObjectType:
    found = SCHEMA.get_type(name)
    assert isinstance(found, GraphQLObjectType)
    return found


def selection(name: str, only: set[str] | None = None) -> str:
    """All fields of a type that are values, and those of what has no arguments and is no session."""
    parts = []
    for field_name, field in kind(name).fields.items():
        inner = get_named_type(field.type)
        if only is not None and snake(field_name) not in only:
            continue
        if is_leaf_type(inner):
            parts.append(field_name)
        elif not field.args and inner.name in FIELDS and inner.name != "AgentSession":
            parts.append(f"{field_name} {selection(inner.name)}")
    return "{ " + " ".join(parts) + " }"


def plain(name: str, value: Any) -> Any:
    """A GraphQL value of a type in the words of the other doors."""
    if value is None:
        return None
    shown = {}
    for key, each in value.items():
        field = kind(name).fields[key]
        inner = get_named_type(field.type)
        if isinstance(inner, GraphQLObjectType) and each is not None:
            each = plain(inner.name, each)
        elif isinstance(inner, GraphQLEnumType) and each is not None:
            each = each.lower()
        shown[snake(key)] = each
    return shown


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_of_a_value_is_in_the_schema_and_no_other(name: str) -> None:
    assert {snake(field) for field in kind(name).fields} - MORE.get(name, set()) == set(FIELDS[name])
    assert all(camel(field) in kind(name).fields for field in FIELDS[name])


@pytest.mark.parametrize("name", WORDS)
def test_enumerations_have_all_values_in_upper_case(name: str) -> None:
    words = SCHEMA.get_type(name)
    assert isinstance(words, GraphQLEnumType)
    assert {key: each.value for key, each in words.values.items()} == {str(each).upper(): each for each in WORDS[name]}


def test_every_enumeration_and_object_is_looked_at() -> None:
    own = {name for name, each in SCHEMA.type_map.items() if not name.startswith("__")}
    assert {each for each in own if isinstance(SCHEMA.type_map[each], GraphQLEnumType)} == WORDS.keys()
    frames = {"Query", "Mutation", "Subscription", "AgentSessionConnection", "HistoryConnection", "PageInfo"}
    answers = {"SentMessage", "ResumedSession"}
    assert {each for each in own if isinstance(SCHEMA.type_map[each], GraphQLObjectType)} == {
        *FIELDS, *frames, *answers,
    }  # fmt: skip


def test_non_null_fields_are_declared_non_null() -> None:
    """A list is never null, nor anything in it; so clients need not ask."""
    for name, each in SCHEMA.type_map.items():
        if isinstance(each, GraphQLObjectType) and not name.startswith("__"):
            for field_name, field in each.fields.items():
                inner = field.type.of_type if isinstance(field.type, GraphQLNonNull) else field.type
                if isinstance(inner, GraphQLList):
                    assert isinstance(field.type, GraphQLNonNull), (name, field_name)
                    assert isinstance(inner.of_type, GraphQLNonNull), (name, field_name)


async def population(served: Served) -> list[str]:
    """Sessions of every sort: new, busy, waiting, held, suspended, forked, with and without everything."""
    moor = served.moorage()
    await moor.create(session_id="bare", parent=None)
    await moor.create(
        "planner",
        session_id="full",
        name="plan-prod",
        purpose="approval_workflow",
        metadata={"workspace": "prod", "nested": [1, {"é": None}], "token": "secret"},
        task_id="task-7",
        project_dir="/srv/prod",
        ttl=3600,
        parent=None,
    )
    call = {"type": "tool_call", "id": "c", "name": "t", "input": {"a": 1}}
    parts = {"role": "user", "content": [{"type": "text", "text": "with"}, call]}
    await moor.append("full", [{"role": "system", "content": "Be brief"}, "Plan it", parts])
    await moor.append("full", [{"role": "tool", "content": [{"type": "tool_result", "call_id": "c", "output": "ü"}]}])
    await moor.update("full", phase="planning", error="it broke")
    await moor.save_checkpoint("full", {"step": 3})
    await moor.create("child", session_id="asks", parent="full")
    await moor.request_approval("asks", "Apply?", plan={"steps": [1]}, options=["later"], expires_in=86400)
    await moor.create(session_id="held", parent="full")
    await moor.append("held", ["hello"])
    await moor.resume("held")
    await moor.create(session_id="slept", parent="asks")
    await moor.suspend("slept", reason="tired", checkpoint={"a": 1})
    await moor.create(session_id="over", parent=None)
    await moor.finalize("over", "failed", summary="No luck")
    await moor.fork("full", session_id="forked", at=3)
    return ["bare", "full", "asks", "held", "slept", "over", "forked"]


async def test_sessions_read_the_same_at_every_door(gql: Client, served: Served) -> None:
    for session_id in await population(served):
        query = f'{{ agentSession(sessionId: "{session_id}") {selection("AgentSession")} }}'
        asked = plain("AgentSession", (await gql.data(query))["agentSession"])
        session = await served.moorage().get(session_id)
        rest = (await gql.http.get(f"/sessions/{session_id}")).json()
        assert asked.pop("redacted") == []
        checkpoint = asked.pop("checkpoint_id")
        assert checkpoint == (None if session.last_checkpoint is None else str(session.last_checkpoint))
        if asked["hold"] is not None:
            assert asked["hold"].pop("token") is None
        assert asked == rest == to_json(session)


async def test_lists_are_those_of_rest(gql: Client, served: Served) -> None:
    await population(served)
    query = f"{{ agentSessions {selection('AgentSession', set(PUBLIC_FIELDS) - {'hold'})} }}"
    asked = [plain("AgentSession", each) for each in (await gql.data(query))["agentSessions"]]
    rest = (await gql.http.get("/sessions")).json()["items"]
    assert asked == [{name: value for name, value in each.items() if name != "hold"} for each in rest]


async def test_messages_read_the_same_at_every_door(gql: Client, served: Served) -> None:
    await population(served)
    for session_id in ("full", "forked", "held", "bare"):
        query = f'{{ agentSession(sessionId: "{session_id}") {{ history(last: 3) {{ nodes {selection("Entry")} }} }} }}'
        nodes = (await gql.data(query))["agentSession"]["history"]["nodes"]
        asked = [plain("Entry", each) for each in nodes]
        texts = [each.pop("text") for each in asked]
        page = await served.moorage().messages(session_id, last=3)
        assert asked == (await gql.http.get(f"/sessions/{session_id}/messages?last=3")).json()["items"]
        assert asked == to_json(page.items)
        assert texts == [entry.text for entry in page.items]


async def test_approvals_read_the_same_at_every_door(gql: Client, served: Served) -> None:
    await population(served)
    fields = selection("Approval")
    answer = await gql.data(f'{{ approvals {fields} agentSession(sessionId: "asks") {{ approvals {fields} }} }}')
    [asked] = answer["approvals"]
    assert answer["agentSession"]["approvals"] == [asked]
    [rest] = (await gql.http.get("/approvals")).json()["items"]
    assert plain("Approval", asked) == rest == to_json((await served.moorage().approvals())[0])


async def test_events_read_the_same_at_every_door(gql: Client, served: Served) -> None:
    await population(served)
    stored = [to_json(event) async for event in served.moorage().events("full", follow=False)]
    query = f'subscription {{ agentSessionEvents(sessionId: "full") {selection("AgentSessionEvent")} }}'
    async with gql.socket() as socket:
        await socket.subscribe("1", query)
        told = [each["data"]["agentSessionEvents"] for each in await socket.some(len(stored))]
    heard = [{**plain("AgentSessionEvent", each), "id": int(each["id"])} for each in told]
    paged = await gql.http.get("/sessions/full/events", headers={"accept": "application/json"})
    assert heard == stored == paged.json()["items"]


async def test_deletions_read_the_same_at_every_door(gql: Client, served: Served) -> None:
    await population(served)
    query = f'mutation {{ deleteSession(sessionId: "full", dryRun: true) {selection("Deletion")} }}'
    asked = plain("Deletion", (await gql.data(query))["deleteSession"])
    rest = (await gql.http.delete("/sessions/full", params={"dry_run": "true"})).json()
    assert asked == rest == to_json(await served.moorage().delete("full", dry_run=True))


async def test_errors_have_the_same_codes_and_facts_as_rest(gql: Client, served: Served) -> None:
    await population(served)
    moor = served.moorage()
    gone = (await moor.create(parent=None)).id
    await moor.delete(gone)
    [approval] = await moor.approvals()
    for mutation, verb, path, body in (
        ('agentSession(sessionId: "nobody") { state }', "GET", "/sessions/nobody", None),
        (f'agentSession(sessionId: "{gone}") {{ state }}', "GET", f"/sessions/{gone}", None),
        ("agentSessions(limit: 0) { state }", "GET", "/sessions?limit=0", None),
        ('agentSessions(after: "x") { state }', "GET", "/sessions?cursor=x", None),
        ('agentSession(sessionId: "full") { children(after: "x") { nodes { state } } }', "GET",
         "/sessions/full/children?cursor=x", None),
        ('sendMessageToSession(sessionId: "over", message: "x") { runId }', "POST", "/sessions/over/messages",
         {"content": "x"}),
        ('createAgentSession(sessionId: "a/b") { state }', "POST", "/sessions", {"session_id": "a/b"}),
        ('createAgentSession(sessionId: "bare") { state }', "POST", "/sessions", {"session_id": "bare"}),
        ('createAgentSession(parentSessionName: "nobody") { state }', "POST", "/sessions",
         {"parent_session_name": "nobody"}),
        ('resumeSession(sessionId: "held") { state }', "POST", "/sessions/held/resume", {}),
        ('suspendSession(sessionId: "full", version: 1) { state }', "POST", "/sessions/full/suspend", {"version": 1}),
        ('completeSession(sessionId: "over") { state }', "POST", "/sessions/over/finalize", {}),
        ('forkSession(sessionId: "bare", at: 99) { state }', "POST", "/sessions/bare/fork", {"at": 99}),
        ('deleteSession(sessionId: "full", cascade: false) { runs }', "DELETE", "/sessions/full?cascade=false", None),
        (f'decideApproval(approvalId: "{approval.approval_id}", decision: "x") {{ state }}', "POST",
         f"/approvals/{approval.approval_id}/decision", {"decision": "x"}),
        ('decideApproval(approvalId: "nobody", decision: "approve") { state }', "POST",
         "/approvals/nobody/decision", {"decision": "approve"}),
    ):  # fmt: skip
        query = mutation if verb == "GET" else f"mutation {{ {mutation} }}"
        answer = await gql.ask(query if verb != "GET" else f"{{ {query} }}")
        [error] = answer["errors"]
        rest = (await gql.http.request(verb, path, json=body)).json()
        told = {**error["extensions"], "detail": error["message"]}
        frame = {"type", "title", "status", "request_id"}
        if rest["code"] == "invalid_limit" and "from 1" not in rest["detail"]:
            told["detail"] = rest["detail"]  # the query of an address is checked by its type
        assert told == {name: value for name, value in rest.items() if name not in frame}, mutation
        assert error["path"]
