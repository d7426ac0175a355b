"""Launchers that die, or hear nothing, before and after every commit of a turn: whatever happened, it ends once.

A child at work for a parent is the whole story: its claim, its start, what it says, its end
with the callback. After the crash the step is whole or
absent; then time passes, others continue, and in the end the parent has got its callback exactly once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from moorage.core.errors import MoorageError, StoreError
from moorage.core.run import RunState
from moorage.ports import Claimed
from moorage.stores.sqlite.connection import SqliteConnection
from moorage.stores.sqlite.store import SqliteStore
from moorage.testing.builders import NOON, OWNER, a_stamp, drive, said, whole_log
from moorage.testing.faults import Worker, WorkerFailed
from moorage.testing.work import (
    TOO_LATE,
    a_child_run,
    a_run,
    all_items,
    all_runs,
    ask,
    carry,
    expire,
    finish,
    inbox_of,
    launch,
    renew,
    start,
    states_of,
    take,
    taken,
    token_of,
    turns_of,
)

STEPS = ("ask", "claim", "start", "say", "renew", "finish")


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(path)
    await launch(store, "p-1", "run-p")
    parent = await taken(store)
    await launch(store, "c-1", a_child_run("run-c", "p-1", "run-p"), parent="p-1")
    await finish(store, parent)
    yield store
    await store.close()


MORTAL = """
import asyncio, os, sys
from moorage.stores.sqlite.connection import SqliteConnection
from moorage.stores.sqlite.store import SqliteStore
from moorage.testing.builders import OWNER, a_stamp, said
from moorage.testing.work import ask, finish, renew, start, taken, token_of

path, way, fatal, moment = sys.argv[1:]
real = SqliteConnection.commit
current = None


def commit(self):
    if current == fatal and moment == "before":
        os.kill(os.getpid(), 9)
    real(self)
    if current == fatal:
        os.kill(os.getpid(), 9)


async def live():
    global current
    store = getattr(SqliteStore, way)(path)
    SqliteConnection.commit = commit
    current = "ask"
    await ask(store, "c-1", "run-late")
    current = "claim"
    claimed = await taken(store)
    current = "start"
    await start(store, claimed)
    current = "say"
    await store.append(OWNER, "c-1", said("working", role="assistant"), a_stamp(), token=token_of(claimed))
    current = "renew"
    await renew(store, claimed)
    current = "finish"
    await finish(store, claimed, says="done", result="done")
    print("survived", flush=True)

asyncio.run(live())
"""


@pytest.mark.parametrize("way", ["open", "serve"])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
async def test_a_launcher_killed_around_a_commit_leaves_it_whole_or_absent(
    store: SqliteStore, path: Path, step: str, moment: str, way: str
) -> None:
    with Worker(MORTAL, path, way, step, moment) as worker, pytest.raises(WorkerFailed):
        worker.line()
    done = STEPS[: STEPS.index(step) + (moment == "after")]
    assert await store.check() == []
    await _check_what_is_there(store, done)
    await _let_the_world_go_on(store)
    await _check_everything_ended_once(store, asked="ask" in done)


async def _check_what_is_there(store: SqliteStore, done: tuple[str, ...]) -> None:
    """Each step is there with all it changes, or with nothing."""
    session, (turn, *_) = await store.get(OWNER, "c-1"), await turns_of(store, "c-1")
    log = [entry.kind for entry in await whole_log(store, "c-1")]
    assert [run.run_id for run in await all_runs(store, session_id="c-1")][::-1] == [
        "run-c",
        *_if(done, "ask", "run-late"),
    ]
    assert log[2:] == [
        *_if(done, "ask", "message"),
        *_if(done, "start", "turn_started"),
        *_if(done, "say", "message"),
        *_if(done, "finish", "message", "turn_ended", "run_settled", "run_settled"),
    ]
    expected = "completed" if "finish" in done else "running" if "claim" in done else "queued"
    assert (turn.state, turn.epoch, session.epoch) == (expected, "claim" in done, "claim" in done)
    assert (session.live_turn is not None) == (expected == "running")
    assert (turn.started_at is not None) == ("start" in done)
    assert (await inbox_of(store, "p-1")).get("callback:run-c") == ("waiting" if "finish" in done else None)
    assert await states_of(store, "p-1") == ["completed", *_if(done, "finish", "queued")]


def _if(done: tuple[str, ...], step: str, *what: str) -> list[str]:
    return list(what) if step in done else []


async def _let_the_world_go_on(store: SqliteStore) -> None:
    now = NOON + TOO_LATE
    await expire(store, now)
    while (claimed := await take(store, "launcher-2", now)) is not None:
        await start(store, claimed, now)
        await finish(store, claimed, at=now, result="done")


async def _check_everything_ended_once(store: SqliteStore, *, asked: bool) -> None:
    expected = ("run-p", "run-c", *(["run-late"] if asked else []))
    states = {run.run_id: run.state for run in await all_runs(store)}
    assert states == dict.fromkeys(expected, RunState.COMPLETED)
    for ref, runs in (("c-1", 1 + asked), ("p-1", 1)):
        assert [entry.kind for entry in await whole_log(store, ref)].count("run_settled") == runs
    assert [entry.kind for entry in await whole_log(store, "p-1")].count("callback") == 1
    assert {item.state.value for item in await all_items(store)} == {"consumed"}
    assert await store.check() == []


# The answer is lost on the way ------------------------------------------------------------------


class Deaf:
    """Commits, and then says that it could not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch, self._real = monkeypatch, SqliteConnection.commit

    def __enter__(self) -> None:
        def commit(db: SqliteConnection) -> None:
            self._real(db)
            raise apsw.IOError("the answer got lost")

        self._patch.setattr(SqliteConnection, "commit", commit)

    def __exit__(self, *_: object) -> None:
        self._patch.undo()


async def told(monkeypatch: pytest.MonkeyPatch, call: Any) -> None:
    """Do something that is done, though the caller hears of an error."""
    with Deaf(monkeypatch), pytest.raises(StoreError):
        await call


async def test_every_report_may_be_repeated_when_its_answer_was_lost(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed = await taken(store)

    async def say() -> object:
        words = said("working", role="assistant", key="k-1")
        return await store.append(OWNER, "c-1", words, a_stamp(), token=token_of(claimed))

    for report in (
        lambda: start(store, claimed),
        say,
        lambda: renew(store, claimed),
        lambda: finish(store, claimed, says="done", result="done"),
    ):
        await told(monkeypatch, report())
        await report()
    kinds = [entry.kind for entry in await whole_log(store, "c-1")]
    assert kinds[2:] == ["turn_started", "message", "message", "turn_ended", "run_settled"]
    await _let_the_world_go_on(store)
    await _check_everything_ended_once(store, asked=False)


async def test_a_turn_whose_claim_was_never_heard_of_is_given_out_again(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await told(monkeypatch, take(store))
    assert await take(store) is None, "somebody has it, though nobody knows"
    assert (await store.find_turn(OWNER, "c-1:t1")).state == "running"
    await _let_the_world_go_on(store)
    await _check_everything_ended_once(store, asked=False)


async def test_run_repeated_with_its_key_exists_once(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run("run-late", idempotency_key="k-1")
    await told(monkeypatch, ask(store, "c-1", run))
    with pytest.raises(MoorageError) as refused:
        await ask(store, "c-1", a_run("run-again", idempotency_key="k-1"))
    assert refused.value.code == "key_reused"
    known = await store.run_by_key(OWNER, "k-1")
    assert known is not None
    assert known.run_id == "run-late"


async def test_a_launcher_that_wakes_up_too_late_is_refused_in_every_word(store: SqliteStore) -> None:
    late = await taken(store)
    await start(store, late)
    await expire(store, NOON + TOO_LATE)
    await _check_is_refused(store, late)
    again = await taken(store, "launcher-2", NOON + TOO_LATE)
    await _check_is_refused(store, late)
    await finish(store, again, at=NOON + TOO_LATE)
    await _check_is_refused(store, late)
    await _let_the_world_go_on(store)
    await _check_everything_ended_once(store, asked=False)


async def _check_is_refused(store: SqliteStore, late: Claimed) -> None:
    before = await whole_log(store, "c-1")
    word = store.append(OWNER, "c-1", said("late"), a_stamp(), token=token_of(late))
    for report in (start(store, late), renew(store, late), finish(store, late, says="late"), word):
        with pytest.raises(MoorageError) as refused:
            await report
        assert refused.value.code in ("turn_lost", "hold_lost")
    assert await whole_log(store, "c-1") == before


async def test_a_callback_is_never_seen_without_its_childs_end(store: SqliteStore, path: Path) -> None:
    """Another connection looks while the transaction is open: it sees both or neither."""
    child: Claimed = await taken(store)
    await start(store, child)
    other = SqliteStore.open(path)
    seen: list[tuple[bool, bool]] = []
    real = SqliteConnection.commit

    def commit(db: SqliteConnection) -> None:
        seen.append(_both(other))
        real(db)
        seen.append(_both(other))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteConnection, "commit", commit)
        await finish(store, child)
    assert seen == [(False, False), (True, True)], "one commit, and both come with it"
    await other.close()
    await carry(store)


def _both(store: SqliteStore) -> tuple[bool, bool]:
    return drive(store.run(OWNER, "run-c")).is_settled, "callback:run-c" in drive(inbox_of(store, "p-1"))
