"""examples/pipeline: three steps with an approval in the middle, killed in two of them, and nothing is done twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from moorage import sync
from tests.docs.page import ROOT
from tests.executor import gated
from tests.executor.processes import PATIENCE, served, until

RELEASE = ROOT / "examples" / "pipeline" / "release.py"
GATED = ("drafter", "publisher")
WAITS = 3


def release(url: str) -> subprocess.Popen[str]:
    """The pipeline as a process of its own."""
    command = [sys.executable, str(RELEASE), "r-1", url]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, err = process.communicate(timeout=PATIENCE)
    assert err == ""
    return process.returncode, out


def killed_when(began: Path, process: subprocess.Popen[str]) -> None:
    """Kill the process as soon as the agent of its step has begun."""
    until(lambda: began.exists() and began.read_text(), f"{began.name}, or the pipeline {process.poll()}")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL


def put_behind(latch: Path, moor: sync.Moorage) -> None:
    """Define those who work, each behind the latch; the pipeline takes an agent that it finds as it is."""
    for name in GATED:
        program = RELEASE.parent / "agents" / f"{name}.py"
        command = [sys.executable, gated.__file__, str(latch), str(program)]
        moor.define_agent({"agent": {"name": name, "kind": "command", "protocol": "jsonl", "command": command}})


@pytest.mark.timeout(240)
def test_a_pipeline_killed_twice_goes_on_and_asks_every_agent_once(tmp_path: Path) -> None:
    latch = tmp_path / "latch"
    with (
        served(tmp_path, f"sqlite:///{tmp_path / 'served.db'}") as url,
        sync.connect(url) as moor,
    ):
        put_behind(latch, moor)
        killed_when(tmp_path / "latch.drafter", release(url))
        assert (moor.get("r-1").state, moor.get("r-1").metadata["step"]) == ("active", "draft")

        latch.touch()
        code, out = ended(release(url))
        assert (code, out.startswith("r-1.review asks: Publish the notes?")) == (WAITS, True)
        waiting = moor.get("r-1")
        checkpoint = moor.checkpoint("r-1").checkpoint
        assert (waiting.state, checkpoint["step"], checkpoint["agent_session_id"]) == (
            "suspended",
            "review",
            "r-1.review",
        )
        assert ended(release(url))[0] == WAITS, "nobody has answered yet"

        latch.unlink()
        [approval] = moor.approvals()
        moor.approve(approval.approval_id, by="editor")
        killed_when(tmp_path / "latch.publisher", release(url))
        latch.touch()
        assert ended(release(url)) == (
            0,
            "draft    Notes of release 1.2\nreview   approve: editor\npublish  Published\n",
        )

        assert moor.get("r-1").state == "completed"
        assert ended(release(url))[0] == 0, "what is over can be looked at"
        steps = [child.session_id for child in moor.children("r-1")]
        assert steps == ["r-1.draft", "r-1.review", "r-1.publish"]
        for step in steps:
            [run] = moor.runs(session=step).items
            assert run.state == "completed"
            assert [message.role for message in moor.messages(step)].count("user") == 1
    for agent in GATED:
        assert len((tmp_path / f"latch.{agent}").read_text().splitlines()) == 1, f"{agent} was started once"


def test_without_a_server_it_suspends_and_goes_on_in_another_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'own.db'}"
    assert ended(release(url))[0] == WAITS
    with sync.connect(url) as moor:
        [approval] = moor.approvals()
        moor.reject(approval.approval_id, by="editor")
    code, out = ended(release(url))
    assert (code, out.splitlines()[1]) == (0, "review   reject: editor")
