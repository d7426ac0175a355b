"""Faults to inject: processes that race, hold locks and die; truncated files; full disks.

For tests of stores in files. Every wait is bounded: a timeout is an error, never a hang.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import IO, Any

import apsw

import moorage
from moorage.core.errors import StoreUnavailable
from moorage.ports import Store

PATIENCE = 60.0  # seconds for an operation that should take one, on a busy machine
NOBODY = 65534  # the user without rights
_SOURCES = os.path.dirname(os.path.dirname(os.path.abspath(moorage.__file__)))


def _search_path() -> list[str]:
    """Return the places where a worker finds the modules of this process."""
    return [_SOURCES, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]


class CannotInject(Exception):
    """This machine does not allow the fault; skip the test."""


class WorkerFailed(Exception):
    """A worker ended with an error, or did not answer in time."""


class Worker:
    """A Python program in a separate process, with the same Moorage; it reads and writes lines."""

    def __init__(self, code: str, *args: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, args)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(_search_path()), "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(self._process.stdout, self._lines.put), daemon=True),
            threading.Thread(target=self._read, args=(self._process.stderr, self._note_error), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: IO[str], keep: Callable[[str | None], None]) -> None:
        with stream:
            for line in stream:
                keep(line.rstrip("\n"))
        keep(None)

    def _note_error(self, line: str | None) -> None:
        if line is not None:
            self._errors.append(line)

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._process.pid

    def line(self, within: float = PATIENCE) -> str:
        """Return its next line of output."""
        try:
            line = self._lines.get(timeout=within)
        except queue.Empty:
            raise WorkerFailed(f"said nothing for {within} seconds") from None
        if line is None:
            self._lines.put(None)
            raise WorkerFailed(f"ended without another line: {self.errors()}")
        return line

    def heard(self) -> list[str]:
        """Return its unread output without waiting."""
        lines: list[str] = []
        while not self._lines.empty():
            if (line := self._lines.get()) is None:
                self._lines.put(None)
                break
            lines.append(line)
        return lines

    def say(self, line: str) -> None:
        """Send it a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def finish(self, within: float = PATIENCE) -> list[str]:
        """Return the rest of its output after a successful end."""
        self._end(within)
        if self._process.returncode != 0:
            raise WorkerFailed(f"exit code {self._process.returncode}: {self.errors()}")
        return self.heard()

    def kill(self) -> list[str]:
        """Kill it as `kill -9` does; return its unread output."""
        self._process.send_signal(signal.SIGKILL)
        self._end(PATIENCE)
        return self.heard()

    def stop(self) -> None:
        """Stop it (SIGSTOP)."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it run again."""
        self._process.send_signal(signal.SIGCONT)

    def errors(self) -> str:
        """Return its stderr."""
        return "\n".join(self._errors)

    def _end(self, within: float) -> None:
        with suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(within)
        except subprocess.TimeoutExpired:
            raise WorkerFailed(f"still runs after {within} seconds") from None
        for reader in self._readers:
            reader.join(PATIENCE)

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._end(PATIENCE)


def race(code: str, argument_lists: Sequence[Sequence[object]], within: float = PATIENCE) -> list[list[str]]:
    """Run one program several times at once; return the output of each.

    The program prints a line when it is ready and waits for a line before it begins.
    """
    with ExitStack() as running:
        workers = [running.enter_context(Worker(code, *arguments)) for arguments in argument_lists]
        for worker in workers:
            worker.line(within)
        for worker in workers:
            worker.say("go")
        return [worker.finish(within) for worker in workers]


_LOCKER = """
import sys, apsw
db = apsw.Connection(sys.argv[1])
db.set_busy_timeout(30_000)
db.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
db.execute("ROLLBACK")
"""


@contextmanager
def write_lock(path: str | os.PathLike[str]) -> Iterator[Worker]:
    """Let another process hold the write lock of an SQLite file; send it a line to release the lock sooner."""
    with Worker(_LOCKER, os.fspath(path)) as locker:
        locker.line()
        yield locker


# Answers ----------------------------------------------------------------------------------------


class UnreliableStore:
    """A store that executes a call and then raises an error, or raises one without executing it.

    `loses` gets the name of each method that has just written, and tells whether its answer gets lost; `refuses` gets
    that of each method, and tells whether it fails. If it `is_away`, all calls fail.
    """

    WRITES = ("create", "apply", "append", "claim")
    HINTS = ("pulse", "wait", "close", "capabilities")

    def __init__(self, store: Store) -> None:
        self._store, self.is_away = store, False
        self.loses: Callable[[str], bool] = lambda _: False
        self.refuses: Callable[[str], bool] = lambda _: False
        self.lost: list[str] = []  # the methods whose answers, or whose requests, got lost

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)
        if name not in self.HINTS and (self.is_away or self.refuses(name)):
            return partial(self._fail, name)
        return partial(self._asked, name, real) if name in self.WRITES else real

    async def _fail(self, name: str, *_: Any, **__: Any) -> Any:
        self.lost.append(name)
        raise StoreUnavailable("no answer", store="a store that is away")

    async def _asked(self, name: str, real: Callable[..., Any], *args: Any, **options: Any) -> Any:
        before = self._store.pulse()
        answer = await real(*args, **options)
        if self._store.pulse() != before and answer is not None and self.loses(name):
            self.lost.append(name)
            raise StoreUnavailable("the answer got lost on the way", store="a store that does what it is asked")
        return answer


# Files ------------------------------------------------------------------------------------------


def file_contents(path: str | os.PathLike[str]) -> dict[str, bytes]:
    """Return the bytes of a database file and its log. The index of the log may be rebuilt and is left out.

    Do not call it while this process has the database open: closing the file again would drop its locks.
    """
    found: dict[str, bytes] = {}
    for name in (os.fspath(path), f"{os.fspath(path)}-wal"):
        with suppress(FileNotFoundError), open(name, "rb") as file:
            found[os.path.basename(name)] = file.read()
    return {name: content for name, content in found.items() if content}  # an empty log counts as none


@contextmanager
def opened_raw(path: str | os.PathLike[str]) -> Iterator[apsw.Connection]:
    """Open the database without Moorage, to damage or inspect it."""
    db = apsw.Connection(os.fspath(path))
    db.set_busy_timeout(30_000)
    try:
        yield db
    finally:
        db.close()


def into_one_file(path: str | os.PathLike[str]) -> None:
    """Move the log into the database and remove it, as a backup copy would be made."""
    with opened_raw(path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        db.execute("PRAGMA journal_mode = DELETE").fetchall()
        db.execute("PRAGMA journal_mode = WAL").fetchall()
    for ending in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.unlink(f"{os.fspath(path)}{ending}")


def cut_to(path: str | os.PathLike[str], length: int) -> None:
    """Truncate a file."""
    os.truncate(path, length)


@contextmanager
def small_disk(folder: str | os.PathLike[str], kilobytes: int) -> Iterator[str]:
    """Mount a file system of that size on an empty folder. Raise CannotInject without the permission."""
    place = os.fspath(folder)
    os.makedirs(place, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "moorage-small-disk", place]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False, timeout=PATIENCE)
    except OSError as error:
        raise CannotInject(f"no mount here: {error}") from None
    if done.returncode != 0:
        raise CannotInject(f"may not mount here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], capture_output=True, check=True, timeout=PATIENCE)


def fill(folder: str | os.PathLike[str], leave: int = 0) -> str:
    """Fill a (small) disk with one file except for `leave` bytes; return the file's path."""
    path = os.path.join(os.fspath(folder), "filling")
    with open(path, "wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0" * 65536)
    size = os.path.getsize(path)
    os.truncate(path, max(0, size - leave))
    return path


def eventually(check: Callable[[], bool], within: float = PATIENCE) -> bool:
    """Return whether a condition comes true in time."""
    deadline = time.monotonic() + within
    while not check():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
