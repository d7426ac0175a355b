"""Access to the file: inline for scripts (this module), on threads for servers (`threads`).

Inline, a coroutine runs its job at once and never suspends, so it can be driven to its end without an event loop.

A job is a coroutine function of `Driven` that never suspends. Jobs may run more than once and have no effects outside
the database.
"""

from __future__ import annotations

import time
from _thread import RLock  # `threading` and what it imports would add half a millisecond to every hook
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import apsw

from moorage.core.inline import drive
from moorage.stores import OpeningProcess
from moorage.stores.sql.db import T
from moorage.stores.sqlite.connection import Driven, SqliteConnection, SqliteJob, translated, translating

LOOK_EVERY = 0.02  # seconds between checks for other processes' writes


class SqliteAccess(Protocol):
    """A way to run jobs on the file."""

    async def write(self, job: SqliteJob[T], weight: int = 0) -> T:
        """Run a job in a write transaction; once it returns, its changes are on disk."""

    async def read(self, job: SqliteJob[T]) -> T:
        """Run a job that only reads."""

    async def glance(self, job: SqliteJob[T]) -> T:
        """Run a job that reads a few rows by their keys."""

    def snapshot(self, job: SqliteJob[T]) -> Coroutine[Any, Any, T]:
        """Run a job whose reads all see one instant."""

        async def at_one_instant(db: Driven) -> T:
            with db.connection.snapshot():
                return await job(db)

        return self.read(at_one_instant)

    def transact(self, job: SqliteJob[T]) -> Coroutine[Any, Any, T]:
        """Run a job that writes with several statements."""
        return self.write(job)

    def on_commit(self, watcher: Callable[[int, float], None]) -> None:
        """Call `watcher` after every commit from now on with the number of jobs and the seconds it took."""

    def pulse(self) -> int:
        """Return a number that changes with every commit."""

    async def wait(self, seen: int, timeout: float) -> int:
        """Return the pulse once it differs from `seen` or time is up."""

    async def close(self) -> None:
        """Close the file."""


class InlineAccess(SqliteAccess):
    """Runs jobs at once on one connection, which threads use in turn."""

    def __init__(self, db: SqliteConnection) -> None:
        self._db, self._process = db, OpeningProcess(db.path)
        self._path = db.path
        self._lock = RLock()
        self._commits = 0

    def on_commit(self, watcher: Callable[[int, float], None]) -> None:
        """Do nothing: a script has no metrics."""

    async def write(self, job: SqliteJob[T], weight: int = 0) -> T:
        with self._lock:
            db = self._connection()
            try:
                db.begin()
                before = db.raw.total_changes()
                result = drive(job(db.driven))
                db.commit()
            except apsw.Error as error:
                db.rollback()
                raise translated(error, self._path) from error
            except BaseException:
                db.rollback()
                raise
            if db.raw.total_changes() != before:  # a transaction without changes wakes no waiter
                self._committed()
            return result

    def _committed(self) -> None:
        self._commits += 1

    async def read(self, job: SqliteJob[T]) -> T:
        with self._lock:
            try:
                return drive(job(self._connection().driven))
            except apsw.Error as error:
                raise translated(error, self._path) from error

    glance = read

    def _connection(self) -> SqliteConnection:
        self._process.check()
        return self._db

    def pulse(self) -> int:
        with self._lock, translating(self._path):
            return (self._connection().data_version() << 32) + self._commits

    async def wait(self, seen: int, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        while (pulse := self.pulse()) == seen and time.monotonic() < deadline:
            time.sleep(LOOK_EVERY)  # noqa: ASYNC251  # inline means: there is no event loop to block
        return pulse

    async def close(self) -> None:
        with self._lock:
            self._process.is_closed = True
            self._db.close()
