"""Status, what a session waits for, and retrying a failed run: the same at every door of a real server."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import httpx2
import pytest

import moorage
from moorage.executor import AgentExecutor
from moorage.protobuf import agent_platform_pb2 as ap
from moorage.protobuf import sessions_pb2 as sp
from tests.doors.graphql.client import Client
from tests.doors.grpc.serving import Stubs
from tests.doors.http.process import Process, starting, until
from tests.doors.mcp.ways import NEW, client, define
from tests.doors.test_every_door import PATIENCE, Serving, mcp_call

MOORAGE = f"{shlex.quote(sys.executable)} -m moorage"
FLAKY = 'read name; test -e "$MOORAGE_HOME/$name" && echo fixed'
NARROW = "read name; " + 'while [ ! -e "$MOORAGE_HOME/$name" ]; do sleep 0.05; done; echo "$name"'
SLEEPER = 'while [ ! -e "$MOORAGE_HOME/go" ]; do sleep 0.05; done; echo slept'
MOTHER = f"""
if [ -e "$MOORAGE_HOME/asked" ]; then echo done; exit 0; fi
touch "$MOORAGE_HOME/asked"
{MOORAGE} run sleeper hi --mode async_callback --json
"""
WRONG = """printf '%s\\n' '{"type":"phase","phase":"plannign"}' '{"type":"result","text":"fine"}'"""
ASKING = """read job
echo '{"type":"approval","id":"1","question":"Apply it?","wait":true}'
read answer
echo '{"type":"result","text":"done"}'"""
SESSION = "query ($id: ID!) { agentSession(sessionId: $id) { status waitingFor { child { sessionId runId } } } }"
SEND = """mutation ($id: ID!) {
  sendMessageToSession(sessionId: $id, message: "go", wait: 0) { run { because { reason } } }
}"""
RETRY = "mutation ($id: ID!) { retryRun(runId: $id) { runId retryOf } }"
DOORS = ("rest", "graphql", "grpc", "mcp", "mcp by session", "python", "cli", "cli by session")


def serving(process: Process, home: Path) -> Serving:
    """A server with all of its doors open."""
    port = until(lambda: re.search(r"gRPC at \S+ port (\d+)", process.log.read_text()))[1]
    return Serving(process, home, process.url, urlsplit(process.url).port or 0, f"127.0.0.1:{port}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("status")
    scripts = {"flaky": FLAKY, "sleeper": SLEEPER, "mother": MOTHER, "narrow": NARROW, "wrong": WRONG}
    scripts |= {"asking": ASKING, "endless": "exec sleep 600"}
    settings = {"narrow": "max_concurrent = 1", "wrong": 'protocol = "jsonl"', "asking": 'protocol = "jsonl"'}
    for name, script in scripts.items():
        command = f'command = ["sh", "-c", {json.dumps(script)}]'
        define(folder / "home", f'[agent]\nname = "{name}"\nkind = "command"\n{settings.get(name, "")}\n{command}\n')
    with starting(folder) as begin:
        yield serving(begin(), folder / "home")


def ask(http: httpx2.Client, agent: str, prompt: str) -> dict[str, Any]:
    answer: dict[str, Any] = http.post(
        "/runs", json={"agent_name": agent, "prompt": prompt, "mode": "async_poll"}
    ).json()
    return answer


def come_to(http: httpx2.Client, session_id: str, status: str) -> dict[str, Any]:
    """The session, once it has that status."""

    def look() -> dict[str, Any] | None:
        session: dict[str, Any] = http.get(f"/sessions/{session_id}").json()
        return session if session["status"] == status else None

    return until(look)


def cli(server: Serving, *arguments: str) -> Any:
    command = [sys.executable, "-m", "moorage", "--url", server.url, "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return json.loads(done.stdout)


async def retry(server: Serving, http: httpx2.Client, door: str, run_id: str, session_id: str) -> tuple[str, str]:
    """Retry a run; the new one, and which run it repeats."""
    if door == "rest":
        made = http.post(f"/runs/{run_id}/retry").json()
        return made["run_id"], made["retry_of"]
    if door == "graphql":
        async with Client(server.url) as gql:
            made = (await gql.data(RETRY, id=run_id))["retryRun"]
        return made["runId"], made["retryOf"]
    if door == "grpc":
        async with grpc.aio.insecure_channel(server.grpc_place) as channel:
            told = (await Stubs(channel).sessions.RetryRun(sp.RetryRunRequest(run_id=run_id))).run
        return told.run_id, told.retry_of
    if door.startswith("mcp"):
        asked = {"run_id": run_id} if door == "mcp" else {"session_id": session_id}
        failed, told = await mcp_call(server, "retry_run", NEW, wait_seconds=30, **asked)
        assert (failed, told["run"]["result"]) == (False, "fixed")
        return told["run"]["run_id"], told["run"]["retry_of"]
    if door == "python":
        async with moorage.connect(server.url) as moor:
            run = await moor.retry(run_id)
        return run.run_id, str(run.retry_of)
    made = cli(server, "retry", run_id if door == "cli" else session_id)
    assert (made["state"], made["result"]) == ("completed", "fixed")
    return made["run_id"], made["retry_of"]


@pytest.mark.parametrize("door", DOORS)
async def test_failed_run_shows_and_is_retried(server: Serving, door: str) -> None:
    flag = door.replace(" ", "-")
    with server.http() as http:
        asked = ask(http, "flaky", flag)
        session_id, run_id = asked["session"]["session_id"], asked["run"]["run_id"]
        last = come_to(http, session_id, "run_failed")["last_run"]
        assert (last["id"], last["state"], last["reason"]) == (run_id, "failed", "agent_failed")
        listed = http.get("/sessions", params={"status": "run_failed"}).json()["items"]
        assert session_id in [each["session_id"] for each in listed]

        (server.home / flag).touch()
        again, retry_of = await retry(server, http, door, run_id, session_id)
        assert retry_of == run_id
        assert http.get(f"/runs/{again}/result", params={"wait": 30}).json()["result"] == "fixed"
        assert come_to(http, session_id, "idle")["last_run"]["id"] == again
        assert http.post(f"/runs/{run_id}/retry").json()["run_id"] == again
        refused = http.post(f"/runs/{again}/retry")
        assert (refused.status_code, refused.json()["code"]) == (409, "run_not_failed")


async def test_parent_that_waits_for_its_child_says_so_at_every_door(server: Serving) -> None:
    with server.http() as http:
        asked = ask(http, "mother", "go")
        session_id, run_id = asked["session"]["session_id"], asked["run"]["run_id"]
        session = come_to(http, session_id, "waiting")
        [child] = http.get(f"/sessions/{session_id}/children").json()["items"]
        named = session["waiting_for"]["child"]
        assert named["session_id"] == child["session_id"]
        assert session["because"]["reason"] == "waiting_for_child"
        run = http.get(f"/runs/{run_id}").json()
        assert (run["state"], run["because"]["reason"]) == ("queued", "waiting_for_child")
        assert "moorage_queued_turns 0.0" in http.get("/metrics").text

        async with Client(server.url) as gql:
            told = (await gql.data(SESSION, id=session_id))["agentSession"]
        assert (told["status"], told["waitingFor"]["child"]["runId"]) == ("WAITING", named["run_id"])
        async with grpc.aio.insecure_channel(server.grpc_place) as channel:
            seen = (await Stubs(channel).sessions.GetSession(sp.GetSessionRequest(session=session_id))).session
        assert (seen.status, seen.waiting_for.child.run_id) == ("waiting", named["run_id"])
        async with moorage.connect(server.url) as moor:
            mine = await moor.get(session_id)
        assert (mine.status, mine.waiting_for and mine.waiting_for.child.run_id) == ("waiting", named["run_id"])  # type: ignore[union-attr]
        _, brief = await mcp_call(server, "get_agent_session_status", NEW, session_id=session_id)
        assert '"waiting_for_child"' in json.dumps(brief)
        [line] = cli(server, "list", "--status", "waiting")["items"]
        assert line["session_id"] == session_id

        (server.home / "go").touch()
        assert http.get(f"/runs/{run_id}/result", params={"wait": 30}).json()["result"] == "done"
        come_to(http, session_id, "idle")


async def test_missing_launcher_is_reported_at_once(tmp_path: Path) -> None:
    with starting(tmp_path) as begin:
        process = begin("--no-launcher")
        url = process.url
        with httpx2.Client(base_url=url, timeout=PATIENCE) as http:
            asked = ask(http, "echo-agent", "hello")
            assert asked["run"]["because"]["reason"] == "no_launcher"
            session_id = asked["session"]["session_id"]
            session = http.get(f"/sessions/{session_id}").json()
            assert (session["status"], session["because"]["reason"]) == ("queued", "no_launcher")
        async with client(f"http {NEW}", tmp_path / "home", urlsplit(url).port or 0) as mcp:
            told = (await mcp.call_tool("get_agent_session_result", {"session_id": session_id})).structured_content
        assert (told["status"], told["because"]["reason"]) == ("queued", "no_launcher")
        async with moorage.connect(url) as moor:
            sent = await moor.send(session_id, "more")
            turn = await AgentExecutor(moor).execute_single_turn(None, "x", session_id=session_id, timeout=0.2)
        assert [each and each.reason for each in (sent.because, turn.because)] == ["no_launcher"] * 2


def test_run_that_no_launcher_takes_ends_without_a_request(tmp_path: Path) -> None:
    with starting(tmp_path) as begin:
        process = begin("--no-launcher")
        with httpx2.Client(base_url=process.url, timeout=PATIENCE) as http:
            parent = http.post("/sessions", json={"agent_name": "echo-agent"}).json()["session_id"]
            wanted = {"agent_name": "echo-agent", "prompt": "p", "expires_in": 0.3}
            child = http.post("/runs", json={**wanted, "parent": parent, "mode": "async_callback"}).json()["run"]
            with sqlite3.connect(next(tmp_path.rglob("moorage.db"))) as db:  # no request reaches the server
                until(lambda: db.execute("SELECT 1 FROM inbox WHERE kind = 'callback'").fetchone())
            assert http.get(f"/runs/{child['run_id']}").json()["state"] == "expired"
            [item] = http.get("/inbox", params={"session": parent}).json()["items"]
            assert (item["kind"], item["body"]["outcome"]) == ("callback", "expired")
            other = http.post("/runs", json=wanted).json()["run"]
            waited = http.get(f"/runs/{other['run_id']}/result", params={"wait": PATIENCE}).json()
            assert (waited["state"], waited["reason"]) == ("expired", "expired")


# A launcher that takes a turn and falls silent ----------------------------------------------------

SILENCE = "query ($id: ID!) { agentSession(sessionId: $id) { because { reason by since until } } }"


def fall_silent(http: httpx2.Client, session_id: str) -> str:
    """Take the turn of a session, say that its agent is started, and nothing any more; who does so."""
    launcher_id = str(http.post("/launchers", json={"name": "frozen", "slots": 1}).json()["launcher_id"])
    wish = {"agents": {"echo-agent": "resume"}, "lease": 0.05, "lost_after": 600}
    [taken] = http.post(f"/launchers/{launcher_id}/claim", json=wish).json()["turns"]
    turn = taken["turn"]
    assert turn["session_id"] == session_id
    started = http.post(f"/turns/{turn['turn_id']}/entries", json={"epoch": turn["epoch"], "started": True})
    assert started.status_code == 200
    return launcher_id


async def test_turn_of_a_silent_launcher_shows_as_unresponsive_at_every_door(tmp_path: Path) -> None:
    with starting(tmp_path) as begin:
        server = serving(begin("--no-launcher"), tmp_path / "home")
        with server.http() as http:
            asked = ask(http, "echo-agent", "hello")
            session_id, run_id = asked["session"]["session_id"], asked["run"]["run_id"]
            launcher_id = fall_silent(http, session_id)
            because = until(lambda: http.get(f"/sessions/{session_id}").json()["because"])
            assert (because["reason"], because["by"]) == ("unresponsive", f"launcher:{launcher_id}")
            assert because["since"] < because["until"]
            assert http.get(f"/runs/{run_id}").json()["because"] == because
            assert http.get("/runs").json()["items"][0]["because"] == because
            [listed] = http.get("/sessions").json()["items"]
            assert (listed["status"], listed["because"]) == ("running", because)
            again = http.post(f"/sessions/{session_id}/messages", json={"content": "again"}).json()
            assert again["run"]["because"] == because

        async with Client(server.url) as gql:
            told = (await gql.data(SILENCE, id=session_id))["agentSession"]["because"]
        assert told == {**{name: because[name] for name in ("by", "since", "until")}, "reason": "UNRESPONSIVE"}
        async with grpc.aio.insecure_channel(server.grpc_place) as channel:
            seen = (await Stubs(channel).sessions.GetSession(sp.GetSessionRequest(session=session_id))).session
        assert (seen.because.reason, seen.because.since.ToJsonString()) == ("unresponsive", because["since"])
        async with moorage.connect(server.url) as moor:
            mine = (await moor.get(session_id)).because
        assert mine is not None
        assert mine.is_silence
        _, brief = await mcp_call(server, "get_agent_session_status", NEW, session_id=session_id)
        assert because["since"] in json.dumps(brief)
        assert cli(server, "get", session_id)["because"] == because


# A busy launcher is reported at once -------------------------------------------------------------


async def told_by_rest(server: Serving, session_id: str, path: str) -> str:
    """The reason that the first line of a stream has."""
    async with httpx2.AsyncClient(base_url=server.url, timeout=PATIENCE) as http:
        body = {"content": "go", "stream": True}
        async with http.stream("POST", f"{path}/{session_id}/messages", json=body) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    told = json.loads(line.removeprefix("data: "))
                    return str(told["reason"] if path == "/sessions" else told["data"]["because"]["reason"])
    raise AssertionError("the stream has no data")


async def told_by_grpc(server: Serving, session_id: str, method: str) -> str:
    """The reason in the metadata that comes before the answer; grpcio shows that of a unary call at its end."""
    async with grpc.aio.insecure_channel(server.grpc_place) as channel:
        stubs = Stubs(channel)
        if method == "SendMessage":
            call = stubs.sessions.SendMessage(sp.SendMessageRequest(session=session_id, content="go", wait_seconds=0.1))
        else:
            call = stubs.agents.StreamTask(ap.TaskRequest(agent_id="narrow", input="go", session_id=session_id))
        metadata = dict(list(await call.initial_metadata()))  # with 1.72.1, dict() asks it for keys and gets pairs
        call.cancel()
        return str(metadata.get("moorage-because"))


async def told_by_mcp(server: Serving, session_id: str, tool: str) -> str:
    """The first word of progress."""
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.put_nowait(message or "")

    asked = {"input": "go"} if tool == "narrow" else {"message": "go", "wait_seconds": PATIENCE}
    async with client(f"http {NEW}", server.home, server.port) as mcp:
        calling = asyncio.create_task(mcp.call_tool(tool, {"session_id": session_id, **asked}, progress_callback=hear))
        try:
            return await heard.get()
        finally:
            calling.cancel()
            await asyncio.wait([calling])


@pytest.mark.parametrize(
    ("tell", "how"),
    [
        (told_by_rest, "/sessions"),
        (told_by_rest, "/agent-sessions"),
        (told_by_grpc, "SendMessage"),
        (told_by_grpc, "StreamTask"),
        (told_by_mcp, "send_message"),
        (told_by_mcp, "narrow"),
    ],
)
async def test_busy_launcher_is_told_at_once_on_every_stream(server: Serving, tell: Any, how: str) -> None:
    flag = f"narrow-{how.replace('/', '-')}"
    with server.http() as http:
        first = ask(http, "narrow", flag)
        come_to(http, first["session"]["session_id"], "running")
        waiting = http.post("/sessions", json={"agent_name": "narrow"}).json()["session_id"]
        async with asyncio.timeout(PATIENCE):
            assert "launcher_busy" in await tell(server, waiting, how)
        http.post(f"/sessions/{waiting}/stop")
        (server.home / flag).touch()
        assert http.get(f"/runs/{first['run']['run_id']}/result", params={"wait": 30}).json()["state"] == "completed"


async def test_graphql_says_at_once_why_an_answer_has_not_begun(server: Serving) -> None:
    with server.http() as http:
        session_id = http.post("/sessions", json={"agent_name": "narrow"}).json()["session_id"]
        async with Client(server.url) as gql:
            sent = (await gql.data(SEND, id=session_id))["sendMessageToSession"]
        assert sent["run"]["because"]["reason"] == "LAUNCHER_BUSY"
        http.post(f"/sessions/{session_id}/stop")


@pytest.mark.parametrize("path", ["/sessions", "/agent-sessions"])
def test_line_that_does_not_validate_is_shown_on_every_stream(server: Serving, path: str) -> None:
    with server.http() as http:
        session_id = http.post("/sessions", json={"agent_name": "wrong"}).json()["session_id"]
        told = http.post(f"{path}/{session_id}/messages", json={"content": "go", "stream": True}).text
        assert http.get("/runs", params={"session": session_id}).json()["items"][0]["problems"] == 1
    assert "plannign" in told
    if path == "/agent-sessions":
        [problem] = [line for line in map(read_line, told.splitlines()) if line["type"] == "problem"]
        assert problem["data"]["content"].startswith("line 1, field phase: expected one of initializing, ")


def read_line(line: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(line.removeprefix("data: "))
    return told


# A question of an agent at work ends every wait ----------------------------------------------------


async def asked_by(server: Serving, door: str, session_id: str) -> str:
    """The reason that a door gives, having waited for the answer of an agent that asks a person."""
    if door in ("/sessions", "/agent-sessions"):
        with server.http() as http:
            told = http.post(f"{door}/{session_id}/messages", json={"content": "go", "wait": PATIENCE}).json()
        return str((told["run"] if door == "/sessions" else told)["because"]["reason"])
    if door == "graphql":
        async with Client(server.url) as gql:
            told = (await gql.data(SEND.replace("wait: 0", f"wait: {PATIENCE}"), id=session_id))["sendMessageToSession"]
        return str(told["run"]["because"]["reason"]).lower()
    if door == "mcp":
        _, told = await mcp_call(
            server, "send_message", NEW, session_id=session_id, message="go", wait_seconds=PATIENCE
        )
        return str(told["run"]["because"]["reason"])
    if door == "grpc":
        async with grpc.aio.insecure_channel(server.grpc_place) as channel:
            request = sp.SendMessageRequest(session=session_id, content="go", wait_seconds=PATIENCE)
            call = Stubs(channel).sessions.SendMessage(request)
            assert (await call).status == "running"
            return str(dict(list(await call.trailing_metadata())).get("moorage-because"))
    async with moorage.connect(server.url) as moor:
        reply = await moor.run(None, "go", session=session_id, timeout=PATIENCE)
    return "" if reply.run.because is None else reply.run.because.reason.value


@pytest.mark.parametrize("door", ["/sessions", "/agent-sessions", "graphql", "mcp", "grpc", "python"])
async def test_question_of_an_agent_at_work_ends_every_wait(server: Serving, door: str) -> None:
    with server.http() as http:
        session_id = http.post("/sessions", json={"agent_name": "asking"}).json()["session_id"]
        async with asyncio.timeout(PATIENCE / 2):
            assert await asked_by(server, door, session_id) == "waiting_for_approval"
        approval_id = http.get(f"/sessions/{session_id}").json()["waiting_for"]["approval_id"]
        [run] = http.get("/runs", params={"session": session_id}).json()["items"]
        assert (run["state"], run["because"]["approval_id"]) == ("running", approval_id)
        http.post(f"/approvals/{approval_id}/decision", json={"decision": "approve"})
        over = http.get(f"/runs/{run['run_id']}/result", params={"wait": 30}).json()
        assert (over["state"], over["result"], over["because"]) == ("completed", "done", None)


# A holder leaves while a question waits for the end of its hold ------------------------------------

SUSPEND = "mutation ($id: ID!, $token: String) { suspendSession(sessionId: $id, token: $token) { state } }"


async def suspend(server: Serving, http: httpx2.Client, door: str, session_id: str, token: str) -> None:
    if door == "rest":
        assert http.post(f"/sessions/{session_id}/suspend", json={"token": token}).status_code == 200
    elif door == "agent-sessions":
        assert http.post(f"/agent-sessions/{session_id}/suspend", json={"token": token}).status_code == 200
    elif door == "graphql":
        async with Client(server.url) as gql:
            await gql.data(SUSPEND, id=session_id, token=token)
    elif door == "grpc":
        async with grpc.aio.insecure_channel(server.grpc_place) as channel:
            await Stubs(channel).sessions.SuspendSession(sp.SuspendSessionRequest(session=session_id, token=token))
    elif door == "mcp":
        failed, told = await mcp_call(server, "suspend_session", NEW, session_id=session_id, token=token)
        assert not failed, told
    else:
        async with moorage.connect(server.url) as moor:
            await moor.suspend(session_id, token=token)


@pytest.mark.parametrize("door", ["rest", "agent-sessions", "graphql", "grpc", "mcp", "python"])
async def test_question_that_waits_for_a_hold_is_answered_when_the_holder_suspends(server: Serving, door: str) -> None:
    with server.http() as http:
        session_id = http.post("/sessions", json={"agent_name": "echo-agent"}).json()["session_id"]
        held = http.post(f"/sessions/{session_id}/resume", json={"hold": True}).json()["hold"]
        asked = http.post("/runs", json={"session": session_id, "prompt": "hi", "mode": "async_poll", "queue": True})
        run = asked.json()["run"]
        assert run["because"]["reason"] == "held"
        await suspend(server, http, door, session_id, held["token"])
        over = http.get(f"/runs/{run['run_id']}/result", params={"wait": PATIENCE / 2}).json()
        assert (over["state"], over["result"]) == ("completed", "Echo Agent Response: hi")


def test_question_that_waits_for_a_hold_waits_on_when_a_person_suspends(server: Serving) -> None:
    with server.http() as http:
        session_id = http.post("/sessions", json={"agent_name": "echo-agent"}).json()["session_id"]
        http.post(f"/sessions/{session_id}/resume", json={"hold": True})
        asked = http.post("/runs", json={"session": session_id, "prompt": "hi", "mode": "async_poll", "queue": True})
        assert http.post(f"/sessions/{session_id}/suspend", json={}).status_code == 200
        run = http.get(f"/runs/{asked.json()['run_id']}/result", params={"wait": PATIENCE / 2}).json()
        assert (run["state"], run["because"]["reason"]) == ("queued", "suspended")


# A session that is deleted while callers wait for its answer ---------------------------------------

ASK = 'mutation ($id: ID!) { sendMessageToSession(sessionId: $id, message: "go", wait: 30) { run { state } } }'


async def refusal(server: Serving, door: str, session_id: str) -> str:
    """The code of the error that a waiting caller gets."""
    if door == "graphql":
        async with Client(server.url) as gql:
            answer = await gql.http.post("/graphql", json={"query": ASK, "variables": {"id": session_id}})
            return str(answer.json()["errors"][0]["extensions"]["code"])
    if door == "mcp":
        failed, told = await mcp_call(server, "send_message", NEW, session_id=session_id, message="go", wait_seconds=30)
        assert failed
        return str(told["error"]["code"])
    if door == "python":
        async with moorage.connect(server.url) as moor:
            with pytest.raises(moorage.MoorageError) as raised:
                await moor.run(None, "go", session=session_id)
            return raised.value.code
    path, body = {
        "messages": (f"/sessions/{session_id}/messages", {"content": "go", "wait": 30}),
        "agent-sessions": (f"/agent-sessions/{session_id}/messages", {"message": "go", "wait": 30}),
        "runs": ("/runs", {"session": session_id, "prompt": "go", "wait": 30}),
    }[door]
    async with httpx2.AsyncClient(base_url=server.url, timeout=PATIENCE) as http:
        answer = await http.post(path, json=body)
    assert answer.status_code == 410
    return str(answer.json()["code"])


@pytest.mark.parametrize("door", ["messages", "agent-sessions", "runs", "graphql", "mcp", "python"])
async def test_caller_that_waits_is_told_that_the_session_was_deleted(server: Serving, door: str) -> None:
    with server.http() as http:
        session_id = http.post("/sessions", json={"agent_name": "endless"}).json()["session_id"]
        waiting = asyncio.create_task(refusal(server, door, session_id))

        def begun() -> bool:
            return bool(http.get("/runs", params={"session": session_id}).json()["items"])

        await asyncio.to_thread(until, begun)
        http.delete(f"/sessions/{session_id}", params={"force": "true"})
        assert await waiting == "session_gone"
