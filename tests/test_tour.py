"""The guided tour: it runs anywhere, leaves nothing behind, and what it shows can be typed."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import moorage


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Nothing of a user's own; the tour's temporary folder is in the test's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MOORAGE_", "AGENT_"))}
    (tmp_path / "temporary").mkdir()
    return {**kept, "MOORAGE_HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "temporary")}


def take_the_tour(environment: dict[str, str]) -> str:
    command = [sys.executable, "-m", "moorage.tour"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def shown(kind: str, tour: str) -> list[str]:
    """Return the examples of the tour: `shell` or `python`."""
    return re.findall(rf"^ +{kind} +(.*)$", tour, flags=re.MULTILINE)


def test_the_tour_lives_a_session_through_and_leaves_nothing_behind(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    tour = take_the_tour(environment)
    for happening in ("created", "Plan the change", "a child of plan-prod", "approved", "suspended", "{'step': 3}"):
        assert happening in tour
    assert tour.rstrip().endswith("moorage create --agent my-agent --name my-first-session")
    assert len(shown("shell", tour)) == len(shown("python", tour)) == len(re.findall(r"^\d\. ", tour, re.MULTILINE))
    assert [path for path in tmp_path.rglob("*") if path.name != "temporary"] == []
    assert max(map(len, tour.splitlines())) <= 80


def test_tour_has_no_parent_and_a_store_of_its_own(environment: dict[str, str]) -> None:
    inside = {"AGENT_SESSION_ID": "unknown", "MOORAGE_URL": "nonsense"}
    assert "Create a session that stays" in take_the_tour({**environment, **inside})


async def test_python_shown_by_the_tour_runs(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AGENT_SESSION_ID", raising=False)
    monkeypatch.delenv("AGENT_SESSION_NAME", raising=False)
    async with moorage.connect(f"sqlite:///{tmp_path}/mine.db") as moor:
        names: dict[str, Any] = {"moor": moor}
        for call in shown("python", take_the_tour(environment)):
            await eval(compile(call, "tour", "eval", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        assert (await moor.get("plan-prod")).state == "completed"
        assert await moor.count_children("plan-prod") == 1


def test_commands_shown_by_the_tour_run(environment: dict[str, str]) -> None:
    for line in shown("shell", take_the_tour(environment)):
        typed(line, environment)
    assert json.loads(typed("moorage --json get plan-prod", environment))["state"] == "completed"


def typed(command: str, environment: dict[str, str]) -> str:
    """Run a command that must succeed and return its output."""
    script = f'moorage() {{ "{sys.executable}" -m moorage "$@"; }}; {command}'
    done = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout
