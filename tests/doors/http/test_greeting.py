"""The greeting of a server, on a real terminal."""

import json
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from tests.doors.cli.agent_files import SLOW, define
from tests.doors.cli.talking import CTRL_C, a_talk

SERVE = ("serve", "--port", "0", "--grpc-port", "0", "--store", "memory://")


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MOORAGE_HOME", str(tmp_path))


def addresses(shown: str) -> dict[str, str]:
    """Return the places that a greeting names."""
    return dict(re.findall(r"^    (page|REST|GraphQL|gRPC|MCP) +(\S+)$", shown, re.MULTILINE))


def test_terminal_gets_addresses_and_commands_without_log_lines() -> None:
    with a_talk(*SERVE) as talk:
        shown = talk.wait_for("Ctrl-C ends the server")
        places = addresses(shown)
        assert list(places) == ["page", "REST", "GraphQL", "gRPC", "MCP"]
        assert "<html" in httpx2.get(places["page"], headers={"accept": "text/html"}).text
        assert httpx2.get(places["REST"]).status_code == 200
        assert places["MCP"] == f"{places['page']}mcp"
        assert re.fullmatch(r"127\.0\.0\.1:[1-9]\d+", places["gRPC"])
        talk.type(CTRL_C)
        assert talk.end() == 0
        assert "warning" not in talk.shown
        assert "{" not in talk.shown
        assert "server process" not in talk.shown


def test_command_of_the_greeting_works_as_it_is_shown_and_is_told() -> None:
    with a_talk(*SERVE) as talk:
        shown = talk.wait_for("Ctrl-C ends the server")
        [command] = re.findall(r"^    try +(\S.* --url .*)$", shown, re.MULTILINE)
        asked = subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=60, check=False)
        assert asked.stdout == "Echo Agent Response: hello\n", asked.stderr
        told = talk.wait_for("ended its turn: completed")
        assert re.search(r"^  \d\d:\d\d:\d\d  echo-agent begins a turn  session [0-9a-f]{8}-[0-9a-f]{4}$", told, re.M)


def test_ctrl_c_names_the_agents_that_go_on(tmp_path: Path) -> None:
    define(tmp_path, SLOW)
    database = f"sqlite:///{tmp_path}/x.db"
    with a_talk(*SERVE[:-1], database) as talk:
        page = addresses(talk.wait_for("Ctrl-C ends the server"))["page"]
        wanted = {"agent_name": "slow", "prompt": "x", "mode": "async_poll"}
        session_id = httpx2.post(f"{page}runs", json=wanted).json()["run"]["session_id"]
        talk.wait_for("slow begins a turn")
        httpx2.post(f"{page}runs", json={**wanted, "session_name": "night-watch"}).raise_for_status()
        talk.wait_for("slow begins a turn  session night-watch")
        talk.type(CTRL_C)
        assert talk.end() == 0
        told = f"agents that keep running, for the next start to adopt: slow ({session_id[:13]}), slow (night-watch)"
        assert told in talk.shown
        assert talk.shown.rstrip().endswith("The server has stopped; sessions stay.")


def test_several_workers_greet_once(tmp_path: Path) -> None:
    with a_talk(*SERVE[:-1], f"sqlite:///{tmp_path}/x.db", "--workers", "2") as talk:
        shown = talk.wait_for("Ctrl-C ends the server")
        page = addresses(shown)["page"]
        assert httpx2.get(page, timeout=60).status_code == 200
        talk.type(CTRL_C)
        assert talk.end() == 0
        assert talk.shown.count("Moorage is ready") == 1


def test_ctrl_c_while_workers_still_start_ends_the_server_in_good_order(tmp_path: Path) -> None:
    for _ in range(4):  # at another moment of their start each time
        with a_talk(*SERVE[:-1], f"sqlite:///{tmp_path}/x.db", "--workers", "2") as talk:
            talk.wait_for("Ctrl-C ends the server")
            talk.type(CTRL_C)
            assert talk.end() == 0


def test_json_asked_for_at_a_terminal_is_all_there_is() -> None:
    with a_talk(*SERVE, "--log-format", "json") as talk:
        talk.wait_for("Started server process")
        talk.type(CTRL_C)
        assert talk.end() == 0
        lines = [line for line in talk.shown.replace("^C", "").splitlines() if line]
        assert all(isinstance(json.loads(line), dict) for line in lines)


def test_closed_grpc_is_not_greeted_with() -> None:
    with a_talk(*SERVE[:3], "--no-grpc", *SERVE[5:]) as talk:
        assert "gRPC" not in addresses(talk.wait_for("Ctrl-C ends the server"))


def test_pipe_gets_json_lines_and_no_greeting() -> None:
    command = [sys.executable, "-m", "moorage", *SERVE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout is not None
        try:
            lines = []
            for line in server.stdout:
                lines.append(json.loads(line))
                if "Started server process" in line:
                    server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0
        finally:
            server.kill()
    assert any(re.match(r"Moorage serves memory://.* at http://127.0.0.1:\d+$", line["message"]) for line in lines)
