"""Following a file of JSON lines that somebody else appends to."""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Follower:
    """The lines of a file as they come; one that is not complete waits, one that makes no sense is skipped."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: int | None = None
        self._rest = b""

    def news(self) -> list[dict[str, Any]]:
        """What was added since the last time."""
        if self._file is None:
            try:
                self._file = os.open(self._path, os.O_RDONLY)
            except FileNotFoundError:
                return []
        while data := os.read(self._file, 64 * 1024):
            self._rest += data
        if b"\n" not in self._rest:
            return []
        *lines, self._rest = self._rest.split(b"\n")
        return [command for line in lines if (command := _command(line)) is not None]


def _command(line: bytes) -> dict[str, Any] | None:
    try:
        command = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return command if isinstance(command, dict) else None
