"""Who gets in by gRPC: the same rules as by HTTP, with keys and tokens in metadata."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from moorage import config
from moorage.doors.http.authorizer import Authorizer, Rates
from moorage.protobuf import agent_platform_pb2 as pb
from moorage.protobuf import sessions_pb2 as sp
from moorage.service import keys
from tests.doors.grpc.serving import Served, serving
from tests.doors.grpc.test_platform import refused, task, trailing

Code = grpc.StatusCode


@pytest.fixture
async def guarded(served: Served) -> Served:
    await keys.create_key(served.deps, scopes=("admin",))
    return served


async def bearer(served: Served, *scopes: str, owner: str = "local") -> list[tuple[str, str]]:
    made = await keys.create_key(served.deps, owner=owner, scopes=scopes)
    return [("authorization", f"Bearer {made.text}")]


async def token(served: Served, session_id: str) -> list[tuple[str, str]]:
    text = await keys.token_where_guarded(served.deps, "local", session_id)
    assert text is not None
    return [("authorization", f"Bearer {text}")]


async def test_concurrent_request_waits_for_the_key_check(guarded: Served) -> None:
    calls = [guarded.agents.ExecuteTask(task("x", session_id=f"s-{number}")) for number in range(20)]
    assert {(await refused(call)).code() for call in calls} == {Code.UNAUTHENTICATED}
    assert (await guarded.moorage().list()).items == []


@pytest.mark.parametrize("metadata", [[], [("authorization", "Bearer nonsense")], [("authorization", "Basic eDp5")]])
async def test_request_without_a_key_is_refused_once_keys_exist(guarded: Served, metadata: list[Any]) -> None:
    for call in (
        guarded.agents.ExecuteTask(task("x", session_id="s-1"), metadata=metadata),
        guarded.agents.StreamTask(task("x", session_id="s-1"), metadata=metadata).read(),
        guarded.sessions.ListSessions(sp.ListSessionsRequest(), metadata=metadata),
    ):
        error = await refused(call)
        assert (error.code(), trailing(error)["error-code"]) == (Code.UNAUTHENTICATED, "unauthorized")


async def test_scopes_count(guarded: Served) -> None:
    reader, writer = await bearer(guarded, "read"), await bearer(guarded, "write")
    error = await refused(guarded.agents.ExecuteTask(task("x", session_id="s-1"), metadata=reader))
    assert (error.code(), trailing(error)["session-id"]) == (Code.PERMISSION_DENIED, "s-1")
    assert (await guarded.agents.ExecuteTask(task("x", session_id="s-1"), metadata=writer)).success
    assert (await guarded.agents.ListAgents(pb.ListAgentsRequest(), metadata=reader)).agents
    asked = pb.RegisterAgentRequest(agent_id="mine", endpoint="localhost:1")
    assert (await refused(guarded.agents.RegisterAgent(asked, metadata=writer))).code() is Code.PERMISSION_DENIED
    admin = await bearer(guarded, "admin")
    assert (await guarded.agents.RegisterAgent(asked, metadata=admin)).success


async def test_owners_see_their_own(guarded: Served) -> None:
    ann, ben = [await bearer(guarded, "read", "write", owner=owner) for owner in ("ann", "ben")]
    await guarded.sessions.CreateSession(sp.CreateSessionRequest(session_id="of-ann"), metadata=ann)
    assert (
        await refused(guarded.sessions.GetSession(sp.GetSessionRequest(session="of-ann"), metadata=ben))
    ).code() is (Code.NOT_FOUND)
    assert not (await guarded.sessions.ListSessions(sp.ListSessionsRequest(), metadata=ben)).sessions
    watch = guarded.sessions.WatchSession(sp.WatchSessionRequest(session="of-ann"), metadata=ben)
    assert (await refused(watch.read())).code() is Code.NOT_FOUND


async def test_session_token_covers_the_session_and_its_tree(guarded: Served) -> None:
    moor = guarded.moorage()
    await moor.create("echo-agent", session_id="mine", parent=None)
    await moor.create("echo-agent", session_id="other", parent=None)
    mine = await token(guarded, "mine")
    assert (await guarded.agents.ExecuteTask(task("x", session_id="mine"), metadata=mine)).success
    assert (await guarded.agents.ExecuteTask(task("x", session_id="new"), metadata=mine)).success
    assert (await moor.get("new")).parent_session_id == "mine"
    for call in (
        guarded.agents.ExecuteTask(task("x", session_id="other"), metadata=mine),
        guarded.agents.ExecuteTask(task("x", session_id="n"), metadata=[*mine, ("x-agent-session-id", "other")]),
        guarded.tools.ExecuteTool(pb.ToolRequest(tool_id="weather-tool", session_id="other"), metadata=mine),
        guarded.sessions.GetSession(sp.GetSessionRequest(session="other"), metadata=mine),
        guarded.sessions.SendMessage(sp.SendMessageRequest(session="other", content="x"), metadata=mine),
        guarded.sessions.WatchSession(sp.WatchSessionRequest(session="other"), metadata=mine).read(),
        guarded.sessions.DeleteSession(sp.DeleteSessionRequest(session="mine"), metadata=mine),
        guarded.agents.GetStatus(pb.StatusRequest(session_id="other"), metadata=mine),
    ):
        error = await refused(call)
        assert (error.code(), trailing(error)["error-code"]) == (Code.PERMISSION_DENIED, "out_of_reach")


async def test_a_sessions_token_neither_decides_nor_registers_nor_sees_others_tasks(guarded: Served) -> None:
    moor = guarded.moorage()
    await moor.create("echo-agent", session_id="mine", parent=None)
    asked = await moor.request_approval("mine", "May I?")
    mine, writer = await token(guarded, "mine"), await bearer(guarded, "write")
    decide = sp.DecideApprovalRequest(approval_id=asked.approval_id, decision="approve")
    register = pb.RegisterToolRequest(tool_id="mine", endpoint="localhost:1")
    for call in (
        guarded.sessions.DecideApproval(decide, metadata=mine),
        guarded.tools.RegisterTool(register, metadata=mine),
    ):
        assert (await refused(call)).code() is Code.PERMISSION_DENIED
    request = task("x")
    await guarded.agents.ExecuteTask(request, metadata=writer)
    status = guarded.workers.GetTaskStatus(pb.TaskStatusRequest(task_id=request.task_id), metadata=mine)
    assert (await refused(status)).code() is Code.NOT_FOUND


async def test_a_key_that_asks_too_often_is_told_when_to_come_back(home: Path) -> None:
    deps = config.open_deps(f"sqlite:///{home}/store.db", threaded=True)
    async with serving(f"sqlite:///{home}/store.db", authorizer=Authorizer(deps, rates=Rates(0.01, 2))) as served:
        metadata = await bearer(served, "read")
        for _ in range(2):
            await served.agents.ListAgents(pb.ListAgentsRequest(), metadata=metadata)
        error = await refused(served.agents.ListAgents(pb.ListAgentsRequest(), metadata=metadata))
        assert (error.code(), trailing(error)["error-code"]) == (Code.RESOURCE_EXHAUSTED, "rate_limited")
    await deps.store.close()
