"""Calls in a session are runs: to be seen, stopped and waited for as any other, wherever their agents answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

import moorage
from moorage.core.run import Run
from moorage.core.status import Reason
from tests.doors.grpc.serving import PATIENCE, Served, Stubs, server_process, until
from tests.doors.grpc.test_platform import refused, task, trailing
from tests.doors.grpc.test_router import Recorder, define, elsewhere
from tests.doors.grpc.test_router import agent as agent  # a fixture


async def runs_of(served: Served, session: str = "s-1") -> list[Run]:
    """All runs of a session, oldest first."""
    return (await served.moorage().runs(session=session)).items[::-1]


async def kinds_of(served: Served, session: str = "s-1") -> list[tuple[str, str | None]]:
    return [(entry.kind, entry.by) for entry in (await served.moorage().log(session, limit=1000)).items]


async def test_call_that_is_answered_at_once_is_a_run_with_a_turn(served: Served) -> None:
    answer = await served.agents.ExecuteTask(task("hello", parameters={"a": "b"}, session_id="s-1"))
    [run] = await runs_of(served)
    assert (run.state, run.agent_name, run.parameters, run.turns) == ("completed", "echo-agent", {"a": "b"}, 1)
    assert (run.result, run.run_id) == (answer.output, answer.metadata["run_id"])
    assert [kind for kind, _ in await kinds_of(served)] == ["created", "message", "message", "run_settled"]


async def test_any_agent_serves_in_any_session_and_the_log_says_who(served: Served, agent: Recorder) -> None:
    await served.agents.ExecuteTask(task("one", session_id="s-1"))
    await served.agents.ExecuteTask(task("two", "far", session_id="s-1"))
    assert [run.agent_name for run in await runs_of(served)] == ["echo-agent", "far"]
    assert (await served.moorage().get("s-1")).agent_name == "echo-agent"
    said = [(each.role, each.by) for each in (await served.moorage().messages("s-1")).items if each.role != "user"]
    assert said == [("assistant", "echo-agent"), ("assistant", "far")]
    assert [each.content for each in agent.asked[0].memory.history] == ["one", "Echo Agent Response: one"]


async def test_parallel_calls_in_one_session_queue_and_each_has_its_own_answer(served: Served, agent: Recorder) -> None:
    await served.agents.ExecuteTask(task("first", session_id="s-1"))
    names = ["echo-agent", "far"] * 10
    calls = [task(str(number), name, session_id="s-1") for number, name in enumerate(names)]
    async with asyncio.timeout(PATIENCE):
        answers = await asyncio.gather(*(served.agents.ExecuteTask(call) for call in calls))
    expected = {"echo-agent": "Echo Agent Response: {}", "far": "did {}"}
    assert [each.output for each in answers] == [expected[name].format(n) for n, name in enumerate(names)]
    assert [run.state for run in await runs_of(served)] == ["completed"] * 21
    starts = [kind for kind, _ in await kinds_of(served) if kind.startswith("turn_")]
    assert starts == ["turn_started", "turn_ended"] * (len(starts) // 2), "one after the other"
    assert (await served.moorage().get("s-1")).turns == 21


async def test_call_that_takes_its_time_is_seen_and_stopped_at_another_door(served: Served, agent: Recorder) -> None:
    answer: Any = served.agents.ExecuteTask(task("slow", "far", session_id="s-1"))
    async with asyncio.timeout(PATIENCE):
        await agent.at_work.wait()
        [run] = await runs_of(served)
        assert (run.state, (await served.moorage().get("s-1")).status) == ("running", "running")
        await served.moorage().stop_run(run.run_id)
        response = await answer
        await agent.cancelled.wait()
    assert (response.success, response.error, response.session_id) == (False, "the run is stopped", "s-1")
    assert [run.state for run in await runs_of(served)] == ["stopped"]
    assert (await served.agents.ExecuteTask(task("on", "far", session_id="s-1"))).output == "did on"


async def test_call_behind_a_slow_one_waits_and_is_answered_without_a_launcher(served: Served, agent: Recorder) -> None:
    slow: Any = served.agents.ExecuteTask(task("slow", "far", session_id="s-1"))
    async with asyncio.timeout(PATIENCE):
        await agent.at_work.wait()
        waiting: Any = served.agents.StreamTask(task("next", session_id="s-1"))
        assert dict(list(await waiting.initial_metadata()))["moorage-because"] == "launcher_busy"
        queued = (await runs_of(served))[1]
        assert queued.state == "queued"
        assert queued.because is not None
        assert queued.because.reason is Reason.LAUNCHER_BUSY
        slow.cancel()
        chunks = [chunk async for chunk in waiting]
    assert chunks[-1].response.output == "Echo Agent Response: next"
    assert [run.state for run in await runs_of(served)] == ["stopped", "completed"]


async def test_call_that_waits_and_is_given_up_is_stopped(served: Served, agent: Recorder) -> None:
    slow: Any = served.agents.ExecuteTask(task("slow", "far", session_id="s-1"))
    async with asyncio.timeout(PATIENCE):
        await agent.at_work.wait()
        waiting: Any = served.agents.StreamTask(task("next", session_id="s-1"))
        await waiting.initial_metadata()
        waiting.cancel()

        async def is_stopped() -> bool:
            return [run.state for run in await runs_of(served)] == ["running", "stopped"]

        await until(is_stopped)
        slow.cancel()


async def test_failure_is_an_answer_and_is_not_tried_again(served: Served, agent: Recorder) -> None:
    answer = await served.agents.ExecuteTask(task("fail", "far", session_id="s-1"))
    assert (answer.success, answer.error) == (False, "no idea")
    [run] = await runs_of(served)
    assert (run.state, run.error, run.turns, len(agent.asked)) == ("failed", "no idea", 1, 1)
    assert (await served.moorage().inbox("s-1", dead_letters=True)).items == []


async def test_agent_cannot_call_into_the_session_that_it_works_in(served: Served, agent: Recorder) -> None:
    slow: Any = served.agents.ExecuteTask(task("slow", "far", session_id="s-1"))
    async with asyncio.timeout(PATIENCE):
        await agent.at_work.wait()
        metadata = [("x-agent-session-id", "s-1")]
        error = await refused(served.agents.ExecuteTask(task("x", session_id="s-1"), metadata=metadata))
        assert trailing(error)["error-code"] == "asks_ancestor"
        child = await served.agents.ExecuteTask(task("x", session_id="c-1"), metadata=metadata)
        assert child.success
        slow.cancel()
    [run] = await runs_of(served, "c-1")
    assert (run.parent_session_id, run.mode) == ("s-1", "sync")


async def test_session_of_calls_has_no_other_driver(served: Served) -> None:
    await served.agents.ExecuteTask(task("x", session_id="s-1"))
    moor = served.moorage()
    approval = await moor.request_approval("s-1", "Apply?")
    await moor.approve(approval.approval_id)
    assert (await moor.get("s-1")).status == "idle", "no agent is woken by the answer"


@pytest.mark.parametrize("launcher", ["--no-launcher", "--log-level=info"])
async def test_call_that_dies_with_its_server_fails_and_the_session_goes_on(home: Path, launcher: str) -> None:
    agent, store = Recorder(), f"sqlite:///{home}/store.db"
    async with asyncio.timeout(PATIENCE), elsewhere(agent) as place:
        define(home, "far", place)
        with server_process(store, home, launcher) as server:
            async with grpc.aio.insecure_channel(server.place) as channel:
                call: Any = Stubs(channel).agents.ExecuteTask(task("slow", "far", session_id="s-1"))
                await agent.at_work.wait()
                server.kill()
                await refused(call)
        with server_process(store, home, launcher) as server:
            async with grpc.aio.insecure_channel(server.place) as channel:
                answer = await Stubs(channel).agents.ExecuteTask(task("again", session_id="s-1"))
                assert answer.output == "Echo Agent Response: again"
    async with moorage.connect(store) as moor:
        runs = (await moor.runs(session="s-1")).items
    assert [(run.agent_name, run.state, run.reason) for run in runs] == [
        ("echo-agent", "completed", None),
        ("far", "failed", "launcher_lost"),
    ]
