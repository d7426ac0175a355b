"""Where the workers of one server count together: a folder in the home, with a lock that lives as long as any of them.

The workers inherit the lock, so the folder stays until the last of them is gone; the next server clears it away.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from moorage import config
from moorage.service import locked_folder

NAME, PREFIX = "metrics", "server-"


@contextmanager
def counting_folder() -> Iterator[tuple[str, int]]:
    """A new folder and its lock, a file that workers have to inherit; what dead servers have left goes."""
    clear_up()
    config.make_folder(_every())
    folder, lock = locked_folder.make(PREFIX, _every())
    try:
        yield folder, lock
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def clear_up() -> None:
    """Remove what servers have left that were killed."""
    locked_folder.clear_up(PREFIX, _every())


def _every() -> str:
    return os.path.join(config.home(), NAME)
