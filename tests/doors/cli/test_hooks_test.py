"""hooks test: the installed command, run as the host runs it, on a store of its own."""

import json
import os
import select
import sys
from pathlib import Path
from typing import Any

import pytest

from moorage.doors.cli.hooks import EVENTS, samples
from tests.doors.cli.installation import install_scripts, write_script
from tests.doors.cli.running import Cli, Done

RECORDER = """\
#!/bin/sh
{ echo "$PWD"; echo "$0 $*"; env; } > "$PWD/seen.env"
cat > "$PWD/seen.json"
"""


@pytest.fixture(autouse=True)
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = install_scripts(tmp_path / "an installation")
    monkeypatch.setattr(sys, "argv", [str(folder / "moorage")])
    return folder


def trials(done: Done) -> dict[str, Any]:
    return {trial["event"]: trial for trial in done.json["events"]}


# The real hook ----------------------------------------------------------------------------------


def test_every_event_goes_well(cli: Cli, home: Path) -> None:
    cli("hooks", "install", "--events", ",".join(EVENTS))
    done = cli("hooks", "test")
    assert (done.code, done.err) == (0, "")
    rows = [line.split("\t") for line in done.lines]
    assert {row[0]: row[1:3] for row in rows} == {event: ["ok", "0"] for event in EVENTS}
    assert not home.exists()


def test_events_come_in_the_order_of_a_session(cli: Cli) -> None:
    cli("hooks", "install")
    document = cli("hooks", "test", "--json").json
    assert document["ok"] is True
    assert [trial["event"] for trial in document["events"]] == [name for name in samples("/") if name != "StopFailure"]
    assert all(trial["exit_code"] == 0 and trial["milliseconds"] > 0 for trial in document["events"])


def test_a_url_in_the_settings_is_not_used(cli: Cli) -> None:
    cli("hooks", "install", "--url", "sqlite:///own.db", "--events", "SessionStart,Stop")
    done = cli("hooks", "test")
    assert (done.code, len(done.lines)) == (0, 2)
    assert "temporary store" in done.err
    assert not Path("own.db").exists()
    command = trials(cli("hooks", "test", "--json"))["Stop"]["command"]
    assert "moorage-hooks-" in command
    assert "own.db" not in command


# Any command ------------------------------------------------------------------------------------


def test_the_command_gets_what_the_host_would_give_it(
    cli: Cli, scripts: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AGENT_SESSION_ID", "MOORAGE_URL", "MOORAGE_TOKEN"):
        monkeypatch.setenv(name, "not-for-tests")
    write_script(scripts / "moorage-hook", RECORDER)
    cli("hooks", "install", "--events", "PreToolUse")
    assert cli("hooks", "test").code == 0
    cwd = str(Path.cwd())
    assert json.loads(Path("seen.json").read_text()) == samples(cwd)["PreToolUse"]
    where, called, *env = Path("seen.env").read_text().splitlines()
    assert (where, called) == (cwd, f"{scripts / 'moorage-hook'} ")
    assert f"CLAUDE_PROJECT_DIR={cwd}" in env
    assert not [line for line in env if "not-for-tests" in line or str(home) in line]
    [store] = [line for line in env if line.startswith("MOORAGE_URL=")]
    assert "moorage-hooks-" in store


@pytest.mark.parametrize(
    ("script", "code", "problem"),
    [
        ("exit 3", 3, "exit code 3"),
        ("echo something is wrong >&2", 0, "something is wrong"),
        ("echo Traceback >&2; echo 'ValueError: x' >&2; exit 1", 1, "exit code 1: ValueError: x"),
        ("echo hello", 0, "the answer is not JSON"),
        ("echo '[]'", 0, "the answer is not an object"),
        ("printf '\\377'", 0, "the answer is not JSON"),
    ],
)
def test_failure_is_described(cli: Cli, scripts: Path, script: str, code: int, problem: str) -> None:
    write_script(scripts / "moorage-hook", f"#!/bin/sh\ncat > /dev/null\n{script}\n")
    cli("hooks", "install", "--events", "Stop")
    done = cli("hooks", "test", "--json")
    trial = trials(done)["Stop"]
    assert (done.code, done.json["ok"], trial["ok"]) == (1, False, False)
    assert (trial["exit_code"], trial["problem"]) == (code, problem)
    assert cli("hooks", "test").lines[0].startswith("Stop\tfailed\t")


def test_one_that_does_not_end_is_ended_with_all_that_it_started(cli: Cli, scripts: Path) -> None:
    os.mkfifo("alive")
    alive = os.open("alive", os.O_RDONLY | os.O_NONBLOCK)
    write_script(scripts / "moorage-hook", "#!/bin/sh\nsleep 60 > alive 2>&1 < /dev/null &\nwait\n")
    cli("hooks", "install", "--events", "SessionEnd,Stop")
    path = Path(".claude/settings.json")
    path.write_text(path.read_text().replace('"timeout": 5', '"timeout": 0.5'))
    done = cli("hooks", "test", "--json")
    assert {event: trial["problem"] for event, trial in trials(done).items()} == {
        "Stop": "it did not end within 0.5 s",
        "SessionEnd": "it did not end within 2 s",
    }
    assert select.select([alive], [], [], 10)[0] == [alive]  # the end of the pipe: all writers have ended
    assert os.read(alive, 1) == b""
    os.close(alive)


def test_an_answer_is_shown(cli: Cli, scripts: Path) -> None:
    write_script(scripts / "moorage-hook", """#!/bin/sh\ncat > /dev/null; echo '{"continue": true}'\n""")
    cli("hooks", "install", "--events", "Stop")
    assert cli("hooks", "test").lines[0].endswith('\t{"continue":true}')
    assert trials(cli("hooks", "test", "--json"))["Stop"]["answer"] == {"continue": True}


def test_a_script_that_reads_nothing_is_no_problem(cli: Cli, scripts: Path) -> None:
    write_script(scripts / "moorage-hook", "#!/bin/sh\nexit 0\n")
    cli("hooks", "install", "--events", "Stop")
    assert cli("hooks", "test").code == 0


def test_a_script_that_is_gone_is_a_failure(cli: Cli, scripts: Path) -> None:
    cli("hooks", "install", "--events", "Stop")
    (scripts / "moorage-hook").unlink()
    done = cli("hooks", "test")
    assert (done.code, done.lines[0].split("\t")[:3]) == (1, ["Stop", "failed", "127"])
    assert "not found" in done.out


def test_hooks_that_are_switched_off_do_not_pass(cli: Cli, scripts: Path) -> None:
    cli("hooks", "install", "--events", "Stop")
    path = Path(".claude/settings.json")
    path.write_text(path.read_text().replace("{", '{"disableAllHooks": true,', 1))
    done = cli("hooks", "test")
    assert done.code == 1
    assert "disableAllHooks" in done.err
    assert cli("hooks", "test", "--json").json["switched_off"] is True


@pytest.mark.parametrize(
    "text", [None, "{}", '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "x"}]}]}}']
)
def test_where_there_are_none_of_ours_there_is_nothing_to_test(cli: Cli, text: str | None) -> None:
    if text is not None:
        Path("settings.json").write_text(text)
    done = cli("hooks", "test", "--settings", "settings.json", "--json")
    assert (done.code, done.json["code"]) == (3, "hooks_not_found")
