"""The files that describe a turn to its agent.

turn.json describes the turn: it is the first line of the JSON lines protocol, and a file for all other agents.
mcp.json contains the MCP servers, in the format that most programs use for their configuration.
"""

from __future__ import annotations

import fcntl
import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TURN, SERVERS = "turn.json", "mcp.json"
TOLD = (
    "prompt",
    "items",
    "history",
    "parameters",
    "system_prompt",
    "session_id",
    "session_name",
    "task_id",
    "run_id",
    "turn_id",
    "checkpoint",
    "context",
    "cut_off",
)


def turn_of(job: dict[str, Any]) -> dict[str, Any]:
    """Return the public part of a job."""
    agent = job["agent"]
    told = {key: job.get(key) for key in TOLD}
    return {"type": "turn", **told, "agent_name": agent["name"], "mcp_servers": agent.get("mcp_servers") or {}}


def write_turn(folder: str, job: dict[str, Any]) -> bytes:
    """Write the files; return the turn as a line."""
    line = json.dumps(turn_of(job), ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    write_private(os.path.join(folder, TURN), line)
    if servers := job["agent"].get("mcp_servers"):
        write_private(os.path.join(folder, SERVERS), json.dumps({"mcpServers": servers}).encode())
    return line


def write_private(path: str, data: bytes, *, lasting: bool = True) -> None:
    """Write a file that only this user can read, completely or not at all; if it is `lasting`, sync it to disk."""
    with open(f"{path}.part", "wb", opener=private) as file:
        file.write(data)
        if lasting:
            file.flush()
            os.fsync(file.fileno())
    os.replace(f"{path}.part", path)


def locked(path: str) -> int | None:
    """Lock a file, created if needed; None if it is locked. The system releases the lock when its last holder ends."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def private(path: str, flags: int) -> int:
    """Open a file that only this user can read."""
    return os.open(path, flags, 0o600)
