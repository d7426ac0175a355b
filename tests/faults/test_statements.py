"""Settings of connections, query plans of statements, and the size of the write-ahead log."""

from __future__ import annotations

import asyncio
import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

import moorage
from moorage import sync
from moorage.core.errors import StoreTooNew
from moorage.core.policy import Span
from moorage.stores.sql import find
from moorage.stores.sql.check import check
from moorage.stores.sql.db import Migration
from moorage.stores.sqlite import access
from moorage.stores.sqlite import store as migrating
from moorage.stores.sqlite.connection import Driven, SqliteConnection
from moorage.stores.sqlite.store import LATEST, SqliteStore, migrations, prepared
from moorage.stores.sqlite.threads import Threaded
from moorage.testing.builders import OWNER, a_session, a_stamp, drive, may_delete, remembering, said, write_context
from moorage.testing.faults import opened_raw

PRAGMAS = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


# Settings ---------------------------------------------------------------------------------------


def test_a_connection_is_durable_checks_references_and_waits(path: Path) -> None:
    db = prepared(path)
    assert {name: db.raw.pragma(name) for name in PRAGMAS} == PRAGMAS
    db.close()


async def test_every_connection_of_a_server_is_set_alike(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[SqliteConnection] = []
    opening = SqliteConnection.__init__

    def noting(self: SqliteConnection, *args: Any, **options: Any) -> None:
        opening(self, *args, **options)
        opened.append(self)

    monkeypatch.setattr(SqliteConnection, "__init__", noting)
    store = SqliteStore.serve(path)
    await store.create(OWNER, a_session("s-1"))
    await asyncio.gather(*(store.get(OWNER, "s-1") for _ in range(20)))
    store.pulse()
    assert isinstance(store._access, Threaded)
    store._access._writer._checkpointer.pages_in_wal(apsw.Connection(":memory:"), "main", 10**6)
    found = [{name: db.raw.pragma(name) for name in PRAGMAS} for db in opened]
    assert len(found) >= 3, "one that writes, some that read, one that watches"
    assert all(pragmas == PRAGMAS for pragmas in found)
    await store.close()


def test_references_are_enforced_by_the_database(path: Path) -> None:
    db = prepared(path)
    with pytest.raises(apsw.ConstraintError):
        db.execute("INSERT INTO lineage VALUES (99, 98, 1)")
    db.close()


async def test_deleting_a_session_takes_all_its_rows_along(path: Path) -> None:
    store = SqliteStore.open(path)
    await store.create(OWNER, a_session("s-1"))
    await store.create(OWNER, a_session("s-2"), parent="s-1")
    for ref in ("s-1", "s-2"):
        await store.append(OWNER, ref, said("hello"), a_stamp())
        await write_context(store, OWNER, ref, remembering("k", 1))
    await store.delete_tree(OWNER, "s-1", may_delete("s-1", reason="tidying"), a_stamp())
    await store.close()
    with opened_raw(path) as db:
        for table in ("sessions", "records", "approvals", "lineage"):
            assert db.execute(f"SELECT count(*) FROM {table}").fetchall() == [(0,)], table
        left = db.execute("SELECT count(*) FROM entries WHERE segment <> 0").fetchall()
        assert left == [(0,)]


def test_a_write_takes_the_lock_before_it_reads(path: Path) -> None:
    db = prepared(path)
    traced: list[str] = []

    def trace(_: object, sql: str, __: object) -> bool:
        traced.append(sql)
        return True

    db.raw.set_exec_trace(trace)
    with db.transaction():
        db.execute("SELECT 1")
    db.raw.set_exec_trace(None)
    assert traced[0] == "BEGIN IMMEDIATE"
    db.close()


async def test_two_that_read_and_then_write_do_not_stumble_over_each_other(path: Path) -> None:
    """A read that turns into a write fails at once after a write of another connection, whatever its timeout."""
    one, other = SqliteStore.open(path), SqliteStore.open(path)
    await one.create(OWNER, a_session("s-1"))
    meddling = threading.Thread(target=lambda: drive(other.append(OWNER, "s-1", said("in between"), a_stamp())))

    async def read_then_write(db: Driven) -> None:
        await db.one("SELECT count(*) FROM sessions")
        meddling.start()
        meddling.join(0.5)  # it waits for the lock that we have; if we had none, it would be done by now
        await db.run("UPDATE sessions SET summary = 'first'")

    await one._access.write(read_then_write)
    meddling.join(60)
    session = await one.get(OWNER, "s-1")
    assert (session.summary, session.last_entry) == ("first", 2)
    await one.close()
    await other.close()


def test_the_newest_migration_is_the_one_the_code_knows() -> None:
    numbers = [migration.number for migration in migrations()]
    assert numbers == list(range(1, LATEST + 1))


def test_a_database_says_whose_it_is_and_how_new(path: Path) -> None:
    prepared(path).close()
    with opened_raw(path) as db:
        assert (db.pragma("application_id"), db.pragma("user_version")) == (0x4D6F6F72, LATEST)


def test_next_release_applies_only_its_new_migration(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore.open(path)
    drive(store.create(OWNER, a_session("s-1")))
    drive(store.close())
    added = Migration(LATEST + 1, "colour", "ALTER TABLE sessions ADD COLUMN colour TEXT NOT NULL DEFAULT 'blue'")
    monkeypatch.setattr(migrating, "migrations", lambda: [*migrations(), added])
    monkeypatch.setattr(migrating, "LATEST", LATEST + 1)

    db = SqliteConnection(str(path))
    assert (migrating.migrate(db), migrating.migrate(db)) == ([LATEST + 1], [])
    assert db.one("SELECT colour FROM sessions") == ("blue",)
    assert [name for (name,) in db.all("SELECT name FROM migrations ORDER BY number")][-1] == "colour"
    assert drive(check(db.driven, migrating.migrations())) == []
    db.close()
    monkeypatch.undo()
    with pytest.raises(StoreTooNew):
        SqliteStore.open(path)


def test_edited_migration_is_noticed(path: Path) -> None:
    db = prepared(path)
    db.execute("UPDATE migrations SET checksum = 1 WHERE number = 1")
    assert drive(check(db.driven, migrations())) == ["migration schema was edited after it was applied"]
    db.close()


# Plans ------------------------------------------------------------------------------------------


def store_of(moor: sync.Moorage) -> SqliteStore:
    store = drive(vars(moor)["_target"].ready()).store
    assert isinstance(store, SqliteStore)
    return store


class Plans:
    """Every statement run meanwhile, and how SQLite would run it."""

    def __init__(self, store: SqliteStore, path: Path) -> None:
        assert isinstance(store._access, access.InlineAccess)
        self._db = store._access._db
        self._path = path

    @contextmanager
    def watched(self) -> Iterator[list[tuple[str, Any]]]:
        statements: list[tuple[str, Any]] = []

        def trace(_: object, sql: str, bindings: Any) -> bool:
            statements.append((sql, bindings))
            return True

        self._db.raw.set_exec_trace(trace)
        try:
            yield statements
        finally:
            self._db.raw.set_exec_trace(None)

    def steps_of(self, sql: str, bindings: Any) -> list[str]:
        with opened_raw(self._path) as db:
            return [str(row[3]) for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]


TABLES = "sessions|entries|feed|tombstones|context|approvals|lineage|search_purges|delegations"
SCAN = re.compile(rf"^SCAN ({TABLES}|[sefl])\b")  # a walk through a whole index is as long as one through its table
SORT = re.compile(r"USE TEMP B-TREE FOR (?:RIGHT PART OF )?ORDER BY")


def walks_in(steps: list[str]) -> list[str]:
    """Walks through tables; what a part of the statement has limited already may be walked through."""
    limited = {step.split()[-1] for step in steps if step.startswith(("CO-ROUTINE", "MATERIALIZE"))}
    return [step for step in steps if (scan := SCAN.match(step)) and scan[1] not in limited]


def filled(moor: sync.Moorage) -> None:
    for number in range(60):
        parent = f"s-{number - 1}" if number % 10 == 1 else None
        moor.create(f"agent-{number % 3}", session_id=f"s-{number}", name=f"name-{number}", task_id=f"t-{number % 5}",
                  project_dir=f"dir-{number % 4}", parent=parent, labels=[f"label-{number % 4}"],
                  ttl=86400 if number % 7 == 0 else None)  # fmt: skip
        moor.append(f"s-{number}", [f"message {count}" for count in range(12)])
        moor.update(f"s-{number}", phase="planning", error="oops" if number % 2 else None)
        if number % 6 == 0:
            moor.request_approval(f"s-{number}", "Apply?", expires_in=3600)
        if number % 9 == 8:
            moor.finalize(f"s-{number}")
        moor.delegate(f"agent-{number % 3}", session_id=f"s-{number}")
    moor.fork("s-3", session_id="fork")
    moor.append("fork", "on")


LONG_AGO, FAR_AHEAD = datetime(2020, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)


def counted(moor: sync.Moorage, **span: Any) -> None:
    """Two pages of facts."""
    store = store_of(moor)
    page = drive(store.facts("local", Span(**span), 1))
    assert page.items
    drive(store.facts("local", Span(**span), 1, page.next))


Operation = Callable[[sync.Moorage], object]
OPERATIONS: dict[str, Operation] = {
    "get by id": lambda moor: moor.get("s-5"),
    "get by name": lambda moor: moor.get("name-5"),
    "get by the name of a closed one": lambda moor: moor.get("name-8"),
    "resume verdict": lambda moor: moor.should_resume("s-5"),
    "resume verdict by agent and task": lambda moor: moor.should_resume(agent="agent-1", task_id="t-1"),
    "resolve a prefix": lambda moor: moor.resolve("fork"),
    "list": lambda moor: moor.list(limit=5),
    "list, next page": lambda moor: moor.list(limit=5, cursor=moor.list(limit=5).next),
    "list, oldest first": lambda moor: moor.list(limit=5, sort="created"),
    "list by update": lambda moor: moor.list(limit=5, sort="-updated"),
    "list by update, next page": lambda moor: moor.list(
        limit=5, sort="updated", cursor=moor.list(limit=5, sort="updated").next
    ),
    "list by update and agent": lambda moor: moor.list(agent="agent-1", state="active", limit=5, sort="-updated"),
    "list by agent": lambda moor: moor.list(agent="agent-1", limit=5),
    "list by agent and state": lambda moor: moor.list(agent="agent-1", state="active", limit=5),
    "list by task": lambda moor: moor.list(task_id="t-1", limit=5),
    "list by state": lambda moor: moor.list(state="active", limit=5),
    "list of open ones": lambda moor: moor.list(active_only=True, limit=5),
    "list by time": lambda moor: moor.list(created_after=LONG_AGO, limit=5),
    "list by time and state": lambda moor: moor.list(created_before=FAR_AHEAD, state="active", limit=5),
    "delegations": lambda moor: moor.delegations(limit=1, cursor=moor.delegations(limit=1).next),
    "delegations by time": lambda moor: moor.delegations(
        created_after=LONG_AGO, created_before=FAR_AHEAD, agent="agent-1"
    ),
    "facts": lambda moor: counted(moor),
    "facts by time": lambda moor: counted(moor, created_after=LONG_AGO, created_before=FAR_AHEAD, agent="agent-1"),
    "facts by agent": lambda moor: counted(moor, agent="agent-1"),
    "facts by task": lambda moor: counted(moor, task_id="t-1", created_before=FAR_AHEAD),
    "fates": lambda moor: drive(store_of(moor).fates("local", ["s-1", "s-2"])),
    "list by folder": lambda moor: moor.list(project_dir="dir-1", limit=5),
    "list by label": lambda moor: moor.list(label="label-1", limit=5),
    "list by label and agent": lambda moor: moor.list(label="label-1", agent="agent-1", limit=5),
    "update of labels": lambda moor: moor.update("s-5", labels=["another"]),
    "list by parent": lambda moor: moor.list(parent="s-10", limit=5),
    "children": lambda moor: moor.children("s-10"),
    "count of children": lambda moor: moor.count_children("s-10"),
    "ancestors": lambda moor: moor.ancestors("s-11"),
    "tree": lambda moor: moor.tree("s-10"),
    "create": lambda moor: moor.create("agent-1", name="new"),
    "create a child": lambda moor: moor.create("agent-1", parent="s-12"),
    "append": lambda moor: moor.append("s-5", "more"),
    "append with a key": lambda moor: moor.append("s-5", {"content": "more", "client_key": "k"}),
    "update": lambda moor: moor.update("s-5", metadata={"a": 1}),
    "suspend": lambda moor: moor.suspend("s-5", checkpoint={"a": 1}),
    "resume": lambda moor: moor.resume("s-5"),
    "window": lambda moor: moor.messages("s-5", last=5),
    "window of a fork": lambda moor: moor.messages("fork", last=5),
    "page of messages": lambda moor: moor.messages("s-5", limit=5),
    "page of the log": lambda moor: moor.log("s-5", after=3, limit=5),
    "page of the log, newest first": lambda moor: moor.log("s-5", newest_first=True, limit=5),
    "page of the log by kind": lambda moor: moor.log("s-5", kinds=["error", "phase"], limit=5),
    "page of a fork's log": lambda moor: moor.log("fork", limit=5),
    "checkpoint": lambda moor: moor.checkpoints("s-5"),
    "events of one": lambda moor: list(moor.events("s-5", after=10, follow=False)),
    "events of all": lambda moor: list(moor.events(after=900, follow=False)),
    "context": lambda moor: moor.context.put("s-7", "k", moor.context.get("s-7")),
    "pending approvals": lambda moor: moor.approvals(),
    "approvals of one": lambda moor: moor.approvals("s-6", pending_only=False),
    "approve": lambda moor: moor.approve(moor.approvals()[0].approval_id),
    "fork": lambda moor: moor.fork("s-4"),
    "finalize": lambda moor: moor.finalize("s-9"),
    "delete": lambda moor: moor.delete("s-20"),
    "deleted ones": lambda moor: moor.deleted(limit=5),
    "what went for a reason": lambda moor: moor.deleted(reason="deleted", since=LONG_AGO, limit=5),
    "cleanup": lambda moor: moor.cleanup(0, dry_run=True),
}


@pytest.fixture(scope="module")
def store_with_plans(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[sync.Moorage, Plans]]:
    path = tmp_path_factory.mktemp("plans") / "moorage.db"
    with sync.connect(f"sqlite:///{path}", holder="planner") as moor:
        filled(moor)
        yield moor, Plans(store_of(moor), path)


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_hot_statement_walks_through_a_whole_table(store_with_plans: tuple[sync.Moorage, Plans], name: str) -> None:
    moor, plans = store_with_plans
    with plans.watched() as statements:
        OPERATIONS[name](moor)
    assert any(not sql.startswith(("BEGIN", "COMMIT", "ROLLBACK", "PRAGMA")) for sql, _ in statements)
    for sql, bindings in statements:
        if sql.startswith(("BEGIN", "COMMIT", "ROLLBACK", "PRAGMA")):
            continue
        steps = plans.steps_of(sql, bindings)
        assert walks_in(steps) == [], f"{sql}\n" + "\n".join(steps)


def test_a_walk_through_a_whole_table_would_be_seen(store_with_plans: tuple[sync.Moorage, Plans]) -> None:
    _, plans = store_with_plans
    for sql in ("SELECT * FROM sessions WHERE purpose = 'x'", "SELECT s.id FROM sessions s, feed f ORDER BY s.summary"):
        assert walks_in(plans.steps_of(sql, None)), sql


@pytest.mark.parametrize(
    "name",
    [
        *("list", "list by agent", "list by task", "list by state", "page of the log", "page of messages"),
        *("list by update", "list by update and agent", "deleted ones", "what went for a reason", "cleanup"),
    ],
)
def test_no_page_is_sorted(store_with_plans: tuple[sync.Moorage, Plans], name: str) -> None:
    moor, plans = store_with_plans
    with plans.watched() as statements:
        OPERATIONS[name](moor)
    for sql, bindings in statements:
        if sql.lstrip().startswith("SELECT"):
            steps = plans.steps_of(sql, bindings)
            # Merging the lists of the states sorts a page, never a table.
            assert not any(SORT.search(step) for step in steps) or "UNION ALL" in sql, f"{sql}\n" + "\n".join(steps)


@pytest.mark.parametrize("sort", ["updated", "-updated"])
def test_a_walk_along_the_feed_has_an_end_and_goes_on_from_there(
    store_with_plans: tuple[sync.Moorage, Plans], monkeypatch: pytest.MonkeyPatch, sort: str
) -> None:
    moor, _ = store_with_plans
    whole = [each.session_id for each in moor.list(agent="agent-1", sort=sort, limit=1000)]
    monkeypatch.setattr(find, "WALK", 7)
    pages, cursor = [moor.list(agent="agent-1", sort=sort, limit=3)], None
    while cursor := pages[-1].next:
        pages.append(moor.list(agent="agent-1", sort=sort, limit=3, cursor=cursor))
    assert [each.session_id for page in pages for each in page] == whole
    assert any(len(page) == 0 for page in pages), "a page with nothing on it that is not the last"


def test_a_list_by_time_looks_only_at_that_time_where_it_is_narrow(
    store_with_plans: tuple[sync.Moorage, Plans], monkeypatch: pytest.MonkeyPatch
) -> None:
    moor, plans = store_with_plans

    def indexes() -> set[str]:
        with plans.watched() as statements:
            moor.list(created_after=LONG_AGO, limit=5)
        steps = [step for sql, bindings in statements if "root_id" in sql
                 for step in plans.steps_of(sql, bindings)]  # fmt: skip
        used = {found[1] for step in steps if (found := re.search(r"USING INDEX (\w+)", step))}
        return {index for index in used if index.startswith("sessions_")}

    assert indexes() == {"sessions_by_time"}
    monkeypatch.setattr(find, "NARROW", 20)
    assert indexes() == {"sessions_by_state"}


@pytest.mark.parametrize("narrow", [0, 20, 10_000])
@pytest.mark.parametrize("sort", ["created", "-created"])
@pytest.mark.parametrize("filters", [{}, {"state": "active"}, {"phase": "planning"}, {"active_only": True}])
def test_a_list_by_time_is_the_same_however_it_is_found(
    store_with_plans: tuple[sync.Moorage, Plans],
    monkeypatch: pytest.MonkeyPatch,
    narrow: int,
    sort: str,
    filters: dict[str, Any],
) -> None:
    moor, _ = store_with_plans
    everything = pages_of(moor, sort=sort, **filters)
    monkeypatch.setattr(find, "NARROW", narrow)
    times = sorted(session.created_at for session in everything)
    after, before = (times[len(times) // 3], times[-2]) if times else (LONG_AGO, FAR_AHEAD)
    expected = [session for session in everything if after < session.created_at < before]
    assert pages_of(moor, sort=sort, created_after=after, created_before=before, **filters) == expected


def pages_of(moor: sync.Moorage, **filters: Any) -> list[Any]:
    found, cursor = [], None
    while True:
        page = moor.list(limit=7, cursor=cursor, **filters)
        found += page.items
        if (cursor := page.next) is None:
            return found


# The log of writes ------------------------------------------------------------------------------


def size_of(path: Path | str) -> int:
    return Path(path).stat().st_size


async def test_the_log_of_writes_stays_small_however_much_is_appended(path: Path) -> None:
    largest = 0
    async with moorage.connect(f"sqlite:///{path}") as moor, asyncio.timeout(100):
        sessions = [(await moor.create("agent", parent=None)).id for _ in range(8)]
        for _ in range(80):
            await asyncio.gather(*(moor.append(ref, "x" * 1000) for ref in sessions for _ in range(8)))
            await moor.list(limit=5)
            largest = max(largest, size_of(f"{path}-wal"))
    assert size_of(path) > 3_000_000, "it went into the file"
    assert largest < 24_000_000


def test_the_log_of_writes_of_scripts_stays_small_too(path: Path) -> None:
    chance = random.Random(3)
    wal = Path(f"{path}-wal")
    for _ in range(12):
        with sync.connect(f"sqlite:///{path}") as moor:
            session = moor.create("agent").id
            for _ in range(chance.randrange(3, 9)):
                moor.append(session, ["x" * 1000] * 100)
    assert path.stat().st_size > 3_000_000
    assert wal.stat().st_size < 12_000_000


def test_a_small_session_is_small_on_disk(path: Path) -> None:
    with sync.connect(f"sqlite:///{path}") as moor:
        for _ in range(200):
            session = moor.create("agent", purpose="a small one", metadata={"n": 1}).id
            moor.append(session, [f"message {count} of a small session" for count in range(9)])
    with opened_raw(path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert path.stat().st_size / 200 < 5 * 1024
