"""The spool: events that the store could not take, one file each, until it can.

A file is written beside its place and moved there when it is on disk, so nobody sees half
of one. Whoever takes events in holds a lock, takes the oldest first, and deletes each when
the store has it: an event may be told twice, but it is not lost. One that is refused is a
dead letter: a line that says why and when, and the event below it. `moorage doctor` tells of
those, `moorage hooks deliver --refused` tries them again, and the oldest go when there are too many.
"""

from __future__ import annotations

import os
import time
from _thread import get_ident
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from zlib import crc32

import msgspec
from msgspec import Struct

from moorage import config
from moorage.core.errors import MoorageError

FOLDER = "spool"
WAITING, REFUSED, UNFINISHED = ".json", ".refused", ".part"
MAX_REFUSED = 1000  # dead letters that are kept
MAX_REFUSED_BYTES = 64 * 1024 * 1024  # of all of them
UNNAMED = "unnamed"  # in the place of a store's mark: the configuration that names it could not be read
LOOK_EVERY = 0.002  # seconds, while somebody else takes events in


def folder() -> str:
    """Where events wait."""
    return os.path.join(config.home(), FOLDER)


class Refusal(Struct, frozen=True, kw_only=True):
    """Why an event was refused, and when."""

    reason: str
    refused_at: datetime


class Contents(Struct, frozen=True, kw_only=True):
    """What is in the folder: events that wait for one store and for others, and those that were refused."""

    waiting: int
    since: datetime | None  # of the oldest that waits, for whichever store
    elsewhere: int  # of those that wait: for other stores
    refused: int
    last_refusal: Refusal | None


def contents(url: str) -> Contents:
    """Return what is in the folder, as seen by one who uses that store."""
    names = _names()
    waiting = sorted((name for name in names if name.endswith(WAITING)), key=_age)
    refused = sorted((name for name in names if name.endswith(REFUSED)), key=_age)
    own = Spool(url, is_configured=True)
    return Contents(
        waiting=len(waiting),
        since=_time_of(waiting[0]) if waiting else None,
        elsewhere=sum(not own._is_ours(name) for name in waiting),
        refused=len(refused),
        last_refusal=_refusal_of(refused[-1]) if refused else None,
    )


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

    def refuse(self, item: bytes, at: datetime, reason: str) -> None:
        """Keep an event of that time as a dead letter. Raises OSError or StoreError if that is impossible."""
        config.make_folder(folder())
        path = os.path.join(folder(), f"{self._mark}-{int(at.timestamp() * 1e6):020d}-{os.getpid()}")
        _write_refused(path, item, reason)

    def put_back(self) -> int:
        """Let every dead letter wait for this store; how many there were."""
        refused = [name for name in _names() if name.endswith(REFUSED)]
        return sum(self._put_back(name) for name in refused)

    def _put_back(self, name: str) -> bool:
        path = os.path.join(folder(), name)
        waits = os.path.join(folder(), f"{self._mark}-{name.partition('-')[2].removesuffix(REFUSED)}")
        try:
            with open(path, "rb") as file:
                item = file.read().partition(b"\n")[2]
            _write(waits + UNFINISHED, item)
            os.replace(waits + UNFINISHED, waits + WAITING)
            os.unlink(path)
        except OSError:
            return False
        return True

    def take_each(self, take: Callable[[bytes], str | None], *, until: float) -> bool:
        """Give out what waits, oldest first, as long as there is time; whether nothing waits any more.

        `take` says why one will never be taken, and None of one that is; an exception ends it for now.
        """
        with _alone(self._mark, until) as is_alone:
            for path in self._waiting() if is_alone else ():
                if time.monotonic() >= until:
                    break
                _give_out(path, take)
        return not self.has_something()

    def _waiting(self) -> list[str]:
        names = sorted(filter(self._is_ours, _names()), key=_age)
        return [os.path.join(folder(), name) for name in names]

    def _is_ours(self, name: str) -> bool:
        return name.endswith(WAITING) and name.partition("-")[0] in self._takes


def _mark(url: str) -> str:
    """What tells stores apart: a relative path is another file in another folder."""
    if url.startswith("sqlite:"):
        with suppress(MoorageError, OSError):
            url = os.path.abspath(config.sqlite_path(url))
    return f"{crc32(os.fsencode(url)):08x}"


def _age(name: str) -> str:
    """What sorts files by the time of their events, the oldest first."""
    return name.partition("-")[2]


def _time_of(name: str) -> datetime | None:
    digits = _age(name).partition("-")[0]
    return datetime.fromtimestamp(int(digits) / 1e6, UTC) if digits.isdigit() else None


def _refusal_of(name: str) -> Refusal | None:
    try:
        with open(os.path.join(folder(), name), "rb") as file:
            return msgspec.json.decode(file.readline(), type=Refusal)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


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


def _give_out(path: str, take: Callable[[bytes], str | None]) -> None:
    try:
        with open(path, "rb") as file:
            item = file.read()
    except FileNotFoundError:
        return  # somebody has tidied up
    except OSError:  # one that cannot be read must not stand in the way of the others
        os.replace(path, path.removesuffix(WAITING) + REFUSED)
        return
    if (reason := take(item)) is not None:
        _write_refused(path.removesuffix(WAITING), item, reason)
    os.unlink(path)


def _write_refused(path: str, item: bytes, reason: str) -> None:
    """Write a dead letter, and drop the oldest if there are too many."""
    told = msgspec.json.encode(Refusal(reason=reason, refused_at=datetime.now(UTC)))
    unfinished = f"{path}-{get_ident()}{UNFINISHED}"
    _write(unfinished, told + b"\n" + item)
    os.replace(unfinished, path + REFUSED)
    _sync_folder()
    _drop_oldest()


def _drop_oldest() -> None:
    names = sorted((name for name in _names() if name.endswith(REFUSED)), key=_age, reverse=True)
    size = 0
    for number, name in enumerate(names, 1):
        path = os.path.join(folder(), name)
        with suppress(OSError):
            size += os.stat(path).st_size
            if number > 1 and (number > MAX_REFUSED or size > MAX_REFUSED_BYTES):
                os.unlink(path)


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
