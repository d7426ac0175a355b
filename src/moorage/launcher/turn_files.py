"""The files of a turn, which its supervisor and its agent read and write.

turn.json describes the turn: it is the first line of the JSON lines protocol, and a file for all other agents.
mcp.json contains the MCP servers, in the format that most programs use for their configuration.
`supervisor` describes the others. A full disk stops nothing: lines wait in memory and are written later.
"""

from __future__ import annotations

import fcntl
import json
import os

from moorage.launcher.processes import clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TOLD = (
    *("prompt", "items", "history", "parameters", "system_prompt"),
    *("session_id", "session_name", "task_id", "run_id", "turn_id", "checkpoint", "context", "cut_off"),
)
LASTING = ("message", "checkpoint", "approval", "result")  # written to disk before anything else happens
CHUNK_EVERY = 0.05  # seconds; smaller pieces of an answer are sent together
CHUNK_SIZE = 16 * 1024
STDERR_SIZE = 64 * 1024
STDERR_EVERY = 1.0


def turn_of(job: dict[str, Any]) -> dict[str, Any]:
    """Return the public part of a job."""
    agent = job["agent"]
    told = {key: job.get(key) for key in TOLD}
    return {"type": "turn", **told, "agent_name": agent["name"], "mcp_servers": agent.get("mcp_servers") or {}}


def write_turn(folder: str, job: dict[str, Any]) -> bytes:
    """Write the files; return the turn as a line."""
    line = json.dumps(turn_of(job), ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    write_private(os.path.join(folder, "turn.json"), line)
    if servers := job["agent"].get("mcp_servers"):
        write_private(os.path.join(folder, "mcp.json"), json.dumps({"mcpServers": servers}).encode())
    return line


class Outbox:
    """The file of events."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._unwritten = bytearray()
        self._chunks: list[str] = []
        self._chunks_size, self._chunks_since = 0, 0.0
        self._is_due = False  # whether a lasting event still has to reach the disk

    def put(self, event: dict[str, Any]) -> None:
        """Write an event after all earlier ones."""
        if event["type"] == "chunk":
            self._put_chunk(event["text"])
            return
        self._close_chunk()
        self._write(event)
        self._is_due = self._is_due or event["type"] in LASTING
        self.flush()

    def flush(self) -> bool:
        """Write what is due; return whether nothing is left to write."""
        if self._chunks and clock() - self._chunks_since >= CHUNK_EVERY:
            self._close_chunk()
        try:
            while self._unwritten:
                del self._unwritten[: os.write(self._file, self._unwritten)]
            if self._is_due:
                os.fsync(self._file)
                self._is_due = False
        except OSError:
            return False
        return not self._chunks

    def _put_chunk(self, text: str) -> None:
        if not self._chunks:
            self._chunks_since = clock()
        self._chunks.append(text)
        self._chunks_size += len(text)
        if self._chunks_size >= CHUNK_SIZE:
            self._close_chunk()

    def _close_chunk(self) -> None:
        if self._chunks:
            self._write({"type": "chunk", "text": "".join(self._chunks)})
            self._chunks, self._chunks_size = [], 0

    def _write(self, event: dict[str, Any]) -> None:
        """Add an event as valid JSON on one line; characters that are no valid text are replaced."""
        line = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
        self._unwritten += line.encode("utf-8", "replace") + b"\n"


class StderrTail:
    """The end of an agent's standard error."""

    def __init__(self, path: str) -> None:
        self._path, self._kept = path, bytearray()
        self._saved_at: float | None = None
        self._is_saved = True

    def add(self, data: bytes) -> None:
        """Append data, and discard the oldest above the limit."""
        self._kept += data
        del self._kept[:-STDERR_SIZE]
        self._is_saved = False

    def save(self, *, now: bool = False) -> None:
        """Save it to the file, at intervals."""
        if self._is_saved or not (now or self._saved_at is None or clock() - self._saved_at >= STDERR_EVERY):
            return
        try:
            write_private(self._path, bytes(self._kept), lasting=False)
        except OSError:
            return
        self._is_saved, self._saved_at = True, clock()

    def text(self, limit: int = 2000) -> str:
        """Return its end for display."""
        return self._kept[-limit:].decode("utf-8", "replace").strip()


class Follower:
    """Reads the lines of a growing file; an incomplete line waits, an invalid one is skipped."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: int | None = None
        self._rest = b""

    def news(self) -> list[dict[str, Any]]:
        """Return the events added since the last call."""
        if self._file is None:
            try:
                self._file = os.open(self._path, os.O_RDONLY)
            except FileNotFoundError:
                return []
        while data := os.read(self._file, 64 * 1024):
            self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        return [command for line in lines if (command := _command(line)) is not None]


def _command(line: bytes) -> dict[str, Any] | None:
    try:
        command = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return command if isinstance(command, dict) else None


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
