"""`moorage mcp`: how it starts, which server it finds, and what it does when one goes away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from moorage import config, sync
from tests.doors.http.server import free_port
from tests.doors.mcp.ways import NEW, OLD, PATIENCE, SLOW, define, environment, server_process

# All that the bridge may load besides the standard library's small change; nothing of this may grow unnoticed.
OURS = {
    *("", ".clocks", ".config", ".connecting", ".client", ".ports", ".core", ".doors", ".doors.start", ".doors.cli"),
    *(".doors.cli.main", ".doors.cli.edge", ".service", ".service.deps", ".doors.mcp"),
    *(".doors.mcp.stdio", ".doors.mcp.bridge"),
}
HEAVY = {"asyncio", "click", "rich", "mcp", "pydantic", "anyio", "starlette", "uvicorn", "httpx2", "http.client", "ssl"}
_LOADED = """
import os, sys
def tell(code): sys.stderr.write(' '.join(sys.modules)); sys.stderr.flush(); leave(code)
leave, os._exit = os._exit, tell
sys.argv[1:] = ["mcp"]
from moorage.doors.cli.main import main
tell(main())
"""
META = {
    "io.modelcontextprotocol/protocolVersion": NEW,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}


def modern(number: int, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": META}}


def called(number: int, name: str, **arguments: Any) -> dict[str, Any]:
    return modern(number, "tools/call", name=name, arguments=arguments)


HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


class Talk:
    """A `moorage mcp`, spoken to line by line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def say(self, message: dict[str, Any] | bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write((message if isinstance(message, bytes) else json.dumps(message).encode()) + b"\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "it ended"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        self.say(message)
        return self.hear()


@contextmanager
def talking(home: Path, *arguments: str, **env: str) -> Iterator[Talk]:
    command = [sys.executable, "-m", "moorage", "mcp", *arguments]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment(home, **env))
    try:
        yield Talk(process)
    finally:
        with process:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()


def at(port: int) -> dict[str, str]:
    """The environment that names a server."""
    return {"MOORAGE_URL": f"http://127.0.0.1:{port}"}


def said(answer: dict[str, Any]) -> str:
    text: str = answer["result"]["content"][0]["text"]
    return text


def test_the_bridge_loads_next_to_nothing(tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(config.__file__).parents[1]), *sys.path[1:]])
    with server_process(tmp_path) as server:
        env = environment(tmp_path, PYTHONPATH=path, MOORAGE_URL=f"http://127.0.0.1:{server.port}")
        command = [sys.executable, "-S", "-c", _LOADED]
        asked = json.dumps(modern(1, "tools/list")).encode() + b"\n"
        done = subprocess.run(command, input=asked, capture_output=True, env=env, check=True)
    assert json.loads(done.stdout)["result"]["tools"]
    loaded = set(done.stderr.decode().split())
    assert loaded & HEAVY == set()
    ours = {name.removeprefix("moorage") for name in loaded if name.split(".")[0] == "moorage"}
    assert {name for name in ours if not name.startswith(".core.")} - OURS == set()


def test_a_server_on_the_same_store_is_found_and_one_on_another_is_not(tmp_path: Path) -> None:
    for store, found in ((f"sqlite:///{tmp_path}/moorage.db", True), (f"sqlite:///{tmp_path}/other.db", False)):
        with server_process(tmp_path, "--store", store), talking(tmp_path) as talk:
            assert said(talk.ask(called(1, "echo-agent", input="hi"))) == "Echo Agent Response: hi"
            assert is_bridge(talk.process.pid) is found
        assert list((tmp_path / "servers").iterdir()) == []


def is_bridge(pid: int) -> bool:
    """Whether a process has no store of its own open."""
    files = [str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir() if file.is_symlink()]
    return not any(file.endswith((".db", ".db-wal")) for file in files)


def test_a_server_that_is_gone_or_wants_a_key_is_no_server(tmp_path: Path) -> None:
    store = config.sqlite_url(str(tmp_path / "moorage.db"))
    with server_process(tmp_path) as server:
        server.kill()
    assert list((tmp_path / "servers").iterdir()) != []
    with talking(tmp_path) as talk:
        assert said(talk.ask(called(1, "echo-agent", input="alone"))) == "Echo Agent Response: alone"
        assert not is_bridge(talk.process.pid)
    with sync.connect(store) as moor:
        moor.create_key()
    with server_process(tmp_path), talking(tmp_path) as talk:
        assert said(talk.ask(called(1, "echo-agent", input="alone"))) == "Echo Agent Response: alone"
        assert not is_bridge(talk.process.pid)


def test_a_named_server_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with talking(tmp_path, "--url", f"http://127.0.0.1:{free_port()}") as talk:
        refused = talk.ask(called(1, "list_agents"))
        assert (refused["id"], refused["error"]["code"]) == (1, -32000)
        assert "did not answer" in refused["error"]["message"]


def test_a_key_that_does_not_count_is_said_so(tmp_path: Path) -> None:
    with server_process(tmp_path) as server, talking(tmp_path, MOORAGE_KEY="moor_wrong", **at(server.port)) as talk:
        for asked in (HELLO, called(1, "list_agents")):
            refused = talk.ask(asked)
            assert refused["id"] == asked["id"]
            assert refused["error"]["data"]["code"] == "unauthorized"


@pytest.mark.timeout(180)
def test_a_client_does_not_notice_that_the_server_was_restarted(tmp_path: Path) -> None:
    port = free_port()
    with talking(tmp_path, "--url", f"http://127.0.0.1:{port}") as talk:
        ask = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "echo-agent"}}
        for attempt in (1, 2):
            with server_process(tmp_path, "--port", str(port)) as server:
                if attempt == 1:
                    assert talk.ask(HELLO)["result"]["protocolVersion"] == OLD
                    talk.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
                arguments = {"input": "what did I say?", "session_id": "s"}
                answer = talk.ask({**ask, "id": attempt, "params": {"name": "echo-agent", "arguments": arguments}})
                assert answer["id"] == attempt
                assert ("Remembered: what did I say?" in said(answer)) is (attempt == 2)
                server.kill()


def test_invalid_message_is_refused_and_dropped(tmp_path: Path) -> None:
    with server_process(tmp_path) as server, talking(tmp_path, "--url", f"http://127.0.0.1:{server.port}") as talk:
        _check_refusals(talk)


def test_invalid_message_is_refused_and_dropped_without_a_server(tmp_path: Path) -> None:
    with talking(tmp_path) as talk:
        _check_refusals(talk)


def _check_refusals(talk: Talk) -> None:
    for line, code in ((b"nonsense", -32700), (b"[1, 2]", -32600), (b'"text"', -32600), (b"\xff\xfe", -32700)):
        talk.say(line)
        assert talk.hear()["error"]["code"] == code
    talk.say(b"")
    assert said(talk.ask(called(1, "echo-agent", input="hi"))) == "Echo Agent Response: hi"


@pytest.mark.parametrize("alone", [True, False])
def test_requests_from_a_pipe_are_answered_before_the_end(tmp_path: Path, alone: bool) -> None:
    lines = b"\n".join(json.dumps(called(number, "echo-agent", input=str(number))).encode() for number in (1, 2, 3))
    command = [sys.executable, "-m", "moorage", "mcp"]

    def piped() -> set[str]:
        done = subprocess.run(
            command, input=lines + b"\n", capture_output=True, env=environment(tmp_path), check=True, timeout=PATIENCE
        )
        return {said(json.loads(line)) for line in done.stdout.splitlines()}

    expected = {f"Echo Agent Response: {number}" for number in (1, 2, 3)}
    if alone:
        assert piped() == expected
        return
    with server_process(tmp_path):
        assert piped() == expected


@pytest.mark.timeout(180)
def test_work_goes_on_when_the_server_that_was_asked_stops(tmp_path: Path) -> None:
    define(tmp_path, SLOW)
    with sync.connect(f"sqlite:///{tmp_path}/moorage.db") as moor:
        with server_process(tmp_path) as server, talking(tmp_path, **at(server.port)) as talk:
            talk.say(called(1, "slow", input="go", session_id="slow-1"))
            talk.say(called(2, "start_agent_session", agent="slow", prompt="go", session_id="slow-2"))
            until(lambda: len(moor.runs(state="running").items) == 2)
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(PATIENCE)
            assert {talk.hear()["id"], talk.hear()["id"]} == {1, 2}  # which had no answer
        assert [run.state.value for run in moor.runs().items] == ["running", "running"]
        with server_process(tmp_path):
            for session in ("slow-1", "slow-2"):
                moor.stop(session)
            until(lambda: not moor.runs(open_only=True).items)


def until(is_so: Callable[[], bool]) -> None:
    """Wait for something, not for ever."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.timeout(180)
def test_several_workers_serve_both_eras_and_hear_who_hangs_up(tmp_path: Path) -> None:
    define(tmp_path, SLOW)
    port = free_port()
    store = f"sqlite:///{tmp_path}/moorage.db"
    command = [sys.executable, "-m", "moorage", "serve", "--workers", "2", "--no-grpc", "--port", str(port)]
    with (
        sync.connect(store) as moor,
        subprocess.Popen(command, env=environment(tmp_path), stderr=subprocess.DEVNULL) as many,
    ):
        try:
            with talking(tmp_path, **at(port)) as talk:
                until(lambda: "result" in talk.ask(HELLO))
                for number in range(1, 9):  # whichever of them is asked
                    ask = {"jsonrpc": "2.0", "id": number, "method": "tools/call"}
                    answer = talk.ask({**ask, "params": {"name": "echo-agent", "arguments": {"input": "hi"}}})
                    assert said(answer) == "Echo Agent Response: hi"
                slow = {"name": "slow", "arguments": {"input": "go", "session_id": "old"}}
                talk.say({"jsonrpc": "2.0", "id": 10, "method": "tools/call", "params": slow})
                until(lambda: len(moor.runs(state="running").items) == 1)
                talk.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 10}})
                until(lambda: not moor.runs(open_only=True).items)
            assert [run.state.value for run in moor.runs(session="old").items] == ["stopped"]
        finally:
            many.terminate()
            many.wait(PATIENCE)
