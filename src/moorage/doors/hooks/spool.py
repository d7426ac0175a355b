"""The spool: events that the store could not take, one file each, until it can.

A file is written beside its place and moved there when it is on disk, so nobody sees half
of one. Whoever takes events in holds a lock, takes the oldest first, and deletes each when
the store has it: an event may be told twice, but it is not lost. One that the rules refuse
is set aside, where `moorage doctor` finds it.
"""

from __future__ import annotations

import os
import time
from _thread import get_ident
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from zlib import crc32

from moorage import config
from moorage.core.errors import MoorageError

FOLDER = "spool"
WAITING, SET_ASIDE, UNFINISHED = ".json", ".refused", ".part"
UNNAMED = "unnamed"  # in the place of a store's mark: the configuration that names it could not be read
LOOK_EVERY = 0.002  # seconds, while somebody else takes events in


def folder() -> str:
    """Where events wait."""
    return os.path.join(config.home(), FOLDER)


def counts() -> dict[str, int]:
    """How many events wait, and how many were set aside, whatever their store."""
    names = _names()
    return {
        "waiting": sum(1 for name in names if name.endswith(WAITING)),
        "set_aside": sum(1 for name in names if name.endswith(SET_ASIDE)),
    }


class Spool:
    """What waits for one store."""

    def __init__(self, url: str | None, *, is_configured: bool = False) -> None:
        self._mark = UNNAMED if url is None else _mark(url)
        self._takes = {self._mark, UNNAMED} if is_configured else {self._mark}

    def has_something(self) -> bool:
        """Whether events wait."""
        return any(self._is_ours(name) for name in _names())

    def keep(self, item: bytes, at: datetime) -> str:
        """Put an event of that time off; the file it is in. Raises OSError or StoreError if that is impossible."""
        config.make_folder(folder())
        path = os.path.join(folder(), f"{self._mark}-{int(at.timestamp() * 1e6):020d}-{os.getpid()}")
        unfinished = f"{path}-{get_ident()}{UNFINISHED}"  # somebody else of this process may have got stuck with it
        _write(unfinished, item)
        os.replace(unfinished, path + WAITING)
        _sync_folder()
        return path + WAITING

    def take_each(self, take: Callable[[bytes], bool], *, until: float) -> bool:
        """Give out what waits, oldest first, as long as there is time; whether nothing waits any more.

        `take` says False for one that will never be taken; an exception ends it for now.
        """
        with _alone(self._mark, until) as is_alone:
            for path in self._waiting() if is_alone else ():
                if time.monotonic() >= until:
                    break
                _give_out(path, take)
        return not self.has_something()

    def _waiting(self) -> list[str]:
        names = sorted(filter(self._is_ours, _names()), key=lambda name: name.partition("-")[2])
        return [os.path.join(folder(), name) for name in names]

    def _is_ours(self, name: str) -> bool:
        return name.endswith(WAITING) and name.partition("-")[0] in self._takes


def _mark(url: str) -> str:
    """What tells stores apart: a relative path is another file in another folder."""
    if url.startswith("sqlite:"):
        with suppress(MoorageError, OSError):
            url = os.path.abspath(config.sqlite_path(url))
    return f"{crc32(os.fsencode(url)):08x}"


def _names() -> list[str]:
    try:
        return os.listdir(folder())
    except OSError:
        return []


def _write(path: str, item: bytes) -> None:
    """A new file, on disk; none at all if it cannot be written whole."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(file, "wb") as stream:
            stream.write(item)
            stream.flush()
            os.fsync(file)
    except OSError:
        os.unlink(path)
        raise


def _sync_folder() -> None:
    """Make the new name durable, where the file system can."""
    with suppress(OSError):
        handle = os.open(folder(), os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _give_out(path: str, take: Callable[[bytes], bool]) -> None:
    try:
        with open(path, "rb") as file:
            item = file.read()
    except FileNotFoundError:
        return  # somebody has tidied up
    except OSError:
        is_taken = False  # one that cannot be read must not stand in the way of the others
    else:
        is_taken = take(item)
    if is_taken:
        os.unlink(path)
    else:
        os.replace(path, path.removesuffix(WAITING) + SET_ASIDE)


@contextmanager
def _alone(mark: str, until: float) -> Iterator[bool]:
    """Whether nobody else takes events in; waits for whoever does."""
    lock = os.open(os.path.join(folder(), f"{mark}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield _locked(lock, until)
    finally:
        os.close(lock)


def _locked(lock: int, until: float) -> bool:
    from fcntl import LOCK_EX, LOCK_NB, flock

    while True:
        try:
            flock(lock, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(LOOK_EVERY)
        else:
            return True
