"""What the agent itself is told of a job, in files beside it.

turn.json has the turn: the first line of the JSON lines protocol, and for everybody else a file to look
into. mcp.json has the MCP servers, in the form that most programs take as their configuration.
"""

from __future__ import annotations

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
    """The public part of a job."""
    agent = job["agent"]
    told = {key: job.get(key) for key in TOLD}
    return {"type": "turn", **told, "agent_name": agent["name"], "mcp_servers": agent.get("mcp_servers") or {}}


def write_turn(folder: str, job: dict[str, Any]) -> bytes:
    """Write the files; the turn as a line."""
    line = json.dumps(turn_of(job), ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    write_private(os.path.join(folder, TURN), line)
    if servers := job["agent"].get("mcp_servers"):
        write_private(os.path.join(folder, SERVERS), json.dumps({"mcpServers": servers}).encode())
    return line


def write_private(path: str, data: bytes) -> None:
    """Put data into a file that only this user can read: whole, and on disk, or not at all."""
    with open(f"{path}.part", "wb", opener=private) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.part", path)


def private(path: str, flags: int) -> int:
    """An opener for files that are nobody else's business."""
    return os.open(path, flags, 0o600)
