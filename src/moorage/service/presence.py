"""Presence: how this machine detects that a one-off launcher and its agents are gone.

A one-off launcher (`moorage run`, a chat, a script) has a temporary folder, named by its id, and holds the lock in it
for as long as its process lives. So does the supervisor of each of its agents, in a folder below it. The system
releases a lock when its holder ends for any reason, and keeps it while the holder is stopped or the machine sleeps. A
folder of ours with a free lock is proof that nothing of that launcher is left. A missing folder, or another user's,
proves nothing: the launcher may be on another machine, in another container, or another user's.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import tempfile
import time

from moorage.core.turn import LOST_AFTER
from moorage.service import locked_folder

PREFIX, TURNS = "moorage-turns-", "turns"
SEEN_GONE = "gone"  # a file whose time says when the launcher was first found gone
_ID = re.compile(r"[0-9a-f-]{36}")  # ids come from the store; only this form may become a path


class GoneLaunchers:
    """The one-off launchers that are provably gone; ask with `in`."""

    def __contains__(self, launcher_id: object) -> bool:
        return isinstance(launcher_id, str) and is_gone(launcher_id)


def make(launcher_id: str) -> tuple[str, int]:
    """Return the folder of a new one-off launcher and its lock, which is held as long as the file is open."""
    return locked_folder.make(PREFIX, tempfile.gettempdir(), launcher_id)


def announce(launchers: set[str], launcher_id: str) -> None:
    """Register this process as a launcher for as long as it lives: its turns are given up when it is gone."""
    if launcher_id not in launchers:
        launchers.add(launcher_id)
        folder, _ = make(launcher_id)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)


def is_gone(launcher_id: str) -> bool:
    """Return whether a one-off launcher of this user on this machine has ended, with every agent it started."""
    if _ID.fullmatch(launcher_id) is None:
        return False
    folder = os.path.join(tempfile.gettempdir(), PREFIX + launcher_id)
    return locked_folder.is_unlocked(folder) and not _is_attended(folder)


def clear_up() -> None:
    """Remove the folders of killed launchers once they are no longer needed as proof."""
    locked_folder.clear_up(PREFIX, tempfile.gettempdir(), _is_needed)


def _is_needed(folder: str) -> bool:
    """Return whether turns may depend on the folder of a gone launcher; after a while they are lost without it."""
    if _is_attended(folder):
        return True
    mark = os.path.join(folder, SEEN_GONE)
    try:
        return time.time() - os.stat(mark).st_mtime < LOST_AFTER.total_seconds()
    except FileNotFoundError:
        os.close(os.open(mark, os.O_WRONLY | os.O_CREAT, 0o600))
        return True


def _is_attended(folder: str) -> bool:
    """Return whether a supervisor in a launcher's folder lives: it ends its agent a moment after the launcher."""
    turns = os.path.join(folder, TURNS)
    at = [os.path.join(turns, name) for name in _names(turns)]
    return any(_is_held(os.path.join(turn, locked_folder.LOCK)) or _has_agent(turn) for turn in at)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:  # nothing was started, or the last supervisor has removed it
        return []


def _has_agent(turn: str) -> bool:
    """Return whether a process of an agent's group lives though its supervisor was killed; a reused id counts."""
    try:
        with open(os.path.join(turn, "pid.json"), "rb") as file:
            os.killpg(json.load(file)["agent"]["pgid"], 0)
    except (FileNotFoundError, ProcessLookupError, ValueError, TypeError):  # it was never started, or has ended
        return False
    except OSError:
        return True
    return True


def _is_held(lock: str) -> bool:
    try:
        return locked_folder.is_held(lock)
    except FileNotFoundError:  # the launcher ended before it could start a supervisor
        return False
    except OSError:
        return True
