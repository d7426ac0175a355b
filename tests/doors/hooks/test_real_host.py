"""The real host with our hooks installed; only the model behind it is a stand-in, on this machine.

Claude Code is not ours to install. Where it is (on the PATH, or named by MOORAGE_TEST_CLAUDE),
these tests run it; the recorded events in `recorded/` are what it sent to the same story.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from moorage import sync
from tests.doors.cli.running import run as moorage
from tests.doors.hooks.model_server import Block, call, serving, text

CLAUDE = os.environ.get("MOORAGE_TEST_CLAUDE") or shutil.which("claude")
PATIENCE = 100.0

pytestmark = pytest.mark.skipif(CLAUDE is None, reason="Claude Code is not installed (MOORAGE_TEST_CLAUDE names it)")

Host = Callable[..., str]


@pytest.fixture
def host(moor: sync.Moorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A project with our hooks installed, and the host at work in it."""
    project = tmp_path / "shop"
    project.mkdir()
    monkeypatch.chdir(project)
    assert moorage("hooks", "install").code == 0
    quiet = "DISABLE_TELEMETRY DISABLE_AUTOUPDATER DISABLE_ERROR_REPORTING CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"
    env = {
        **os.environ,
        **dict.fromkeys([*quiet.split(), "IS_SANDBOX"], "1"),
        "CLAUDE_CONFIG_DIR": str(tmp_path / "claude"),
        "ANTHROPIC_API_KEY": "none",
    }

    def work(script: Callable[[str], list[Block]], prompt: str, *options: str) -> str:
        with serving(script) as address:
            done = subprocess.run(
                [str(CLAUDE), "-p", prompt, "--allowedTools", "Bash,SendMessage", *options],
                env={**env, "ANTHROPIC_BASE_URL": address},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return work


def delegating(conversation: str) -> list[Block]:
    """The host delegates, the sub-agent finds something."""
    if "SUBTASK" in conversation and "PARENT" not in conversation:
        return text("Two causes found.")
    if "toolu_1" not in conversation:
        return call("toolu_1", "Agent", description="Look", prompt="SUBTASK", subagent_type="general-purpose")
    return text("It will be looked into.")


def test_a_conversation_and_its_sub_agent_are_kept(moor: sync.Moorage, host: Host) -> None:
    host(delegating, "PARENT: why does the pod restart?")
    child, parent = moor.list().items
    assert (parent.agent, parent.state.value) == ("claude-code", "suspended")
    assert (child.agent, child.state.value, child.parent_session_id) == ("general-purpose", "completed", parent.id)
    assert [entry.text for entry in moor.messages(child.id)] == ["SUBTASK", "Two causes found."]
    assert moor.messages(parent.id).items[0].text == "PARENT: why does the pod restart?"
    assert [(each.agent_name, each.resumed) for each in moor.delegations()] == [("general-purpose", False)]

    host(lambda _: text("Go on."), "PARENT: and now?", "--resume", parent.id)
    assert [entry.text for entry in moor.messages(parent.id)][-2:] == ["PARENT: and now?", "Go on."]
    assert (len(moor.list()), moor.get(parent.id).state.value) == (2, "suspended")


def test_a_sub_agent_that_is_sent_a_message_goes_on_in_a_fork(moor: sync.Moorage, host: Host) -> None:
    def script(conversation: str) -> list[Block]:
        if "SUBTASK" in conversation and "PARENT" not in conversation:
            return text("Also a config issue." if "AGAIN" in conversation else "Two causes found.")
        if "toolu_1" not in conversation:
            asked = {"description": "Look", "prompt": "SUBTASK", "subagent_type": "general-purpose"}
            return call("toolu_1", "Agent", **asked, run_in_background=False)
        if "toolu_2" not in conversation:
            return call("toolu_2", "ToolSearch", query="select:SendMessage")
        if "toolu_3" not in conversation:
            agent_id = re.search(r"agentId: (\w+)", conversation)
            assert agent_id is not None
            return call("toolu_3", "SendMessage", to=agent_id[1], message="AGAIN", summary="again")
        return text("Done.")

    host(script, "PARENT: why does the pod restart?")
    [fork] = [session for session in moor.list() if session.forked_from]
    assert fork.name == f"{fork.forked_from}:latest"
    assert (fork.state.value, moor.get(str(fork.forked_from)).state.value) == ("completed", "completed")
    words = [entry.text for entry in moor.messages(fork.id)]
    # The host runs its hooks side by side: this sub-agent stops before we hear what it was sent, or after.
    assert [said for said in words if said != "AGAIN"] == ["SUBTASK", "Two causes found.", "Also a config issue."]


def test_work_that_waits_is_offered_to_the_model_next_time(moor: sync.Moorage, host: Host) -> None:
    seen: list[str] = []

    def asking(conversation: str) -> list[Block]:
        if "SUBTASK" in conversation and "PARENT" not in conversation:
            for session in moor.list(agent="general-purpose", active_only=True):
                moor.update(session.id, phase="approval", metadata={"plan_file": "plan.json"})
            return text("May I apply it?")
        return delegating(conversation)

    def looking(conversation: str) -> list[Block]:
        seen.append(conversation)
        return delegating(conversation)

    host(asking, "PARENT: plan it")
    waiting = moor.list(agent="general-purpose").items[0]
    assert waiting.state.value == "suspended"
    host(looking, "PARENT: apply it")
    told = [each for each in seen if waiting.id in each and "plan.json" in each]
    assert told, "the model was not told of the work that waits"
    assert [each.resumed for each in moor.delegations()] == [False, True]
