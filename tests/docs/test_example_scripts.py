"""The programs in examples/ run as they are, each in a process of its own."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.page import ROOT
from tests.docs.runner import matches, sitting_environment

EXAMPLES = ROOT / "examples"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "sitting"
    folder.mkdir()
    return folder


def output_of(folder: Path, script: str, *args: str) -> str:
    """Run an example to its end in `folder` and return what it printed."""
    command = [sys.executable, str(EXAMPLES / script), *args]
    done = subprocess.run(
        command, cwd=folder, env=sitting_environment(folder), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_quickstart_tells_a_session_from_beginning_to_end(folder: Path) -> None:
    expected = """\
created    …
suspended  in phase planning
resumable  True (session_resumable)
resumed    with {'shortlist': …}, {'preference': 'quiet street'} and 1 message
   1  created     …
…
   9  finalized   …
"""
    assert matches(expected, output_of(folder, "quickstart.py"))


def test_approval_is_asked_answered_and_used_by_three_processes(folder: Path) -> None:
    url = "sqlite:///approval.db"
    steps = [output_of(folder, "approval.py", step, url) for step in ("ask", "answer", "go-on")]
    assert steps[0] == "asked      Publish notes.md?\n"
    assert steps[1] == "answered   approved by editor\n"
    assert steps[2] == "resumed    in phase planning with {'draft': 'notes.md'}\nfinalized  completed\n"


def test_approval_runs_all_steps_when_none_is_named(folder: Path) -> None:
    assert output_of(folder, "approval.py").endswith("finalized  completed\n")


def test_every_example_has_a_test() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {"quickstart.py", "approval.py"}


def test_notebook_runs_from_top_to_bottom() -> None:
    """Run the code cells in one namespace, and show each cell's last value as a notebook does."""
    cells = json.loads((EXAMPLES / "session.ipynb").read_text(encoding="utf-8"))["cells"]
    namespace: dict[str, Any] = {"__name__": "__main__"}
    shown = [_shown(ast.parse("".join(cell["source"])), namespace) for cell in cells if cell["cell_type"] == "code"]
    assert not any(cell.get("outputs") for cell in cells)
    titles = [re.sub(r"<.*", "", text.removeprefix("<table><caption>")) for text in shown if text]
    assert titles[:4] == ["Session", "Session", "Approval", "Approval"]
    assert "Echo Agent Response: hello" in shown[-3]
    assert "first-run" in shown[-2]


def _shown(cell: ast.Module, namespace: dict[str, Any]) -> str:
    """Run a cell; return its last expression as a notebook shows it."""
    last = cell.body.pop() if isinstance(cell.body[-1], ast.Expr) else None
    exec(compile(cell, "session.ipynb", "exec"), namespace)
    if not isinstance(last, ast.Expr):
        return ""
    value = eval(compile(ast.Expression(last.value), "session.ipynb", "eval"), namespace)
    return "" if value is None else str(value._repr_html_())
