"""Two stories, word for word, typed into a terminal: an approval, and an investigation over several turns.

Where the story waits for its user, the terminal's program is killed, the hooks are called
as a host calls them, and the rest is typed into another one.
"""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moorage import sync
from tests.compat.test_agent_session import APPROVAL_WORKFLOW, INVESTIGATION
from tests.doors.hooks.running import hook

PATIENCE = 60.0
PROMPTS = ("walk> ", "more> ")


class Terminal:
    """A Python prompt in a terminal, and its user."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._read_until_prompt()

    def type(self, text: str) -> str:
        """Type some lines as they are; what was printed meanwhile."""
        printed = ""
        for line in [*text.strip().split("\n"), ""]:
            os.write(self._handle, f"{line}\n".encode())
            printed += self._read_until_prompt()
        assert "Error" not in printed, printed
        return printed

    def value(self, expression: str) -> str:
        """Return the printed value of an expression."""
        found = re.search(r"<<(.*)>>\r", self.type(f"print('<<' + str({expression}) + '>>')"))
        assert found is not None
        return found[1]

    def _read_until_prompt(self) -> str:
        read, deadline = "", time.monotonic() + PATIENCE
        while not read.endswith(PROMPTS):
            assert time.monotonic() < deadline, read
            if select.select([self._handle], [], [], 1)[0]:
                read += os.read(self._handle, 1 << 16).decode()
        return read


@contextmanager
def terminal() -> Iterator[Terminal]:
    """A Python of its own, on a terminal of its own, which is killed in the end."""
    ours, theirs = pty.openpty()
    code = f"import sys; sys.ps1, sys.ps2 = {PROMPTS!r}"
    python = subprocess.Popen([sys.executable, "-q", "-i", "-c", code], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        yield Terminal(ours)
    finally:
        python.kill()
        python.wait()
        os.close(ours)


@pytest.fixture(autouse=True)
def agent_session_by_its_old_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stories import a module `agent_session`, and take for granted what a host has at hand."""
    (tmp_path / "agent_session.py").write_text("from moorage.agent_session import *\n")
    known = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *known]))
    monkeypatch.setenv("PYTHON_BASIC_REPL", "1")
    monkeypatch.setenv("TERM", "dumb")


def parts(story: str) -> list[str]:
    """A story in the parts between which it waits for its user."""
    return re.split(r"^# \[User .*\]$", story, flags=re.MULTILINE)


def go_on(screen: Terminal, agent_id: str, part: str) -> None:
    """Another program goes on with the story; all it knows is the session's id."""
    screen.type(f"from agent_session import *\nagent_id = {agent_id!r}")
    screen.type(part)


def test_approval_workflow(moor: sync.Moorage) -> None:
    planned, applied = parts(APPROVAL_WORKFLOW)
    with terminal() as screen:
        screen.type(planned)
        agent_id = screen.value("agent_id")
    assert re.fullmatch(r"agent-\d{8}-\d{6}-[0-9a-f]{8}", agent_id)

    asked = {"agent_name": "terraform-architect", "task_id": "T001", "task_description": "Apply", "metadata": {}}
    answer = hook(asked, "pre-delegate").json
    assert (answer["should_resume"], answer["reason"], answer["agent_id"]) == (True, "session_resumable", agent_id)
    assert answer["resume_metadata"]["previous_phase"] == "approval"

    applied, completed = applied.split("# 6. Agent completes")
    with terminal() as screen:
        go_on(screen, agent_id, applied)
        assert screen.value("previous_plan") == "plan.json"

    stop = {
        "task_id": "T001",
        "agent": "terraform-architect",
        "agent_id": agent_id,
        "exit_code": 0,
        "output": "Applied.",
    }
    ended = hook(stop, "subagent-stop").json
    assert (ended["outcome"], ended["finalized"]) == ("completed", True)
    with terminal() as screen:
        go_on(screen, agent_id, f"# 6. Agent completes{completed}")  # closing it by hand, too, is harmless

    session = moor.get(agent_id)
    assert (session.state.value, session.task_id) == ("completed", "T001")
    assert session.metadata == {"task_id": "T001", "workspace": "prod", "plan_file": "plan.json"}
    assert [each.data["to"] for each in moor.log(agent_id, kinds=["phase"])] == ["planning", "approval", "executing"]


def test_multi_turn_investigation(moor: sync.Moorage) -> None:
    first, second, rest = parts(INVESTIGATION)
    with terminal() as screen:
        screen.type(first)
        agent_id = screen.value("agent_id")

    found = hook({"agent_name": "gitops-operator", "agent_id": agent_id}, "pre-delegate").json
    assert found["resume_metadata"]["session_metadata"]["findings"] == ["OOMKilled", "resource limits"]
    for part in (second, rest):
        with terminal() as screen:
            go_on(screen, agent_id, part)

    session = moor.get(agent_id)
    assert session.metadata["findings"] == ["OOMKilled", "resource limits", "config issue in deployment"]
    assert session.metadata["solution"] == "increase memory limits"
    assert (session.state.value, session.summary) == ("completed", "Fixed pod crash loop")
    assert [each.resumed for each in moor.delegations(agent="gitops-operator")] == [True]
    again = hook({"agent_name": "gitops-operator", "agent_id": agent_id}, "pre-delegate").json
    assert (again["should_resume"], again["reason"]) == (False, "session_closed")
