"""Commands on a server: the same answers and exit codes as on a store."""

from __future__ import annotations

import asyncio
import io
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import moorage
from moorage.doors.cli import app
from tests.doors.cli.running import Cli, Done, a_terminal
from tests.doors.cli.running import run as run_apart
from tests.remote.server import Doors


@pytest.fixture
def cli(address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run a command line in this process, on the server."""
    monkeypatch.setenv("MOORAGE_URL", address)

    def run(*args: str, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = app.run(args)
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return run


def test_a_session_lives_its_life_on_the_command_line(cli: Cli, tmp_path: Path) -> None:
    session = cli("create", "--agent", "architect", "--name", "plan-prod").id
    assert cli("send", "plan-prod", "Plan the change").code == 0
    assert cli("send", session[:8], "Two to add", "--role", "assistant").code == 0
    assert cli("update", "plan-prod", "--phase", "planning", "--metadata", '{"a": 1}').code == 0
    assert cli("--json", "get", "plan-prod").json["phase"] == "planning"
    assert [line.split("\t")[0] for line in cli("list").lines] == [session]
    assert cli("context", "set", "plan-prod", "tone", '"dry"').code == 0
    assert cli("--json", "context", "get", "plan-prod").json == {"tone": "dry"}
    assert cli("should-resume", "plan-prod").code == 0
    assert cli("suspend", "plan-prod", "--reason", "lunch").code == 0
    assert cli("resume", "plan-prod").code == 0
    assert len(cli("log", "plan-prod").lines) > 4
    assert len(cli("watch", "plan-prod", "--once").lines) == len(cli("log", "plan-prod").lines)
    asked = cli("--json", "request-approval", "plan-prod", "Apply?").json["approval_id"]
    assert cli("approve", asked).code == 0
    assert cli("search", "change").code == 0
    assert cli("tree", "plan-prod").code == cli("stats").code == cli("audit").code == cli("runs").code == 0
    file = tmp_path / "out.jsonl"
    assert cli("export", "plan-prod", "--output", str(file)).code == 0
    assert cli("finalize", "plan-prod", "completed").code == 0
    assert cli("send", "plan-prod", "late").code == 4
    assert cli("import", str(file)).lines == []
    assert cli("delete", session, "--yes").code == 0
    assert cli("get", session).code == 3
    assert cli("get", "nobody").code == 3


def test_prompt_is_answered_once(cli: Cli, address: str, doors: Doors) -> None:
    doors.launching(address)
    done = cli("run", "echo-agent", "hello there", "--timeout", "60")
    assert (done.code, done.out.count("hello there")) == (0, 1), done
    asked = cli("--json", "run", "echo-agent", "later", "--mode", "async_poll").json["run"]["run_id"]
    assert cli("result", asked, "--wait", "60s").out.count("later") == 1
    assert cli("run", "no-such-agent", "hello").code == 3


def test_resume_with_a_prompt_asks_an_agent_that_only_the_server_knows(
    cli: Cli, address: str, doors: Doors, tmp_path: Path
) -> None:
    doors.launching(address)
    defined = '[agent]\nname = "counter"\nkind = "command"\ncommand = ["wc", "-w"]\n'
    assert cli("agents", "add", "-", stdin=defined.encode()).code == 0
    session, stranger = cli("create", "--agent", "counter").id, cli("create", "--agent", "nobody").id
    elsewhere = {"MOORAGE_HOME": str(tmp_path / "elsewhere")}
    done = run_apart("resume", session, "one two three", "--url", address, env=elsewhere)
    assert (done.code, done.out.strip()) == (0, "3"), done
    assert run_apart("resume", stranger, "hello", "--url", address, env=elsewhere).code == 3


async def test_follower_of_a_run_gets_its_output(address: str, doors: Doors) -> None:
    await asyncio.to_thread(doors.launching, address)
    heard: list[tuple[str, str]] = []
    async with moorage.connect(address) as moor, asyncio.timeout(60):
        reply = await moor.run(
            "echo-agent",
            "hello",
            parent=None,
            on_event=lambda _, event: heard.append((event["type"], str(event.get("text", "")).strip())),
        )
    assert reply.status == "completed"
    assert heard[0][0] == "asked"
    assert [text for kind, text in heard if kind == "chunk"] == [str(reply.result).strip()]


def test_dead_address_is_exit_code_5_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    began = time.monotonic()
    for command in ("list", "doctor"):
        assert app.run([command, "--url", f"http://127.0.0.1:{port}"]) == 5
    assert time.monotonic() - began < 10


def test_keys_are_made_listed_and_revoked(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    made = cli("--json", "keys", "create", "--scope", "admin", "--scope", "read").json
    monkeypatch.setenv("MOORAGE_KEY", made["text"])
    assert [line.split("\t")[0] for line in cli("keys", "list").lines] == [made["key_id"]]
    other = cli("--json", "keys", "create").json["key_id"]
    monkeypatch.setenv("MOORAGE_KEY", made["text"])  # each command takes it out of its environment
    assert cli("keys", "revoke", other).code == 0


def test_ctrl_c_ends_a_watch_as_it_does_on_a_store(address: str) -> None:
    command = [sys.executable, "-m", "moorage", "--url", address, "watch", "s-1", "--after", "0"]
    assert run_apart("--url", address, "create", "--session-id", "s-1").code == 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        assert "created" in watch.stdout.readline()
        time.sleep(0.2)  # it waits for the next one by now, or interrupting it is easy
        watch.send_signal(signal.SIGINT)
        _, err = watch.communicate(timeout=60)
    assert (watch.returncode, err.strip()) == (130, "")


def test_a_definition_that_is_wrong_is_told_with_its_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('[agent]\nname = "x"\nkind = "command"\ncolour = "red"\n')
    done = cli("agents", "add", str(tmp_path / "x.toml"))
    assert done.code == 2
    assert "x.toml, line 4" in done.err


def test_chat_with_an_unknown_agent_creates_nothing(cli: Cli, address: str) -> None:
    with a_terminal() as terminal:
        done = terminal.run("--url", address, "run", "nobody")
    assert done.code == 3, done
    assert cli("list").lines == []


def test_whole_numbers_stay_whole(cli: Cli) -> None:
    usage = '{"usage": {"input_tokens": 100, "output_tokens": 7}}'
    assert cli("create", "--agent", "architect", "--metadata", usage).code == 0
    told = dict(line.split("\t")[:2] for line in cli("stats").lines)
    assert (told["input_tokens"], told["output_tokens"]) == ("100", "7")


def test_commands_that_need_the_store_refuse_a_server(cli: Cli) -> None:
    for args in (("migrate",), ("hooks", "install", "--local"), ("doctor", "--quarantine")):
        done = cli(*args)
        assert done.code == 2, done
        assert "server" in done.err


def test_the_doctor_tells_of_the_server(cli: Cli, address: str) -> None:
    done = cli("--json", "doctor")
    assert done.code == 0, done
    assert {"url": address, "ok": True, "status": "ok", "launchers": 0}.items() <= done.json.items()


def test_files_of_others_come_in(cli: Cli, tmp_path: Path) -> None:
    data = Path(__file__).parents[1] / "data"
    first = cli("--json", "import", str(data))
    again = cli("--json", "import", str(data))
    assert first.json["imported"]
    assert again.json["imported"] == []
    assert sorted(again.json["already_there"]) == sorted(first.json["imported"])
    here = run_apart("--json", "--url", f"sqlite:///{tmp_path / 'here.db'}", "import", str(data))
    assert here.json == first.json


def test_a_plain_question_is_answered_by_a_process(cli: Cli, address: str) -> None:
    session = cli("create", "--agent", "architect").id
    done = run_apart("should-resume", session, "--json", "--url", address)
    assert done.json["session_id"] == session, done


def test_a_store_on_this_machine_needs_no_http_client(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom moorage.doors.cli.app import run\n"
        f"run(['list', '--url', 'sqlite:///{tmp_path}/x.db'])\n"
        "print(sorted({'httpx2', 'asyncio', 'moorage.remote.client'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
