"""Presence: how this machine detects that a one-off launcher and its agents are gone.

A one-off launcher (`moorage run`, a chat, a script) has a temporary folder, named by its id, and holds the lock in it
for as long as its process lives. So does the supervisor of each of its agents, in a folder below it. The system
releases a lock when its holder ends for any reason, and keeps it while the holder is stopped or the machine sleeps. A
folder of ours with a free lock is proof that nothing of that launcher is left. A missing folder, or another user's,
proves nothing: the launcher may be on another machine, in another container, or another user's. Process ids are not
used, because the system reuses them.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress

from moorage.core.turn import LOST_AFTER

LOCK = "lock"
PREFIX, TURNS = "moorage-turns-", "turns"
SEEN_GONE = "gone"  # a file whose time says when the launcher was first found gone
_ID = re.compile(r"[0-9a-f-]{36}")  # ids come from the store; only this form may become a path


def make(launcher_id: str) -> tuple[str, int]:
    """Return the folder of a new one-off launcher and its lock, which is held as long as the file is open."""
    return locked_folder(PREFIX, tempfile.gettempdir(), launcher_id)


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
    return is_unlocked(folder) and not _is_attended(folder)


def clear_up() -> None:
    """Remove the folders of killed launchers once they are no longer needed as proof."""
    remove_unlocked(PREFIX, tempfile.gettempdir(), _is_needed)


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
    try:
        at = [os.path.join(turns, name) for name in os.listdir(turns)]
    except FileNotFoundError:  # nothing was started, or the last supervisor has removed it
        return False
    return any(_is_held(os.path.join(turn, LOCK)) or _has_agent(turn) for turn in at)


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
        return is_held(lock)
    except FileNotFoundError:  # the launcher ended before it could start a supervisor
        return False
    except OSError:
        return True


# Folders with a lock -----------------------------------------------------------------------------


def locked_folder(prefix: str, within: str, name: str | None = None) -> tuple[str, int]:
    """Return a new folder, with that name if one is given, and its lock, which is held as long as the file is open."""
    if name is None:
        folder = tempfile.mkdtemp(prefix=prefix, dir=within)
    else:
        folder = os.path.join(within, prefix + name)
        os.mkdir(folder, 0o700)
    unfinished = os.path.join(folder, f"{LOCK}.new")
    lock = os.open(unfinished, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.rename(unfinished, os.path.join(folder, LOCK))  # not visible before the lock is held
    return folder, lock


def remove_unlocked(prefix: str, within: str, is_needed: Callable[[str], bool] = lambda _: False) -> None:
    """Remove the folders whose lock is free, except those still needed: a killed process cannot remove its own."""
    with suppress(OSError):  # the folder is missing, or is not ours
        for name in os.listdir(within):
            folder = os.path.join(within, name)
            if name.startswith(prefix) and is_unlocked(folder) and not is_needed(folder):
                shutil.rmtree(folder, ignore_errors=True)


def is_unlocked(folder: str) -> bool:
    """Return whether a folder of this user has a lock that is free."""
    try:
        seen = os.lstat(folder)
        if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid():
            return False
        return not is_held(os.path.join(folder, LOCK))
    except OSError:
        return False  # it is just being made, or is not ours


def is_held(path: str) -> bool:
    """Return whether a lock is held. Raises OSError if that cannot be checked."""
    lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: several processes may check at a time
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
