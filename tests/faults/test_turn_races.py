"""Launchers that race, in processes of their own: each turn to one of them, each run settled once.

Each pair of reports that can meet is let meet, over and over, and either may come first; what
is left must be what one order or the other gives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from moorage.core.inbox import ItemState
from moorage.core.query import SessionQuery
from moorage.core.run import RunState
from moorage.core.turn import LEASE, LOST_AFTER
from moorage.ports import Claimed
from moorage.stores.sqlite.store import SqliteStore
from moorage.testing.builders import (
    MANY,
    NOON,
    OWNER,
    a_stamp,
    after,
    an_approval,
    asked,
    whole_log,
)
from moorage.testing.faults import race
from moorage.testing.work import (
    AGENT,
    a_child_run,
    a_claim,
    all_items,
    all_runs,
    carry,
    expire,
    finish,
    launch,
    start,
    states_of,
    taken,
    turns_of,
)

COUNT = 60


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(path)
    yield store
    assert await store.check() == []
    await store.close()


RACER = """
import sys
from datetime import UTC, datetime, timedelta
from msgspec.structs import replace
from moorage.core.errors import MoorageError
from moorage.core.session import Needs
from moorage.core.turn import LEASE, LOST_AFTER
from moorage.stores.sqlite.store import SqliteStore
from moorage.testing.builders import *
from moorage.testing.work import *
from moorage.ports import Claimed

path, role, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = SqliteStore.open(path)


def claimed_as_it_is(name):
    session, turn = drive(store.get(OWNER, name)), drive(store.find_turn(OWNER, f"{name}:t1"))
    return Claimed(OWNER, session, turn, (), ())


def claims(name):
    claimed = drive(take(store, role))
    return None if claimed is None else claimed.session.session_id

def finishes(name): drive(finish(store, known[name], at=NOON, says="done", result="done"))
def fails(name): drive(finish(store, known[name], "failed"))
def renews(name): drive(renew(store, known[name], NOON + LOST_AFTER))
def starts(name): drive(start(store, known[name], NOON + LEASE))
def stops(name): drive(stop(store, name, f"run-{name}"))
def asks(name): drive(ask(store, name, f"late-{name}"))
def expires(name): drive(store.apply(OWNER, name, expiring(NOON + LOST_AFTER)))
def gives_out_again(name): drive(store.apply(OWNER, name, expiring(NOON + LEASE)))
def decides(name): drive(store.apply(OWNER, name, answered("approve", after(10)), needs=Needs(approval=f"a-{name}")))
def lets_run_out(name): drive(store.apply(OWNER, name, run_out(after(20)), needs=Needs(approval=f"a-{name}")))
def deletes(name): drive(store.delete_tree(OWNER, name, may_delete(name, reason="race"), a_stamp()))
def closes(name): drive(store.apply(OWNER, name, finalized()))
def adopts(name): drive(adopt(store, known[name], role))

names = [f"s-{n}" for n in range(count)]
known = {name: claimed_as_it_is(name) for name in names} if role not in ("claims", "claims2", "asks") else {}
act = globals()[role.rstrip("2")]
print("ready", flush=True)
sys.stdin.readline()
for name in names:
    try:
        print(name, act(name) or "done")
    except MoorageError as error:
        print(name, error.code)
"""


def raced(path: Path, *roles: str, count: int = COUNT) -> list[dict[str, str]]:
    """Return the answers of each role, by session."""
    answers = race(RACER, [(path, role, count) for role in roles])
    return [dict(line.split(maxsplit=1) for line in said) for said in answers]


async def at_work(store: SqliteStore, *, started: bool = True, count: int = COUNT) -> None:
    """So many sessions, each with a live turn."""
    for n in range(count):
        await launch(store, f"s-{n}", f"run-s-{n}")
        claimed = await taken(store)
        if started:
            await start(store, claimed)


async def settlements(store: SqliteStore) -> Counter[str]:
    """How often each run was said to be settled."""
    names = [session.session_id for session in (await store.find(OWNER, EVERYTHING))[0].items]
    logs = [entry for name in names for entry in await whole_log(store, name)]
    return Counter(entry.data["run_id"] for entry in logs if entry.kind == "run_settled" and entry.data)


EVERYTHING = SessionQuery(limit=MANY)


async def test_two_processes_that_claim_two_hundred_turns_get_each_once(store: SqliteStore, path: Path) -> None:
    for n in range(200):
        await launch(store, f"s-{n}", f"run-s-{n}")
    answers = raced(path, "claims", "claims2", count=200)
    got = [session for answer in answers for session in answer.values() if session != "done"]
    assert sorted(got) == sorted(f"s-{n}" for n in range(200))
    assert {session.epoch for session in (await store.find(OWNER, EVERYTHING))[0].items} == {1}
    launchers = Counter([(await store.find_turn(OWNER, f"s-{n}:t1")).launcher_id for n in range(200)])
    assert launchers["claims"] + launchers["claims2"] == 200
    assert min(launchers.values()) > 0, "both got something"


async def test_children_ending_in_two_processes_call_back_once_each(store: SqliteStore, path: Path) -> None:
    await launch(store, "p-1", "run-p")
    await finish(store, await _with_children(store))
    answers = raced(path, "finishes", "finishes2")
    assert {code for answer in answers for code in answer.values()} == {"done"}, "the same end again is recognised"
    assert set((await settlements(store)).values()) == {1}
    items = [item for item in await all_items(store, "p-1") if item.kind == "callback"]
    assert sorted(item.item_id for item in items) == sorted(f"callback:run-s-{n}" for n in range(COUNT))
    assert [item.body["still_out"] for item in items] == list(reversed(range(COUNT)))
    assert await states_of(store, "p-1") == ["completed", "queued"]
    assert len((await taken(store)).items) == COUNT


async def _with_children(store: SqliteStore) -> Claimed:
    parent = await taken(store)
    for n in range(COUNT):
        await launch(store, f"s-{n}", a_child_run(f"run-s-{n}", "p-1", "run-p"), parent="p-1")
        await start(store, await taken(store))
    return parent


async def test_finish_and_stop_settle_a_run_once(store: SqliteStore, path: Path) -> None:
    await at_work(store)
    finished, stopped = raced(path, "finishes", "stops")
    assert set(finished.values()) == {"done"}
    assert set(stopped.values()) <= {"done", "run_settled"}
    assert set((await settlements(store)).values()) == {1}
    for name, code in stopped.items():
        turn = await store.find_turn(OWNER, f"{name}:t1")
        assert (turn.state, turn.stop_requested) == ("completed", code == "done")
        run = await store.run(OWNER, f"run-{name}")
        assert run.state is (RunState.STOPPED if code == "done" else RunState.COMPLETED), "a stop in time counts"


async def test_a_turn_that_is_lost_while_it_ends_is_one_or_the_other(store: SqliteStore, path: Path) -> None:
    await at_work(store)
    finished, _ = raced(path, "finishes", "expires")
    assert set(finished.values()) <= {"done", "turn_lost"}
    for name, code in finished.items():
        states = await states_of(store, name)
        assert states == (["completed"] if code == "done" else ["lost", "queued"])
        run = await store.run(OWNER, f"run-{name}")
        assert (run.state, run.result) == ((RunState.COMPLETED, "done") if code == "done" else (RunState.QUEUED, None))
        said = [entry.content for entry in await whole_log(store, name) if entry.is_message]
        assert said == (["begin", "done"] if code == "done" else ["begin"]), "late words are not kept"


async def test_a_turn_that_is_lost_while_it_is_renewed_is_one_or_the_other(store: SqliteStore, path: Path) -> None:
    await at_work(store)
    renewed, _ = raced(path, "renews", "expires")
    assert set(renewed.values()) <= {"done", "turn_lost"}
    for name, code in renewed.items():
        (first, *more) = await turns_of(store, name)
        assert first.state == ("running" if code == "done" else "lost")
        assert len(more) == (code != "done")
        if code == "done":
            assert first.lost_at == NOON + 2 * LOST_AFTER


async def test_a_turn_that_starts_while_it_is_given_out_again_is_one_or_the_other(
    store: SqliteStore, path: Path
) -> None:
    await at_work(store, started=False)
    started, _ = raced(path, "starts", "gives_out_again")
    assert set(started.values()) <= {"done", "turn_lost"}
    for name, code in started.items():
        (turn,) = await turns_of(store, name)
        assert (turn.state, turn.started_at) == (("running", NOON + LEASE) if code == "done" else ("queued", None))


async def test_two_that_adopt_a_turn_one_has_it(store: SqliteStore, path: Path) -> None:
    await at_work(store)
    one, other = raced(path, "adopts", "adopts2")
    for n in range(COUNT):
        name = f"s-{n}"
        assert sorted([one[name], other[name]]) == ["done", "turn_lost"]
        turn = await store.find_turn(OWNER, f"{name}:t1")
        assert (turn.epoch, turn.launcher_id) == (2, "adopts" if one[name] == "done" else "adopts2")


async def test_an_approval_that_is_decided_while_it_runs_out_has_one_answer(store: SqliteStore, path: Path) -> None:
    for n in range(COUNT):
        name = f"s-{n}"
        await launch(store, name, f"run-{name}")
        claimed = await taken(store)
        await store.apply(OWNER, name, asked(an_approval(name, f"a-{name}", expires_at=after(15))))
        await finish(store, claimed)
    decided, _ = raced(path, "decides", "lets_run_out")
    assert set(decided.values()) <= {"done", "approval_expired"}
    for name, code in decided.items():
        (item,) = await all_items(store, name, states=("waiting",))
        assert item.body["state"] == ("approved" if code == "done" else "expired")
        assert await states_of(store, name) == ["completed", "queued"]


async def test_input_while_a_turn_ends_always_gets_a_turn(store: SqliteStore, path: Path) -> None:
    await at_work(store)
    finished, asked_for = raced(path, "finishes", "asks")
    assert set(finished.values()) == set(asked_for.values()) == {"done"}
    for n in range(COUNT):
        assert await states_of(store, f"s-{n}") == ["completed", "queued"]
    items = await all_items(store, states=("waiting",))
    assert sorted(item.run_id or "" for item in items) == sorted(f"late-s-{n}" for n in range(COUNT))


async def test_input_while_a_session_closes_is_refused_or_settled(store: SqliteStore, path: Path) -> None:
    for n in range(COUNT):
        await launch(store, f"s-{n}", f"run-s-{n}")
    await _settle_all(store)
    closed, asked_for = raced(path, "closes", "asks")
    assert set(closed.values()) == {"done"}
    assert set(asked_for.values()) <= {"done", "session_closed"}
    late = {run.run_id: run.state for run in await all_runs(store) if run.run_id.startswith("late-")}
    assert late == {f"late-{name}": RunState.COMPLETED for name, code in asked_for.items() if code == "done"}
    assert await all_items(store, states=[state.value for state in ItemState if state != "consumed"]) == []


async def _settle_all(store: SqliteStore) -> None:
    for _ in range(COUNT):
        await carry(store)


async def test_a_tree_that_is_deleted_while_turns_are_given_out_goes_whole_or_not_at_all(
    store: SqliteStore, path: Path
) -> None:
    for n in range(COUNT):
        await launch(store, f"s-{n}", f"run-s-{n}")
    known = {f"s-{n}" for n in range(COUNT)}
    deleted, claims = raced(path, "deletes", "claims")
    assert set(deleted.values()) <= {"done", "session_running"}
    taken_ones = {session for session in claims.values() if session in known}
    running = {name for name, code in deleted.items() if code == "session_running"}
    assert running == taken_ones
    assert {run.session_id for run in await all_runs(store)} == running


# Time, shortened --------------------------------------------------------------------------------

STORMY = """
import random, sys
from datetime import UTC, datetime, timedelta
from moorage.core.agent import Retry
from moorage.core.errors import MoorageError, HoldLost, TurnLost
from moorage.stores.sqlite.store import SqliteStore
from moorage.testing.builders import *
from moorage.testing.work import *
import time

path, me, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
store, chance = SqliteStore.open(path), random.Random(me)
wish = a_claim(me, lease=timedelta(milliseconds=3), lost_after=timedelta(milliseconds=6), retries={AGENT: Retry.ALWAYS})


def now():
    return datetime.now(UTC)


print("ready", flush=True)
sys.stdin.readline()
end = time.monotonic() + seconds
while time.monotonic() < end:
    drive(expire(store, now()))
    claimed = drive(store.claim((OWNER,), (AGENT,), wish, a_stamp(now())))
    if claimed is None:
        time.sleep(0.001)
        continue
    try:
        time.sleep(chance.choice([0, 0, 0, 0.004]))
        drive(start(store, claimed, now()))
        drive(store.append(OWNER, claimed.turn.session_id, said(f"by {me}"), a_stamp(now()), token=token_of(claimed)))
        time.sleep(chance.choice([0, 0, 0, 0.008]))
        drive(finish(store, claimed, at=now(), result=me))
        print("finished", claimed.turn.turn_id, claimed.turn.epoch)
    except (TurnLost, HoldLost) as error:
        print(error.code, claimed.turn.turn_id, claimed.turn.epoch)
"""


async def test_launchers_that_are_always_late_do_no_harm(store: SqliteStore, path: Path) -> None:
    """Leases of milliseconds: turns are taken away all the time, and yet everything ends, once."""
    for n in range(COUNT):
        await launch(store, f"s-{n}", f"run-s-{n}")
    answers = race(STORMY, [(path, f"launcher-{n}", 4) for n in range(3)])
    said = [line.split() for answer in answers for line in answer]
    finished = [(turn, int(epoch)) for what, turn, epoch in said if what == "finished"]
    assert len(finished) == len(set(finished))
    assert any(what != "finished" for what, *_ in said), "some were late"
    for n in range(COUNT):
        await _check_history(store, f"s-{n}", finished)
    await _carry_the_rest(store)
    assert {run.state for run in await all_runs(store)} == {RunState.COMPLETED}
    assert set((await settlements(store)).values()) == {1}


async def _check_history(store: SqliteStore, name: str, finished: list[tuple[str, int]]) -> None:
    """Epochs only rise, no two turns overlap, and each accepted end is that of one turn."""
    log = await whole_log(store, name)
    told = [(entry.kind, entry.data) for entry in log if entry.kind in ("turn_started", "turn_ended") and entry.data]
    epochs = [data["epoch"] for kind, data in told if kind == "turn_started"]
    assert epochs == sorted(set(epochs))
    live: dict[str, object] | None = None
    for kind, data in told:
        assert (live is None) == (kind == "turn_started"), "a turn ends before the next one starts"
        if kind == "turn_ended":
            assert live is not None
            assert (live["turn_id"], live["epoch"]) == (data["turn_id"], data["epoch"])
        live = data if kind == "turn_started" else None
    ended = [
        (data["turn_id"], data["epoch"])
        for kind, data in told
        if kind == "turn_ended" and data["outcome"] == "completed"
    ]
    assert ended == [one for one in finished if one[0].rpartition(":")[0] == name]


async def _carry_the_rest(store: SqliteStore) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    await expire(store, later)
    while (claimed := await store.claim((OWNER,), (AGENT,), a_claim(), a_stamp(later))) is not None:
        await finish(store, claimed, at=later)
