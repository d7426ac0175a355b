"""One server with all its doors: the same answers at each, and nothing of what is said in its log."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import grpc
import httpx2
import pytest

from moorage import sync
from moorage.protobuf import agent_platform_pb2 as pb
from moorage.protobuf import sessions_pb2 as sp
from tests.doors.cli.agent_files import CHOOSING, MISSPEAKING
from tests.doors.graphql.client import Client
from tests.doors.grpc.serving import Stubs, sample_process
from tests.doors.http.listening import STREAM
from tests.doors.http.process import Process, starting, until
from tests.doors.mcp.test_stdio import called, said, talking
from tests.doors.mcp.ways import NEW, OLD, client, define

PATIENCE = 30.0
SECRET = "xylophone-in-the-attic"  # said at every door, and to be found in no log
CREATE = """mutation ($agent: String, $parent: String, $meta: JSON) {
  createAgentSession(agentName: $agent, parentSessionName: $parent, metadata: $meta) { taskId parentSessionId }
}"""
SEND = """mutation ($id: ID!, $text: String!) {
  sendMessageToSession(sessionId: $id, message: $text, wait: 30) { run { problems } }
}"""
EVENTS = "subscription ($id: ID!) { agentSessionEvents(sessionId: $id, after: 0) { type data } }"


class Serving(NamedTuple):
    """A server at log level debug."""

    process: Process
    home: Path
    url: str
    port: int
    grpc_place: str

    def http(self) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, timeout=PATIENCE)

    def log(self) -> str:
        return self.process.log.read_text()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("doors")
    define(folder / "home", MISSPEAKING)
    define(folder / "home", CHOOSING)
    with starting(folder) as begin:
        process = begin("--log-level", "debug")
        url = process.url
        port = until(lambda: re.search(r"gRPC at \S+ port (\d+)", process.log.read_text()))[1]
        yield Serving(process, folder / "home", url, urlsplit(url).port or 0, f"127.0.0.1:{port}")


async def mcp_call(server: Serving, tool: str, version: str = NEW, **arguments: Any) -> tuple[bool, Any]:
    """Whether a tool of the MCP door failed, and its answer."""
    async with client(f"http {version}", server.home, server.port) as mcp:
        result = await mcp.call_tool(tool, arguments)
        return bool(result.is_error), result.structured_content


# The weather ------------------------------------------------------------------------------------


async def weather(server: Serving, **parameters: Any) -> list[tuple[bool, Any, str]]:
    """Success, result and error of the weather tool without an operation: by REST, gRPC and MCP."""
    with server.http() as http:
        rest = http.post("/tools/weather-tool", json={"parameters": parameters}).json()
    async with grpc.aio.insecure_channel(server.grpc_place) as channel:
        texts = {name: str(value) for name, value in parameters.items()}
        answer = await Stubs(channel).tools.ExecuteTool(pb.ToolRequest(tool_id="weather-tool", parameters=texts))
    failed, told = await mcp_call(server, "weather-tool", **parameters)
    assert failed is not told["success"]
    return [
        (rest["success"], rest["result"], rest["error"] or ""),
        (answer.success, json.loads(answer.result) if answer.result else None, answer.error),
        (told["success"], told["result"], told["error"] or ""),
    ]


@pytest.mark.parametrize("days", [2, "2"])
async def test_weather_without_an_operation_heeds_days_at_all_three_doors(server: Serving, days: object) -> None:
    rest, by_grpc, by_mcp = await weather(server, location="New York", days=days)
    assert rest == by_grpc == by_mcp
    success, result, _ = rest
    assert (success, result["location"], len(result["days"])) == (True, "New York", 2)
    assert result["temperature"] == result["days"][0]["temperature_c"]
    assert result["condition"] == result["days"][0]["condition"]


async def test_weather_of_today_has_temperature_and_condition(server: Serving) -> None:
    rest, by_grpc, by_mcp = await weather(server, location="Rome")
    assert rest == by_grpc == by_mcp
    assert {"location", "temperature", "condition"} <= rest[1].keys()


@pytest.mark.parametrize("parameters", [{"location": "Rome", "days": "abc"}, {"location": "Rome", "days": 99}, {}])
async def test_weather_refuses_the_same_at_all_three_doors(server: Serving, parameters: dict[str, Any]) -> None:
    rest, by_grpc, by_mcp = await weather(server, **parameters)
    assert rest == by_grpc == by_mcp
    assert rest[:2] == (False, None)
    assert ("days" if "days" in parameters else "location") in rest[2]


# Names that are not there -----------------------------------------------------------------------


async def test_empty_session_id_counts_as_absent_at_mcp(server: Serving) -> None:
    failed, told = await mcp_call(server, "echo-agent", input="hi", session_id="")
    assert (failed, told["session_id"], told["output"]) == (False, None, "Echo Agent Response: hi")
    failed, told = await mcp_call(
        server, "start_agent_session", agent="echo-agent", prompt="hi", session_id="", parent=""
    )
    assert (failed, told["run"]["state"]) == (False, "completed")
    failed, told = await mcp_call(server, "resume_agent_session", session_id="")
    assert (failed, "suggestions" in told) == (False, True)


UNNAMED = ["", "${AGENT_SESSION_NAME}"]  # nothing, and a template that was not filled in


@pytest.mark.parametrize("parent", UNNAMED)
@pytest.mark.parametrize("name", ["parent_session_name", "parent_session_id"])
@pytest.mark.parametrize("path", ["/sessions", "/agent-sessions/create"])
def test_unnamed_parent_counts_as_absent_at_rest(server: Serving, path: str, name: str, parent: str) -> None:
    with server.http() as http:
        made = http.post(path, json={"agent_name": "echo-agent", name: parent})
        assert made.status_code in (200, 201), made.text
        session = http.get(f"/sessions/{made.json()['session_id']}").json()
    assert session["parent_session_id"] is None


@pytest.mark.parametrize("name", ["session", "session_id"])
def test_empty_session_of_a_run_counts_as_absent_at_rest(server: Serving, name: str) -> None:
    with server.http() as http:
        made = http.post("/runs", json={"agent_name": "echo-agent", "prompt": "hello", name: ""})
    assert made.status_code == 201, made.text
    assert made.json()["session_id"]


@pytest.mark.parametrize("parent", UNNAMED)
def test_unnamed_parent_leaves_the_calling_session_as_the_parent(server: Serving, parent: str) -> None:
    with server.http() as http:
        above = http.post("/sessions", json={}).json()["session_id"]
        calling = {"X-Agent-Session-Id": above}
        made = http.post("/sessions", json={"parent_session_name": parent}, headers=calling).json()
    assert made["parent_session_id"] == above


@pytest.mark.parametrize("parent", UNNAMED)
async def test_unnamed_parent_counts_as_absent_at_graphql(server: Serving, parent: str) -> None:
    async with Client(server.url) as gql:
        made = await gql.data(CREATE, agent="echo-agent", parent=parent)
    assert made["createAgentSession"]["parentSessionId"] is None


async def test_session_of_mcp_names_its_parent(server: Serving) -> None:
    with server.http() as http:
        http.post("/sessions", json={"session_name": "mother"})
    _, told = await mcp_call(server, "start_agent_session", agent="echo-agent", prompt="hi", parent="mother")
    assert told["session"]["parent_session_name"] == "mother"


# Names ------------------------------------------------------------------------------------------


async def test_session_is_renamed_at_every_door(server: Serving) -> None:
    with server.http() as http:
        session_id = http.post("/sessions", json={"session_name": "first"}).json()["session_id"]
        rest = http.post("/sessions/first/rename", json={"session_name": "by-rest"}).json()["session_name"]
        taken = http.post("/sessions", json={"session_name": "by-rest"}).json()
        free = http.post("/sessions", json={"session_name": "first"}).status_code
    async with Client(server.url) as gql:
        rename = 'mutation { renameSession(sessionId: "by-rest", sessionName: "by-graphql") { sessionName } }'
        graph = (await gql.data(rename))["renameSession"]["sessionName"]
    async with grpc.aio.insecure_channel(server.grpc_place) as channel:
        arguments = json.dumps({"session_id": "by-graphql", "session_name": "by-grpc"})
        asked = sp.CallOperationRequest(operation="rename", arguments=arguments)
        called_by_grpc = json.loads((await Stubs(channel).sessions.CallOperation(asked)).answer)["session_name"]
    _, told = await mcp_call(server, "rename_session", session_id="by-grpc", session_name="by-mcp")
    with sync.connect(server.url) as moor:
        last = moor.rename("by-mcp", None)
        names = [entry.data for entry in moor.log(session_id, kinds=["renamed"]).items]
    assert [rest, graph, called_by_grpc] == ["by-rest", "by-graphql", "by-grpc"]
    assert (told["session"]["session_name"], last.session_name) == ("by-mcp", None)
    assert (taken["code"], free, len(names), names[-1]) == ("name_taken", 201, 5, {"from": "by-mcp", "to": None})


# The task ---------------------------------------------------------------------------------------


async def test_metadata_name_the_task_at_every_door(server: Serving) -> None:
    metadata = {"task_id": "T001"}
    with server.http() as http:
        rest = http.post("/sessions", json={"metadata": metadata}).json()["task_id"]
        seed = http.post("/agent-sessions/create", json={"agent_name": "a", "metadata": metadata}).json()["task_id"]
        body = {"agent_name": "echo-agent", "prompt": "hi", "metadata": metadata}
        run = http.post("/runs", json=body).json()["session"]["task_id"]
    async with Client(server.url) as gql:
        graph = (await gql.data(CREATE, agent="a", meta=metadata))["createAgentSession"]["taskId"]
    async with grpc.aio.insecure_channel(server.grpc_place) as channel:
        made = await Stubs(channel).sessions.CreateSession(sp.CreateSessionRequest(metadata=json.dumps(metadata)))
    _, told = await mcp_call(server, "start_agent_session", agent="echo-agent", prompt="hi", metadata=metadata)
    assert [rest, seed, run, graph, made.session.task_id, told["session"]["task_id"]] == ["T001"] * 6


def test_task_that_is_given_wins_and_odd_metadata_are_no_task(server: Serving) -> None:
    with server.http() as http:
        given = http.post("/sessions", json={"task_id": "T2", "metadata": {"task_id": "T1"}}).json()
        odd = [http.post("/sessions", json={"metadata": {"task_id": value}}).json() for value in (5, "", "a\nb", None)]
    assert given["task_id"] == "T2"
    assert all(session["task_id"] == session["session_id"] for session in odd)


# Problems ---------------------------------------------------------------------------------------


async def test_problems_of_an_agent_are_seen_at_every_door(server: Serving) -> None:
    with server.http() as http:
        run = http.post("/runs", json={"agent_name": "misspeaking", "prompt": "hi", "wait": PATIENCE}).json()["run"]
        page = http.get(f"/sessions/{run['session_id']}/events", headers={"Accept": "application/json"}).json()
    assert run["problems"] == 32
    found = [event["data"] for event in page["items"] if event["type"] == "problem"]
    assert (found[0]["line"], found[0]["field"]) == (1, "content[0].call_id")
    async with Client(server.url) as gql, gql.sse(EVENTS, id=run["session_id"]) as sse:
        sent = await gql.data(SEND, id=run["session_id"], text="again")
        assert sent["sendMessageToSession"]["run"]["problems"] == 32
        while (await sse.next())["data"]["agentSessionEvents"]["type"] != "problem":
            pass
    _, told = await mcp_call(server, "get_agent_session_status", session_id=run["session_id"])
    assert told["run"]["problems"] == 32
    async with grpc.aio.insecure_channel(server.grpc_place) as channel:
        asked = sp.SendMessageRequest(session=run["session_id"], content="again", wait_seconds=PATIENCE)
        assert (await Stubs(channel).sessions.SendMessage(asked)).problems == 32


# The log ----------------------------------------------------------------------------------------


async def test_each_task_has_one_line_with_its_id_size_and_session_and_never_its_input(server: Serving) -> None:
    async with grpc.aio.insecure_channel(server.grpc_place) as channel:
        asked = pb.TaskRequest(task_id="task-7", agent_id="echo-agent", input=SECRET[:5], session_id="lined")
        await Stubs(channel).agents.ExecuteTask(asked)
        asked.task_id = "task-8"
        [chunk async for chunk in Stubs(channel).agents.StreamTask(asked)]
    await mcp_call(server, "echo-agent", input="hello", session_id="lined-by-mcp")
    lines = [line for line in map(json.loads, server.log().splitlines()) if "Received task" in line["message"]]
    told = [line["message"] for line in lines if "lined" in line["message"]]
    assert told == [
        "Received task: task-7 - Input: 5 characters - Session: lined",
        "Received task: task-8 - Input: 5 characters - Session: lined",
        "Received task: none - Input: 5 characters - Session: lined-by-mcp",
    ]
    assert {line["level"] for line in lines} == {"info"}


async def test_sample_logs_tasks_as_well(tmp_path: Path) -> None:
    with sample_process("echo-agent", tmp_path) as sample:
        async with grpc.aio.insecure_channel(sample.place) as channel:
            asked = pb.TaskRequest(task_id="t", agent_id="echo-agent", input=SECRET)
            await Stubs(channel).agents.ExecuteTask(asked)
        line = until(lambda: [line for line in sample.said if "Received task" in line])[0]
    assert "Received task: t - Input: 22 characters - Session: none" in line
    assert not any(SECRET in line for line in sample.said)


async def test_messages_are_never_logged_at_any_level(server: Serving) -> None:
    with server.http() as http:
        made = http.post("/runs", json={"agent_name": "echo-agent", "prompt": SECRET, "wait": PATIENCE}).json()
        session_id = made["session"]["session_id"]
        assert SECRET in made["run"]["result"]
        http.post(f"/sessions/{session_id}/messages", json={"content": SECRET, "wait": PATIENCE})
        http.post(f"/agent-sessions/{session_id}/messages", json={"message": SECRET, "stream": True})
        http.put(f"/sessions/{session_id}/context/x", json=SECRET)
        assert http.get("/search", params={"q": SECRET}).json()["items"]
        http.post("/sessions", content=json.dumps({"purpose": SECRET})[:-2])  # no JSON: refused
        http.post("/runs", json={"agent_name": "misspeaking", "prompt": SECRET, "wait": PATIENCE})
        with http.stream("GET", f"/sessions/{session_id}/events", headers=STREAM) as stream:
            assert next(line for line in stream.iter_lines() if SECRET in line)
    async with AsyncExitStack() as stack:
        gql = await stack.enter_async_context(Client(server.url))
        await gql.data(SEND, id=session_id, text=SECRET)
        socket = await stack.enter_async_context(gql.socket())
        await socket.subscribe("1", EVENTS, id=session_id)
        sse = await stack.enter_async_context(gql.sse(EVENTS, id=session_id))
        while SECRET not in json.dumps(await sse.next()):
            pass
        while SECRET not in json.dumps(await socket.hear()):
            pass
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.grpc_place))
        asked = pb.TaskRequest(agent_id="echo-agent", input=SECRET, session_id="told")
        assert SECRET in (await Stubs(channel).agents.ExecuteTask(asked)).output
        [chunk async for chunk in Stubs(channel).agents.StreamTask(asked)]
        watched = Stubs(channel).sessions.WatchSession(sp.WatchSessionRequest(session=session_id, no_follow=True))
        assert SECRET in "".join([each.event.data async for each in watched])
    for version in (OLD, NEW):
        _, told = await mcp_call(server, "echo-agent", version, input=SECRET, session_id="told-by-mcp")
        assert SECRET in told["output"]
        await mcp_call(server, "send_message", version, session_id=session_id, message=SECRET)
        await mcp_call(server, "search_sessions", version, query=SECRET)
        await mcp_call(server, "send_message", version, session_id=session_id, mesage=SECRET)
    log = server.log()
    assert '"level":"debug"' in log
    assert [line for line in log.splitlines() if SECRET in line] == []


def test_mcp_logs_tasks_without_messages(tmp_path: Path) -> None:
    with talking(tmp_path, MOORAGE_URL=f"sqlite:///{tmp_path}/m.db") as talk:
        assert SECRET in said(talk.ask(called(1, "echo-agent", input=SECRET, session_id="s")))
        talk.ask(called(2, "echo-agent", inputs=SECRET))
        _, errors = talk.process.communicate(timeout=PATIENCE)
    assert "Received task: none - Input: 22 characters - Session: s" in errors.decode()
    assert SECRET not in errors.decode()


# Calls of agents that ask a person --------------------------------------------------------------


def pending(server: Serving, session: str) -> str:
    """The id of the only open question of a session."""
    with server.http() as http:
        [approval] = http.get("/approvals", params={"session": session}).json()["items"]
    return str(approval["approval_id"])


async def test_call_by_grpc_of_an_agent_that_asks_a_person_says_which_question_waits(server: Serving) -> None:
    request = pb.TaskRequest(agent_id="choosing", input="hi", session_id="asks-grpc")
    async with grpc.aio.insecure_channel(server.grpc_place) as channel:
        call: Any = Stubs(channel).agents.ExecuteTask(request, timeout=PATIENCE)
        answer, trailing = await call, dict(list(await call.trailing_metadata()))
    approval_id = pending(server, "asks-grpc")
    waits = {"reason": "waiting_for_approval", "approval_id": approval_id}
    assert not answer.success
    assert answer.error == f"the run waits for an answer to approval {approval_id} (waiting_for_approval)"
    assert json.loads(answer.metadata["because"]) == waits
    assert (trailing["moorage-because"], json.loads(trailing["moorage-because-facts"])) == (waits["reason"], waits)


async def test_stream_by_grpc_of_an_agent_that_asks_a_person_says_which_question_waits(server: Serving) -> None:
    request = pb.TaskRequest(agent_id="choosing", input="hi", session_id="asks-stream")
    async with grpc.aio.insecure_channel(server.grpc_place) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in Stubs(channel).agents.StreamTask(request, timeout=PATIENCE):
                pass
    trailing: dict[str, Any] = dict(list(caught.value.trailing_metadata()))
    waits = {"reason": "waiting_for_approval", "approval_id": pending(server, "asks-stream")}
    assert (trailing["error-code"], json.loads(trailing["error-bin"])["because"]) == ("agent_failed", waits)
    assert (trailing["moorage-because"], json.loads(trailing["moorage-because-facts"])) == (waits["reason"], waits)


async def test_call_by_mcp_of_an_agent_that_asks_a_person_says_which_question_waits(server: Serving) -> None:
    failed, told = await mcp_call(server, "choosing", input="hi", session_id="asks-mcp")
    approval_id = pending(server, "asks-mcp")
    assert (failed, told["success"]) == (True, False)
    assert told["error"] == f"the run waits for an answer to approval {approval_id} (waiting_for_approval)"
    assert told["metadata"]["because"] == {"reason": "waiting_for_approval", "approval_id": approval_id}
