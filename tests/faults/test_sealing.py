"""Encryption at rest: nothing that was said is in the file, and no wrong key or record goes unnoticed."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from moorage import sync
from moorage.core.approval import ApprovalQuery
from moorage.core.errors import (
    EncryptionKeyMissing,
    EncryptionKeyWrong,
    InvalidField,
    SessionCorrupt,
    Unsupported,
)
from moorage.ports import Capability
from moorage.stores import SEALED
from moorage.stores.sealing import SealBroken, Sealer, read_keys, written_key
from moorage.stores.sql.sealed import COLUMNS, count_plain
from moorage.stores.sqlite import care
from moorage.stores.sqlite.store import SqliteStore, prepared
from moorage.testing.builders import (
    NOON,
    OWNER,
    a_fork,
    a_session,
    a_stamp,
    after,
    an_approval,
    asked,
    bundle_of,
    context_of,
    drive,
    dump,
    finalized,
    remembering,
    said,
    updated,
    whole_log,
    write_context,
)
from moorage.testing.contract.records import put, write
from moorage.testing.faults import Worker
from moorage.testing.work import a_child_run, finish, launch, number_tokens_anew, start, taken

NEEDLE = "needle-in-the-hay"
ONE, TWO = b"1" * 32, b"2" * 32
OLD, NEW = Sealer({"k-1": ONE}), Sealer({"k-2": TWO, "k-1": ONE})


def open_with(path: Path, sealer: Sealer | None) -> SqliteStore:
    return SqliteStore.open(path, sealer=sealer)


def on_disk(path: Path) -> bytes:
    """All bytes of the database and its log."""
    files = sorted(path.parent.glob(f"{path.name}*"))
    return b"".join(file.read_bytes() for file in files if not file.name.endswith("-shm"))


async def fill(store: SqliteStore) -> None:
    """Say the needle at every place where something can be said."""
    number_tokens_anew()
    await store.create(OWNER, a_session("s-1", purpose=f"purpose {NEEDLE}"))
    await store.append(OWNER, "s-1", said(f"text {NEEDLE}", key="key-1"), a_stamp())
    await store.append(OWNER, "s-1", said(f"rules {NEEDLE}", role="system"), a_stamp())
    call = {"type": "tool_call", "id": "t", "name": "f", "arguments": {"x": NEEDLE}}
    await store.append(OWNER, "s-1", said([{"type": "text", "text": NEEDLE}, call], role="assistant"), a_stamp())
    await write_context(store, OWNER, "s-1", remembering("plan", {"deep": [NEEDLE]}))
    await write(store, put("kept", NEEDLE.encode()), put("json", f'"{NEEDLE}"'.encode(), form="json"))
    await write(store, put("kept", NEEDLE.encode()), ref=None)
    await store.apply(OWNER, "s-1", updated(error=f"error {NEEDLE}"))
    await store.apply(OWNER, "s-1", asked(an_approval("s-1", question=NEEDLE, plan=NEEDLE)))
    await store.fork(OWNER, "s-1", None, a_fork("f-1"))
    await launch(store, "parent", "run-0", prompt=NEEDLE)
    parent = await taken(store)
    await start(store, parent)
    await launch(store, "child", a_child_run("run-1", "parent", "run-0"), parent="parent", prompt=NEEDLE)
    child = await taken(store)
    await start(store, child)
    await finish(store, child, result=NEEDLE)
    await store.create(OWNER, a_session("s-2"))
    await store.apply(OWNER, "s-2", finalized(summary=f"summary {NEEDLE}"))


async def everything(store: SqliteStore) -> Any:
    """All that can be read back."""
    from moorage.testing.work import all_items, all_runs, turns_of

    sessions = ("s-1", "s-2", "f-1", "parent", "child")
    return (
        await dump(store),
        await all_runs(store),
        [await turns_of(store, ref) for ref in sessions],
        [item for ref in sessions for item in await all_items(store, ref=ref)],
        await store.approvals(OWNER, ApprovalQuery(pending_only=False)),
        await store.feed(OWNER, 0, 1000),
    )


@pytest.fixture
def filled(path: Path) -> Path:
    """A database that was sealed from the beginning."""
    with _closing(open_with(path, OLD)) as store:
        drive(fill(store))
    return path


@pytest.fixture
def plain(path: Path) -> Path:
    """One that was not, and is searched."""
    with _closing(open_with(path, None)) as store:
        drive(fill(store))
        assert drive(store.search(OWNER, NEEDLE, 10))
    return path


class _closing:
    def __init__(self, store: SqliteStore) -> None:
        self.store = store

    def __enter__(self) -> SqliteStore:
        return self.store

    def __exit__(self, *_: object) -> None:
        drive(self.store.close())


def seal_all(path: Path, sealer: Sealer) -> care.FileRewritten:
    with closing(prepared(path, sealer=sealer)) as db:
        return care.rewrite(db)


# Nothing is in the file -------------------------------------------------------------------------


def test_nothing_that_was_said_is_in_the_file_or_beside_it(filled: Path, tmp_path: Path) -> None:
    assert NEEDLE.encode() not in on_disk(filled)
    copy = tmp_path / "copies" / "backup.db"
    copy.parent.mkdir()
    with (
        closing(apsw.Connection(str(filled))) as source,
        closing(apsw.Connection(str(copy))) as target,
        target.backup("main", source, "main") as backup,
    ):
        backup.step()
    assert NEEDLE.encode() not in on_disk(copy)
    with _closing(open_with(copy, OLD)) as store:
        assert NEEDLE in str(drive(everything(store)))


def test_the_needle_is_found_where_nothing_is_sealed(plain: Path) -> None:
    assert on_disk(plain).count(NEEDLE.encode()) > 10, "or the test above proves nothing"


def test_encrypted_store_reads_like_a_plain_one(filled: Path, tmp_path: Path) -> None:
    with _closing(open_with(tmp_path / "plain.db", None)) as other, _closing(open_with(filled, OLD)) as store:
        drive(fill(other))
        assert drive(everything(store)) == drive(everything(other))
        assert drive(store.check()) == []


def test_every_text_column_that_is_not_sealed_is_known(filled: Path) -> None:
    """A new column is sealed, or listed here as one that need not be."""
    with closing(apsw.Connection(str(filled))) as raw:
        found = {
            (table, column)
            for table in COLUMNS
            for column, kind in raw.execute("SELECT name, type FROM pragma_table_info(?)", (table,))
            if kind == "TEXT"
        }
    assert found - {(table, name) for table, names in COLUMNS.items() for name in names} == PLAIN


PLAIN = {
    *(("sessions", name) for name in "owner id name task agent project_dir state phase interface".split()),
    *(("sessions", name) for name in "parent_id parent_name root_id forked_from metadata holder hold_token".split()),
    *(("sessions", name) for name in "suspended_by phase_before live_turn last_run labels".split()),
    *(("entries", name) for name in "kind role content by interface client_key".split()),
    *(("records", name) for name in "owner namespace key form".split()),
    *(("approvals", name) for name in "owner id state".split()),
    *(("runs", name) for name in "owner id agent state mode parent parent_run key".split()),
    *(("turns", name) for name in "owner id agent state launcher".split()),
    *(("inbox", name) for name in "owner id kind state turn run".split()),
}


def test_every_body_says_its_key(filled: Path) -> None:
    with closing(apsw.Connection(str(filled))) as raw:
        for table, columns in COLUMNS.items():
            for column in columns:
                values = [row[0] for row in raw.execute(f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL")]
                assert values, f"{table}.{column} is not written to by `fill`"
                assert all(value.startswith(f"{SEALED}k-1:") for value in values)
        assert raw.execute("SELECT count(*) FROM entries WHERE content IS NOT NULL").get == 0


def test_texts_that_look_sealed_are_texts(path: Path) -> None:
    texts = [f"{SEALED}k-1:AAAA", "~plain:x", f"~plain:{SEALED}", "~", "~plain"]
    for sealer in (None, OLD):
        with _closing(open_with(path, sealer)) as store:
            for number, text in enumerate(texts):
                ref = f"s-{number}-{sealer is None}"
                drive(store.create(OWNER, a_session(ref, purpose=text)))
                drive(store.append(OWNER, ref, said(text), a_stamp()))
                drive(store.apply(OWNER, ref, finalized(summary=text)))
    seal_all(path, NEW)
    with _closing(open_with(path, NEW)) as store:
        for number, text in enumerate(texts):
            for was_plain in (True, False):
                session = drive(store.get(OWNER, f"s-{number}-{was_plain}"))
                assert (session.purpose, session.summary) == (text, text)
                assert text in [entry.content for entry in drive(whole_log(store, session.session_id))]


# Keys -------------------------------------------------------------------------------------------


def test_without_the_key_it_opens_and_says_which_one_is_missing(filled: Path) -> None:
    before = filled.read_bytes()
    with _closing(open_with(filled, None)) as store:
        for read in (
            lambda: store.get(OWNER, "s-2"),
            lambda: store.log(OWNER, "s-1"),
            lambda: context_of(store, OWNER, "s-1", NOON),
            lambda: store.approvals(OWNER),
            lambda: store.run(OWNER, "run-1"),
            lambda: store.feed(OWNER, 0, 10),
        ):
            with pytest.raises(EncryptionKeyMissing, match="'k-1'") as caught:
                drive(read())
            assert caught.value.key_id == "k-1"
        assert any("encryption key 'k-1', which is not configured" in problem for problem in drive(store.check()))
        with pytest.raises(Unsupported, match="encrypted at rest"):
            drive(store.search(OWNER, NEEDLE, 10))
    assert filled.read_bytes() == before


@pytest.mark.parametrize("other", [Sealer({"k-9": ONE}), Sealer({"k-9": TWO, "k-8": ONE})], ids=["other", "others"])
def test_other_key_reads_nothing_old_and_encrypts_new_data(filled: Path, other: Sealer) -> None:
    with _closing(open_with(filled, other)) as store:
        with pytest.raises(EncryptionKeyMissing, match="'k-1'"):
            drive(store.log(OWNER, "s-1"))
        drive(store.create(OWNER, a_session("s-9", purpose="mine")))
        assert drive(store.get(OWNER, "s-9")).purpose == "mine"


def test_a_wrong_key_under_a_known_id_is_refused_before_anything_is_written(filled: Path) -> None:
    before = on_disk(filled)
    with pytest.raises(EncryptionKeyWrong, match="'k-1'"):
        open_with(filled, Sealer({"k-1": TWO}))
    with pytest.raises(EncryptionKeyWrong, match="'k-1'"):
        open_with(filled, Sealer({"k-2": TWO, "k-1": TWO}))
    assert on_disk(filled) == before


WRITES: list[Callable[[SqliteStore], Any]] = [
    lambda store: store.create(OWNER, a_session("s-9", purpose="plain")),
    lambda store: store.append(OWNER, "open", said("plain"), a_stamp()),
    lambda store: write_context(store, OWNER, "open", remembering("a", 1)),
    lambda store: store.apply(OWNER, "open", asked(an_approval("open", "approval-9"))),
    lambda store: store.apply(OWNER, "open", finalized(summary="plain")),
    lambda store: launch(store, "s-9", "run-9"),
]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("opened_first", [True, False])
def test_nothing_plain_is_written_into_a_sealed_store(
    path: Path, write: Callable[[SqliteStore], Any], opened_first: bool
) -> None:
    """Not even by a process that had opened it before it was sealed."""
    if opened_first:
        store = open_with(path, None)
        drive(store.create(OWNER, a_session("open")))
    with _closing(open_with(path, OLD)) as mine:
        if not opened_first:
            drive(mine.create(OWNER, a_session("open")))
            store = open_with(path, None)
    entries = _count(path)
    with pytest.raises(EncryptionKeyMissing, match="this store is sealed"):
        drive(write(store))
    drive(store.close())
    assert _count(path) == entries


def _count(path: Path) -> list[Any]:
    with closing(apsw.Connection(str(path))) as raw:
        return [raw.execute(f"SELECT count(*) FROM {table}").get for table in COLUMNS]


async def test_a_server_refuses_plain_bodies_one_by_one(path: Path) -> None:
    with _closing(open_with(path, OLD)) as mine:
        drive(mine.create(OWNER, a_session("s-1")))
    store = SqliteStore.serve(path)
    with pytest.raises(EncryptionKeyMissing):
        await store.append(OWNER, "s-1", said("plain"), a_stamp())
    await store.close()


def test_rotated_keys_open_the_old_and_seal_with_the_new(filled: Path) -> None:
    with _closing(open_with(filled, NEW)) as store:
        before = drive(everything(store))
        drive(store.append(OWNER, "s-1", said("more"), a_stamp()))
    with _closing(open_with(filled, OLD)) as store, pytest.raises(EncryptionKeyMissing, match="'k-2'"):
        drive(store.log(OWNER, "s-1"))
    done = seal_all(filled, NEW)
    assert (done.key_id, done.left) == ("k-2", [])
    with closing(apsw.Connection(str(filled))) as raw:
        for table, columns in COLUMNS.items():
            for column in columns:
                assert raw.execute(f"SELECT count(*) FROM {table} WHERE {column} LIKE '~sealed1:k-1:%'").get == 0
    with _closing(open_with(filled, Sealer({"k-2": TWO}))) as store:
        assert drive(everything(store))[1:5] == before[1:5]
        assert drive(store.check()) == []


def test_turned_off_again_new_bodies_are_plain_and_old_ones_stay_readable(filled: Path) -> None:
    off = Sealer({"k-1": ONE}, seals=False)
    with _closing(open_with(filled, off)) as store:
        assert Capability.SEARCH in store.capabilities
        drive(store.append(OWNER, "s-1", said("a plain word"), a_stamp()))
        assert [entry.content for entry in drive(whole_log(store, "s-1"))][-1] == "a plain word"
        assert [hit.snippet for hit in drive(store.search(OWNER, "word", 10))] == ["a plain word"]
        assert drive(store.search(OWNER, NEEDLE, 10)) == [], "what is sealed stays out of the index"
        drive(store.fork(OWNER, "s-1", None, a_fork("f-2")))
        assert NEEDLE in str(drive(context_of(store, OWNER, "f-2", NOON)))
        assert drive(store.check()) == []
    with _closing(open_with(filled, None)) as store:
        drive(store.append(OWNER, "f-2", said("plain, and without the key"), a_stamp()))
    with _closing(open_with(filled, OLD)) as store, pytest.raises(Unsupported):
        drive(store.search(OWNER, "word", 10))


# Damage -----------------------------------------------------------------------------------------


def change(path: Path, sql: str, *bindings: Any) -> None:
    """Change the file as a program without a key would: sealed texts, but not these."""
    with closing(apsw.Connection(str(path))) as raw:
        raw.execute(sql, bindings)
        assert raw.changes() > 0


TAMPERED: list[tuple[str, Callable[[SqliteStore], Any]]] = [
    ("UPDATE sessions SET summary = {} WHERE id = 's-2'", lambda store: store.get(OWNER, "s-2")),
    ("UPDATE sessions SET purpose = {} WHERE id = 's-1'", lambda store: store.get(OWNER, "s-1")),
    ("UPDATE entries SET data = {} WHERE number = 2 AND segment = 1", lambda store: store.log(OWNER, "s-1")),
    (
        "UPDATE records SET value = {} WHERE session = 1 AND namespace = '.context'",
        lambda store: context_of(store, OWNER, "s-1", NOON),
    ),
    ("UPDATE approvals SET body = {}", lambda store: store.approvals(OWNER)),
    ("UPDATE runs SET body = {} WHERE id = 'run-1'", lambda store: store.run(OWNER, "run-1")),
    ("UPDATE inbox SET body = {}", lambda store: store.inbox(OWNER, states=("waiting", "given", "held"), limit=10)),
]
HARMS: dict[str, Callable[[str], str]] = {
    "a byte flipped": lambda column: (
        f"substr({column}, 1, 30) || iif(substr({column}, 31, 1) = 'A', 'B', 'A') || substr({column}, 32)"
    ),
    "cut short": lambda column: f"substr({column}, 1, length({column}) - 8)",
    "cut to nothing": lambda column: "'~sealed1:k-1:'",
    "no base64": lambda column: "'~sealed1:k-1:%%%'",
    "another key's name": lambda column: f"'~sealed1:k-2:' || substr({column}, 14)",
}


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize(("sql", "read"), TAMPERED)
def test_a_tampered_record_is_told_and_never_shown(
    filled: Path, sql: str, read: Callable[[SqliteStore], Any], harm: str
) -> None:
    column = sql.split()[3]
    change(filled, sql.format(HARMS[harm](column)))
    with _closing(open_with(filled, Sealer({"k-1": ONE, "k-2": TWO}))) as store:
        problems = drive(store.check())
        assert any("does not open" in problem for problem in problems)
        if "inbox" in sql:  # a list leaves out what does not read back
            assert drive(read(store)).items == []
            return
        with pytest.raises(SessionCorrupt, match=r"encryption key 'k-[12]' does not open"):
            drive(read(store))


_ENTRY = "SELECT data FROM entries WHERE segment = 1 AND number = 3"
_CONTEXT = "SELECT value FROM records WHERE session = 1 AND namespace = '.context'"
SWAPS = [
    ("entry to run", "UPDATE runs SET body = (SELECT data FROM entries LIMIT 1) WHERE id = 'run-1'", "run"),
    ("run to run", "UPDATE runs SET body = (SELECT body FROM runs WHERE id = 'run-0') WHERE id = 'run-1'", "run"),
    ("purpose to error", "UPDATE sessions SET last_error = purpose WHERE id = 's-1'", "get"),
    ("entry to entry", f"UPDATE entries SET data = ({_ENTRY}) WHERE segment = 1 AND number = 2", "log"),
    (
        "context to context",
        f"UPDATE records SET value = ({_CONTEXT}) WHERE session = 2 AND namespace = '.context'",
        "context",
    ),
]


@pytest.mark.parametrize(("sql", "read"), [swap[1:] for swap in SWAPS], ids=[swap[0] for swap in SWAPS])
def test_a_sealed_text_opens_in_its_own_place_only(filled: Path, sql: str, read: str) -> None:
    reads: dict[str, Callable[[SqliteStore], Any]] = {
        "run": lambda store: store.run(OWNER, "run-1"),
        "get": lambda store: store.get(OWNER, "s-1"),
        "log": lambda store: store.log(OWNER, "s-1"),
        "context": lambda store: context_of(store, OWNER, "f-1", NOON),
    }
    change(filled, sql)
    with _closing(open_with(filled, OLD)) as store, pytest.raises(SessionCorrupt, match="belongs to another record"):
        drive(reads[read](store))


# Turning it on ----------------------------------------------------------------------------------


def test_plain_data_stays_readable_and_new_data_is_encrypted(plain: Path) -> None:
    with _closing(open_with(plain, None)) as store:
        before = drive(everything(store))
    with _closing(open_with(plain, OLD)) as store:
        assert drive(everything(store)) == before
        drive(store.append(OWNER, "s-1", said("another-straw"), a_stamp()))
        drive(store.apply(OWNER, "s-1", updated(error="another-straw")))
        assert drive(store.check()) == []
    assert b"another-straw" not in on_disk(plain)
    assert NEEDLE.encode() in on_disk(plain)


def test_sealing_all_of_it_leaves_nothing_plain(plain: Path) -> None:
    with _closing(open_with(plain, None)) as store:
        before = drive(everything(store))
    with closing(prepared(plain, sealer=OLD)) as db:
        assert drive(count_plain(db.driven)) > 10
    done = seal_all(plain, OLD)
    assert (done.left, done.is_compact) == ([], True)
    assert done.sealed > 10
    assert NEEDLE.encode() not in on_disk(plain)
    assert b"needle" not in on_disk(plain), "the words of the index are gone, too"
    with _closing(open_with(plain, OLD)) as store:
        assert drive(everything(store)) == before
        assert drive(store.check()) == []
    again = seal_all(plain, OLD)
    assert (again.sealed, again.looked_at) == (0, done.looked_at)


def test_damaged_data_is_kept_and_reported(plain: Path) -> None:
    seal_all(plain, OLD)
    change(plain, "UPDATE runs SET body = '~sealed1:k-1:AAAA' WHERE id = 'run-1'")
    done = seal_all(plain, NEW)
    assert [problem.split(":")[0] for problem in done.left] == ["runs 2"]
    with closing(apsw.Connection(str(plain))) as raw:
        assert raw.execute("SELECT body FROM runs WHERE id = 'run-1'").get == "~sealed1:k-1:AAAA"


def test_sealing_with_a_key_missing_stops_and_loses_nothing(filled: Path) -> None:
    with _closing(open_with(filled, OLD)) as store:
        before = drive(everything(store))
    with pytest.raises(EncryptionKeyMissing, match="'k-1'"):
        seal_all(filled, Sealer({"k-2": TWO}))
    with _closing(open_with(filled, NEW)) as store:
        assert drive(everything(store)) == before


SEALING = """
import sys
from moorage.stores.sealing import Sealer
from moorage.stores.sql import sealed as jobs
from moorage.stores.sqlite import care
from moorage.stores.sqlite.store import prepared
jobs.CHUNK = 3
db = prepared(sys.argv[1], sealer=Sealer({"k-1": b"1" * 32}))
print("ready", flush=True)
care.rewrite(db, lambda count: print(count, flush=True))
print("done", flush=True)
"""


@pytest.mark.parametrize("steps", [1, 3, 7, 12])
def test_killed_while_it_seals_and_repeated(plain: Path, steps: int) -> None:
    with _closing(open_with(plain, None)) as store:
        for number in range(60):
            drive(store.append(OWNER, "s-1", said(f"{NEEDLE} {number}"), a_stamp(after(number))))
        before = drive(everything(store))
    worker = Worker(SEALING, str(plain))
    for _ in range(steps):
        worker.line()
    worker.kill()
    with _closing(open_with(plain, OLD)) as store:
        assert drive(everything(store)) == before, "half of it sealed reads like all of it"
        assert drive(store.check()) == []
    assert seal_all(plain, OLD).left == []
    assert NEEDLE.encode() not in on_disk(plain)
    with _closing(open_with(plain, OLD)) as store:
        assert drive(everything(store)) == before


# Other ways in and out --------------------------------------------------------------------------


def test_export_of_an_encrypted_store_is_importable(filled: Path, tmp_path: Path) -> None:
    with (
        _closing(open_with(filled, OLD)) as store,
        _closing(open_with(tmp_path / "other.db", Sealer({"k-7": TWO}))) as other,
        _closing(open_with(tmp_path / "plain.db", None)) as unsealed,
    ):
        bundle = drive(bundle_of(store, "s-1"))
        for target in (other, unsealed):
            assert drive(target.restore(OWNER, bundle))
            assert drive(bundle_of(target, "s-1")) == bundle
    assert NEEDLE.encode() not in on_disk(tmp_path / "other.db")


def test_the_whole_way_by_the_environment(path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORAGE_ENCRYPTION_KEYS", written_key("k-1", ONE))
    with sync.connect(url) as moor:
        session = moor.create("agent", purpose=NEEDLE)
        moor.append(session.session_id, NEEDLE)
        with pytest.raises(Unsupported):
            moor.search(NEEDLE)
    monkeypatch.delenv("MOORAGE_ENCRYPTION_KEYS")
    assert NEEDLE.encode() not in on_disk(path)
    with sync.connect(url) as moor, pytest.raises(EncryptionKeyMissing, match="'k-1'"):
        moor.log(session.session_id)


def say_it_everywhere(moor: sync.Moorage) -> None:
    """Whatever a client can be told, but for names, ids, folders and metadata."""
    it = NEEDLE
    moor.create("agent", session_id="s-1", purpose=it)
    moor.append("s-1", [{"role": "user", "content": it}, {"role": "system", "content": [{"type": "text", "text": it}]}])
    moor.send("s-1", it)
    moor.update("s-1", phase="executing", error=it)
    moor.save_checkpoint("s-1", {"at": it})
    moor.compact("s-1", it)
    moor.context.put("s-1", "key", it)
    moor.context.merge("s-1", {"more": [it]})
    moor.context.replace("s-1", {"all": {it: it}})
    moor.approve(moor.request_approval("s-1", it, plan={"do": it}, options=["approve", "reject"]).approval_id, note=it)
    moor.reject(moor.request_approval("s-1", it).approval_id, note=it)
    moor.suspend("s-1", checkpoint={"at": it}, reason=it)
    moor.resume("s-1")
    moor.fork("s-1", session_id="f-1", purpose=it)
    moor.delegate(agent="agent", purpose=it)
    echo = moor.create("echo-agent", purpose=it)
    moor.run("echo-agent", it, session=echo.session_id, mode="async_poll")
    moor.run("echo-agent", it, mode="async_poll", purpose=it)
    moor.finalize("f-1", summary=it)


def test_nothing_that_a_client_can_say_is_in_the_file(path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORAGE_ENCRYPTION_KEYS", written_key("k-1", ONE))
    with sync.connect(url) as moor:
        say_it_everywhere(moor)
        exported = "\n".join(moor.export("s-1"))
        assert exported.count(NEEDLE) > 10
        assert moor.check() == []
    with sync.connect(f"sqlite:///{path.with_name('other.db')}") as moor:
        moor.import_(exported.splitlines())
        assert any(NEEDLE in (each.text or "") for each in moor.messages("s-1").items)
        assert "\n".join(moor.export("s-1")).count(NEEDLE) == exported.count(NEEDLE)
    assert NEEDLE.encode() not in on_disk(path.with_name("other.db"))
    assert NEEDLE.encode() not in on_disk(path)


def test_the_whole_way_by_a_key_file(path: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "keys").write_text(f"# the first one seals\n{written_key('k-2', TWO)}\n\n{written_key('k-1', ONE)} # old\n")
    (home / "config.toml").write_text('[encryption]\nkey_file = "keys"\n')
    with sync.connect(url) as moor:
        moor.append(moor.create("agent").session_id, NEEDLE)
    assert NEEDLE.encode() not in on_disk(path)
    assert b"~sealed1:k-2:" in on_disk(path)
    (home / "config.toml").write_text('[encryption]\nkey_file = "keys"\nseal = false\n')
    with sync.connect(url) as moor:
        moor.append(moor.create("agent").session_id, NEEDLE)
    assert NEEDLE.encode() in on_disk(path)


WRONG = {
    "k-1": "no ID:BASE64 in place 1",
    "k-1:%%%": "no ID:BASE64 in place 1",
    f"k 1:{base64.b64encode(ONE).decode()}": "key id 'k 1'",
    f"k-1:{base64.b64encode(ONE[:16]).decode()}": "'k-1' of 16 bytes",
    f"{written_key('k-1', ONE)},{written_key('k-1', TWO)}": "two keys with the id 'k-1'",
    ",": "has no keys",
}


@pytest.mark.parametrize(("text", "why"), WRONG.items())
def test_keys_that_are_none_are_refused_and_not_shown(
    url: str, path: Path, text: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOORAGE_ENCRYPTION_KEYS", text)
    with pytest.raises(InvalidField, match=why) as caught:
        sync.connect(url).create("agent")
    assert caught.value.code == "invalid_encryption"
    assert base64.b64encode(ONE).decode()[:12] not in str(caught.value)
    assert not path.exists()


@pytest.mark.parametrize(
    "text", ["[encryption]\nkey_file = 3\n", '[encryption]\nkey_file = "gone"\n', '[encryption]\nkeyfile = "x"\n']
)
def test_settings_that_are_wrong_are_refused(text: str, tmp_path: Path, url: str, path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(text)
    with pytest.raises(InvalidField):
        sync.connect(url).create("agent")
    assert not path.exists()


def test_a_key_reads_back_as_it_was_written() -> None:
    key = os.urandom(32)
    assert read_keys(written_key("a.b_c-1", key)) == {"a.b_c-1": key}
    urlsafe = base64.urlsafe_b64encode(key).decode()
    assert read_keys(f"x:{urlsafe}") == {"x": key}


def test_the_same_is_never_sealed_the_same_way() -> None:
    assert OLD.seal("a", "b") != OLD.seal("a", "b")
    assert OLD.open(OLD.seal("ä\0b", "b"), "b") == "ä\0b"
    with pytest.raises(SealBroken):
        OLD.open(OLD.seal("a", "b"), "c")
    assert "1111" not in repr(OLD)


def test_missing_package_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with _closing(open_with(path, Sealer({"k-1": ONE}))) as store:
        with pytest.raises(Unsupported, match=r"moorage\[encryption\]"):
            drive(store.create(OWNER, a_session("s-1")))
        assert _count(path)[0] == 0


def test_nothing_of_it_is_loaded_where_nothing_is_sealed(url: str) -> None:
    code = (
        "import sys; from moorage import sync; moor = sync.connect(sys.argv[1]); s = moor.create('agent'); "
        "moor.append(s.session_id, 'x'); moor.get(s.session_id); "
        "print([name for name in sys.modules if name.startswith(('cryptography', 'moorage.stores.seal'))], flush=True)"
    )
    with Worker(code, url) as worker:
        assert worker.line() == "[]"
