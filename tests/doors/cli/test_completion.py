"""Completion: the scripts, and what they are offered."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.doors.cli.running import Cli, run


def offered(*words: str, incomplete: str = "") -> set[str]:
    """Return what bash would offer after `moorage WORDS`."""
    line = " ".join(["moorage", *words, incomplete])
    env = {"_MOORAGE_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) + 1)}
    done = run(env=env)
    assert (done.code, done.err) == (0, "")
    return {line.partition(",")[2] for line in done.lines if line}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_what_the_shell_reads(cli: Cli, shell: str, tmp_path: Path) -> None:
    done = cli("completion", shell)
    assert done.code == 0
    assert "_MOORAGE_COMPLETE" in done.out
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed, so nothing can read the script")
    script = tmp_path / "script"
    script.write_text(done.out)
    assert subprocess.run([shell, "-n", str(script)], capture_output=True, check=False).stderr == b""


def test_an_unknown_shell_is_refused(cli: Cli) -> None:
    assert cli("completion", "tcsh").code == 2


def test_commands_and_options_are_offered() -> None:
    assert offered(incomplete="sus") == {"suspend"}
    assert {"get", "set", "delete"} <= offered("context")
    assert offered("list", incomplete="--act") == {"--active-only"}
    assert "--url" in offered("context", "get", incomplete="--")


def test_sessions_are_offered_by_id_and_name(cli: Cli, plan: str) -> None:
    assert offered("get", incomplete="plan") == {"plan-prod"}
    assert offered("finalize", incomplete=plan[:6]) == {plan}
    assert {plan, "plan-prod"} <= offered("create", "--parent")


def test_the_url_on_the_line_is_respected(cli: Cli, plan: str) -> None:
    cli("create", "--name", "elsewhere", "--url", "sqlite:///other.db")
    assert "elsewhere" in offered("--url", "sqlite:///other.db", "get")
    assert "elsewhere" not in offered("get")


def test_words_are_offered_for_values(cli: Cli, plan: str) -> None:
    assert offered("finalize", "plan-prod") == {"completed", "failed", "abandoned"}
    assert offered("update", "plan-prod", "--phase", incomplete="pl") == {"planning"}


def test_pressing_tab_creates_no_database_and_never_fails(home: Path, database: Path) -> None:
    assert offered("get") == set()
    assert not home.exists()
    home.mkdir()
    database.write_text("not a database")
    assert offered("get") == set()
