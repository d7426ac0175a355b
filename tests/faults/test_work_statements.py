"""Runs, turns and inboxes in the database: constraints, query plans, and isolation from damaged rows."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from moorage.config import SystemClock, entropy
from moorage.core import work
from moorage.core.errors import SessionCorrupt, StoreError
from moorage.core.inbox import Item, ItemKind
from moorage.core.run import RunQuery, RunState
from moorage.core.session import Change, View
from moorage.core.turn import Retry, Turn, TurnState
from moorage.service.deps import Deps
from moorage.service.turns import TurnDispatcher
from moorage.stores.sqlite import access
from moorage.stores.sqlite.store import SqliteStore
from moorage.testing.builders import (
    NOON,
    OWNER,
    a_session,
    a_stamp,
    after,
    drive,
    finalized,
    may_delete,
    nothing_changes,
)
from moorage.testing.faults import opened_raw
from moorage.testing.work import (
    EVERY_STATE,
    a_child_run,
    a_launcher,
    a_run,
    ask,
    carry,
    expire,
    finish,
    inbox_of,
    launch,
    renew,
    send_again,
    start,
    stop,
    take,
    taken,
)
from tests.faults.test_statements import Plans


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(path)
    yield store
    await store.close()


# Guards: what a broken rule would do, the database refuses --------------------------------------


def another_turn(view: View, state: TurnState) -> Change:
    turn = Turn(turn_id="s-1:t99", session_id="s-1", agent_name="echo-agent", queued_at=NOON, state=state)
    return Change(session=replace(view.session, turns=99), turns=(turn,))


def another_callback(view: View) -> Change:
    item = Item(item_id="callback:run-c", session_id="s-1", kind=ItemKind.CALLBACK, created_at=NOON)
    return Change(session=view.session, items=(item,))


def another_run(view: View) -> Change:
    return Change(session=view.session, runs=(a_run("run-1", session_id="s-1"),))


@pytest.mark.parametrize("state", [TurnState.QUEUED, TurnState.RUNNING])
async def test_the_database_refuses_a_second_turn_that_is_queued_or_running(
    store: SqliteStore, state: TurnState
) -> None:
    await launch(store, "s-1", "run-1")
    if state is TurnState.RUNNING:
        await taken(store)
    async with nothing_changes(store):
        with pytest.raises(StoreError) as refused:
            await store.apply(OWNER, "s-1", lambda view: another_turn(view, state))
    assert isinstance(refused.value.__cause__, apsw.ConstraintError)


async def test_the_database_refuses_a_callback_that_came_before(store: SqliteStore) -> None:
    await launch(store, "s-1", "run-1")
    await carry(store)
    await launch(store, "c-1", a_child_run("run-c", "s-1"))
    await carry(store)
    await carry(store)
    assert (await inbox_of(store, "s-1"))["callback:run-c"] == "consumed"
    async with nothing_changes(store):
        with pytest.raises(StoreError) as refused:
            await store.apply(OWNER, "s-1", another_callback)
    assert isinstance(refused.value.__cause__, apsw.ConstraintError)


async def test_the_database_refuses_a_run_that_was_asked_for_before(store: SqliteStore) -> None:
    await launch(store, "s-1", "run-1")
    await carry(store)
    async with nothing_changes(store):
        with pytest.raises(StoreError) as refused:
            await store.apply(OWNER, "s-1", another_run)
    assert isinstance(refused.value.__cause__, apsw.ConstraintError)


def test_the_indexes_that_guard_are_there(path: Path) -> None:
    drive(SqliteStore.open(path).close())
    with opened_raw(path) as db:
        unique = {
            name
            for table in ("runs", "turns", "inbox")
            for name, is_unique in db.execute(f'SELECT name, "unique" FROM pragma_index_list({table!r})')
            if is_unique
        }
    assert unique == {"runs_by_id", "runs_by_key", "turns_by_id", "turns_queued", "turns_running", "inbox_by_id"}


async def test_deleting_a_session_takes_its_work_along(path: Path) -> None:
    store = SqliteStore.open(path)
    await launch(store, "p-1", "run-1")
    await launch(store, "c-1", a_child_run("run-2", "p-1", "run-1"), parent="p-1")
    await taken(store)
    await carry(store)
    await store.delete_tree(OWNER, "p-1", may_delete("p-1", force=True, reason="tidying"), a_stamp())
    await store.close()
    with opened_raw(path) as db:
        for table in ("runs", "turns", "inbox"):
            assert db.execute(f"SELECT count(*) FROM {table}").fetchall() == [(0,)], table


async def test_failed_callback_changes_neither_parent_nor_child(store: SqliteStore, path: Path) -> None:
    await launch(store, "p-1", "run-1")
    await carry(store)
    await launch(store, "c-1", a_child_run("run-2", "p-1"), parent="p-1")
    child = await taken(store)
    with opened_raw(path) as db:  # the callback's place is taken, so it cannot be delivered
        db.execute("UPDATE inbox SET id = 'callback:run-2' WHERE id = 'message:run-1'")
    async with nothing_changes(store):
        with pytest.raises(StoreError):
            await finish(store, child)
    assert (await store.run(OWNER, "run-2")).state is RunState.RUNNING


# Damage -----------------------------------------------------------------------------------------


async def test_damaged_session_does_not_block_turns_of_others(store: SqliteStore, path: Path) -> None:
    for name in ("s-1", "s-2", "s-3"):
        await launch(store, name, f"run-of-{name}")
    with opened_raw(path) as db:
        db.execute("UPDATE sessions SET metadata = 'nonsense' WHERE id = 's-1'")
        db.execute("UPDATE turns SET body = '{}' WHERE id = 's-2:t1'")
    assert (await taken(store)).session.session_id == "s-3"
    assert await take(store) is None
    with pytest.raises(SessionCorrupt):
        await store.find_turn(OWNER, "s-2:t1")


async def test_damaged_session_with_an_expired_lease_does_not_block_others(store: SqliteStore, path: Path) -> None:
    await launch(store, "s-1", "run-1")
    await start(store, await taken(store))
    await launch(store, "s-2", "run-2")
    with opened_raw(path) as db:
        db.execute("UPDATE sessions SET metadata = 'nonsense' WHERE id = 's-1'")
    dispatcher = TurnDispatcher(Deps(store, SystemClock(), entropy))  # noon is long ago, so the turn is lost by now
    claimed = await dispatcher.claim(a_launcher("l-1"), {"echo-agent": Retry.RESUME})
    assert claimed is not None
    assert claimed.session.session_id == "s-2"


async def test_a_damaged_parent_does_not_keep_its_child_from_ending(store: SqliteStore, path: Path) -> None:
    await launch(store, "p-1", "run-1")
    await carry(store)
    await launch(store, "c-1", a_child_run("run-2", "p-1"))
    with opened_raw(path) as db:
        db.execute("UPDATE sessions SET metadata = 'nonsense' WHERE id = 'p-1'")
    await carry(store)
    run = await store.run(OWNER, "run-2")
    assert (run.state, run.callback) == (RunState.COMPLETED, "parent_corrupt")


async def test_a_damaged_run_hides_no_other_in_a_list(store: SqliteStore, path: Path) -> None:
    for n in range(3):
        await launch(store, f"s-{n}", f"run-{n}")
    with opened_raw(path) as db:
        db.execute("UPDATE runs SET body = '[]' WHERE id = 'run-1'")
        db.execute("UPDATE inbox SET body = 'x' WHERE id = 'message:run-2'")
    assert [run.run_id for run in (await store.runs(OWNER, RunQuery())).items] == ["run-2", "run-0"]
    page = await store.inbox(OWNER, states=("waiting",), limit=10)
    assert [item.item_id for item in page.items] == ["message:run-0", "message:run-1"]
    with pytest.raises(SessionCorrupt, match="s-1"):
        await store.run(OWNER, "run-1")


DAMAGE = {
    "UPDATE sessions SET live_turn = NULL WHERE id = 's-1'": "says its live turn is none",
    "UPDATE sessions SET live_turn = 'nothing' WHERE id = 's-2'": "says its live turn is nothing",
    "UPDATE sessions SET epoch = 0": "epoch that its session has not reached",
    "UPDATE runs SET state = 'completed' WHERE id = 'run-1'": "run run-1 is completed in a list",
    "UPDATE turns SET state = 'lost' WHERE id = 's-1:t1'": "turn s-1:t1 is lost in a list",
    "UPDATE sessions SET finalized_at = 1 WHERE id = 's-2'": "run run-2 is open in session s-2, which is closed",
    "UPDATE inbox SET turn = 'nothing' WHERE id = 'message:run-1'": "given to a turn that does not run",
    "UPDATE runs SET body = body || 'x' WHERE id = 'run-2'": "row 2 of runs",
    "UPDATE turns SET body = replace(body, '\"queued_at\"', '\"x\"') WHERE id = 's-2:t1'": "row 2 of turns",
    "UPDATE inbox SET kind = 'x' WHERE id = 'message:run-2'": "row 2 of inbox",
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_contradictory_rows_are_named(store: SqliteStore, path: Path, damage: str) -> None:
    await launch(store, "s-1", "run-1")
    await launch(store, "s-2", "run-2")
    await taken(store)
    assert await store.check() == []
    with opened_raw(path) as db:
        db.execute(damage)
    problems = await store.check()
    assert any(DAMAGE[damage] in problem for problem in problems), problems


# Plans ------------------------------------------------------------------------------------------

SCAN = re.compile(r"^SCAN (sessions|runs|turns|inbox|entries|feed|tombstones|lineage|[strief])\b(?! VIRTUAL)")


def walks_in(steps: list[str]) -> list[str]:
    return [step for step in steps if SCAN.match(step)]


async def _two_pages(store: SqliteStore, **filters: Any) -> None:
    page = await store.runs(OWNER, RunQuery(limit=1, **filters))
    await store.runs(OWNER, RunQuery(limit=1, cursor=page.next, **filters))


async def _claim_and_finish(store: SqliteStore) -> None:
    claimed = await taken(store, at=after(3600))
    await start(store, claimed, after(3600))
    await renew(store, claimed, after(3600))
    await finish(store, claimed, at=after(3600))


OPERATIONS: dict[str, Callable[[SqliteStore], Coroutine[Any, Any, object]]] = {
    "ask": lambda store: ask(store, "s-1", a_run("new", idempotency_key="new")),
    "claim, start, renew, finish": _claim_and_finish,
    "claim for a family": lambda store: take(store, root="s-2"),
    "claim of nothing": lambda store: take(store, agents=("nobody", "else")),
    "overdue": lambda store: store.overdue(after(10), 10),
    "expire": lambda store: expire(store, after(31)),
    "turns of a launcher": lambda store: store.turns_of("launcher-1"),
    "run": lambda store: store.run(OWNER, "run-1"),
    "run by key": lambda store: store.run_by_key(OWNER, "key-1"),
    "item": lambda store: store.item(OWNER, "message:run-30"),  # which nothing above has consumed
    "turn": lambda store: store.find_turn(OWNER, "s-1:t1"),
    "runs": lambda store: _two_pages(store),
    "runs of a session": lambda store: _two_pages(store, session_id="s-1"),
    "runs of a parent": lambda store: _two_pages(store, parent_session_id="s-0"),
    "due runs": lambda store: store.runs(OWNER, RunQuery(due_at=after(10))),
    "next expiry": lambda store: store.next_expiry(OWNER),
    "open runs": lambda store: _two_pages(store, open_only=True),
    "runs of an agent": lambda store: _two_pages(store, agent="echo-agent"),
    "inbox": lambda store: store.inbox(OWNER, states=("waiting", "given", "held", "dead_letter"), limit=2),
    "inbox of a session": lambda store: store.inbox(OWNER, ref="s-1", states=EVERY_STATE, limit=2),
    "stop": lambda store: stop(store, "s-9", "run-9"),
    "send again": lambda store: send_again(store, "s-8", "message:run-8"),
    "running sessions": lambda store: store.find(OWNER, _running()),
    "finalize": lambda store: store.apply(OWNER, "s-7", finalized()),
    "delete": lambda store: store.delete_tree(OWNER, "s-6", may_delete("s-6", reason="gone"), a_stamp()),
}


def _running() -> Any:
    from moorage.core.query import SessionQuery

    return SessionQuery(status="running")


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SqliteStore, Path]]:
    path = tmp_path_factory.mktemp("plans") / "moorage.db"
    store = SqliteStore.open(path)
    drive(launch(store, "s-0", "run-0"))
    drive(taken(store))
    for n in range(1, 40):
        run = a_child_run(f"run-{n}", "s-0", "run-0", expires_at=after(9999), idempotency_key=f"key-{n}")
        drive(launch(store, f"s-{n}", run, parent="s-0" if n % 2 else None))
    yield store, path
    drive(store.close())


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_statement_of_work_walks_through_a_whole_table(busy: tuple[SqliteStore, Path], name: str) -> None:
    store, path = busy
    plans = Plans(store, path)
    with plans.watched() as statements:
        drive(OPERATIONS[name](store))
    looked = [one for one in statements if not one[0].startswith(("BEGIN", "COMMIT", "ROLLBACK", "PRAGMA"))]
    assert looked
    for sql, bindings in looked:
        steps = plans.steps_of(sql, bindings)
        assert walks_in(steps) == [], f"{sql}\n" + "\n".join(steps)


@pytest.mark.parametrize(
    ("filters", "index"),
    [
        ({"agent": "echo-agent"}, "runs_by_agent"),
        ({"agent": "echo-agent", "state": "completed"}, "runs_by_agent"),
        ({"agent": "echo-agent", "open_only": True}, "runs_by_state"),
        ({"agent": "echo-agent", "parent_session_id": "s-0"}, "runs_by_parent"),
    ],
)
def test_query_of_runs_uses_the_most_selective_index(
    busy: tuple[SqliteStore, Path], filters: dict[str, Any], index: str
) -> None:
    plans = Plans(*busy)
    with plans.watched() as statements:
        drive(busy[0].runs(OWNER, RunQuery(**filters)))
    [looked] = [one for one in statements if "FROM runs" in one[0]]
    assert any(index in step for step in plans.steps_of(*looked))


def test_a_walk_through_all_work_would_be_seen(busy: tuple[SqliteStore, Path]) -> None:
    plans = Plans(*busy)
    for sql in ("SELECT * FROM runs WHERE body = 'x'", "SELECT * FROM inbox ORDER BY body", "SELECT id FROM turns"):
        assert walks_in(plans.steps_of(sql, None)), sql


async def test_claim_does_not_scan_turns_of_other_agents(path: Path) -> None:
    """The steps of a claim are the same however much waits for agents that it does not want."""
    store = SqliteStore.open(path)
    assert isinstance(store._access, access.InlineAccess)
    db = store._access._db.raw

    def steps(agents: tuple[str, ...]) -> int:
        db.status(apsw.SQLITE_DBSTATUS_CACHE_HIT, True)
        drive(take(store, agents=agents))
        return int(db.status(apsw.SQLITE_DBSTATUS_CACHE_HIT, True)[0])

    await launch(store, "s-0", "run-0", agent_name="wanted")
    few = steps(("unknown",))
    for n in range(1, 400):
        await launch(store, f"s-{n}", f"run-{n}", agent_name="unwanted")
    many = steps(("unknown",))
    assert many <= few + 10, f"{few} pages looked at, then {many}"
    assert (await taken(store, agents=("wanted",))).session.session_id == "s-0"
    await store.close()


async def test_a_launcher_that_finds_nothing_does_not_take_the_write_lock(store: SqliteStore, path: Path) -> None:
    await store.create(OWNER, a_session("s-1"))
    with opened_raw(path) as db:
        db.execute("BEGIN IMMEDIATE")
        assert await take(store) is None
        assert await store.overdue(after(9), 9) == []
        db.execute("ROLLBACK")


async def test_an_item_is_given_with_its_body_and_decided_on_without(store: SqliteStore) -> None:
    await launch(store, "s-1", a_run("run-1"))
    bodies: list[Any] = []

    def look(view: View) -> Change:
        bodies.append([item.body for item in view.work.items])
        return work.expired(view, a_stamp())

    await store.apply(OWNER, "s-1", look)
    assert bodies == [[{}]]
    assert (await taken(store)).items[0].body == {"role": "user", "content": "begin"}
    assert await inbox_of(store, "s-1") == {"message:run-1": "given"}
