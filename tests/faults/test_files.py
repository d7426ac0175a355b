"""Files and disks that are not as they should be: a clear error, and not one byte changed."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import apsw
import pytest

import moorage
from moorage import sync
from moorage.core.entry import Entry
from moorage.core.errors import MoorageError, SessionCorrupt, StoreCorrupt, StoreError
from moorage.stores.sqlite.store import LATEST
from moorage.testing.faults import (
    NOBODY,
    CannotInject,
    Worker,
    WorkerFailed,
    cut_to,
    file_contents,
    fill,
    into_one_file,
    opened_raw,
    small_disk,
)


def a_database(path: Path, sessions: int = 5, entries: int = 40) -> None:
    """A file with something in it, all of it in one place."""
    with sync.connect(f"sqlite:///{path}") as moor:
        for number in range(sessions):
            moor.create("agent", session_id=f"s-{number}", metadata={"n": number})
            moor.append(f"s-{number}", [f"message {count} " + "x" * 200 for count in range(entries)])
            moor.context.put(f"s-{number}", "k", number)
    into_one_file(path)


async def opened_async(path: Path) -> None:
    async with asyncio.timeout(60), moorage.connect(f"sqlite:///{path}") as moor:
        await moor.list()


@contextmanager
def refused_by_both_doors(path: Path, code: str) -> Iterator[None]:
    """Opening is refused with that code, and leaves the file as it was."""
    before = file_contents(path)
    with pytest.raises(StoreError) as refused:
        sync.connect(f"sqlite:///{path}")
    assert refused.value.code == code
    assert str(path) in refused.value.message
    with pytest.raises(StoreError) as refused:
        asyncio.run(opened_async(path))
    assert refused.value.code == code
    yield
    assert file_contents(path) == before, "not one byte was changed"


# Files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 15, 16, 20, 31, 100, 511, 512, 1024, 4095, 4096, 8192, -4096, -1])
def test_a_truncated_file_is_refused_and_left_as_it_is(path: Path, length: int) -> None:
    a_database(path)
    cut_to(path, length if length > 0 else path.stat().st_size + length)
    with refused_by_both_doors(path, "store_corrupt"):
        pass


def test_a_file_truncated_to_nothing_while_its_log_has_content_is_refused(path: Path) -> None:
    with sync.connect(f"sqlite:///{path}") as moor:
        moor.create("agent", session_id="s-1")
    assert (path.parent / "moorage.db-wal").stat().st_size > 0
    cut_to(path, 0)
    with refused_by_both_doors(path, "store_corrupt"):
        pass


@pytest.mark.parametrize("part", [0.1, 0.5, 0.8, 0.999])
def test_a_file_truncated_beside_its_log_gives_the_right_answer_or_none(path: Path, part: float) -> None:
    with sync.connect(f"sqlite:///{path}") as moor:
        moor.create("agent", session_id="s-1")
        for count in range(100):
            moor.append("s-1", [f"{count} " + "x" * 1000 for _ in range(60)])
        whole = [moor.log("s-1", after=after, limit=500).items for after in range(0, 6001, 500)]
    assert path.stat().st_size > 1_000_000, "some of it has moved from the log into the file"
    cut_to(path, int(path.stat().st_size * part))
    before = path.read_bytes()
    with suppress(StoreCorrupt), sync.connect(f"sqlite:///{path}") as moor:
        answers = [page_or_none(moor, number * 500) for number in range(len(whole))]
        assert all(answer in (None, expected) for answer, expected in zip(answers, whole, strict=True))
        assert None in answers, "what was cut off is missed"
        with pytest.raises(StoreCorrupt):
            moor.check()
    assert path.read_bytes() == before


def page_or_none(moor: sync.Moorage, after: int) -> list[Entry] | None:
    with suppress(StoreCorrupt):
        return moor.log("s-1", after=after, limit=500).items
    return None


@pytest.mark.parametrize("content", [b"hello", b"\0" * 8192, b"PK\x03\x04" * 2000, b"SQLite format 2\0" * 100])
def test_file_that_is_no_database_is_refused_and_unchanged(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with refused_by_both_doors(path, "store_corrupt"):
        pass


@pytest.mark.parametrize("version", [0, 1, 7])
@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_another_programs_database_is_refused_and_left_as_it_is(path: Path, version: int, journal: str) -> None:
    with closing(apsw.Connection(str(path))) as db:
        db.execute(f"PRAGMA journal_mode = {journal}").fetchall()
        db.execute(f"CREATE TABLE recipes (name TEXT); PRAGMA user_version = {version}").fetchall()
        db.execute("INSERT INTO recipes VALUES ('soup')")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(StoreError) as refused:
            sync.connect(f"sqlite:///{path}")
        assert refused.value.code == "store_unavailable"
        assert "another program" in refused.value.message
    assert path.read_bytes() == before
    with opened_raw(path) as db:
        assert db.execute("SELECT name FROM recipes").fetchall() == [("soup",)]
        assert db.pragma("journal_mode") == journal


def test_a_database_from_a_newer_version_is_refused_and_left_as_it_is(path: Path) -> None:
    a_database(path)
    with opened_raw(path) as db:
        db.execute(f"PRAGMA user_version = {LATEST + 1}").fetchall()
    into_one_file(path)
    with refused_by_both_doors(path, "store_too_new"):
        pass


def test_an_empty_file_is_a_fresh_start(path: Path) -> None:
    path.touch()
    with sync.connect(f"sqlite:///{path}") as moor:
        assert moor.create("agent").state == "created"
        assert moor.check() == []


def test_a_copy_of_the_files_made_between_writes_opens_whole(path: Path, tmp_path: Path) -> None:
    with sync.connect(f"sqlite:///{path}") as moor:
        moor.create("agent", session_id="s-1")
        for count in range(50):
            moor.append("s-1", f"m{count}")
        copy = tmp_path / "copy.db"
        shutil.copy(path, copy)
        shutil.copy(f"{path}-wal", f"{copy}-wal")
    with sync.connect(f"sqlite:///{copy}") as moor:
        assert moor.get("s-1").last_entry == 51
        assert moor.check() == []


def test_torn_wal_loses_only_unacknowledged_writes(path: Path, tmp_path: Path) -> None:
    with sync.connect(f"sqlite:///{path}") as moor:
        moor.create("agent", session_id="s-1")
        sizes = []
        for count in range(20):
            moor.append("s-1", f"m{count}")
            sizes.append((path.parent / "moorage.db-wal").stat().st_size)
        for torn in (1, 100, 4000):
            copy = tmp_path / f"torn-{torn}.db"
            shutil.copy(path, copy)
            shutil.copy(f"{path}-wal", f"{copy}-wal")
            # The write after the tenth message was cut off by the power.
            cut_to(f"{copy}-wal", sizes[9] + torn)
            with sync.connect(f"sqlite:///{copy}") as whole:
                said = [entry.content for entry in whole.messages("s-1", limit=100)]
                assert said == [f"m{count}" for count in range(10)]
                assert whole.check() == []


# One session that does not read back ------------------------------------------------------------

DAMAGE = {
    "state": "UPDATE sessions SET state = 'sleeping' WHERE id = 's-1'",
    "phase": "UPDATE sessions SET phase = 'sleeping' WHERE id = 's-1'",
    "metadata": "UPDATE sessions SET metadata = '{broken' WHERE id = 's-1'",
    "metadata of another kind": "UPDATE sessions SET metadata = '[1]' WHERE id = 's-1'",
    "time": "UPDATE sessions SET created_at = 9223372036854775807 WHERE id = 's-1'",
    "hold": "UPDATE sessions SET holder = 'ann', hold_until = NULL WHERE id = 's-1'",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_corrupt_session_is_said_to_be_so_and_the_others_go_on(path: Path, damage: str) -> None:
    a_database(path, sessions=3)
    with opened_raw(path) as db:
        db.execute(DAMAGE[damage])
    with sync.connect(f"sqlite:///{path}") as moor:
        for call in (moor.get, moor.resume, moor.finalize):
            with pytest.raises(SessionCorrupt) as refused:
                call("s-1")
            assert refused.value.facts["session_id"] == "s-1"
        verdict = moor.should_resume("s-1")
        assert (verdict.decision, verdict.reason) == (False, "session_corrupt")
        assert {session.id for session in moor.list()} >= {"s-0", "s-2"}
        assert {session.id for session in moor.list(agent="agent")} >= {"s-0", "s-2"}
        assert moor.should_resume(agent="agent").reason != "session_corrupt"
        assert moor.append("s-0", "still works")[0].number == 42
        assert moor.get("s-2").metadata == {"n": 2}
        assert any("s-1" in problem for problem in moor.check()), "and the doctor knows"


def test_a_text_that_is_not_utf8_is_said_to_be_so(path: Path) -> None:
    a_database(path, sessions=3)
    with opened_raw(path) as db:
        db.execute("UPDATE sessions SET purpose = CAST(X'fffe' AS TEXT) WHERE id = 's-1'")
    with sync.connect(f"sqlite:///{path}") as moor:
        with pytest.raises(SessionCorrupt):
            moor.get("s-1")
        assert moor.should_resume("s-1").reason == "session_corrupt"
        with pytest.raises(StoreError) as refused:
            moor.list()
        assert refused.value.code == "store_corrupt"
        assert moor.append("s-0", "still works")[0].number == 42
        assert moor.check() == ["session s-1 has a text that is not UTF-8"]
        assert moor.delete("s-1").deleted_sessions == 1
        assert {session.id for session in moor.list()} == {"s-0", "s-2"}


def test_a_corrupt_session_is_not_thrown_away_by_cleanup_and_does_not_stop_it(path: Path) -> None:
    a_database(path, sessions=3)
    with opened_raw(path) as db:
        db.execute(DAMAGE["metadata"])
    with sync.connect(f"sqlite:///{path}") as moor:
        assert set(moor.cleanup(0).session_ids) == {"s-0", "s-2"}
        with pytest.raises(SessionCorrupt):
            moor.get("s-1")
        assert moor.delete("s-1").session_ids == ["s-1"], "a person may"
        assert moor.check() == []


def test_a_session_that_is_not_even_text_does_not_stop_cleanup(path: Path) -> None:
    a_database(path, sessions=3)
    with opened_raw(path) as db:
        db.execute("UPDATE sessions SET purpose = CAST(X'fffe' AS TEXT) WHERE id = 's-1'")
    with sync.connect(f"sqlite:///{path}") as moor:
        assert set(moor.cleanup(0, dry_run=True).session_ids) == {"s-0", "s-2"}
        assert set(moor.cleanup(0).session_ids) == {"s-0", "s-2"}


def test_expired_approval_of_a_corrupt_session_does_not_block_others(path: Path) -> None:
    a_database(path, sessions=3)
    with sync.connect(f"sqlite:///{path}") as moor:
        for name in ("s-1", "s-2"):
            moor.request_approval(name, "Apply?", expires_in=3600)
    with opened_raw(path) as db:
        db.execute(DAMAGE["metadata"])
        db.execute("UPDATE approvals SET expires_at = 1, body = json_set(body, '$.expires_at', '1970-01-01T00:00:00Z')")
    with sync.connect(f"sqlite:///{path}") as moor:
        assert moor.get("s-0").id == "s-0"
        assert moor.get("s-2").pending_approvals == 0
        assert "s-0" in moor.cleanup(0).session_ids


def test_corrupt_entry_is_reported_and_does_not_block_streams_or_searches(path: Path) -> None:
    a_database(path, sessions=3, entries=2)
    with opened_raw(path) as db:
        db.execute(
            "UPDATE entries SET data = '{broken', content = NULL, role = 'user' "
            "WHERE rowid = (SELECT rowid FROM entries WHERE content LIKE 'message 0%' LIMIT 1)"
        )
        assert db.changes() == 1
    with sync.connect(f"sqlite:///{path}") as moor:
        corrupt = [session.id for session in moor.list() if not reads_back(moor, session.id)]
        assert len(corrupt) == 1
        heard = {event.session_id for event in moor.events(follow=False)}
        assert heard >= {"s-0", "s-1", "s-2"} - set(corrupt)
        found = {hit.session_id for hit in moor.search("message")}
        assert found >= {"s-0", "s-1", "s-2"} - set(corrupt)
        assert any(corrupt[0] in problem for problem in moor.check())


def reads_back(moor: sync.Moorage, ref: str) -> bool:
    try:
        moor.log(ref)
    except SessionCorrupt:
        return False
    return True


# Disks ------------------------------------------------------------------------------------------


def test_a_full_disk_is_said_to_be_full_loses_nothing_and_works_again(tmp_path: Path) -> None:
    try:
        with small_disk(tmp_path / "small", 2048) as disk:
            _fill_and_free(Path(disk), "sqlite:///" + disk + "/moorage.db")
    except CannotInject as error:
        pytest.skip(str(error))


def _fill_and_free(disk: Path, url: str) -> None:
    with sync.connect(url) as moor:
        moor.create("agent", session_id="s-1")
        moor.append("s-1", "before")
        filling = fill(disk, leave=100_000)
        said, codes = 1, set()
        for count in range(200):
            try:
                moor.append("s-1", f"{count} " + "x" * 8000)
                said += 1
            except MoorageError as error:
                codes.add(error.code)
                if len(codes) and count > 60:
                    break
        assert codes == {"store_full"}
        assert len(moor.messages("s-1", limit=1000)) == said, "all that was acknowledged, and nothing else"
        os.unlink(filling)  # noqa: PTH108  # a path as text
        assert moor.append("s-1", "works again")[0].number == said + 2
        assert moor.check() == []
    with sync.connect(url) as moor:
        assert moor.get("s-1").last_entry == said + 2


@pytest.mark.parametrize("door", ["sync", "async"])
def test_a_database_that_may_not_grow_is_full_and_goes_on_when_it_may(path: Path, door: str) -> None:
    asyncio.run(_grow(path, door))


async def _grow(path: Path, door: str) -> None:
    from moorage.stores.sqlite.access import InlineAccess
    from moorage.stores.sqlite.store import SqliteStore
    from moorage.stores.sqlite.threads import Threaded
    from moorage.testing.builders import OWNER, a_session, a_stamp, said

    store = SqliteStore.open(path) if door == "sync" else SqliteStore.serve(path)
    access = store._access
    assert isinstance(access, (InlineAccess, Threaded))
    raw = access._db.raw if isinstance(access, InlineAccess) else access._writer._db.raw
    await store.create(OWNER, a_session("s-1"))
    pages = raw.pragma("page_count")
    raw.execute(f"PRAGMA max_page_count = {pages + 8}").fetchall()
    kept, codes = 0, set()
    for _ in range(20):
        try:
            await store.append(OWNER, "s-1", said("x" * 8000), a_stamp())
            kept += 1
        except MoorageError as error:
            codes.add(error.code)
    assert codes == {"store_full"}
    assert 0 < kept < 20
    assert (await store.get(OWNER, "s-1")).last_entry == 1 + kept
    raw.execute("PRAGMA max_page_count = 1000000").fetchall()
    assert (await store.append(OWNER, "s-1", said("now"), a_stamp()))[0].number == kept + 2
    assert await store.check() == []
    await store.close()


READER = """
import os, sys
from moorage import sync
from moorage.core.errors import MoorageError
import moorage.stores.sqlite.store
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(int(sys.argv[2]))
    os.setuid(int(sys.argv[2]))
print("ready", flush=True)
try:
    with sync.connect(sys.argv[1]) as moor:
        moor.create("agent")
    print("nothing")
except MoorageError as error:
    print(error.code)
"""


def as_user_nobody(url: str) -> str:
    """Return the error for a user without rights; skip where we cannot become one."""
    with Worker(READER, url, NOBODY) as worker:
        try:
            worker.line()
        except WorkerFailed as error:
            pytest.skip(f"cannot become nobody here: {error}")
        return worker.line()


@pytest.fixture
def open_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that another user can reach."""
    folder = tmp_path_factory.mktemp("shared")
    modes = {each: each.stat().st_mode for each in (folder, *folder.parents) if not each.stat().st_mode & 0o001}
    for closed, mode in modes.items():
        closed.chmod(mode | 0o055)
    yield folder
    for parent, mode in modes.items():
        parent.chmod(mode)


def test_a_read_only_file_is_said_to_be_so_and_left_as_it_is(open_folder: Path) -> None:
    path = open_folder / "moorage.db"
    a_database(path)
    path.chmod(0o444)
    open_folder.chmod(0o777)
    before = file_contents(path)
    assert as_user_nobody(f"sqlite:///{path}") == "store_read_only"
    assert file_contents(path) == before


@pytest.mark.parametrize("exists", [True, False], ids=["with a database", "without one"])
def test_a_read_only_folder_is_said_to_be_so_and_left_as_it_is(open_folder: Path, exists: bool) -> None:
    path = open_folder / "moorage.db"
    if exists:
        a_database(path)
        path.chmod(0o666)
    open_folder.chmod(0o555)
    before = sorted(each.name for each in open_folder.iterdir()), file_contents(path)
    assert as_user_nobody(f"sqlite:///{path}") == "store_read_only"
    assert (sorted(each.name for each in open_folder.iterdir()), file_contents(path)) == before
    open_folder.chmod(0o755)


def test_unreadable_database_is_reported(open_folder: Path) -> None:
    path = open_folder / "moorage.db"
    a_database(path)
    path.chmod(0o000)
    assert as_user_nobody(f"sqlite:///{path}") == "store_read_only"
