"""The way to the file for servers: threads run the jobs, so that nothing blocks the event loop.

One writer commits whatever is waiting in one transaction (one fsync pays for all), and readers have connections of
their own.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

import apsw

from moorage.core.errors import StoreUnavailable
from moorage.stores.sqlite.access import LOOK_EVERY, Job, Process, T
from moorage.stores.sqlite.connection import Connection, translated

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio

MAX_GROUP = 64
MAX_GROUP_BYTES = 1024 * 1024
MAX_GROUP_SECONDS = 0.005
BUSY_GROUP = 8  # tasks in one transaction that tell of load
GATHER_SECONDS = 0.0001
LOOK_EVERY_WHEN_QUIET = 0.05  # seconds: each look wakes the processor up
QUIET_LOOKS = 50  # looks in a row that saw nothing
READERS = 4
CHECKPOINT_PAGES = 1000
TRUNCATE_BYTES = 64 * 1024 * 1024


class Threaded:
    """Runs jobs on threads, for an event loop that must not block."""

    def __init__(self, db: Connection) -> None:
        from asyncio import get_running_loop

        self._running_loop = get_running_loop
        self._path, self._process = db.path, Process(db.path)
        self._post = _Post()
        self._writer = _Writer(db, self._committed, self._post)
        self._readers = _Readers(db, self._post)
        self._watcher: _Watcher | None = None
        self._pulse = 0
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._guard = threading.Lock()

    def on_commit(self, watcher: Callable[[int, float], None]) -> None:
        self._writer.watcher = watcher

    async def write(self, job: Job[T], weight: int = 0) -> T:
        self._process.check()
        loop = self._running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._writer.submit(_Task(job, weight, loop, future))
        return await future

    async def read(self, job: Job[T]) -> T:
        self._process.check()
        loop = self._running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._readers.submit(_Task(job, 0, loop, future))
        return await future

    def pulse(self) -> int:
        self._process.check()
        with self._guard:
            if self._watcher is None:  # from now on nothing goes unnoticed
                self._watcher = _Watcher(self._path, self._committed)
            return self._pulse

    async def wait(self, seen: int, timeout: float) -> int:
        import asyncio

        event = asyncio.Event()
        place = (asyncio.get_running_loop(), event)
        with self._guard:
            self._waiting.add(place)
        try:
            if self._pulse == seen:
                async with asyncio.timeout(timeout):
                    await event.wait()
        except TimeoutError:
            pass
        finally:
            with self._guard:
                self._waiting.discard(place)
        return self._pulse

    def _committed(self) -> None:
        with self._guard:
            self._pulse += 1
            waiting, self._waiting = self._waiting, set()
        for loop, event in waiting:
            _call(loop, event.set)

    async def close(self) -> None:
        from asyncio import to_thread

        self._process.is_closed = True
        await to_thread(self._close)

    def _close(self) -> None:
        self._writer.stop()
        if self._watcher is not None:
            self._watcher.stop()
        self._readers.stop()


class _Task:
    """A job on its way through the writer."""

    __slots__ = ("error", "future", "job", "loop", "result", "weight")

    def __init__(self, job: Job[Any], weight: int, loop: Any, future: Any) -> None:
        self.job, self.weight, self.loop, self.future = job, weight, loop, future
        self.result: Any = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        """Hand the outcome to whoever still waits; runs on their loop."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class _Post:
    """Hands outcomes back to the event loops that wait for them; one that is on its way already takes more along."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._boxes: dict[Any, list[_Task]] = {}  # by loop: what it has yet to fetch

    def hand_back(self, tasks: Sequence[_Task]) -> None:
        """From any thread; each loop is woken once, however many there are."""
        with self._guard:
            to_wake = {task.loop for task in tasks}.difference(self._boxes)
            for task in tasks:
                self._boxes.setdefault(task.loop, []).append(task)
        for loop in to_wake:
            if not _call(loop, self._fetch, loop):
                self._take(loop)

    def _fetch(self, loop: asyncio.AbstractEventLoop) -> None:
        for task in self._take(loop):
            task.settle()

    def _take(self, loop: asyncio.AbstractEventLoop) -> list[_Task]:
        with self._guard:
            return self._boxes.pop(loop, [])


class _Readers:
    """Threads that read, each with a connection of its own; there are as many as were ever needed at once."""

    def __init__(self, like: Connection, post: _Post) -> None:
        self._path, self._sealer, self._post = like.path, like.opener, post
        self._queue: SimpleQueue[_Task | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._guard = threading.Lock()

    def submit(self, task: _Task) -> None:
        """Queue a task for whoever is free."""
        self._queue.put(task)
        if len(self._threads) < READERS and (not self._threads or self._queue.qsize() > 1):
            self._start_one()

    def _start_one(self) -> None:
        with self._guard:
            thread = threading.Thread(target=self._run, name="moorage-read", daemon=True)
            self._threads.append(thread)
        thread.start()

    def _run(self) -> None:
        db: Connection | None = None
        while (task := self._queue.get()) is not None:
            try:
                db = db or Connection(self._path, sealer=self._sealer)
                task.result = task.job(db)
            except BaseException as error:
                task.error = translated(error, self._path) if isinstance(error, apsw.Error) else error
            self._post.hand_back((task,))
            del task  # or what it has read would be kept until the next one comes
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


class _Writer:
    """The one thread that writes: whatever waits goes into one transaction."""

    def __init__(self, db: Connection, committed: Callable[[], None], post: _Post) -> None:
        self._db, self._path, self._committed, self._post = db, db.path, committed, post
        self._queue: SimpleQueue[_Task | None] = SimpleQueue()
        self._checkpointer = _Checkpointer(db.path)
        self._db.raw.set_wal_hook(self._checkpointer.pages_in_wal)
        self._dead: BaseException | None = None
        self._group_size = 0
        self.watcher: Callable[[int, float], None] | None = None
        self._in_hand: list[_Task] = []  # taken from the queue and not yet answered
        self._thread = threading.Thread(target=self._run, name="moorage-write", daemon=True)
        self._thread.start()

    def submit(self, task: _Task) -> None:
        """Queue a task; fails at once if the writer is gone."""
        self._queue.put(task)
        if self._dead is not None:  # nobody else will answer
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
                if not self._run_group(first):
                    break
        except BaseException as error:  # whatever killed the writer, no caller may wait for ever
            gone = StoreUnavailable(f"the writer of {self._path} died: {error!r}", store=self._path)
            raise
        finally:
            self._dead = gone
            for task in self._in_hand:
                task.error = gone
            self._post.hand_back(self._in_hand)
            self._fail_waiting(gone)

    def _run_group(self, first: _Task) -> bool:
        """One transaction; False once it was told to stop."""
        group, go_on = self._gather_and_run(first)
        self._group_size = len(group)
        self._post.hand_back(group)
        self._in_hand = []
        return go_on

    def _gather_and_run(self, first: _Task) -> tuple[list[_Task], bool]:
        db, done, go_on = self._db, [first], True
        self._in_hand = done
        self._let_them_gather()
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
        except Exception as error:  # whatever it was, the writer goes on: without it nobody writes before a restart
            db.rollback()
            for task in done:  # an error at COMMIT fails the whole group, honestly
                task.error = self._told(error)
            return done, go_on
        self._tell_of_commit(len(done), time.monotonic() - began, db.raw.total_changes() != before)
        return done, go_on

    def _told(self, error: Exception) -> Exception:
        if isinstance(error, apsw.Error):
            return translated(error, self._path)
        return StoreUnavailable(f"{self._path} cannot be written to ({error!r})", store=self._path)

    def _tell_of_commit(self, tasks: int, seconds: float, has_changed: bool) -> None:
        """Tell who listens. What they do with it cannot undo the commit, so it fails nobody."""
        try:
            if self.watcher is not None:
                self.watcher(tasks, seconds)
            if has_changed:  # whoever wrote nothing wakes nobody
                self._committed()
        except Exception:
            import logging

            logging.getLogger(__name__).exception("nobody was told of a commit to %s", self._path)

    def _let_them_gather(self) -> None:
        """Under load, wait until no more tasks come in, for a fraction of a millisecond.

        Every call into SQLite gives the interpreter's lock away; a loop that is still handing
        in tasks takes it each time, and both are slower for it.
        """
        if self._group_size < BUSY_GROUP:
            return
        seen, deadline = -1, time.monotonic() + MAX_GROUP_SECONDS
        while seen < (size := self._queue.qsize()) < MAX_GROUP - 1 and time.monotonic() < deadline:
            seen = size
            time.sleep(GATHER_SECONDS)

    def _attempt(self, task: _Task) -> bool:
        """Run one job of a group; False if it left half a change behind and the group was rolled back."""
        before = self._db.raw.total_changes()
        try:
            task.result = task.job(self._db)
        except BaseException as error:
            task.error = translated(error, self._path) if isinstance(error, apsw.Error) else error
            if self._db.raw.total_changes() != before or not self._db.raw.in_transaction:
                self._db.rollback()
                return False
        return True

    def _run_apart(self, group: list[_Task]) -> list[_Task]:
        """The last of the group failed midway: the others once more, each on its own."""
        for task in group[:-1]:
            task.error = task.result = None
            try:
                with self._db.transaction():
                    task.result = task.job(self._db)
                self._committed()
            except BaseException as error:
                task.error = translated(error, self._path) if isinstance(error, apsw.Error) else error
        return group

    def _fail_waiting(self, error: BaseException) -> None:
        with suppress(Empty):  # whoever submits after the writer's death does this too: never wait here
            while True:
                task = self._queue.get_nowait()
                if task is not None:
                    task.error = error
                    self._post.hand_back((task,))


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *args: object) -> bool:
    """Call a function on a loop; False if it has ended, and nobody is left who waits."""
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        return False
    return True


class _Checkpointer:
    """Moves the WAL back into the file, on a thread and connection of its own."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._wanted = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def pages_in_wal(self, _db: object, _name: str, pages: int) -> int:
        """Called by SQLite after each commit."""
        if pages >= CHECKPOINT_PAGES and not self._wanted.is_set():
            self._wanted.set()
            if self._thread is None:
                self._start()
        return int(apsw.SQLITE_OK)

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="moorage-checkpoint", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads: the commit stands, and the next one asks again
            self._wanted.clear()
        else:
            self._thread = thread

    def _run(self) -> None:
        db = Connection(self._path)
        while not self._stopping:  # looked at after each clear, or the wake-up that `stop` gives might get lost
            self._wanted.wait()
            self._wanted.clear()
            if not self._stopping:
                self._checkpoint(db)
        db.close()

    def _checkpoint(self, db: Connection) -> None:
        try:
            db.raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            if os.path.getsize(f"{self._path}-wal") > TRUNCATE_BYTES:
                db.raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except (apsw.Error, OSError):
            return  # busy or gone: the next commit asks again

    def stop(self) -> None:
        """End the thread."""
        self._stopping = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()


class _Watcher:
    """Looks every few milliseconds whether another connection has committed; less often where nothing happens."""

    def __init__(self, path: str, committed: Callable[[], None]) -> None:
        self._committed = committed
        self._running = threading.Lock()  # waited for instead of an Event: it costs half as much
        self._running.acquire()
        self._db = Connection(path)
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
