"""Writes committed in groups: each applied or refused on its own, and none waits for ever."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import pytest

from moorage.core.errors import MoorageError, SessionNotFound, StoreError, StoreUnavailable, VersionConflict
from moorage.core.session import Change, View
from moorage.stores.sqlite import threads
from moorage.stores.sqlite.connection import Driven, SqliteConnection
from moorage.stores.sqlite.store import SqliteStore, prepared
from moorage.stores.sqlite.threads import Threaded
from moorage.testing.builders import (
    OWNER,
    DecisionRefused,
    a_session,
    a_stamp,
    finalized,
    refusing,
    said,
    updated,
    whole_log,
)
from moorage.testing.faults import Worker, eventually, write_lock


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.serve(path)
    await store.create(OWNER, a_session("s-1"))
    yield store
    async with asyncio.timeout(60):
        await store.close()


def threaded(store: SqliteStore) -> Threaded:
    assert isinstance(store._access, Threaded)
    return store._access


def doubling(view: View) -> Change:
    """A decision that fails midway: its head is written, then an entry whose number is taken."""
    change = view.session.update(_an_update(), a_stamp())
    return Change(session=change.session, entries=(*change.entries, *change.entries))


def _an_update() -> Any:
    from moorage.core.session import Update

    return Update(metadata={"half": "done"})


async def texts(store: SqliteStore, ref: str = "s-1") -> list[object]:
    entries = await whole_log(store, ref)
    assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))
    return [entry.content for entry in entries if entry.is_message]


class Held:
    """Keeps the writer busy, so that what is asked meanwhile becomes one group."""

    def __init__(self, store: SqliteStore) -> None:
        self._store, self._free = store, threading.Event()
        self.is_busy = threading.Event()

    async def __aenter__(self) -> Held:
        async def job(_: Driven) -> None:
            self.is_busy.set()
            assert self._free.wait(60)

        self._task = asyncio.ensure_future(threaded(self._store).write(job))
        assert await asyncio.to_thread(self.is_busy.wait, 60)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._free.set()
        await asyncio.wait([self._task])  # it shares the fate of its group
        self._task.exception()


async def answers_of(store: SqliteStore, *calls: Any) -> list[Any]:
    """Return the answers of calls made in one group."""
    async with Held(store):
        tasks = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(0)
    async with asyncio.timeout(60):
        return await asyncio.gather(*tasks, return_exceptions=True)


async def test_sixty_four_tasks_append_at_once_with_refusals_in_between(store: SqliteStore) -> None:
    await store.create(OWNER, a_session("closed"))
    await store.apply(OWNER, "closed", finalized())

    async def work(number: int) -> int:
        refused = 0
        for count in range(8):
            await store.append(OWNER, "s-1", said(f"{number} {count}"), a_stamp())
            for wrong in (
                lambda: store.append(OWNER, "closed", said("no"), a_stamp()),
                lambda: store.append(OWNER, "nobody", said("no"), a_stamp()),
                lambda: store.apply(OWNER, "s-1", refusing),
                lambda: store.apply(OWNER, "s-1", updated(metadata={"no": 1}), expected=0),
            )[count % 4 :: 4]:
                try:
                    await wrong()
                except (MoorageError, DecisionRefused):
                    refused += 1
        return refused

    async with asyncio.timeout(90):
        refusals = await asyncio.gather(*map(work, range(64)))

    assert refusals == [8] * 64
    words = [str(text).split() for text in await texts(store)]
    for number in range(64):
        assert [count for who, count in words if who == str(number)] == list(map(str, range(8)))
    assert len(words) == 64 * 8
    assert await store.check() == []


async def test_a_refused_change_in_a_group_does_not_hurt_its_neighbours(store: SqliteStore) -> None:
    before, refused, missing, stale, behind = await answers_of(
        store,
        store.append(OWNER, "s-1", said("before"), a_stamp()),
        store.apply(OWNER, "s-1", refusing),
        store.append(OWNER, "nobody", said("no"), a_stamp()),
        store.apply(OWNER, "s-1", updated(error="no"), expected=99),
        store.append(OWNER, "s-1", said("behind"), a_stamp()),
    )
    assert isinstance(refused, DecisionRefused)
    assert isinstance(missing, SessionNotFound)
    assert isinstance(stale, VersionConflict)
    assert (before[0].number, behind[0].number) == (2, 3)
    assert await texts(store) == ["before", "behind"]


@pytest.mark.parametrize("place", range(5))
async def test_a_change_that_fails_midway_takes_no_neighbour_with_it_and_leaves_nothing(
    store: SqliteStore, place: int
) -> None:
    calls = [store.append(OWNER, "s-1", said(f"m{number}"), a_stamp()) for number in range(4)]
    calls.insert(place, store.apply(OWNER, "s-1", doubling))  # type: ignore[arg-type]  # awaited alike
    answers = await answers_of(store, *calls)
    half = answers.pop(place)
    assert isinstance(half, StoreError), half
    assert [answer[0].number for answer in answers] == [2, 3, 4, 5], "every neighbour landed, in order"
    assert await texts(store) == ["m0", "m1", "m2", "m3"]
    session = await store.get(OWNER, "s-1")
    assert (session.metadata, session.version, session.last_entry) == ({}, 1, 5)
    assert await store.check() == []


async def test_several_that_fail_midway_in_one_group_leave_the_others_alone(store: SqliteStore) -> None:
    answers = await answers_of(
        store,
        store.append(OWNER, "s-1", said("a"), a_stamp()),
        store.apply(OWNER, "s-1", doubling),
        store.append(OWNER, "s-1", said("b"), a_stamp()),
        store.apply(OWNER, "s-1", refusing),
        store.apply(OWNER, "s-1", doubling),
        store.create(OWNER, a_session("s-2")),
        store.append(OWNER, "s-1", said("c"), a_stamp()),
    )
    kinds = [type(answer).__name__ for answer in answers]
    assert kinds == ["list", "StoreUnavailable", "list", "DecisionRefused", "StoreUnavailable", "Session", "list"]
    assert await texts(store) == ["a", "b", "c"]
    assert (await store.get(OWNER, "s-2")).last_entry == 1
    assert await store.check() == []


async def test_an_error_at_commit_fails_the_whole_group_honestly(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Held(store):
        tasks = [asyncio.ensure_future(store.append(OWNER, "s-1", said(f"m{n}"), a_stamp())) for n in range(5)]
        await asyncio.sleep(0)

        def failing(_: SqliteConnection) -> None:
            monkeypatch.undo()
            raise apsw.FullError("database or disk is full")

        monkeypatch.setattr(SqliteConnection, "commit", failing)
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [getattr(answer, "code", answer) for answer in answers] == ["store_full"] * 5
    assert await texts(store) == []
    assert (await store.append(OWNER, "s-1", said("works again"), a_stamp()))[0].number == 2


async def test_two_event_loops_share_one_store(store: SqliteStore) -> None:
    async def say(who: str) -> list[int]:
        return [(await store.append(OWNER, "s-1", said(f"{who} {n}"), a_stamp()))[0].number for n in range(50)]

    def elsewhere() -> list[int]:
        return asyncio.run(say("there"))

    async with asyncio.timeout(60):
        here, there = await asyncio.gather(say("here"), asyncio.to_thread(elsewhere))
    assert sorted(here + there) == list(range(2, 102))
    words = [str(text).split() for text in await texts(store)]
    assert [n for who, n in words if who == "there"] == list(map(str, range(50)))


async def test_closed_event_loop_does_not_block_other_writers(store: SqliteStore) -> None:
    async def give_up() -> None:
        waiting = asyncio.ensure_future(store.append(OWNER, "s-1", said("left behind"), a_stamp()))
        await asyncio.sleep(0)
        assert not waiting.done()

    async with Held(store):
        await asyncio.to_thread(lambda: asyncio.run(give_up()))
    async with asyncio.timeout(60):
        assert (await store.append(OWNER, "s-1", said("goes on"), a_stamp()))[0].number in (2, 3)
        assert "goes on" in await texts(store)


# No call waits for ever -------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_writer_that_dies_fails_all_who_wait_and_all_who_come(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore.serve(path)
    await store.create(OWNER, a_session("s-1"))
    async with Held(store):
        tasks = [asyncio.ensure_future(store.append(OWNER, "s-1", said(f"m{n}"), a_stamp())) for n in range(150)]
        await asyncio.sleep(0)

        def dying(_: object) -> bool:
            raise SystemExit("no more")

        monkeypatch.setattr(threaded(store)._writer, "_attempt", dying)
    async with asyncio.timeout(30):
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(answer) for answer in answers} == {StoreUnavailable}
        assert "died" in str(answers[0])
        with pytest.raises(StoreUnavailable):
            await store.append(OWNER, "s-1", said("too late"), a_stamp())
        assert (await store.get(OWNER, "s-1")).last_entry == 1, "reading goes on"
        await store.close()


async def test_writer_goes_on_after_an_unexpected_error(store: SqliteStore) -> None:
    raw, fails = threaded(store)._writer._db.raw, iter((True, False))

    def no_memory() -> bool:
        if next(fails, False):
            raise MemoryError("no more")
        return False

    raw.set_commit_hook(no_memory)
    async with asyncio.timeout(30):
        with pytest.raises(StoreUnavailable, match="no more"):
            await store.append(OWNER, "s-1", said("refused"), a_stamp())
        await store.append(OWNER, "s-1", said("kept"), a_stamp())
    assert await texts(store) == ["kept"]


async def test_listener_that_fails_after_the_commit_fails_no_write(
    store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(_tasks: int, _seconds: float) -> None:
        raise MemoryError("no more")

    store.on_commit(failing)
    async with asyncio.timeout(30):
        for text in ("one", "two"):
            await store.append(OWNER, "s-1", said(text), a_stamp())
    assert await texts(store) == ["one", "two"]
    assert "the watcher of commits" in caplog.text


async def test_commit_stands_when_no_thread_is_left_for_the_checkpoint(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_threads(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def checkpointing() -> bool:
        return threaded(store)._writer._checkpointer._thread is not None

    monkeypatch.setattr(threads, "CHECKPOINT_PAGES", 1)
    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", no_threads)
        await store.append(OWNER, "s-1", said("kept"), a_stamp())
        assert not checkpointing()
    await store.append(OWNER, "s-1", said("checkpointed"), a_stamp())
    assert checkpointing()
    assert await texts(store) == ["kept", "checkpointed"]


def test_log_begins_anew_though_another_writes_during_the_checkpoint(path: Path) -> None:
    db, other = prepared(path), SqliteConnection(str(path))
    checkpointer, seen = threads._Checkpointer(db), list[int]()

    def notify(raw: apsw.Connection, name: str, pages: int) -> int:
        seen.append(pages)
        return checkpointer.pages_in_wal(raw, name, pages)

    db.raw.set_wal_hook(notify)
    for step in ("asks", "moves the rest", "begins anew"):
        db.execute("UPDATE spent_keys SET pk = pk + 1")
        if step == "asks":
            checkpointer._checkpoint(other)
            other.execute("UPDATE spent_keys SET pk = pk + 1")
        else:
            checkpointer.move_rest()
    db.close()
    other.close()
    assert seen[2] < seen[1]


def test_writers_wait_while_the_rest_of_the_log_is_moved(path: Path) -> None:
    db, reader = prepared(path), SqliteConnection(str(path))
    checkpointer, refused = threads._Checkpointer(db), list[str]()

    def write_meanwhile(_: int) -> bool:
        with pytest.raises(apsw.BusyError):
            other.execute("UPDATE spent_keys SET pk = pk + 1")
        refused.append("locked")
        return False

    db.execute("UPDATE spent_keys SET pk = pk + 1")
    other = apsw.Connection(str(path))
    with reader.snapshot():
        reader.all("SELECT * FROM spent_keys")
        checkpointer._has_moved_most = True
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threads, "_wait_briefly", write_meanwhile)
            checkpointer.move_rest()
    other.execute("UPDATE spent_keys SET pk = pk + 1")
    for each in (db, reader, other):
        each.close()
    assert refused == ["locked"]


async def test_writes_gathered_under_load_come_in_order_and_before_a_close(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "GATHER_SECONDS", 3600)
    store = SqliteStore.serve(path)
    await store.create(OWNER, a_session("s-1"))
    threaded(store)._writer._expected = 1000
    tasks = [asyncio.ensure_future(store.append(OWNER, "s-1", said(f"m{n}"), a_stamp())) for n in range(100)]
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await store.close()
        answers = await asyncio.gather(*tasks)
    assert [answer[0].number for answer in answers] == list(range(2, 102))


async def test_write_waits_only_a_moment_for_others_that_do_not_come(store: SqliteStore) -> None:
    threaded(store)._writer._expected = 64
    async with asyncio.timeout(30):
        await store.append(OWNER, "s-1", said("alone"), a_stamp())
    assert threaded(store)._writer._expected == 1


async def test_writes_wait_together_as_long_as_more_come(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "GATHER_SECONDS", 1234)
    monkeypatch.setattr(threads, "GATHER_MOST", 1234)
    loop, sizes, due = asyncio.get_running_loop(), list[int](), list[Callable[[], object]]()
    call_later = loop.call_later

    def noted(delay: float, function: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        if delay == threads.GATHER_SECONDS:
            due.append(partial(function, *args))
        return call_later(delay, function, *args)

    monkeypatch.setattr(loop, "call_later", noted)
    store.on_commit(lambda tasks, _: sizes.append(tasks))
    threaded(store)._writer._expected = 64
    writes = list[asyncio.Future[Any]]()
    for number in range(3):
        writes.append(asyncio.ensure_future(store.append(OWNER, "s-1", said(f"m{number}"), a_stamp())))
        await asyncio.sleep(0)
        if number > 0:
            due.pop()()
        assert len(due) == 1, "another one came, so they wait for more"
    due.pop()()
    async with asyncio.timeout(30):
        await asyncio.gather(*writes)
    assert sizes == [3]


async def test_writer_expects_those_it_has_answered_and_those_that_came_meanwhile(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "GATHER_SECONDS", 1.0)  # on a busy machine the three need longer
    sizes = list[int]()
    store.on_commit(lambda tasks, _: sizes.append(tasks))

    async def write(text: str) -> None:
        for _ in range(10):
            await store.append(OWNER, "s-1", said(text), a_stamp())

    async with asyncio.timeout(60), Held(store):
        writers = [asyncio.ensure_future(write(text)) for text in "abc"]
        await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await asyncio.gather(*writers)
    assert sizes.count(3) >= 5


async def test_close_finishes_queued_writes_and_refuses_new_ones(path: Path) -> None:
    store = SqliteStore.serve(path)
    await store.create(OWNER, a_session("s-1"))
    async with Held(store):
        tasks = [asyncio.ensure_future(store.append(OWNER, "s-1", said(f"m{n}"), a_stamp())) for n in range(100)]
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(store.close())
        await asyncio.sleep(0)
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*tasks)
        await closing
        for late in (store.append(OWNER, "s-1", said("late"), a_stamp()), store.get(OWNER, "s-1")):
            with pytest.raises(StoreUnavailable):
                await late
        await store.close()
    assert [answer[0].number for answer in answers] == list(range(2, 102))
    again = SqliteStore.serve(path)
    assert len(await texts(again)) == 100
    await again.close()


async def test_closing_does_not_wait_for_a_checkpoint_to_be_asked_for_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore.serve(path)
    checkpointer = threaded(store)._writer._checkpointer
    started, go_on = threading.Event(), threading.Event()

    def slow(_: SqliteConnection) -> None:
        started.set()
        assert go_on.wait(60)

    monkeypatch.setattr(checkpointer, "_checkpoint", slow)
    checkpointer.pages_in_wal(apsw.Connection(":memory:"), "main", 10**6)
    assert await asyncio.to_thread(started.wait, 60)
    closing = asyncio.ensure_future(store.close())
    assert await asyncio.to_thread(eventually, lambda: checkpointer._stopping)
    go_on.set()
    async with asyncio.timeout(20):
        await closing


async def test_a_closed_inline_store_says_so(path: Path) -> None:
    store = SqliteStore.open(path)
    await store.create(OWNER, a_session("s-1"))
    await store.close()
    for late in (
        store.append(OWNER, "s-1", said("late"), a_stamp()),
        store.get(OWNER, "s-1"),
        store.wait(0, 0.01),
    ):
        with pytest.raises(StoreUnavailable):
            await late
    with pytest.raises(StoreUnavailable):
        store.pulse()


# The event loop goes on -------------------------------------------------------------------------


async def test_the_loop_keeps_ticking_while_a_write_waits_for_the_lock(store: SqliteStore, path: Path) -> None:
    ticks: list[float] = []
    enough = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def tick() -> None:
        while True:
            ticks.append(loop.time())
            if len(ticks) == 60:
                enough.set()
            await asyncio.sleep(0.005)

    lock = write_lock(path)
    locker = await asyncio.to_thread(lock.__enter__)
    ticking = asyncio.ensure_future(tick())
    waiting = asyncio.ensure_future(store.append(OWNER, "s-1", said("patient"), a_stamp()))
    try:
        await asyncio.wait_for(enough.wait(), 60)
        assert not waiting.done(), "the lock is held"
        assert (await store.get(OWNER, "s-1")).last_entry == 1, "readers do not wait for writers"
        gaps = [after - before for before, after in pairwise(ticks)]
        assert max(gaps) < 2.0, "a blocked loop would have waited for the lock"
    finally:
        locker.say("let go")
        async with asyncio.timeout(60):
            assert (await waiting)[0].number == 2
        ticking.cancel()
        await asyncio.to_thread(lock.__exit__, None, None, None)


async def test_readers_see_the_last_commit_while_a_writer_is_in_the_middle(store: SqliteStore) -> None:
    middle, go_on = threading.Event(), threading.Event()

    async def half(db: Driven) -> None:
        await db.run("UPDATE sessions SET summary = 'half'")
        middle.set()
        assert go_on.wait(60)
        raise DecisionRefused

    writing = asyncio.ensure_future(threaded(store).write(half))
    assert await asyncio.to_thread(middle.wait, 60)
    async with asyncio.timeout(30):
        assert (await store.get(OWNER, "s-1")).summary is None
    go_on.set()
    with pytest.raises(DecisionRefused):
        await writing
    assert (await store.get(OWNER, "s-1")).summary is None


async def test_a_lock_that_is_never_let_go_is_busy_in_the_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from moorage.stores.sqlite import connection

    monkeypatch.setattr(connection, "BUSY_FOR", 0.2)
    for open_store in (SqliteStore.open, SqliteStore.serve):
        store = open_store(path)
        name = open_store.__name__
        await store.create(OWNER, a_session(name))
        with write_lock(path):
            async with asyncio.timeout(60):
                with pytest.raises(StoreError) as busy:
                    await store.append(OWNER, name, said("no"), a_stamp())
                assert busy.value.code == "store_busy"
                assert (await store.get(OWNER, name)).last_entry == 1
        assert (await store.append(OWNER, name, said("now"), a_stamp()))[0].number == 2
        await store.close()


FORKING = """
import asyncio, os, sys
from moorage.core.errors import MoorageError
from moorage.stores.sqlite.store import SqliteStore, prepared
from moorage.testing.builders import OWNER, a_session, a_stamp, said

async def child(store):
    codes = []
    for call in (
        lambda: store.append(OWNER, "s-1", said("no"), a_stamp()),
        lambda: store.get(OWNER, "s-1"),
        lambda: store.create(OWNER, a_session("s-2")),
    ):
        try:
            async with asyncio.timeout(10):
                await call()
            codes.append("nothing")
        except MoorageError as error:
            codes.append(f"{error.code}:{'fork' in error.message}")
        except TimeoutError:
            codes.append("hangs")
    return codes

async def main():
    store = getattr(SqliteStore, sys.argv[2])(sys.argv[1])
    await store.create(OWNER, a_session("s-1"))
    return store

loop = asyncio.new_event_loop()
store = loop.run_until_complete(main())
if os.fork() == 0:
    print(*asyncio.run(child(store)), flush=True)
    os._exit(0)
os.wait()
loop.run_until_complete(store.append(OWNER, "s-1", said("yes"), a_stamp()))
entries = loop.run_until_complete(store.log(OWNER, "s-1"))
loop.run_until_complete(store.close())
print(len(entries), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("way", ["open", "serve"])
def test_after_a_fork_the_child_is_told_to_connect_again_and_the_parent_goes_on(path: Path, way: str) -> None:
    with Worker(FORKING, path, way) as worker:
        assert worker.line().split() == ["store_unavailable:True"] * 3
        assert worker.line() == "2"
        assert os.path.exists(path)  # noqa: PTH110  # any way to ask will do
