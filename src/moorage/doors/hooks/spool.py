"""The spool: events that the store could not take, one file each, until it can.

A file is written beside its place and moved there when it is on disk, so no reader sees half of one. The process that
delivers events holds a lock, takes the oldest first, and deletes each when the store has it: an event may be delivered
twice, but it is not lost. A refused event is a dead letter: a line with the reason and the time, and the event below
it. `moorage doctor` lists dead letters, `moorage hooks deliver --refused` tries them again, and the oldest are deleted
when there are too many.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from zlib import crc32

import msgspec
from msgspec import Struct

from moorage import config
from moorage.core.errors import MoorageError

FOLDER = "spool"
WAITING, REFUSED = ".json", ".refused"
MAX_REFUSED = 1000  # dead letters that are kept
MAX_REFUSED_BYTES = 64 * 1024 * 1024  # of all of them
UNNAMED = "unnamed"  # instead of a store's mark, if the configuration that names the store cannot be read
LOOK_EVERY = 0.002  # seconds, while another process delivers events


def folder() -> str:
    """Return the folder of waiting events."""
    return os.path.join(config.home(), FOLDER)


class Refusal(Struct, frozen=True, kw_only=True):
    """The reason and the time of a refusal."""

    reason: str
    refused_at: datetime


class Contents(Struct, frozen=True, kw_only=True):
    """The contents of the folder: events waiting for one store and for others, and refused events."""

    waiting: int
    since: datetime | None  # of the oldest waiting event, for any store
    elsewhere: int  # waiting events for other stores
    refused: int
    last_refusal: Refusal | None


def contents(url: str) -> Contents:
    """Return the contents of the folder, from the point of view of one store."""
    waiting, refused, own = _names(WAITING), _names(REFUSED), Spool(url, is_configured=True)
    return Contents(
        waiting=len(waiting),
        since=_time_of(waiting[0]) if waiting else None,
        elsewhere=sum(not own.is_ours(name) for name in waiting),
        refused=len(refused),
        last_refusal=_refusal_of(refused[-1]) if refused else None,
    )


class Spool:
    """The events that wait for one store."""

    def __init__(self, url: str | None, *, is_configured: bool = False) -> None:
        self._mark = UNNAMED if url is None else _mark(url)
        self._takes = {self._mark, UNNAMED} if is_configured else {self._mark}

    def has_something(self) -> bool:
        """Return whether events wait."""
        return any(map(self.is_ours, _names(WAITING)))

    def is_ours(self, name: str) -> bool:
        """Return whether a file waits for this store."""
        return name.partition("-")[0] in self._takes

    def keep(self, item: bytes, at: datetime) -> None:
        """Spool an event of that time. Raise OSError or StoreError if that is impossible."""
        _put(self._new_path(at), WAITING, item)

    def refuse(self, item: bytes, at: datetime, reason: str) -> None:
        """Keep an event of that time as a dead letter. Raise OSError or StoreError if that is impossible."""
        _put_refused(self._new_path(at), item, reason)

    def _new_path(self, at: datetime) -> str:
        config.make_folder(folder())
        return os.path.join(folder(), f"{self._mark}-{int(at.timestamp() * 1e6):020d}-{os.getpid()}")

    def put_back(self) -> int:
        """Return every dead letter to the queue of this store; return their number."""
        return sum(self._put_back(name) for name in _names(REFUSED))

    def _put_back(self, name: str) -> bool:
        path = os.path.join(folder(), name)
        try:
            with open(path, "rb") as file:
                item = file.read().partition(b"\n")[2]
            _put(os.path.join(folder(), f"{self._mark}-{_age(name).removesuffix(REFUSED)}"), WAITING, item)
            os.unlink(path)
        except OSError:
            return False
        return True

    def take_each(self, take: Callable[[bytes], str | None], *, until: float) -> bool:
        """Deliver waiting events, oldest first, as long as there is time; return whether none is left.

        `take` returns why an event can never be stored, or None once it is stored; an exception ends the delivery for
        now.
        """
        with _alone(self._mark, until) as is_alone:
            for name in filter(self.is_ours, _names(WAITING)) if is_alone else ():
                if time.monotonic() >= until:
                    break
                _give_out(os.path.join(folder(), name), take)
        return not self.has_something()


def _mark(url: str) -> str:
    """Return a mark that identifies the store: a relative path is another file in another folder."""
    if url.startswith("sqlite:"):
        with suppress(MoorageError, OSError):
            url = os.path.abspath(config.sqlite_path(url))
    return f"{crc32(os.fsencode(url)):08x}"


def _names(suffix: str) -> list[str]:
    """Return the files with that suffix, the oldest event first."""
    try:
        return sorted((name for name in os.listdir(folder()) if name.endswith(suffix)), key=_age)
    except OSError:
        return []


def _age(name: str) -> str:
    """Return the part of a name that sorts files by the times of their events."""
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


def _put(path: str, suffix: str, data: bytes) -> None:
    with config.replacing(path + suffix, mode=0o600) as file:
        file.write(data)
    with suppress(OSError):  # make the new name durable, where the file system can
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
        return  # another process deleted it meanwhile
    except OSError:  # an unreadable file must not block the others
        os.replace(path, path.removesuffix(WAITING) + REFUSED)
        return
    if (reason := take(item)) is not None:
        _put_refused(path.removesuffix(WAITING), item, reason)
    os.unlink(path)


def _put_refused(path: str, item: bytes, reason: str) -> None:
    """Write a dead letter, and delete the oldest if there are too many."""
    refusal = Refusal(reason=reason, refused_at=datetime.now(UTC))
    _put(path, REFUSED, msgspec.json.encode(refusal) + b"\n" + item)
    size = 0
    for number, name in enumerate(reversed(_names(REFUSED)), 1):
        kept = os.path.join(folder(), name)
        with suppress(OSError):
            size += os.stat(kept).st_size
            if number > 1 and (number > MAX_REFUSED or size > MAX_REFUSED_BYTES):
                os.unlink(kept)


@contextmanager
def _alone(mark: str, until: float) -> Iterator[bool]:
    """Wait for the lock; yield whether this process got it and may deliver events."""
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
