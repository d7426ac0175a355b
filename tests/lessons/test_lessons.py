"""Known failures of systems like this one: at least one test for each lesson.

`LESSONS` says which tests prove which lesson; a test checks that none is missing. Each runs
the behaviour itself. The folders beside this one prove the same things at greater length.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import apsw
import pytest

import moorage
from moorage import sync
from moorage.core.errors import (
    HeldByAnother,
    HoldLost,
    IdTaken,
    InvalidId,
    InvalidImport,
    MoorageError,
    SessionClosed,
    SessionCorrupt,
    SessionNotFound,
    StoreError,
    TooLarge,
    VersionConflict,
)
from moorage.service.inline import drive
from moorage.stores.sqlite import access
from moorage.stores.sqlite.connection import SqliteConnection
from moorage.stores.sqlite.store import SqliteStore
from moorage.testing.faults import cut_to, file_contents, into_one_file, opened_raw, race, write_lock
from tests.service.doors import Place, Timed

Test = TypeVar("Test", bound=Callable[..., object])

LESSONS: dict[int, list[str]] = {}
REQUIRED = {*range(1, 15), *range(20, 36)}


def lesson(number: int) -> Callable[[Test], Test]:
    """Enter a test into the table."""

    def entered(test: Test) -> Test:
        LESSONS.setdefault(number, []).append(test.__name__)
        return test

    return entered


def test_every_lesson_is_proven_by_a_test_of_this_file() -> None:
    assert set(LESSONS) == REQUIRED
    assert all(callable(globals()[name]) and name.startswith("test_") for names in LESSONS.values() for name in names)


# Helpers ----------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a database may be."""
    return tmp_path / "lesson.db"


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


def in_threads(*jobs: Callable[[], object]) -> None:
    """Run jobs at once, each on a thread of its own."""
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def raw_connection(moor: sync.Moorage) -> apsw.Connection:
    store = drive(vars(moor)["_target"].ready()).store
    assert isinstance(store, SqliteStore)
    assert isinstance(store._access, access.InlineAccess)
    return store._access._db.raw


@contextmanager
def counted_rows(moor: sync.Moorage) -> Iterator[list[int]]:
    """How many rows SQLite hands over meanwhile."""
    count = [0]

    def trace(_: object, row: Any) -> Any:
        count[0] += 1
        return row

    raw = raw_connection(moor)
    raw.set_row_trace(trace)
    try:
        yield count
    finally:
        raw.set_row_trace(None)


def a_call(call_id: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "tool_call", "id": call_id, "name": "deploy", "input": {}}]}


def a_result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "content": [{"type": "tool_result", "call_id": call_id, "output": "done"}]}


# Races and lost writes --------------------------------------------------------------------------

UPDATER = """
import sys
from moorage import sync
moor = sync.connect(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for count in range(25):
    moor.update("s-1", metadata={f"{sys.argv[2]}-{count}": count})
"""


@lesson(1)
async def test_acknowledged_updates_of_threads_tasks_and_processes_survive(path: Path) -> None:
    with sync.connect(url_of(path)) as moor:
        moor.create("agent", session_id="s-1")

        def in_thread(name: str) -> None:
            for count in range(25):
                moor.update("s-1", metadata={f"{name}-{count}": count})

        async def in_task(name: str, door: moorage.Moorage) -> None:
            for count in range(25):
                await door.update("s-1", metadata={f"{name}-{count}": count})

        async with moorage.connect(url_of(path)) as door, asyncio.timeout(90):
            await asyncio.gather(
                asyncio.to_thread(race, UPDATER, [(url_of(path), f"process-{n}") for n in range(2)]),
                *(asyncio.to_thread(in_thread, f"thread-{n}") for n in range(2)),
                *(in_task(f"task-{n}", door) for n in range(2)),
            )
        session = moor.get("s-1")
        assert len(session.metadata) == 6 * 25
        assert session.version == 1 + 6 * 25


@lesson(2)
def test_appends_by_several_writers_all_land_in_order_without_gaps(place: Place) -> None:
    doors = [place.connect() for _ in range(4)]
    session = doors[0].create("agent").id

    def saying(number: int) -> Callable[[], None]:
        def say() -> None:
            for count in range(20):
                doors[number].append(session, f"{number} {count}")

        return say

    in_threads(*(saying(number) for number in range(4)))
    log = doors[0].log(session, limit=1000).items
    assert [entry.number for entry in log] == list(range(1, 82))
    words = [str(entry.content).split() for entry in log[1:]]
    assert all([count for who, count in words if who == str(n)] == list(map(str, range(20))) for n in range(4))


@lesson(3)
def test_staleness_is_judged_by_a_version_even_when_all_times_are_equal(timed: Timed) -> None:
    session = timed.moor.create("agent")
    changed = timed.moor.update(session.id, metadata={"a": 1})
    assert changed.updated_at == session.updated_at
    with pytest.raises(VersionConflict):
        timed.moor.update(session.id, metadata={"b": 1}, version=session.version)
    assert timed.moor.update(session.id, metadata={"b": 2}, version=changed.version).metadata == {"a": 1, "b": 2}


@lesson(4)
def test_a_stale_writer_is_refused_told_so_and_nothing_of_its_change_is_kept(place: Place) -> None:
    one, other = place.connect(), place.connect()
    session = one.create("agent")
    one.update(session.id, metadata={"first": True})
    before = list(other.export(session.id))
    with pytest.raises(VersionConflict) as refused:
        other.update(session.id, phase="planning", metadata={"second": True}, error="late", version=session.version)
    assert (refused.value.facts["expected"], refused.value.facts["actual"]) == (1, 2)
    assert list(other.export(session.id)) == before


@lesson(5)
def test_append_needs_no_version_and_conflicts_with_none(place: Place) -> None:
    one, other = place.connect(), place.connect()
    session = one.create("agent")
    for count in range(5):
        one.append(session.id, f"one {count}")
        other.append(session.id, f"other {count}")
    assert one.update(session.id, metadata={"a": 1}, version=session.version).version == 2


@lesson(6)
def test_of_two_resumers_one_wins_and_the_other_is_told_who_and_until_when(place: Place) -> None:
    doors = {name: place.connect(holder=name) for name in ("ann", "bob")}
    session = doors["ann"].create("agent").id
    won: list[str] = []
    lost: list[HeldByAnother] = []

    def resuming(name: str) -> Callable[[], None]:
        def resume() -> None:
            try:
                won.append(doors[name].resume(session).hold.holder)
            except HeldByAnother as error:
                lost.append(error)

        return resume

    in_threads(*map(resuming, doors))
    (loser,) = lost
    assert [loser.holder] == won
    assert loser.until.endswith("Z")


@lesson(7)
def test_result_after_a_lost_hold_is_refused_at_the_commit(timed: Timed) -> None:
    session = timed.moor.create("agent").id
    late = str(timed.moor.resume(session).hold.token)
    timed.forward(minutes=11)
    timed.connect(holder="bob").resume(session)
    before = list(timed.moor.export(session))
    for write in (
        lambda: timed.moor.append(session, a_result("c-1"), token=late),
        lambda: timed.moor.update(session, metadata={"late": True}, token=late),
        lambda: timed.moor.suspend(session, checkpoint={"late": True}, token=late),
        lambda: timed.moor.finalize(session, "completed", token=late),
    ):
        with pytest.raises(HoldLost):
            write()
    assert list(timed.moor.export(session)) == before


@lesson(8)
def test_failed_write_raises(place: Place) -> None:
    moor = place.connect()
    moor.create("agent", session_id="s-1")
    with pytest.raises(IdTaken):
        moor.create("agent", session_id="s-1")
    for call in (
        lambda: moor.update("nobody", metadata={"a": 1}),
        lambda: moor.append("nobody", "x"),
        lambda: moor.suspend("nobody"),
        lambda: moor.finalize("nobody"),
        lambda: moor.context.put("nobody", "k", 1),
    ):
        with pytest.raises(SessionNotFound):
            call()


# SQLite -----------------------------------------------------------------------------------------


@lesson(9)
def test_references_are_enforced_and_deleting_a_tree_leaves_no_row_behind(path: Path) -> None:
    with sync.connect(url_of(path)) as moor:
        assert raw_connection(moor).pragma("foreign_keys") == 1
        moor.create(session_id="root")
        moor.create(session_id="child", parent="root")
        for ref in ("root", "child"):
            moor.append(ref, "hello")
            moor.context.put(ref, "k", 1)
            moor.request_approval(ref, "Apply?")
        moor.delete("root")
    with opened_raw(path) as db:
        for table in ("sessions", "records", "approvals", "lineage"):
            assert db.execute(f"SELECT count(*) FROM {table}").fetchall() == [(0,)], table
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []


OPENER = """
import sys
from moorage import sync
print("ready", flush=True)
sys.stdin.readline()
with sync.connect(sys.argv[1]) as moor:
    print(moor.create("agent").state)
"""


@lesson(10)
def test_first_opens_race_without_an_error(path: Path) -> None:
    assert race(OPENER, [(url_of(path),)] * 6) == [["created"]] * 6
    with sync.connect(url_of(path)) as moor:
        assert len(moor.list()) == 6


@lesson(11)
def test_writer_waits_for_the_lock_without_an_error(path: Path) -> None:
    with sync.connect(url_of(path)) as moor:
        session = moor.create("agent").id
        numbers: list[int] = []
        waiting = threading.Thread(target=lambda: numbers.append(moor.append(session, "patient")[0].number))
        with write_lock(path) as locker:
            waiting.start()
            waiting.join(0.3)
            assert waiting.is_alive(), "it waits"
            locker.say("let go")
            waiting.join(60)
        assert numbers == [2]


@lesson(11)
def test_a_read_that_becomes_a_write_does_not_fail_when_another_wrote_meanwhile(path: Path) -> None:
    doors = [sync.connect(url_of(path)) for _ in range(4)]
    session = doors[0].create("agent").id
    failures: list[BaseException] = []

    def updating(moor: sync.Moorage) -> Callable[[], None]:
        def update() -> None:
            try:
                for count in range(25):  # each reads the head, decides, and writes
                    moor.update(session, metadata={"count": count})
            except MoorageError as error:
                failures.append(error)

        return update

    in_threads(*map(updating, doors))
    assert failures == []
    assert doors[0].get(session).version == 101
    for moor in doors:
        moor.close()


@lesson(12)
async def test_big_messages_are_limited_and_do_not_make_one_long_transaction(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: list[int] = []
    committing = SqliteConnection.commit

    def commit(self: SqliteConnection) -> None:
        committing(self)
        commits.append(1)

    monkeypatch.setattr(SqliteConnection, "commit", commit)
    async with moorage.connect(url_of(path)) as moor, asyncio.timeout(60):
        session = (await moor.create("agent", parent=None)).id
        with pytest.raises(TooLarge):
            await moor.append(session, "x" * (1024 * 1024 + 1))
        commits.clear()
        await asyncio.gather(*(moor.append(session, "x" * 900_000) for _ in range(8)))
        assert len(commits) >= 4, "others get their turn in between"


@lesson(13)
async def test_the_event_loop_goes_on_while_a_write_waits(path: Path) -> None:
    async with moorage.connect(url_of(path)) as moor, asyncio.timeout(60):
        session = (await moor.create("agent", parent=None)).id
        lock = write_lock(path)
        locker = await asyncio.to_thread(lock.__enter__)
        waiting = asyncio.ensure_future(moor.append(session, "patient"))
        for _ in range(100):
            await asyncio.sleep(0.001)
        assert not waiting.done()
        assert (await moor.get(session)).last_entry == 1, "and readers are answered"
        locker.say("let go")
        assert (await waiting)[0].number == 2
        await asyncio.to_thread(lock.__exit__, None, None, None)


@lesson(14)
def test_a_truncated_file_is_refused_and_left_as_it_is(path: Path) -> None:
    with sync.connect(url_of(path)) as moor:
        moor.append(moor.create("agent").id, ["x" * 500] * 50)
    into_one_file(path)
    cut_to(path, path.stat().st_size // 2)
    before = file_contents(path)
    with pytest.raises(StoreError) as refused:
        sync.connect(url_of(path))
    assert refused.value.code == "store_corrupt"
    assert file_contents(path) == before


def code_or_number(moor: sync.Moorage, ref: str) -> str | int:
    try:
        return moor.append(ref, "x" * 8000)[0].number
    except StoreError as error:
        return error.code


@lesson(14)
def test_a_full_disk_is_a_clear_error_and_loses_nothing_that_was_acknowledged(path: Path) -> None:
    with sync.connect(url_of(path)) as moor:
        session = moor.create("agent").id
        raw = raw_connection(moor)
        raw.execute(f"PRAGMA max_page_count = {raw.pragma('page_count') + 6}").fetchall()
        answers = [code_or_number(moor, session) for _ in range(20)]
        kept = len([answer for answer in answers if isinstance(answer, int)])
        assert 0 < kept < 20
        assert set(answers[kept:]) == {"store_full"}
        assert len(moor.messages(session)) == kept
        raw.execute("PRAGMA max_page_count = 1000000").fetchall()
        assert moor.append(session, "now")[0].number == kept + 2


# Histories --------------------------------------------------------------------------------------


@lesson(20)
def test_call_left_open_by_a_crash_is_repaired_on_resume(place: Place) -> None:
    moor = place.connect()
    session = moor.create("agent").id
    moor.append(session, ["go", a_call("c-1")])
    messages = moor.resume(session).messages
    content = messages[-1].content
    assert isinstance(content, list)
    assert (content[0]["call_id"], content[0]["repaired"]) == ("c-1", True)
    assert moor.log(session).items[-1] == messages[-1]


@lesson(21)
def test_neither_windows_nor_summaries_separate_a_call_from_its_result(place: Place) -> None:
    moor = place.connect()
    session = moor.create("agent").id
    moor.append(session, ["m2", a_call("a"), a_call("b"), a_result("a"), a_result("b"), "m7"])
    for last in range(1, 7):
        shown = {entry.number for entry in moor.messages(session, last=last)}
        for pair in ({3, 5}, {4, 6}):
            assert pair <= shown or not pair & shown
    for upto in range(2, 8):
        data = moor.compact(session, "so far", upto=upto).data
        assert data is not None
        assert not any(call <= data["upto"] < result for call, result in ((3, 5), (4, 6)))


@lesson(22)
def test_power_cut_loses_only_unacknowledged_writes(path: Path) -> None:
    log = Path(f"{path}-wal")
    with sync.connect(url_of(path)) as moor:
        session = moor.create("agent").id
        moor.append(session, "kept")
        acknowledged = log.stat().st_size
        moor.append(session, "torn")
    cut_to(log, acknowledged + 1000)
    with sync.connect(url_of(path)) as moor:
        assert [entry.content for entry in moor.messages(session)] == ["kept"]
        assert moor.check() == []


@lesson(22)
def test_an_export_that_was_cut_short_is_noticed(timed: Timed) -> None:
    session = timed.moor.create("agent").id
    timed.moor.append(session, ["one", "two"])
    text = "\n".join(timed.moor.export(session))
    there = timed.connect(owner="elsewhere")
    with pytest.raises(InvalidImport):
        there.import_(text[: int(len(text) * 0.8)].splitlines())
    assert there.list().items == []


class Exploit:
    """An object whose decoding would run code."""

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return os.mkdir, ("exploited",)  # a function that leaves a trace when called


@lesson(23)
def test_only_json_is_stored(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with sync.connect(url_of(path)) as moor:
        moor.create("agent", session_id="s-1", metadata={"a": 1})
        moor.append("s-1", {"role": "user", "content": [{"type": "text", "text": "hi"}]})
        with pytest.raises(MoorageError):
            moor.update("s-1", metadata={"exploit": Exploit()})
    payload = pickle.dumps(Exploit(), protocol=0).decode()
    with opened_raw(path) as db:
        db.execute("UPDATE entries SET data = ? WHERE data IS NOT NULL", (payload,))
        db.execute("UPDATE sessions SET metadata = ?", (payload,))
    with sync.connect(url_of(path)) as moor:
        for read in (moor.get, moor.log, moor.resume):
            with pytest.raises(SessionCorrupt):
                read("s-1")
    assert not (tmp_path / "exploited").exists()


@lesson(24)
def test_the_last_twenty_of_many_messages_are_read_without_the_others(path: Path) -> None:
    with sync.connect(url_of(path)) as moor:
        session = moor.create("agent").id
        for _ in range(10):
            moor.append(session, ["x"] * 1000)
        with counted_rows(moor) as rows:
            assert [entry.number for entry in moor.messages(session, last=20)] == list(range(9982, 10002))
        assert rows[0] < 60


@lesson(25)
def test_a_list_comes_in_pages_and_a_page_reads_a_page(path: Path) -> None:
    with sync.connect(url_of(path)) as moor:
        for number in range(1200):
            moor.create(f"agent-{number % 2}", session_id=f"s-{number:04}")
        for filters in ({}, {"agent": "agent-1"}, {"state": "created"}):
            with counted_rows(moor) as rows:
                page = moor.list(limit=50, **filters)  # type: ignore[arg-type]
            assert len(page) == 50
            assert page.next is not None
            assert rows[0] < 120
        seen, cursor = 0, None
        while True:
            page = moor.list(limit=500, cursor=cursor)
            seen += len(page)
            cursor = page.next
            if cursor is None:
                break
        assert seen == 1200


@lesson(26)
def test_a_checkpoint_costs_the_same_however_long_the_history(path: Path) -> None:
    with sync.connect(url_of(path)) as moor:
        session = moor.create("agent").id
        sizes = [raw_connection(moor).pragma("page_count")]
        for _ in range(4):
            for step in range(50):
                moor.append(session, "x" * 500)
                moor.save_checkpoint(session, {"step": step, "notes": "y" * 500})
            sizes.append(raw_connection(moor).pragma("page_count"))
        growth = [after - before for before, after in pairwise(sizes)]
        assert max(growth[1:]) <= 1.5 * growth[0] + 2


def entries_in(path: Path) -> int:
    with opened_raw(path) as db:
        count: Any = db.execute("SELECT count(*) FROM entries").get
        return int(count)


@lesson(26)
def test_a_fork_copies_no_history(path: Path) -> None:
    with sync.connect(url_of(path)) as moor:
        session = moor.create("agent").id
        moor.append(session, ["x" * 500] * 500)
        before = entries_in(path)
        forks = [moor.fork(session).id for _ in range(5)]
        assert entries_in(path) == before + 5, "where each comes from, and nothing else"
        assert all(len(moor.messages(fork, limit=1000)) == 500 for fork in forks)


@lesson(27)
def test_suspending_keeps_the_conversation(place: Place) -> None:
    moor = place.connect()
    session = moor.create("agent").id
    moor.append(session, ["hi", {"role": "assistant", "content": "ho"}])
    moor.suspend(session, checkpoint={"step": 1}, reason="lunch")
    packet = place.connect().resume(session)
    assert [entry.content for entry in packet.messages] == ["hi", "ho"]
    assert packet.checkpoint == {"step": 1}


# Lifecycle --------------------------------------------------------------------------------------


@lesson(28)
def test_a_finalized_session_is_not_reopened_by_a_plain_update(place: Place) -> None:
    moor = place.connect()
    session = moor.create("agent").id
    closed = moor.finalize(session, "completed")
    for change in (
        lambda: moor.update(session, phase="planning"),
        lambda: moor.update(session, metadata={"a": 1}),
        lambda: moor.append(session, "more"),
        lambda: moor.resume(session),
        lambda: moor.suspend(session),
    ):
        with pytest.raises(SessionClosed):
            change()
    assert moor.get(session) == closed


@lesson(29)
def test_success_is_finalized_and_failure_is_not_guessed_from_prose(place: Place) -> None:
    moor = place.connect()
    session = moor.create("agent").id
    moor.append(
        session, {"role": "assistant", "content": "Error: failed! The error handling failed with an exception."}
    )
    now = moor.get(session)
    assert (now.state, now.error_count, now.last_error) == ("active", 0, None)
    done = moor.finalize(session, "completed", summary="No error after all")
    assert (done.state, done.phase, done.finalized_at is not None) == ("completed", "completed", True)


@lesson(30)
def test_an_approval_may_come_the_next_morning(timed: Timed) -> None:
    session = timed.moor.create("agent").id
    timed.moor.request_approval(session, "Apply?")
    timed.forward(hours=16)
    assert timed.moor.should_resume(session).decision
    timed.forward(days=7)
    assert timed.moor.should_resume(session).reason == "idle_too_long"


@lesson(31)
def test_a_metadata_write_does_not_extend_the_window(timed: Timed) -> None:
    session = timed.moor.create("agent").id
    timed.moor.update(session, phase="planning")
    for _ in range(4):
        timed.forward(minutes=8)
        timed.moor.update(session, metadata={"touched": True})
        timed.moor.context.put(session, "touched", True)
    assert timed.moor.should_resume(session).reason == "idle_too_long"


@lesson(32)
def test_exit_codes_name_the_error_family(path: Path) -> None:
    def code_of(*arguments: str) -> int:
        command = [sys.executable, "-m", "moorage", *arguments]
        sources = str(Path(moorage.__file__).parents[1])
        environment = {**os.environ, "MOORAGE_URL": url_of(path), "PYTHONPATH": sources}
        return subprocess.run(command, env=environment, capture_output=True, check=False, timeout=60).returncode

    with sync.connect(url_of(path)) as moor:
        moor.create("agent", session_id="s-001")
        moor.finalize("s-001", "completed")
    assert code_of("get", "s-001") == 0
    assert code_of("should-resume", "s-001") == 1
    assert code_of("no-such-command") == 2
    assert code_of("get", "nobody") == 3
    assert code_of("finalize", "s-001", "failed") == 4
    into_one_file(path)
    path.write_bytes(b"no database")
    assert code_of("get", "s-001") == 5


@lesson(33)
@pytest.mark.parametrize("name", ["../../evil", "/etc/passwd", "a/b", "..", "a\\b", "a\0b"])
def test_an_id_is_never_used_as_a_path(
    place: Place, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moor = place.connect()
    deep = tmp_path / "two" / "below"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidId):
        moor.create("agent", session_id=name)
    with pytest.raises(InvalidId):
        moor.create("agent", name=name)
    for read in (moor.get, moor.log, moor.resume, moor.delete):
        with pytest.raises(SessionNotFound):
            read(name)
    assert sorted(tmp_path.rglob("*")) == before


@lesson(34)
def test_a_corrupt_session_is_not_treated_as_absent(path: Path) -> None:
    with sync.connect(url_of(path)) as moor:
        moor.create("agent", session_id="s-1")
        moor.create("agent", session_id="s-2")
    with opened_raw(path) as db:
        db.execute("UPDATE sessions SET metadata = '{broken' WHERE id = 's-1'")
    with sync.connect(url_of(path)) as moor:
        with pytest.raises(SessionCorrupt):
            moor.get("s-1")
        assert moor.should_resume("s-1").reason == "session_corrupt"
        with pytest.raises(IdTaken):
            moor.create("agent", session_id="s-1")
        assert any("s-1" in problem for problem in moor.check())
        assert moor.get("s-2").id == "s-2"


@lesson(35)
def test_expiry_is_previewed_audited_and_exact(timed: Timed) -> None:
    moor = timed.moor
    for number in range(3):
        moor.create("agent", session_id=f"plain-{number}")
    moor.create("agent", session_id="brief", ttl=60)
    timed.forward(days=400)
    assert {session.id for session in moor.list()} == {"plain-0", "plain-1", "plain-2"}, "no TTL, no expiry"
    assert [(tombstone.session_id, tombstone.reason) for tombstone in moor.deleted()] == [("brief", "expired")]
    preview = moor.cleanup(24, dry_run=True)
    assert preview.removed == 3
    assert len(moor.list()) == 3
    assert moor.cleanup(24, states=["failed"]).removed == 0
    assert set(moor.cleanup(24).session_ids) == set(preview.session_ids)
    assert [tombstone.reason for tombstone in moor.deleted()] == ["retention"] * 3 + ["expired"]
