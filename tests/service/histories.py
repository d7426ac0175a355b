"""Files that others kept, as tests need them: the recorded ones, and changed copies."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data"
STATE = DATA / "state" / "agent-20260108-180530-abc12345" / "state.json"
PROJECT = DATA / "claude-code"
HOST = "5e9a0c1e-7d3b-4f60-9a1c-2b8d4e6f7a01"
EXPLORER = "a3f9c2d41b7e60585"
READER = "a77b10c9e2d4f6031"
OLD = DATA / "claude-code-1.0" / "0f2b4d6a-8c1e-4a3b-9d5f-7e6c5b4a3d02.jsonl"


def a_state(**changes: Any) -> dict[str, Any]:
    """The example of the schema, with changes."""
    return {**json.loads(STATE.read_text()), **changes}


def write_state(root: Path, state: dict[str, Any] | str | bytes, folder: str | None = None) -> Path:
    """Put a state where such scripts keep it, under `root`."""
    name = folder or (state["agent_id"] if isinstance(state, dict) else "agent-1")
    path = root / ".claude" / "session" / name / "state.json"
    path.parent.mkdir(parents=True)
    data = json.dumps(state) if isinstance(state, dict) else state
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def a_project(folder: Path) -> Path:
    """A copy of the recorded project, to be changed."""
    return Path(shutil.copytree(PROJECT, folder / "project"))


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a transcript as values."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_lines(path: Path, lines: Iterable[dict[str, Any] | str]) -> Path:
    """A transcript of these lines; a text stands as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def changed(path: Path, change: Callable[[list[dict[str, Any]]], Any]) -> Path:
    """The transcript after a change of its lines."""
    lines = lines_of(path)
    change(lines)
    return write_lines(path, lines)


def said(uuid: str, content: Any, *, role: str = "user", session_id: str = HOST, **fields: Any) -> dict[str, Any]:
    """Return one line of a transcript with a message."""
    return {
        "type": role,
        "uuid": uuid,
        "sessionId": session_id,
        "timestamp": "2026-03-02T10:00:00Z",
        "message": {"role": role, "content": content, **fields.pop("message", {})},
        **fields,
    }
