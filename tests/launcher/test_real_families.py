"""Families of real processes: parents and children, and how every end of a child is told to its parent."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from moorage import sync
from moorage.core.session import Session
from moorage.service.family import TreeNode
from tests.launcher.test_kills import running
from tests.launcher.test_processes import PATIENCE, is_alive, until

# Asks the next generation in the mode it was told, and says what it heard from it.
LINK = """\
import subprocess, sys
mode, _, depth = sys.stdin.read().partition(" ")
if mode not in ("sync", "async_callback"):
    print("heard")
elif int(depth) == 0:
    print("leaf")
else:
    ask = [sys.executable, "-m", "moorage", "run", "link", f"{mode} {int(depth) - 1}", "--mode", mode]
    done = subprocess.run(ask, check=True, capture_output=True, text=True)
    print("above " + done.stdout.strip() if mode == "sync" else "waiting")
"""
# How real agents go wrong, and what their parents are told: outcome, reason, a word of the error or the result.
ENDS: dict[str, tuple[str, dict[str, Any], tuple[str, str | None, str]]] = {
    "floods": ("yes; yes >&2", {"max_output_bytes": 10_000}, ("failed", "output_too_large", "10,000 bytes")),
    "drowns": ("yes | head -c 3000000 >&2; echo answer", {}, ("completed", None, "answer")),
    "silent": ("true", {}, ("failed", "no_answer", "without output")),
    "broken": ("echo no such bucket >&2; exit 3", {}, ("failed", "agent_failed", "no such bucket")),
    "killed": ("kill -9 $$", {}, ("failed", "agent_failed", "SIGKILL")),
    "slow": ("sleep 600", {"timeout": "0.2s"}, ("failed", "timed_out", "0.2 seconds")),
    "mute": ("sleep 600", {"idle_timeout": "0.2s"}, ("failed", "idle_timeout", "0.2 seconds")),
    "bytes": (r"printf 'caf\351 \377'", {}, ("completed", None, "caf\ufffd \ufffd")),
    "forks": (
        "setsid sh -c 'echo $$ >> $MOORAGE_HOME/forked; exec sleep 600' & "
        "until [ -s $MOORAGE_HOME/forked ]; do sleep 0.01; done; echo answer",
        {},
        ("completed", None, "answer"),
    ),
    "missing": ("", {"command": ["no-such-program-anywhere"]}, ("failed", "not_found", "no-such-program-anywhere")),
}


class Home:
    """A home with agents and a launcher."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "agents").mkdir(parents=True)
        self.moor = sync.connect()

    def defines(self, name: str, command: list[str], **table: Any) -> None:
        """An agent that runs a program."""
        lines = [f'[agent]\nname = "{name}"\nkind = "command"', f"command = {json.dumps(command)}"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in table.items()]
        (self.path / "agents" / f"{name}.toml").write_text("\n".join(lines) + "\n")

    @contextmanager
    def launcher(self) -> Iterator[None]:
        command = [sys.executable, "-m", "moorage", "launcher", "--slots", "4"]
        with running(subprocess.Popen(command, stderr=subprocess.DEVNULL)):
            yield

    def is_quiet(self) -> bool:
        return not self.moor.runs(open_only=True).items and not self.moor.inbox().items


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    for name in ("AGENT_SESSION_ID", "AGENT_SESSION_NAME", "AGENT_RUN_ID", "MOORAGE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MOORAGE_HOME", str(tmp_path / "home"))
    made = Home(tmp_path / "home")
    yield made
    made.moor.close()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", ["sync", "async_callback"])
def test_orchestrator_child_and_grandchild_each_know_theirs(home: Home, mode: str) -> None:
    script = home.path / "link.py"
    script.write_text(LINK)
    home.defines("link", [sys.executable, str(script)])
    with home.launcher():
        asked = home.moor.run("link", f"{mode} 2", mode="async_poll")
        run = home.moor.result(asked.run.run_id, wait=PATIENCE)
        until(home.is_quiet)
    assert run.result == ("above above leaf" if mode == "sync" else "heard")
    top, child, grandchild = generations(home.moor.tree(run.session_id))
    assert (top.parent_session_id, child.parent_session_id) == (None, top.session_id)
    assert grandchild.parent_session_id == child.session_id
    assert grandchild.root_session_id == top.session_id
    assert home.moor.get(child.session_id).parent_session_id == top.session_id


def generations(node: TreeNode) -> list[Session]:
    """A session and its only child, and so on."""
    return [node.session, *(session for below in node.children for session in generations(below))]


@pytest.mark.timeout(120)
def test_every_end_of_a_real_child_is_told_to_its_parent_once(home: Home) -> None:
    for name, (script, table, _) in ENDS.items():
        home.defines(name, **{"command": ["sh", "-c", script], "retry": "never", **table})
    with home.launcher():
        parent = home.moor.run("echo-agent", "begin", mode="async_poll")
        assert home.moor.result(parent.run.run_id, wait=PATIENCE).is_settled
        session_id = parent.session.session_id
        asked = {name: home.moor.run(name, "go", mode="async_callback", parent=session_id).run for name in ENDS}
        until(home.is_quiet)
    told = {(entry.data or {})["run_id"]: entry.data or {} for entry in home.moor.log(session_id, kinds=["callback"])}
    assert len(home.moor.log(session_id, kinds=["callback"])) == len(ENDS)
    for name, (_, _, (outcome, reason, word)) in ENDS.items():
        callback = told[asked[name].run_id]
        assert (callback["outcome"], callback["reason"]) == (outcome, reason), name
        assert word in str(callback["result"] or callback["error"]), name
    forked = [int(pid) for pid in (home.path / "forked").read_text().split()]
    assert forked
    until(lambda: not any(map(is_alive, forked)))
