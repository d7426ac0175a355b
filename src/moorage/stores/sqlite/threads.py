"""Access to the file for servers: threads run the jobs, so that nothing blocks the event loop.

One writer thread commits all waiting jobs in one transaction, so that they share one fsync. Readers have connections of
their own. Small reads run on the thread of the loop (`Threaded.glance`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import apsw

from moorage.core.errors import StoreUnavailable
from moorage.core.inline import drive
from moorage.stores import OpeningProcess
from moorage.stores.pulse import Pulse, call_on
from moorage.stores.sql.db import T
from moorage.stores.sqlite.access import LOOK_EVERY, SqliteAccess
from moorage.stores.sqlite.connection import Glance, GlanceTooLong, SqliteConnection, SqliteJob, translated

if TYPE_CHECKING:
    import asyncio

MAX_GROUP = 64
MAX_GROUP_BYTES = 1024 * 1024
MAX_GROUP_SECONDS = 0.005
GATHER_SECONDS = 0.001  # tasks wait for more until none has come for so long
GATHER_MOST = 0.01  # seconds that the first of them waits
LOOK_EVERY_WHEN_QUIET = 0.05  # seconds: each look wakes the processor
QUIET_LOOKS = 50  # looks in a row that saw no commit
READERS = 4
LONG_GLANCE = 0.01  # seconds that a read may block the loop; after a longer one, threads read
THREADS_FOR = 1.0  # seconds
CHECKPOINT_PAGES = 1000
TRUNCATE_BYTES = 64 * 1024 * 1024


class Threaded(Pulse, SqliteAccess):
    """Runs jobs on threads, for an event loop that must not block."""

    def __init__(self, db: SqliteConnection) -> None:
        from asyncio import get_running_loop

        super().__init__()
        self._running_loop = get_running_loop
        self._path, self._process = db.path, OpeningProcess(db.path)
        self._post = _Post()
        self._writer = _Writer(db, self.beat, self._post)
        self._readers = _Readers(db, self._post)
        self._watcher: _Watcher | None = None
        self._glances: SqliteConnection | None = None
        self._glancing = threading.Lock()  # several loops may share a store
        self._threads_until = 0.0

    def on_commit(self, watcher: Callable[[int, float], None]) -> None:
        self._writer.watcher = watcher

    async def write(self, job: SqliteJob[T], weight: int = 0) -> T:
        self._process.check()
        loop = self._running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._writer.submit(_Task(job, weight, loop, future))
        return await future

    async def read(self, job: SqliteJob[T]) -> T:
        self._process.check()
        loop = self._running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._readers.submit(_Task(job, 0, loop, future))
        return await future

    async def glance(self, job: SqliteJob[T]) -> T:
        """Read on the thread of the loop: a switch of threads takes five times as long as reading a few rows.

        Readers never wait for the writer. If the read takes long, for example because messages are large, it is
        repeated on a thread. If it takes long there too, for example on a slow disk, threads run all such reads for a
        while.
        """
        began = time.monotonic()
        if began < self._threads_until or not self._glancing.acquire(blocking=False):
            return await self.read(job)
        try:
            self._process.check()
            return drive(job(self._glance_at_once(began)))
        except (GlanceTooLong, apsw.BusyError):
            pass  # release the lock before a thread reads
        except apsw.Error as error:
            raise translated(error, self._path) from error
        finally:
            self._glancing.release()
            if (ended := time.monotonic()) - began > LONG_GLANCE:
                self._threads_until = ended + THREADS_FOR
        return await self.read(job)

    def _glance_at_once(self, began: float) -> Glance:
        """Return the loop's own connection, which does not wait for locks."""
        if self._glances is None:
            self._glances = self._readers.connect()
            self._glances.raw.set_busy_timeout(0)
        return Glance(self._glances, began + LONG_GLANCE / 2)

    def listen(self) -> None:
        self._process.check()
        with self._guard:
            if self._watcher is None:  # from now on every commit is noticed
                self._watcher = _Watcher(self._path, self.beat)

    async def close(self) -> None:
        from asyncio import to_thread

        self._process.is_closed = True
        self._writer.put_gathered(self._running_loop())
        await to_thread(self._close)

    def _close(self) -> None:
        self._writer.stop()
        if self._watcher is not None:
            self._watcher.stop()
        self._readers.stop()
        with self._glancing:
            if self._glances is not None:
                self._glances.close()


class _Task:
    """A job on its way through the writer."""

    __slots__ = ("error", "future", "job", "loop", "result", "weight")

    def __init__(self, job: SqliteJob[Any], weight: int, loop: Any, future: Any) -> None:
        self.job, self.weight, self.loop, self.future = job, weight, loop, future
        self.result: Any = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        """Set the outcome on the future if its caller still waits. Runs on the caller's loop."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class _Post:
    """Hands outcomes back to the event loops that wait for them; one wake-up delivers all outcomes that are ready."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._boxes: dict[Any, list[_Task]] = {}  # by loop: outcomes it has not fetched yet

    def hand_back(self, tasks: Sequence[_Task]) -> None:
        """Hand tasks back from any thread; each loop is woken once for all of them."""
        with self._guard:
            to_wake = {task.loop for task in tasks}.difference(self._boxes)
            for task in tasks:
                self._boxes.setdefault(task.loop, []).append(task)
        for loop in to_wake:
            if not call_on(loop, self._fetch, loop):
                self._take(loop)

    def _fetch(self, loop: asyncio.AbstractEventLoop) -> None:
        for task in self._take(loop):
            task.settle()

    def _take(self, loop: asyncio.AbstractEventLoop) -> list[_Task]:
        with self._guard:
            return self._boxes.pop(loop, [])


class _Readers:
    """Threads that read, each with its own connection; a thread is added when all others are busy."""

    def __init__(self, like: SqliteConnection, post: _Post) -> None:
        self._path, self._sealer, self._post = like.path, like.opener, post
        self._queue: SimpleQueue[_Task | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._guard = threading.Lock()

    def connect(self) -> SqliteConnection:
        """Open a connection to read with."""
        return SqliteConnection(self._path, sealer=self._sealer)

    def submit(self, task: _Task) -> None:
        """Queue a task for the next free thread."""
        self._queue.put(task)
        if len(self._threads) < READERS and (not self._threads or self._queue.qsize() > 1):
            thread = threading.Thread(target=self._run, name="moorage-read", daemon=True)
            with self._guard:
                self._threads.append(thread)
            thread.start()

    def _run(self) -> None:
        db: SqliteConnection | None = None
        while (task := self._queue.get()) is not None:
            try:
                db = db or self.connect()
                task.result = drive(task.job(db.driven))
            except BaseException as error:
                task.error = translated(error, self._path) if isinstance(error, apsw.Error) else error
            self._post.hand_back((task,))
            del task  # otherwise its result would be kept in memory until the next task
        if db is not None:
            db.close()

    def stop(self) -> None:
        """Finish what is queued, then end."""
        with self._guard:
            threads = list(self._threads)
        for _ in threads:
            self._queue.put(None)
        for thread in threads:
            thread.join()


class _Gathering(list[_Task]):
    """Tasks of one loop that wait for more tasks, and the timer that ends the wait."""

    def __init__(self) -> None:
        super().__init__()
        self.timer: asyncio.TimerHandle | None = None
        self.until = time.monotonic() + GATHER_MOST


class _Writer:
    """The only thread that writes; it commits all waiting tasks in one transaction."""

    def __init__(self, db: SqliteConnection, committed: Callable[[], None], post: _Post) -> None:
        self._db, self._path, self._committed, self._post = db, db.path, committed, post
        self._queue: SimpleQueue[_Task | None] = SimpleQueue()
        self._checkpointer = _Checkpointer(db)
        self._db.raw.set_wal_hook(self._checkpointer.pages_in_wal)
        self._dead: BaseException | None = None
        self._expected = 1  # tasks expected at once: those of the last group, and those that came meanwhile
        self._gathering: dict[asyncio.AbstractEventLoop, _Gathering] = {}
        self.watcher: Callable[[int, float], None] | None = None
        self._in_hand: list[_Task] = []  # taken from the queue, not yet answered
        self._thread = threading.Thread(target=self._run, name="moorage-write", daemon=True)
        self._thread.start()

    def submit(self, task: _Task) -> None:
        """Queue a task. Wait briefly for as many other tasks of its loop as are expected, and queue them together.

        Every call into SQLite releases the interpreter's lock. A loop that is still submitting tasks would take it each
        time, and that would slow down both threads. So the wait goes on while more tasks come.
        """
        tasks = self._gathering.get(task.loop)
        if tasks is None:
            tasks = self._gathering[task.loop] = _Gathering()
        tasks.append(task)
        if len(tasks) >= self._expected:
            self.put_gathered(task.loop)
        elif tasks.timer is None:
            self._put_soon(task.loop, tasks)

    def _put_soon(self, loop: asyncio.AbstractEventLoop, tasks: _Gathering, before: int = 0) -> None:
        """Queue these tasks once none has come for a moment; `before` is how many there were a moment ago."""
        if len(tasks) > before and time.monotonic() < tasks.until:
            tasks.timer = loop.call_later(GATHER_SECONDS, self._put_soon, loop, tasks, len(tasks))
        else:
            self.put_gathered(loop)

    def put_gathered(self, loop: asyncio.AbstractEventLoop) -> None:
        """Queue the tasks of a loop that wait for more tasks."""
        if (tasks := self._gathering.pop(loop, None)) is not None:
            if tasks.timer is not None:
                tasks.timer.cancel()
            self._put(tasks)

    def _put(self, tasks: list[_Task]) -> None:
        """Queue tasks; they fail at once if the writer has ended."""
        for task in tasks:
            self._queue.put(task)
        if self._dead is not None:  # no thread is left to answer
            self._fail_waiting(self._dead)

    def stop(self) -> None:
        """Finish what is queued, then end."""
        self._queue.put(None)
        self._thread.join()
        self._checkpointer.stop()
        self._db.close()

    def _run(self) -> None:
        gone = StoreUnavailable(f"{self._path} is closed", store=self._path)
        try:
            while (first := self._queue.get()) is not None:
                group, go_on = self._gather_and_run(first)
                came = self._queue.qsize() + sum(map(len, list(self._gathering.values())))
                self._expected = min(len(group) + came, MAX_GROUP)
                self._post.hand_back(group)
                self._in_hand = []
                self._checkpointer.move_rest()
                if not go_on:
                    break
        except BaseException as error:  # whatever ended the writer, no caller may wait forever
            gone = StoreUnavailable(f"the writer of {self._path} died: {error!r}", store=self._path)
            raise
        finally:
            self._dead = gone
            for task in self._in_hand:
                task.error = gone
            self._post.hand_back(self._in_hand)
            self._fail_waiting(gone)

    def _gather_and_run(self, first: _Task) -> tuple[list[_Task], bool]:
        """Run one transaction; return its tasks, and False once it was told to stop."""
        db, done, go_on = self._db, [first], True
        self._in_hand = done
        began = time.monotonic()
        try:
            db.begin()
            before = db.raw.total_changes()
            if not self._attempt(first):
                return done, go_on
            weight, deadline = first.weight, time.monotonic() + MAX_GROUP_SECONDS
            while len(done) < MAX_GROUP and weight < MAX_GROUP_BYTES and time.monotonic() < deadline:
                if self._queue.empty():
                    break
                task = self._queue.get()
                if task is None:
                    go_on = False
                    break
                done.append(task)
                weight += task.weight
                if not self._attempt(task):
                    return self._run_apart(done), go_on
            db.commit()
        except Exception as error:  # the writer survives any error: without it, no write succeeds until a restart
            db.rollback()
            for task in done:  # an error at COMMIT fails the whole group
                task.error = self._told(error)
            return done, go_on
        self._tell_of_commit(len(done), time.monotonic() - began, db.raw.total_changes() != before)
        return done, go_on

    def _told(self, error: Exception) -> Exception:
        if isinstance(error, apsw.Error):
            return translated(error, self._path)
        return StoreUnavailable(f"{self._path} cannot be written to ({error!r})", store=self._path)

    def _tell_of_commit(self, tasks: int, seconds: float, has_changed: bool) -> None:
        """Call the watcher of commits. Its errors cannot undo the commit and are ignored."""
        try:
            if self.watcher is not None:
                self.watcher(tasks, seconds)
            if has_changed:  # a transaction without changes wakes no waiter
                self._committed()
        except Exception:
            import logging

            logging.getLogger(__name__).exception("the watcher of commits to %s failed", self._path)

    def _attempt(self, task: _Task) -> bool:
        """Run one job of a group. Return False if it failed midway and the group was rolled back."""
        before = self._db.raw.total_changes()
        try:
            task.result = drive(task.job(self._db.driven))
        except BaseException as error:
            task.error = translated(error, self._path) if isinstance(error, apsw.Error) else error
            if self._db.raw.total_changes() != before or not self._db.raw.in_transaction:
                self._db.rollback()
                return False
        return True

    def _run_apart(self, group: list[_Task]) -> list[_Task]:
        """Run the others again, each on its own, after the last job of the group failed midway."""
        for task in group[:-1]:
            task.error = task.result = None
            try:
                with self._db.transaction():
                    task.result = drive(task.job(self._db.driven))
                self._committed()
            except BaseException as error:
                task.error = translated(error, self._path) if isinstance(error, apsw.Error) else error
        return group

    def _fail_waiting(self, error: BaseException) -> None:
        with suppress(Empty):  # callers that submit after the writer's end run this too: never wait here
            while True:
                task = self._queue.get_nowait()
                if task is not None:
                    task.error = error
                    self._post.hand_back((task,))


class _Checkpointer:
    """Moves the WAL back into the file, most of it on a thread and connection of its own.

    Writers that never pause add pages meanwhile, and SQLite restarts the WAL only if all of it was moved. So the
    writer moves the remaining pages itself, while no process can add any. Otherwise the WAL would grow.
    """

    def __init__(self, db: SqliteConnection) -> None:
        self._db, self._path = db, db.path
        self._wanted = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._next = 0  # pages in the WAL before the next checkpoint is requested
        self._has_moved_most = False

    def pages_in_wal(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        """Request a checkpoint if one is due. SQLite calls this after each commit. Never raises: the commit stands."""
        if pages < CHECKPOINT_PAGES:
            self._next = 0
        if not self._has_moved_most and pages >= max(self._next, CHECKPOINT_PAGES):
            self._next = pages + CHECKPOINT_PAGES
            self._wanted.set()
            if self._thread is None:
                self._start()
        return int(apsw.SQLITE_OK)

    def move_rest(self) -> None:
        """Move the remaining pages if most were moved. All writers wait meanwhile, and then restart the WAL."""
        if self._has_moved_most:
            self._has_moved_most = False
            with suppress(Exception), self._db.waiting(_wait_briefly):  # another process does the same, or reads on
                self._db.raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="moorage-checkpoint", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads: the next commit asks again
            self._wanted.clear()
            self._next = 0
        else:
            self._thread = thread

    def _run(self) -> None:
        db = SqliteConnection(self._path)
        while not self._stopping:  # checked after each clear, or the wake-up of `stop` might be lost
            self._wanted.wait()
            self._wanted.clear()
            if not self._stopping:
                self._checkpoint(db)
        db.close()

    def _checkpoint(self, db: SqliteConnection) -> None:
        try:
            db.raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            self._has_moved_most = True
            if os.path.getsize(f"{self._path}-wal") > TRUNCATE_BYTES:
                db.raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except (apsw.Error, OSError):
            return  # busy or closed: a later commit asks again

    def stop(self) -> None:
        """End the thread."""
        self._stopping = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()


def _wait_briefly(tries: int) -> bool:
    """Wait for a lock, some 50 ms in all: a checkpoint that waits for readers lets writers wait."""
    time.sleep(0.0005)
    return tries < 100


class _Watcher:
    """Checks every few milliseconds whether another connection has committed; less often while nothing happens."""

    def __init__(self, path: str, committed: Callable[[], None]) -> None:
        self._committed = committed
        self._running = threading.Lock()  # a lock instead of an Event: waiting for it costs half as much
        self._running.acquire()
        self._db = SqliteConnection(path)
        self._seen = self._db.data_version()
        self._thread = threading.Thread(target=self._run, name="moorage-watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        db, seen, quiet = self._db, self._seen, 0
        while not self._running.acquire(timeout=LOOK_EVERY if quiet < QUIET_LOOKS else LOOK_EVERY_WHEN_QUIET):
            quiet += 1
            if (version := db.data_version()) != seen:
                seen, quiet = version, 0
                self._committed()
        db.close()

    def stop(self) -> None:
        """End the thread."""
        self._running.release()
        self._thread.join()
