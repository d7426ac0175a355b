"""Endings: closed pipes, Ctrl-C, closed streams, full outputs, surprises. Never a traceback."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from moorage.doors.cli import edge, wording
from tests.doors.cli.running import Cli, contents, run


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which `moorage` is this one."""
    script = f'moorage() {{ "{sys.executable}" -m moorage "$@"; }}\n{line}'
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)


def test_hints_follow_the_output_that_they_are_about(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    cli("create", "--agent", "unknown-agent", "--name", "trip")
    told = shell('moorage send trip "Plan it" 2>&1').stdout.splitlines()
    assert (told[0], told[1][:5]) == ("2", "Kept:")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("list", 0),
        ("should-resume no-such-session", 1),
        ("list --limit 0", 2),
        ("get no-such-session", 3),
        ("finalize plan-prod failed", 4),
        ("list --url sqlite:///no/such/folder/x.db", 5),
    ],
)
def test_exit_codes_of_real_processes(cli: Cli, plan: str, line: str, code: int) -> None:
    cli("finalize", plan, "completed")
    done = run(*line.split())
    assert done.code == code
    assert (done.err == "") is (code < 2)
    assert "Traceback" not in done.err


def test_an_error_in_words_is_one_line_with_a_next_step(cli: Cli) -> None:
    done = run("get", "no-such-session")
    assert done.out == ""
    assert done.err == "moorage: there is no session 'no-such-session'; `moorage list` lists all sessions\n"


def test_closed_pipe_is_no_error(cli: Cli, plan: str) -> None:
    for _ in range(3):
        cli("send", plan, "x" * 500_000)
    done = shell(f"moorage log {plan} | head -c 10 > /dev/null; echo ${{PIPESTATUS[0]}}")
    assert done.stderr == ""
    assert done.stdout == "141\n"
    for command in (f"should-resume {plan}", f"get {plan} --json", "get no-such-session --json"):
        assert "Traceback" not in shell(f"moorage {command} | true").stderr


def test_an_output_that_is_full_is_said(cli: Cli, plan: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    for command in (f"get {plan}", f"get {plan} --json", f"should-resume {plan}"):
        done = shell(f"moorage {command} > /dev/full")
        assert done.returncode == 5
        assert done.stderr.startswith("moorage: ")
        assert done.stderr.count("\n") == 1


def test_closed_streams_are_no_surprise(cli: Cli, plan: str) -> None:
    for redirection in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        for command in (
            f"get {plan}",
            f"should-resume {plan} --holder x",
            f"delete {plan} --dry-run",
            f"resume {plan}",
        ):
            done = shell(f"moorage {command} {redirection}")
            assert done.returncode in (0, 1, 4), (command, redirection, done.stderr)
            assert "Traceback" not in done.stderr


def test_ctrl_c_ends_quietly_and_changes_nothing(cli: Cli, plan: str, database: Path) -> None:
    before = contents(database)
    process = subprocess.Popen(
        [sys.executable, "-m", "moorage", "send", plan, "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_until_it_reads(process.pid)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"")
    assert contents(database) == before


def wait_until_it_reads(pid: int) -> None:
    """Wait until the process sleeps in a read of its standard input."""
    state = Path(f"/proc/{pid}/wchan")
    if not state.exists():
        pytest.skip("this system does not tell what a process waits for")
    until = time.monotonic() + 30
    while "pipe" not in state.read_text() and time.monotonic() < until:
        time.sleep(0.01)
    if "pipe" not in state.read_text():
        pytest.skip("this system does not tell what a process waits for")


def test_surprises_are_one_line_unless_a_developer_looks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def surprise() -> int:
        raise ZeroDivisionError("oh")

    assert edge.run(surprise, ["--json"]) == 1
    out, err = capsys.readouterr()
    assert '"code":"error"' in out
    assert "ZeroDivisionError: oh" in err
    assert err.count("\n") == 1


def test_a_developer_gets_the_traceback(cli: Cli, plan: str) -> None:
    code = "from moorage.doors.cli import edge; edge.run(lambda: 1 // 0, [])"
    done = subprocess.run([sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, check=False)
    assert "Traceback" in done.stderr


def test_json_is_utf8_whatever_the_locale(cli: Cli) -> None:
    session = cli("create", "--purpose", "grün ✓").id
    env = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    assert run("get", session, "--json", env=env).json["purpose"] == "grün ✓"
    words = run("get", session, env=env)
    assert words.code == 0
    assert r"gr\xfcn" in words.out


def test_any_folder_will_do(cli: Cli, plan: str, tmp_path: Path) -> None:
    folder = tmp_path / "a folder with spaces and ünïcode"
    folder.mkdir()
    os.chdir(folder)
    assert run("create", "--url", "sqlite:///my sessions.db").code == 0
    assert (folder / "my sessions.db").exists()


def test_commands_in_an_error_repeat_the_url(cli: Cli) -> None:
    url = "sqlite:///elsewhere.db"
    assert f"`moorage list --url {url}` lists all sessions" in cli("show", "nothing-here", "--url", url).err
    assert "`moorage list` lists all sessions" in cli("show", "nothing-here").err
    assert "--url" not in cli("show", "nothing-here", "--url", url, "--json").json["detail"]


@pytest.mark.parametrize("command", ["`moorage migrate --from redis://… --to sqlite:///FILE`", "`moorage serve`"])
def test_command_that_names_its_stores_gets_no_url(command: str) -> None:
    wording.remember_url("redis://127.0.0.1")
    try:
        assert wording.with_url(f"{command}, `moorage list`") == f"{command}, `moorage list --url redis://127.0.0.1`"
    finally:
        wording.remember_url(None)
