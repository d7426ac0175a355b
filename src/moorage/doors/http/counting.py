"""Where the workers of one server count together: a folder in the home, with a lock that lives as long as any of them.

A server that is killed cannot clear its folder away, so the next one that starts does: of whichever folder nobody has
the lock. The workers have it, too; a folder stays until the last of them is gone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from moorage import config

NAME = "metrics"
LOCK = "lock"


@contextmanager
def counting_folder() -> Iterator[tuple[str, int]]:
    """A new folder and its lock, a file that workers have to inherit; what dead servers have left goes."""
    clear_up()
    config.make_folder(_every())
    folder = tempfile.mkdtemp(prefix="server-", dir=_every())
    lock = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield folder, lock
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def clear_up() -> None:
    """Remove what servers have left that were killed."""
    with suppress(OSError):  # there is nothing, or it is not ours
        for name in os.listdir(_every()):
            folder = os.path.join(_every(), name)
            if _is_nobodys(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _every() -> str:
    return os.path.join(config.home(), NAME)


def _is_nobodys(folder: str) -> bool:
    try:
        lock = os.open(os.path.join(folder, LOCK), os.O_RDWR)
    except OSError:
        return False  # it is being made at this moment, or is none of ours
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(lock)
