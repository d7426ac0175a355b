"""Folders that live as long as a process: the lock in each says whether its maker, or who inherited the lock, lives.

A process that is killed cannot clear its folder away, so the next one does: each folder whose lock is free.
The system lets go of a lock when its last holder ends; ids of processes, which are used again, do not come into it.
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
    """Return a new folder, of that name if one is given, and its lock, which is held as long as the file is open."""
    if name is None:
        folder = tempfile.mkdtemp(prefix=prefix, dir=within)
    else:
        folder = os.path.join(within, prefix + name)
        os.mkdir(folder, 0o700)
    unfinished = os.path.join(folder, f"{LOCK}.new")
    lock = os.open(unfinished, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.rename(unfinished, os.path.join(folder, LOCK))  # not visible before it is held
    return folder, lock


def clear_up(prefix: str, within: str, is_needed: Callable[[str], bool] = lambda _: False) -> None:
    """Remove the folders of processes that are gone, except what is needed still."""
    with suppress(OSError):  # there is nothing, or it is not ours
        for name in os.listdir(within):
            folder = os.path.join(within, name)
            if name.startswith(prefix) and is_unlocked(folder) and not is_needed(folder):
                shutil.rmtree(folder, ignore_errors=True)


def is_unlocked(folder: str) -> bool:
    """Whether a folder of this user has a lock that is free."""
    try:
        seen = os.lstat(folder)
        if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid():
            return False
        return not is_held(os.path.join(folder, LOCK))
    except OSError:
        return False  # it is being made at this moment, or is none of ours


def is_held(path: str) -> bool:
    """Whether a lock is held. Raises OSError if it cannot be told."""
    lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: several may look at a time
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
