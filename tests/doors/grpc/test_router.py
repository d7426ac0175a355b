"""Agents, workers and tools that live elsewhere: found by name, called with the session, its deadline and its end."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from moorage.agents.grpc import close_router, router
from moorage.protobuf import agent_platform_pb2 as pb
from moorage.protobuf import agent_platform_pb2_grpc as services
from tests.doors.grpc.serving import PATIENCE, Served, sample_process, serving, until
from tests.doors.grpc.test_platform import in_pieces, refused, task, trailing

Code = grpc.StatusCode


class Recorder(services.AgentServiceServicer, services.TaskWorkerServicer, services.ToolServiceServicer):
    """A foreign agent, which knows nothing of what Moorage adds; it keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.left: list[float] = []
        self.cancelled = asyncio.Event()
        self.at_work = asyncio.Event()
        self.metadata: dict[str, Any] = {}

    async def ExecuteTask(self, request: Any, context: Any) -> Any:
        self.asked.append(request)
        self.left.append(context.time_remaining())
        self.metadata = dict(context.invocation_metadata())
        self.at_work.set()
        if request.input == "slow":
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        if request.input == "fail":
            return pb.TaskResponse(
                task_id=request.task_id, success=False, error="no idea", session_id=request.session_id
            )
        if request.input == "abort":
            await context.abort(Code.DATA_LOSS, "all gone")
        return pb.TaskResponse(task_id=request.task_id, output=f"did {request.input}", success=True)

    ProcessTask = ExecuteTask

    async def ExecuteTool(self, request: Any, context: Any) -> Any:
        self.asked.append(request)
        if request.operation == "fail":
            return pb.ToolResponse(success=False, error="broken")
        return pb.ToolResponse(success=True, result=json.dumps({"of": dict(request.parameters)}))


class Streamer(Recorder):
    """One that can stream, too."""

    async def StreamTask(self, request: Any, context: Any) -> Any:
        self.asked.append(request)
        for word in ("one ", "two ", "three"):
            yield pb.TaskChunk(task_id=request.task_id, content=word)
        if request.input == "hang":
            self.at_work.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        yield pb.TaskChunk(task_id=request.task_id, is_final=True)


@asynccontextmanager
async def elsewhere(agent: Recorder, port: int = 0, credentials: Any = None) -> AsyncIterator[str]:
    """Run a foreign server; yield its address."""
    server = grpc.aio.server()
    services.add_AgentServiceServicer_to_server(agent, server)
    services.add_TaskWorkerServicer_to_server(agent, server)
    services.add_ToolServiceServicer_to_server(agent, server)
    if credentials is None:
        port = server.add_insecure_port(f"127.0.0.1:{port}")
    else:
        port = server.add_secure_port("localhost:0", credentials)
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


def define(home: Path, name: str, *places: str, role: str = "agent", more: str = "") -> None:
    folder = home / "agents"
    folder.mkdir(exist_ok=True)
    endpoint = json.dumps(places[0] if len(places) == 1 else list(places))
    (folder / f"{name}.toml").write_text(f'[{role}]\nname = "{name}"\nkind = "grpc"\nendpoint = {endpoint}\n{more}')


@pytest.fixture
async def agent(served: Served, home: Path) -> AsyncIterator[Recorder]:
    recorder = Recorder()
    async with elsewhere(recorder) as place:
        define(home, "far", place)
        define(home, "far-worker", place, role="worker")
        define(home, "far-tool", place, role="tool")
        yield recorder


# Transported data -------------------------------------------------------------------------------


async def test_a_call_goes_to_where_the_agent_lives_with_its_session(served: Served, agent: Recorder) -> None:
    request = task("this", "far", parameters={"a": "b"}, tool_ids=["t"], session_id="s-1")
    answer = await served.agents.ExecuteTask(request, timeout=20)
    assert (answer.output, answer.session_id, answer.task_id) == ("did this", "s-1", request.task_id)
    [asked] = agent.asked
    assert (asked.input, dict(asked.parameters), list(asked.tool_ids)) == ("this", {"a": "b"}, ["t"])
    assert (asked.session_id, asked.agent_id, asked.task_id) == ("s-1", "far", request.task_id)
    assert 0 < agent.left[0] < 21  # it travels in round numbers
    said = [(each.role, each.content) for each in (await served.moorage().messages("s-1")).items]
    assert said == [("user", "this"), ("assistant", "did this")]


async def test_router_gets_history_and_context(served: Served, agent: Recorder) -> None:
    await served.agents.ExecuteTask(task("I like tea", parameters={"preference": "milk"}, session_id="s-1"))
    await served.agents.ExecuteTask(task("more", "far", session_id="s-1"))
    memory = agent.asked[0].memory
    assert (memory.history[0].role, memory.history[0].content) == ("user", "I like tea")
    assert (json.loads(memory.context), memory.turns) == ({"preference": "milk"}, 1)


async def test_workers_and_tools_live_elsewhere_as_well(served: Served, agent: Recorder) -> None:
    answer = await served.workers.ProcessTask(task("that", "far-worker", session_id="s-1"))
    assert answer.output == "did that"
    asked = pb.ToolRequest(tool_id="far-tool", operation="any", parameters={"x": "1"}, session_id="s-1")
    result = await served.tools.ExecuteTool(asked)
    assert (json.loads(result.result), result.session_id) == ({"of": {"x": "1"}}, "s-1")
    assert agent.asked[-1].session_id == "s-1"
    failed = await served.tools.ExecuteTool(pb.ToolRequest(tool_id="far-tool", operation="fail", session_id="s-1"))
    assert (failed.success, failed.error, failed.session_id) == (False, "broken", "s-1")


async def test_a_key_travels_from_a_variable(
    served: Served, home: Path, agent: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAR_KEY", "hush")
    async with elsewhere(other := Recorder()) as place:
        define(home, "guarded", place, more='api_key_env = "FAR_KEY"\n')
        await served.agents.ExecuteTask(task("x", "guarded"))
    assert other.metadata["authorization"] == "Bearer hush"


async def test_its_own_failure_is_an_answer_with_the_session(served: Served, agent: Recorder) -> None:
    answer = await served.agents.ExecuteTask(task("fail", "far", session_id="s-1"))
    assert (answer.success, answer.error, answer.session_id) == (False, "no idea", "s-1")
    answer = await served.agents.ExecuteTask(task("abort", "far", session_id="s-1"))
    assert (answer.success, "all gone" in answer.error, answer.session_id) == (False, True, "s-1")
    assert (await served.moorage().get("s-1")).error_count == 2
    await served.agents.ExecuteTask(task("well", "far", session_id="s-1"))
    assert (await served.moorage().get("s-1")).error_count == 0


async def test_a_failure_in_a_stream_ends_it_with_the_session(served: Served, agent: Recorder) -> None:
    stream = served.agents.StreamTask(task("fail", "far", session_id="s-1"))
    error = await refused(stream.read())
    assert (error.code(), trailing(error)["session-id"]) == (Code.ABORTED, "s-1")
    assert trailing(error)["error-code"] == "agent_failed"


async def test_a_call_that_is_cancelled_ends_the_call_behind_it(served: Served, agent: Recorder) -> None:
    request = task("slow", "far", session_id="s-1")
    call = served.agents.ExecuteTask(request)
    async with asyncio.timeout(20):
        await agent.at_work.wait()
        call.cancel()
        await agent.cancelled.wait()

    async def is_cancelled() -> bool:
        status = await served.workers.GetTaskStatus(pb.TaskStatusRequest(task_id=request.task_id))
        return bool(status.status == "cancelled")

    await until(is_cancelled)
    page = await served.moorage().messages("s-1")
    assert [(each.role, each.content) for each in page.items] == [("user", "slow")]


async def test_a_deadline_ends_both(served: Served, agent: Recorder) -> None:
    error = await refused(served.agents.ExecuteTask(task("slow", "far", session_id="s-1"), timeout=0.3))
    assert error.code() is Code.DEADLINE_EXCEEDED
    async with asyncio.timeout(20):
        await agent.cancelled.wait()
    assert agent.left[0] < 1


async def test_a_stream_is_passed_on_while_it_is_made(served: Served, home: Path) -> None:
    async with elsewhere(agent := Streamer()) as place:
        define(home, "talker", place)
        chunks = await in_pieces(served, task("talk", "talker", session_id="s-1"))
        assert [chunk.content for chunk in chunks] == ["one ", "two ", "three", ""]
        assert {chunk.session_id for chunk in chunks} == {"s-1"}
        assert chunks[-1].response.output == "one two three"
        hanging = served.agents.StreamTask(task("hang", "talker", session_id="s-1"))
        async with asyncio.timeout(20):
            assert (await hanging.read()).content == "one "
            hanging.cancel()
            await agent.cancelled.wait()


# Where it is ------------------------------------------------------------------------------------


async def test_unknown_agent_is_reported_with_the_session(served: Served, home: Path) -> None:
    define(home, "lost", "127.0.0.1:1")
    for call in (
        served.agents.ExecuteTask(task("x", "lost", session_id="s-1")),
        served.agents.StreamTask(task("x", "lost", session_id="s-1")).read(),
    ):
        error = await refused(call)
        assert (error.code(), trailing(error)["session-id"]) == (Code.UNAVAILABLE, "s-1")
        assert trailing(error)["error-code"] == "agent_unreachable"
    assert (await served.agents.GetStatus(pb.StatusRequest(agent_id="lost"))).status == "unavailable"


async def test_a_tool_that_cannot_be_reached_is_an_error_of_the_call(served: Served, home: Path) -> None:
    define(home, "far-tool", "127.0.0.1:1", role="tool")
    asked = pb.ToolRequest(tool_id="far-tool", operation="any", session_id="s-1")
    error = await refused(served.tools.ExecuteTool(asked))
    assert error.code() is Code.UNAVAILABLE
    assert (trailing(error)["session-id"], trailing(error)["error-code"]) == ("s-1", "tool_unreachable")
    page = await served.moorage().messages("s-1")
    assert [entry.role for entry in page.items] == ["assistant", "tool"]  # the log has that it was tried


async def test_endpoints_take_turns_over_one_channel_each(served: Served, home: Path) -> None:
    recorders = [Recorder() for _ in range(3)]
    async with AsyncExitStack() as stack:
        places = [await stack.enter_async_context(elsewhere(each)) for each in recorders]
        define(home, "many", *places)
        for _ in range(9):
            await served.agents.ExecuteTask(task("x", "many"))
        assert [len(each.asked) for each in recorders] == [3, 3, 3]
        assert router()._endpoints.keys() == set(places)


async def test_a_dead_endpoint_among_three_fails_no_call_after_the_first_second(served: Served, home: Path) -> None:
    with (
        sample_process("echo-agent", home) as one,
        sample_process("echo-agent", home) as two,
        sample_process("echo-agent", home) as three,
    ):
        define(home, "many", one.place, two.place, three.place)
        for _ in range(6):
            assert (await served.agents.ExecuteTask(task("x", "many"))).success
        two.kill()
        died = time.monotonic()
        late: list[str] = []
        async with asyncio.timeout(PATIENCE):
            while (began := time.monotonic()) < died + 3:
                if not await answers(served, "many") and began > died + 1:
                    late.append(f"{began - died:.2f}")
        assert late == []
        with sample_process("echo-agent", home, two.port):
            await until(lambda: is_used_again(served, two.place))


async def answers(served: Served, agent: str) -> bool:
    try:
        return bool((await served.agents.ExecuteTask(task("x", agent))).success)
    except grpc.aio.AioRpcError:
        return False


async def is_used_again(served: Served, place: str) -> bool:
    await served.agents.ExecuteTask(task("x", "many"))
    return router()._endpoints[place].is_well


async def test_a_silent_endpoint_is_left_out(served: Served, home: Path) -> None:
    with sample_process("echo-agent", home) as one, sample_process("echo-agent", home) as two:
        define(home, "many", one.place, two.place)
        for _ in range(4):
            await served.agents.ExecuteTask(task("x", "many"))
        two.process.send_signal(signal.SIGSTOP)

        async def is_left_out() -> bool:
            return not router()._endpoints[two.place].is_well

        await until(is_left_out)
        for _ in range(6):
            assert (await served.agents.ExecuteTask(task("x", "many"), timeout=10)).success
        two.process.send_signal(signal.SIGCONT)


async def test_an_endpoint_that_dies_in_the_middle_of_a_call_is_an_error_of_the_call(
    served: Served, home: Path
) -> None:
    async with elsewhere(agent := Recorder()) as place:
        define(home, "far", place)
        call = served.agents.ExecuteTask(task("slow", "far", session_id="s-1"))
        async with asyncio.timeout(20):
            await agent.at_work.wait()
    error = await refused(call)
    assert (error.code(), trailing(error)["session-id"]) == (Code.UNAVAILABLE, "s-1")
    assert json.loads(dict(tuple(error.trailing_metadata() or ()))["error-bin"])["is_unsure"] is True


async def test_the_only_endpoint_may_take_its_time_to_connect(served: Served, home: Path) -> None:
    with sample_process("echo-agent", home) as busy:
        define(home, "busy", busy.place)
        busy.process.send_signal(signal.SIGSTOP)
        call = asyncio.ensure_future(served.agents.ExecuteTask(task("x", "busy"), timeout=PATIENCE))

        async def is_given_up_at_first() -> bool:
            known = router()._endpoints.get(busy.place)
            return known is not None and not known.is_well

        await until(is_given_up_at_first)
        busy.process.send_signal(signal.SIGCONT)
        assert (await call).success


async def test_an_endpoint_with_tls_is_asked_if_it_can_be_trusted(
    served: Served, home: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = certificate
    asks = grpc.ssl_server_credentials([(key.read_bytes(), cert.read_bytes())], cert.read_bytes(), True)
    async with elsewhere(recorder := Recorder(), credentials=asks) as place:
        offered = f"grpcs://localhost:{place.rpartition(':')[2]}"
        define(home, "secure", offered)
        define(home, "secure-tool", offered, role="tool")
        error = await refused(served.agents.ExecuteTask(task("x", "secure", session_id="s-1")))
        assert (error.code(), trailing(error)["session-id"], recorder.asked) == (Code.UNAVAILABLE, "s-1", [])
        await close_router()  # what is trusted is read once
        for name, file in (("MOORAGE_GRPC_CA", cert), ("MOORAGE_GRPC_CERT", cert), ("MOORAGE_GRPC_KEY", key)):
            monkeypatch.setenv(name, str(file))
        assert (await served.agents.ExecuteTask(task("x", "secure", session_id="s-1"))).output == "did x"
        asked = pb.ToolRequest(tool_id="secure-tool", operation="any", parameters={"x": "1"})
        assert (await served.tools.ExecuteTool(asked)).success
        assert (await served.agents.GetStatus(pb.StatusRequest(agent_id="secure"))).status == "available"


async def test_a_file_of_trust_that_is_not_there_is_said_so(
    served: Served, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOORAGE_GRPC_CA", str(home / "nothing.pem"))
    define(home, "secure", "grpcs://localhost:1")
    error = await refused(served.agents.ExecuteTask(task("x", "secure")))
    assert (error.code(), "nothing.pem cannot be read" in str(error.details())) == (Code.UNAVAILABLE, True)


# Registered while everything runs ---------------------------------------------------------------


async def test_an_agent_that_registers_is_there_until_its_lease_ends(served: Served, home: Path) -> None:
    async with elsewhere(recorder := Recorder()) as place:
        asked = pb.RegisterAgentRequest(agent_id="guest", description="visits", endpoint=place, lease_seconds=3)
        answer = await served.agents.RegisterAgent(asked)
        assert (answer.success, answer.lease_seconds) == (True, 3)
        [guest] = [
            each for each in (await served.agents.ListAgents(pb.ListAgentsRequest())).agents if each.agent_id == "guest"
        ]
        assert (list(guest.endpoints), guest.kind, 0 < guest.lease_seconds <= 3) == ([place], "grpc", True)
        assert (await served.agents.ExecuteTask(task("x", "guest"))).output == "did x"
        assert "guest" in [each["name"] for each in (await served.moorage().agents()).items]

        async def is_gone() -> bool:
            listed = await served.agents.ListAgents(pb.ListAgentsRequest())
            return not [each for each in listed.agents if each.endpoints]

        await until(is_gone)
        error = await refused(served.agents.ExecuteTask(task("x", "guest", session_id="s-1")))
        assert (error.code(), trailing(error)["session-id"]) == (Code.NOT_FOUND, "s-1")
    assert len(recorder.asked) == 1


async def test_several_endpoints_register_under_one_name(served: Served) -> None:
    async with elsewhere(Recorder()) as one, elsewhere(Recorder()) as two:
        for place in (one, two, one):
            await served.agents.RegisterAgent(pb.RegisterAgentRequest(agent_id="guest", endpoint=place, role="worker"))
        [guest] = [
            each
            for each in (await served.workers.ListWorkers(pb.ListWorkersRequest())).workers
            if each.agent_id == "guest"
        ]
        assert sorted(guest.endpoints) == sorted([one, two])
        assert (await served.workers.ProcessTask(task("x", "guest"))).output == "did x"


async def test_a_tool_registers_with_its_operations(served: Served) -> None:
    async with elsewhere(Recorder()) as place:
        operation = pb.ToolOperation(name="add", description="adds", parameters='{"type": "object"}')
        await served.tools.RegisterTool(
            pb.RegisterToolRequest(tool_id="sums", endpoint=place, operations=[operation], lease_seconds=60)
        )
        listed = {each.tool_id: each for each in (await served.tools.ListTools(pb.ListToolsRequest())).tools}
        assert [each.name for each in listed["sums"].operations] == ["add"]
        answer = await served.tools.ExecuteTool(pb.ToolRequest(tool_id="sums", operation="add", parameters={"a": "1"}))
        assert json.loads(answer.result) == {"of": {"a": "1"}}
        error = await refused(served.tools.ExecuteTool(pb.ToolRequest(tool_id="sums", operation="other")))
        assert error.code() is Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (pb.RegisterAgentRequest(agent_id="echo-agent", endpoint="localhost:1"), Code.FAILED_PRECONDITION),
        (pb.RegisterAgentRequest(agent_id="weather-tool", endpoint="localhost:1"), Code.FAILED_PRECONDITION),
        (pb.RegisterAgentRequest(agent_id="../evil", endpoint="localhost:1"), Code.INVALID_ARGUMENT),
        (pb.RegisterAgentRequest(agent_id="a", endpoint="nowhere"), Code.INVALID_ARGUMENT),
        (pb.RegisterAgentRequest(agent_id="a", endpoint="localhost:1", role="tool"), Code.INVALID_ARGUMENT),
        (pb.RegisterAgentRequest(agent_id="a", endpoint="localhost:1", lease_seconds=1e9), Code.INVALID_ARGUMENT),
        (
            pb.RegisterAgentRequest(agent_id="a", endpoint="localhost:1", lease_seconds=float("nan")),
            Code.INVALID_ARGUMENT,
        ),
    ],
)
async def test_a_registration_that_makes_no_sense_is_refused(
    served: Served, asked: pb.RegisterAgentRequest, code: grpc.StatusCode
) -> None:
    assert (await refused(served.agents.RegisterAgent(asked))).code() is code


# Samples ----------------------------------------------------------------------------------------


async def test_a_sample_alone_remembers_for_itself(home: Path) -> None:
    with sample_process("echo-agent", home) as sample:
        async with grpc.aio.insecure_channel(sample.place) as channel:
            agents: Any = services.AgentServiceStub(channel)
            await agents.ExecuteTask(task("I like tea", session_id="s-1"))
            answer = await agents.ExecuteTask(task("what did I say?", session_id="s-1"))
            assert answer.output.endswith("Remembered: I like tea")
            assert [each.agent_id for each in (await agents.ListAgents(pb.ListAgentsRequest())).agents] == [
                "echo-agent"
            ]
            under_another_name = await agents.ExecuteTask(task("x", "whoever-lives-here"))
            assert under_another_name.output == "Echo Agent Response: x"


async def test_samples_behind_the_router_recall_its_history(home: Path) -> None:
    with (
        sample_process("echo-agent", home) as echo,
        sample_process("itinerary-worker", home) as worker,
        sample_process("weather-tool", home) as tool,
    ):
        define(home, "parrot", echo.place)
        define(home, "planner", worker.place, role="worker")
        async with serving(f"sqlite:///{home}/store.db") as served:
            await served.tools.RegisterTool(pb.RegisterToolRequest(tool_id="sky", endpoint=tool.place))
            first = task("remember", "parrot", parameters={"preference": "italian food"}, session_id="s-1")
            assert (await served.agents.ExecuteTask(first)).success
            again = await served.agents.ExecuteTask(task("what did I say?", "parrot", session_id="s-1"))
            assert again.output.endswith("Remembered: remember")
            chunks = await in_pieces(served, task("what did I say?", "parrot", session_id="s-1"))
            assert "".join(chunk.content for chunk in chunks).endswith("Remembered: remember; what did I say?")
            plan = await served.workers.ProcessTask(task("2 days in Rome", "planner", session_id="s-1"))
            assert json.loads(plan.output)["preferences"] == ["italian food"]
            weather = pb.ToolRequest(tool_id="sky", parameters={"location": "Rome"}, session_id="s-1")
            answer = await served.tools.ExecuteTool(weather)
            assert (json.loads(answer.result)["location"], answer.session_id) == ("Rome", "s-1")


async def test_a_run_at_any_door_reaches_an_agent_elsewhere(served: Served, agent: Recorder) -> None:
    moor = served.moorage()
    reply = await moor.run("far", "by another door", parent=None, timeout=30)
    assert (reply.status, reply.result) == ("completed", "did by another door")
    while moor.opened.launchers:
        await moor.opened.launchers.popitem()[1].__aexit__()
