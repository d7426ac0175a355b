"""Agents, workers and tools by gRPC: what they answer, and session ids that come back and recall."""

from __future__ import annotations

import asyncio
import json
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from moorage.protobuf import agent_platform_pb2 as pb
from tests.doors.grpc.serving import Served, Stubs, serving

SAID = "Echo Agent Response: Hello, remember my preferences | Parameters: preference=italian food"


def task(text: str, agent: str = "echo-agent", **more: Any) -> pb.TaskRequest:
    return pb.TaskRequest(task_id=str(uuid.uuid4()), agent_id=agent, input=text, **more)


async def refused(call: Any) -> grpc.aio.AioRpcError:
    """The error a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


def trailing(error: grpc.aio.AioRpcError) -> dict[str, Any]:
    return dict(tuple(error.trailing_metadata() or ()))


async def in_pieces(served: Stubs, request: pb.TaskRequest) -> list[pb.TaskChunk]:
    return [chunk async for chunk in served.agents.StreamTask(request)]


# Session ids ------------------------------------------------------------------------------------


async def test_echo_answers_as_ever_and_says_where_and_when(served: Served) -> None:
    request = task("Hello, remember my preferences", parameters={"preference": "italian food"}, session_id="s-1")
    answer = await served.agents.ExecuteTask(request)
    assert (answer.output, answer.success, answer.error) == (SAID, True, "")
    assert (answer.task_id, answer.session_id) == (request.task_id, "s-1")
    told = dict(answer.metadata)
    assert float(told.pop("processed_at")) > 1.7e9
    [run] = (await served.moorage().runs(session="s-1")).items
    assert (told.pop("run_id"), run.state, run.agent_name) == (run.run_id, "completed", "echo-agent")
    assert told == {"agent_id": "echo-agent", "task_number": "1", "session_id": "s-1", "session_turns": "1"}


async def test_the_second_call_in_a_session_sees_the_first(served: Served) -> None:
    await served.agents.ExecuteTask(task("I like tea", session_id="s-1"))
    answer = await served.agents.ExecuteTask(task("what did I say?", session_id="s-1"))
    assert answer.output == "Echo Agent Response: what did I say? | Remembered: I like tea"
    assert answer.metadata["session_turns"] == "2"


async def test_log_has_prompt_and_answer(served: Served) -> None:
    await served.agents.ExecuteTask(task("one", session_id="s-1"))
    await in_pieces(served, task("two", session_id="s-1"))
    page = await served.moorage().messages("s-1")
    said = [(each.role, each.content, each.interface) for each in page.items]
    echoes = [(role, text, "grpc") for word in ("one", "two") for role, text in _exchange(word)]
    assert said == echoes
    session = await served.moorage().get("s-1")
    assert (session.agent_name, session.interface) == ("echo-agent", "grpc")


def _exchange(word: str) -> list[tuple[str, str]]:
    return [("user", word), ("assistant", f"Echo Agent Response: {word}")]


async def test_the_id_is_on_every_chunk_and_the_last_one_has_the_whole_answer(served: Served) -> None:
    text = " ".join(f"word{number}" for number in range(100))
    chunks = await in_pieces(served, task(text, session_id="s-1"))
    assert len(chunks) > 5
    assert {chunk.session_id for chunk in chunks} == {"s-1"}
    assert [chunk.is_final for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert "".join(chunk.content for chunk in chunks) == f"Echo Agent Response: {text}"
    assert chunks[-1].response.output == f"Echo Agent Response: {text}"


async def test_without_an_id_everything_works_and_nothing_is_kept(served: Served) -> None:
    answer = await served.agents.ExecuteTask(task("hello", parameters={"a": "b"}))
    assert (answer.session_id, "session_id" in answer.metadata) == ("", False)
    chunks = await in_pieces(served, task("hello"))
    assert {chunk.session_id for chunk in chunks} == {""}
    worker = await served.workers.ProcessTask(task("2 days in Rome", "itinerary-worker"))
    tool = await served.tools.ExecuteTool(pb.ToolRequest(tool_id="weather-tool", parameters={"location": "Rome"}))
    assert (worker.success, worker.session_id, tool.success, tool.session_id) == (True, "", True, "")
    assert (await served.moorage().list()).items == []


@pytest.mark.parametrize("session_id", ["s-1", ""])
async def test_an_error_keeps_the_session_id(served: Served, session_id: str) -> None:
    for call in (
        served.agents.ExecuteTask(task("x", "nobody", session_id=session_id)),
        served.workers.ProcessTask(task("x", "nobody", session_id=session_id)),
        served.tools.ExecuteTool(pb.ToolRequest(tool_id="nothing", session_id=session_id)),
        served.agents.StreamTask(task("x", "nobody", session_id=session_id)).read(),
    ):
        error = await refused(call)
        assert error.code() is grpc.StatusCode.NOT_FOUND
        told = trailing(error)
        assert told.get("session-id", "") == session_id
        assert told["error-code"] in ("agent_not_found", "tool_not_found")
        assert json.loads(told["error-bin"])["code"] == told["error-code"]


async def test_an_agent_is_not_made_up_for_a_session_that_cannot_be(served: Served) -> None:
    error = await refused(served.agents.ExecuteTask(task("x", session_id="../evil")))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert trailing(error)["session-id"] == "../evil"
    odd = await refused(served.agents.ExecuteTask(task("x", session_id="ü\n")))
    assert (odd.code(), "session-id" in trailing(odd)) == (grpc.StatusCode.INVALID_ARGUMENT, False)


@pytest.mark.parametrize(
    ("end", "code"), [("finalize", grpc.StatusCode.FAILED_PRECONDITION), ("delete", grpc.StatusCode.NOT_FOUND)]
)
async def test_a_session_that_is_over_is_refused(served: Served, end: str, code: grpc.StatusCode) -> None:
    await served.agents.ExecuteTask(task("x", session_id="s-1"))
    await getattr(served.moorage(), end)("s-1")
    error = await refused(served.agents.ExecuteTask(task("y", session_id="s-1")))
    assert (error.code(), trailing(error)["session-id"]) == (code, "s-1")


async def test_task_resumes_a_session_that_a_person_suspended(served: Served) -> None:
    await served.agents.ExecuteTask(task("x", session_id="s-1"))
    await served.moorage().suspend("s-1")
    assert (await served.agents.ExecuteTask(task("y", session_id="s-1"))).success
    assert (await served.moorage().get("s-1")).state == "active"


async def test_task_of_an_agent_resumes_nothing_that_a_person_suspended(served: Served) -> None:
    moor = served.moorage()
    caller = await moor.create("echo-agent", parent=None)
    await served.agents.ExecuteTask(task("x", session_id="s-1"))
    await moor.suspend("s-1")
    asked = served.agents.ExecuteTask(task("y", session_id="s-1"), metadata=[("x-agent-session-id", caller.session_id)])
    assert trailing(await refused(asked))["error-code"] == "session_suspended"
    assert (await moor.get("s-1")).state == "suspended"


async def test_task_in_a_session_that_waits_for_an_approval_is_refused(served: Served) -> None:
    await served.agents.ExecuteTask(task("x", session_id="s-1"))
    moor = served.moorage()
    approval = await moor.request_approval("s-1", "Apply?")
    error = await refused(served.agents.ExecuteTask(task("y", session_id="s-1")))
    assert trailing(error)["error-code"] == "session_suspended"
    assert json.loads(trailing(error)["error-bin"])["approval_id"] == approval.approval_id
    await moor.approve(approval.approval_id)
    assert (await served.agents.ExecuteTask(task("y", session_id="s-1"))).success


async def test_task_in_a_held_session_is_refused(served: Served) -> None:
    await served.agents.ExecuteTask(task("x", session_id="s-1"))
    moor = served.moorage()
    held = await moor.resume("s-1")
    error = await refused(served.agents.ExecuteTask(task("y", session_id="s-1")))
    assert trailing(error)["error-code"] == "held_by_another"
    await moor.release("s-1", token=str(held.hold.token))
    assert (await served.agents.ExecuteTask(task("y", session_id="s-1"))).success


async def test_a_session_may_be_named(served: Served) -> None:
    made = await served.moorage().create("echo-agent", name="my-talk", parent=None)
    answer = await served.agents.ExecuteTask(task("x", session_id="my-talk"))
    assert answer.session_id == "my-talk"
    assert len((await served.moorage().messages(made.session_id)).items) == 2


async def test_many_first_calls_at_once_make_one_session(served: Served) -> None:
    answers = await asyncio.gather(
        *(served.agents.ExecuteTask(task(str(number), session_id="s-1")) for number in range(20))
    )
    assert all(answer.success for answer in answers)
    assert len((await served.moorage().messages("s-1", last=100)).items) == 40


async def test_turn_count_exceeds_the_window(served: Served) -> None:
    for _ in range(60):  # a window has fifty messages
        answer = await served.agents.ExecuteTask(task("x", session_id="s-1"))
    assert (answer.metadata["session_turns"], answer.metadata["task_number"]) == ("60", "60")


async def test_the_parent_comes_from_the_metadata(served: Served) -> None:
    parent = await served.moorage().create("planner", name="the-parent", parent=None)
    for number, header in enumerate(("x-agent-session-id", "x-agent-session-name")):
        value = parent.session_id if number == 0 else "the-parent"
        await served.agents.ExecuteTask(task("x", session_id=f"child-{number}"), metadata=[(header, value)])
        child = await served.moorage().get(f"child-{number}")
        assert child.parent_session_id == parent.session_id
    await served.agents.ExecuteTask(
        task("x", session_id="child-2"), metadata=[("x-agent-session-name", "${AGENT_SESSION_NAME}")]
    )
    assert (await served.moorage().get("child-2")).parent_session_id is None
    lost = await refused(
        served.agents.ExecuteTask(task("x", session_id="child-3"), metadata=[("x-agent-session-id", "nobody")])
    )
    assert (lost.code(), trailing(lost)["error-code"]) == (grpc.StatusCode.NOT_FOUND, "parent_not_found")


# Several in one session -------------------------------------------------------------------------


async def test_next_agent_knows_earlier_messages(served: Served) -> None:
    await served.agents.ExecuteTask(
        task("Hello, remember my preferences", parameters={"preference": "italian food"}, session_id="s-1")
    )
    answer = await served.workers.ProcessTask(
        task("Plan my trip", "itinerary-worker", parameters={"destination": "Paris", "days": "3"}, session_id="s-1")
    )
    plan = json.loads(answer.output)
    assert (plan["destination"], len(plan["days"]), plan["preferences"]) == ("Paris", 3, ["italian food"])
    assert (answer.metadata["session_id"], answer.session_id) == ("s-1", "s-1")
    later = await served.workers.ProcessTask(task("again, please", "itinerary-worker", session_id="s-1"))
    assert json.loads(later.output)["destination"] == "Paris"


async def test_a_tool_in_a_session_is_in_its_log(served: Served) -> None:
    request = pb.ToolRequest(
        tool_id="weather-tool",
        operation="get_forecast",
        parameters={"location": "New York", "days": "5"},
        session_id="s-1",
    )
    answer = await served.tools.ExecuteTool(request)
    assert (answer.success, answer.session_id, len(json.loads(answer.result)["days"])) == (True, "s-1", 5)
    assert "sample" in json.loads(answer.result)["source"]
    call, result = (await served.moorage().messages("s-1")).items
    assert isinstance(call.content, list)
    assert isinstance(result.content, list)
    assert (call.content[0]["name"], result.content[0]["call_id"]) == ("weather-tool", call.content[0]["id"])


async def test_a_tool_that_refuses_says_why_with_the_session(served: Served) -> None:
    answer = await served.tools.ExecuteTool(pb.ToolRequest(tool_id="weather-tool", session_id="s-1"))
    assert (answer.success, answer.session_id, "location" in answer.error) == (False, "s-1", True)


async def test_the_context_lives_as_long_as_configured(home: Path) -> None:
    (home / "config.toml").write_text('[memory]\ncontext_ttl = "1h"\n')
    async with serving(f"sqlite:///{home}/store.db") as served:
        await served.agents.ExecuteTask(task("x", parameters={"a": "b"}, session_id="s-1"))
        items = await served.moorage().context.items("s-1")
        expires_at = items["a"].expires_at
        assert expires_at is not None
        left = expires_at - served.deps.clock.now()
        assert timedelta(minutes=59) < left <= timedelta(hours=1)


async def test_another_owners_id_behaves_as_unknown(served: Served) -> None:
    from moorage.service import keys

    texts = {
        owner: (await keys.create_key(served.deps, owner=owner, scopes=("write",))).text for owner in ("ann", "ben")
    }
    metadata = {owner: [("authorization", f"Bearer {text}")] for owner, text in texts.items()}
    await served.agents.ExecuteTask(task("a secret of Ann's", session_id="shared"), metadata=metadata["ann"])
    answer = await served.agents.ExecuteTask(task("what did I say?", session_id="shared"), metadata=metadata["ben"])
    assert answer.output == "Echo Agent Response: what did I say? | Remembered: nothing yet"
    again = await served.agents.ExecuteTask(task("what did I say?", session_id="shared"), metadata=metadata["ann"])
    assert again.output.endswith("Remembered: a secret of Ann's")


# Agents and tools -------------------------------------------------------------------------------


async def test_agents_workers_and_tools_are_listed(served: Served) -> None:
    agents = (await served.agents.ListAgents(pb.ListAgentsRequest())).agents
    workers = (await served.workers.ListWorkers(pb.ListWorkersRequest())).workers
    tools = (await served.tools.ListTools(pb.ListToolsRequest())).tools
    assert [each.agent_id for each in agents] == ["echo-agent", "hello-world"]
    assert [(each.agent_id, each.role) for each in workers] == [("itinerary-worker", "worker")]
    assert [(each.tool_id, {one.name for one in each.operations}) for each in tools] == [
        ("weather-tool", {"get_weather", "get_forecast"})
    ]
    assert json.loads(tools[0].operations[0].parameters)["type"] == "object"


async def test_a_worker_is_no_agent_of_the_list_but_may_be_asked_as_one(served: Served) -> None:
    assert (await served.agents.ExecuteTask(task("2 days in Rome", "itinerary-worker"))).success
    error = await refused(served.workers.ProcessTask(task("x", "echo-agent")))
    assert error.code() is grpc.StatusCode.NOT_FOUND


async def test_status_tells_of_agents_of_the_server_and_of_a_session(served: Served) -> None:
    await served.agents.ExecuteTask(task("x", session_id="s-1"))
    server = await served.agents.GetStatus(pb.StatusRequest())
    assert (server.status, server.completed_tasks, server.active_tasks) == ("serving", 1, 0)
    agent = await served.agents.GetStatus(pb.StatusRequest(agent_id="echo-agent", session_id="s-1"))
    assert (agent.status, agent.completed_tasks, agent.session_id, agent.session_status) == (
        "available",
        1,
        "s-1",
        "idle",
    )
    error = await refused(served.agents.GetStatus(pb.StatusRequest(agent_id="nobody")))
    assert error.code() is grpc.StatusCode.NOT_FOUND


async def test_outcome_of_a_task_is_stored(served: Served) -> None:
    request = task("x", session_id="s-1")
    await served.agents.ExecuteTask(request)
    told = await served.workers.GetTaskStatus(pb.TaskStatusRequest(task_id=request.task_id))
    assert (told.status, told.agent_id, told.session_id) == ("completed", "echo-agent", "s-1")
    assert told.started_at <= told.ended_at
    error = await refused(served.workers.GetTaskStatus(pb.TaskStatusRequest(task_id="nothing")))
    assert trailing(error)["error-code"] == "task_not_found"
