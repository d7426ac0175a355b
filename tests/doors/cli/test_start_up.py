"""Start-up: the quick way loads little, and answers as the full command does."""

import os
import subprocess
import sys

import pytest

from moorage.doors.cli.main import plain_call, run_if_plain
from tests.doors.cli.running import Cli, run

HEAVY = {
    "asyncio",
    "click",
    "rich",
    "typing_extensions",
    "importlib.resources",
    "pathlib",
    "inspect",
    "tempfile",
    "json",
}
_LOADED = """
import os, sys
def tell(code): sys.stderr.write(' '.join(sys.modules)); sys.stderr.flush(); leave(code)
leave, os._exit = os._exit, tell
sys.argv[1:] = {args!r}
from moorage.doors.cli.main import main
tell(main())
"""


def loaded_by(*args: str) -> set[str]:
    """Return the modules that a command has loaded when it ends."""
    code = _LOADED.format(args=list(args))
    command = [sys.executable, "-S", "-c", code]  # without site: what an installation loads at start is not ours
    path = os.pathsep.join([os.environ["PYTHONPATH"], *sys.path[1:]])
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=False)
    assert done.returncode in (0, 1), done.stderr
    return set(done.stderr.split())


def test_should_resume_loads_neither_click_nor_anything_else_that_is_slow(cli: Cli, plan: str) -> None:
    for args in (("should-resume", plan), ("--json", "should-resume", "no-such-session")):
        loaded = loaded_by(*args)
        assert "moorage.core.policy" in loaded
        assert loaded & HEAVY == set()


def test_other_commands_load_only_their_own_module_and_no_rich(cli: Cli, plan: str) -> None:
    loaded = loaded_by("get", plan)
    assert "moorage.doors.cli.sessions" in loaded
    assert {name for name in loaded if name.startswith("moorage.doors.cli.")} & {
        *("moorage.doors.cli.transfer", "moorage.doors.cli.stores", "moorage.doors.cli.approvals")
    } == set()
    assert loaded & {"rich", "asyncio"} == set()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("should-resume a", (["should-resume", "a"], None, False)),
        ("--json should-resume a", (["should-resume", "a"], None, True)),
        ("should-resume a --json --url u", (["should-resume", "a"], "u", True)),
        ("--url=u should-resume a", (["should-resume", "a"], "u", False)),
        ("should-resume --url u a", (["should-resume", "a"], "u", False)),
        ("mcp", (["mcp"], None, False)),
        ("mcp --url u", (["mcp"], "u", False)),
        ("--url=u mcp", (["mcp"], "u", False)),
    ],
)
def test_plain_command_lines_are_recognised(line: str, expected: tuple[list[str], str | None, bool]) -> None:
    assert plain_call(line.split()) == expected


@pytest.mark.parametrize(
    "line",
    [
        "should-resume a --help",
        "should-resume --agent x",
        "should-resume -- a",
        "should-resume a --url",
        "--version should-resume a",
        "mcp --url",
        "mcp --help",
    ],
)
def test_other_options_are_left_to_the_full_command_line(line: str) -> None:
    assert plain_call(line.split()) is None


@pytest.mark.parametrize("line", ["should-resume", "should-resume a b", "get should-resume", "mcp config a", "get mcp"])
def test_other_commands_are_left_to_the_full_command_line(line: str) -> None:
    run_if_plain(line.split())  # it would end the process


@pytest.mark.parametrize("ref", ["plan-prod", "prefix", "no-such-session", "buil", "../../evil"])
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_both_ways_answer_alike(cli: Cli, plan: str, ref: str, form: tuple[str, ...]) -> None:
    cli("create", "--session-id", "build-1")
    cli("create", "--session-id", "build-2")
    cli("finalize", plan, "completed")  # so that nothing in the answer depends on the time
    cli("update", "build-1", "--phase", "planning")
    asked = plan[:8] if ref == "prefix" else ref
    quick, full = run("should-resume", asked, *form), cli("should-resume", asked, *form)
    assert (quick.code, without_time(quick.out), quick.err) == (full.code, without_time(full.out), full.err)


def without_time(text: str) -> str:
    import re

    return re.sub(r'"idle_seconds":\{"value":[\d.]+', "", text)


def test_the_quick_way_says_yes(cli: Cli, plan: str) -> None:
    cli("update", plan, "--phase", "planning")
    done = run("should-resume", "plan-prod")
    assert (done.code, done.out) == (0, f"yes\tsession_resumable\t{plan}\n")
