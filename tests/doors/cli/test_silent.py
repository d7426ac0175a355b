"""A client without a server that is killed or frozen in the middle of a turn: what others see, and what they can do.

The client is the launcher. Killed, it leaves proof that nothing of it is left, and its turn ends with the next command.
Frozen, it may wake up: its turn shows as unresponsive until it is given up.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from moorage import config
from moorage.core.turn import Launcher
from moorage.service.inline import drive
from moorage.service.launchers import save_launcher
from tests.doors.cli.agent_files import define
from tests.doors.cli.running import Cli
from tests.doors.cli.talking import CTRL_C, PATIENCE, a_talk
from tests.doors.http.process import until

GATED = """
[agent]
name = "slow"
kind = "command"
command = ["sh", "-c", '''
echo $$ > "$MOORAGE_HOME/agent.pid"
echo "heard: $(head -n 1)"
while [ ! -e "$MOORAGE_HOME/go" ]; do sleep 0.05; done
echo done
''']
"""
# A client whose lease is short: a turn of it shows as unresponsive soon after it is frozen.
CLIENT = """\
import asyncio
from datetime import timedelta
from moorage import config
from moorage.launcher.embedded import Embedded
from moorage.service import runs
from moorage.service.deps import Caller
from moorage.service.sessions import SessionRequest

async def main():
    deps = config.open_deps(None, threaded=True)
    async with Embedded(deps, lambda: config.agents_of(deps), lease=timedelta(seconds=0.5)):
        await runs.start_run(deps, Caller(), "slow", "first", session=SessionRequest(name="unr"))
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def place(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Agents, and a private temporary folder."""
    define(home, GATED)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


def agent_pid(home: Path) -> int:
    file = home / "agent.pid"
    return int(until(lambda: file.read_text().strip() if file.exists() else None))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def a_client(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A client with a turn at work in the session `unr`."""
    with subprocess.Popen([sys.executable, "-c", CLIENT]) as client:
        try:
            agent_pid(home)
            yield client
        finally:
            client.kill()


@contextmanager
def a_frozen_client(home: Path, cli: Cli) -> Iterator[subprocess.Popen[bytes]]:
    """A client that is stopped, and whose lease has run out."""
    with a_client(home) as client:
        client.send_signal(signal.SIGSTOP)
        until(lambda: reason(cli) == "unresponsive")
        yield client


def reason(cli: Cli) -> str | None:
    because = cli("get", "unr", "--json").json["because"]
    return None if because is None else str(because["reason"])


def status(cli: Cli) -> str:
    return str(cli("get", "unr", "--json").json["status"])


def state_of_run(cli: Cli) -> str:
    _, state, *_, because = cli("runs", "--session", "unr").lines[-1].split("\t")
    return state if because == "-" else f"{state} {because}"


def test_turn_of_a_killed_chat_ends_with_the_next_command(cli: Cli, home: Path) -> None:
    with a_talk("run", "slow", "--name", "unr") as talk:
        talk.say("first")
        talk.wait_for("heard: first")
        agent = agent_pid(home)
        talk.process.kill()
        talk.process.wait(PATIENCE)
    until(lambda: not is_alive(agent))

    until(lambda: status(cli) == "queued")  # its supervisor may take a moment longer than its agent
    assert (reason(cli), state_of_run(cli)) == ("no_launcher", "queued no_launcher")
    assert cli("resume", "unr", "--holder", "ann").code == 0
    assert cli("release", "unr").code == 0

    (home / "go").touch()
    again = cli("run", "slow", "second", "--session", "unr")
    assert again.code == 0
    assert "heard: Your last turn was cut off" in again.out


def test_stop_after_a_kill_settles_and_tells_no_other_run_of_it(cli: Cli, home: Path) -> None:
    with a_client(home) as client:
        agent = agent_pid(home)
        [first] = cli("runs", "--json").json["items"]
        second = cli("send", "unr", "second", "--json").json["run_id"]
        client.kill()
        client.wait(PATIENCE)
    assert cli("stop", "--run", first["run_id"]).code == 0

    until(lambda: state_of_run(cli) == "stopped")
    assert not is_alive(agent)
    assert status(cli) == "queued"

    (home / "go").touch()
    assert "heard: second" in cli("run", "slow", "third", "--session", "unr").out
    assert cli("result", second).out.startswith("heard: second")
    assert cli("stop", "unr").code == 0
    assert status(cli) == "idle"


def test_turn_is_not_given_up_while_its_agent_outlives_the_client(cli: Cli, home: Path, place: Path) -> None:
    with a_client(home) as client:
        [facts] = place.glob("moorage-turns-*/turns/*/pid.json")
        supervisor = json.loads(facts.read_text())["supervisor"]["pid"]
        os.kill(supervisor, signal.SIGSTOP)  # so that it does not end its agent
        try:
            client.kill()
            client.wait(PATIENCE)
            until(lambda: reason(cli) == "unresponsive")
            assert is_alive(agent_pid(home))
            assert cli("stop", "unr").code == 0
            assert state_of_run(cli) == "running unresponsive"
        finally:
            os.kill(supervisor, signal.SIGCONT)
    until(lambda: state_of_run(cli) == "stopped")
    assert not is_alive(agent_pid(home))


def test_turn_of_a_frozen_client_shows_as_unresponsive(cli: Cli, home: Path) -> None:
    with a_frozen_client(home, cli):
        because = cli("get", "unr", "--json").json["because"]
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
        assert because["by"].startswith("launcher:")
        assert because["since"] < now < because["until"]
        assert "unresponsive" in cli("get", "unr").out
        assert state_of_run(cli) == "running unresponsive"

        stopped = cli("stop", "unr")
        assert stopped.code == 0
        assert "its launcher is unresponsive since" in stopped.err
        assert "if it stays silent, the turn is given up at" in stopped.err
        assert state_of_run(cli) == "running unresponsive"
        run_id = cli("runs").lines[0].split("\t")[0]
        assert cli("stop", "--run", run_id).err == stopped.err
        session_id, told = cli("get", "unr", "--json").json["session_id"], cli("stop", "unr", "--json").json
        assert told == {"session_ids": [session_id], "unresponsive": {session_id: because}}
        assert cli("stop", "--run", run_id, "--json").json["because"] == because

        refused = cli("resume", "unr")
        assert refused.code != 0
        assert f"until {because['until'][:19]}" in refused.err


def test_attach_and_run_tell_of_a_frozen_client_and_go_on_once_it_is_killed(cli: Cli, home: Path) -> None:
    with a_frozen_client(home, cli) as client:
        with a_talk("attach", "unr") as talk:
            talk.wait_for("does not continue: its launcher is unresponsive since")
            talk.wait_for("the turn is given up at")
            talk.type("hello\n")
            talk.wait_for("The run waits for a turn whose launcher is unresponsive since")
            talk.type(CTRL_C)
            talk.wait_for("Its launcher is unresponsive since")
            talk.end()
            assert "goes on" not in talk.shown.replace("does not go on", "")
        with a_talk("run", "slow", "again", "--session", "unr") as talk:
            talk.wait_for("The run waits for a turn whose launcher is unresponsive since")
            (home / "go").touch()
            client.kill()
            talk.wait_for("done")
            assert talk.end() == 0
    assert status(cli) == "idle"


def test_client_that_wakes_up_goes_on_with_its_turn(cli: Cli, home: Path) -> None:
    with a_frozen_client(home, cli) as client:
        client.send_signal(signal.SIGCONT)
        until(lambda: reason(cli) is None)
        assert state_of_run(cli) == "running"
        (home / "go").touch()
        until(lambda: state_of_run(cli) == "completed")


@pytest.mark.parametrize(("silent", "mark"), [(10, False), (31, True)])
def test_launcher_that_was_not_heard_of_is_marked_as_lost(cli: Cli, silent: int, mark: bool) -> None:
    deps = config.open_deps(None, threaded=False)
    seen = datetime.now(UTC) - timedelta(seconds=silent)
    launcher = Launcher(launcher_id="one", name="server", registered_at=seen, seen_at=seen, slots=16, running=1)
    drive(save_launcher(deps.store, launcher))
    drive(deps.store.close())
    assert ("16, 1 at work, lost\n" in cli("launchers").out) is mark
