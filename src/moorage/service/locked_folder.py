"""Folders that live as long as a process. The lock in each shows whether its maker, or a process with its lock, lives.

A killed process cannot remove its folder, so the next process removes each folder with a free lock. The system
releases a lock when its last holder ends. Process ids are not used, because the system reuses them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress

LOCK = "lock"


def make(prefix: str, within: str, name: str | None = None) -> tuple[str, int]:
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


def clear_up(prefix: str, within: str, is_needed: Callable[[str], bool] = lambda _: False) -> None:
    """Remove the folders of processes that are gone, except those still needed."""
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
