"""Databases of older orchestrators: brought in whole or left as they are.

The files are made as the older programs made them: a parent is a name, or an id that
`ON DELETE SET NULL` forgot; columns were added over time; foreign keys were not always on.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import moorage
from moorage import sync
from moorage.core.bundle import Bundle, check_bundle
from moorage.core.errors import SessionGone, StoreUnavailable
from moorage.legacy import database, rows
from moorage.testing.faults import Worker, WorkerFailed, file_contents, into_one_file

NAME_ONLY = """
CREATE TABLE sessions (
    session_id TEXT PRIMARY KEY, session_name TEXT NOT NULL, status TEXT NOT NULL, created_at TEXT NOT NULL,
    project_dir TEXT, agent_name TEXT, last_resumed_at TEXT
);
ALTER TABLE sessions ADD COLUMN parent_session_name TEXT;
"""
NO_PARENTS = "CREATE TABLE sessions (session_id TEXT PRIMARY KEY, session_name TEXT, status TEXT, created_at TEXT);"
SET_NULL = """
CREATE TABLE sessions (
    session_id TEXT PRIMARY KEY, status TEXT NOT NULL, created_at TEXT NOT NULL, project_dir TEXT, agent_name TEXT,
    last_resumed_at TEXT, parent_session_id TEXT REFERENCES sessions(session_id) ON DELETE SET NULL,
    execution_mode TEXT DEFAULT 'sync', hostname TEXT
);
CREATE INDEX idx_sessions_hostname ON sessions (hostname);
"""
BOTH = """
CREATE TABLE sessions (
    session_id TEXT PRIMARY KEY, session_name TEXT, status TEXT, created_at TEXT, agent_name TEXT,
    parent_session_id TEXT REFERENCES sessions(session_id) ON DELETE SET NULL, parent_session_name TEXT
);
"""
EVENTS = """
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL REFERENCES sessions(session_id) ON DELETE CASCADE,
    event_type TEXT NOT NULL, timestamp TEXT NOT NULL, tool_name TEXT, tool_input TEXT, role TEXT, content TEXT
);
CREATE TABLE runs (run_id TEXT PRIMARY KEY, session_id TEXT REFERENCES sessions(session_id), prompt TEXT);
"""
NOON = "2025-12-01T12:00:{:02}Z"

Row = dict[str, Any]


def older(path: Path, schema: str, sessions: Iterable[Row], events: Iterable[Row] = (), *more: str) -> None:
    """A file as an older program leaves it; like theirs, without foreign keys unless a statement turns them on."""
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(schema + EVENTS)
        for table, rows in (("sessions", sessions), ("events", events)):
            for row in rows:
                marks = ", ".join("?" * len(row))
                db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))
        db.commit()
        for statement in more:
            db.execute(statement)
            db.commit()


def named(id_: str, name: str, second: int, parent: str | None = None, status: str = "running") -> Row:
    return {
        "session_id": id_,
        "session_name": name,
        "status": status,
        "created_at": NOON.format(second),
        "parent_session_name": parent,
    }


def linked(id_: str, second: int, parent: str | None = None, status: str = "running") -> Row:
    return {"session_id": id_, "status": status, "created_at": NOON.format(second), "parent_session_id": parent}


def family(path: Path) -> None:
    older(
        path,
        NAME_ONLY,
        [
            named("a", "orchestrator", 0),
            named("b", "child", 1, "orchestrator"),
            named("c", "grandchild", 2, "child", "finished"),
            named("d", "lost", 3, "nobody", "error"),
        ],
        [
            event("b", "session_start", NOON.format(1)),
            event("b", "message", NOON.format(4), role="user", content=text("hi")),
            event("b", "pre_tool", "?", tool_name="Bash", tool_input='{"a": 1}'),
        ],
    )


def event(session_id: str, type_: str, at: str, **more: object) -> Row:
    return {"session_id": session_id, "event_type": type_, "timestamp": at, **more}


def text(said: str) -> str:
    return json.dumps([{"type": "text", "text": said}])


def rows_of(path: Path, table: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall()


def parents(moor: sync.Moorage) -> dict[str, tuple[str | None, str, int]]:
    return {s.id: (s.parent_session_id, s.root_session_id, s.depth) for s in moor.list(limit=100).items}


def cli(url: str, *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "moorage", "--url", url, *arguments]
    sources = str(Path(moorage.__file__).parents[1])
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": sources}, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout, done.stderr


# Families ---------------------------------------------------------------------------------------


def test_parents_that_were_names_become_a_family(path: Path, url: str) -> None:
    family(path)
    with sync.connect(url) as moor:
        assert parents(moor) == {"a": (None, "a", 0), "b": ("a", "a", 1), "c": ("b", "a", 2), "d": (None, "d", 0)}
        assert moor.get("c").parent_session_name == "child"
        assert [s.state for s in map(moor.get, "abcd")] == ["active", "active", "completed", "failed"]
        assert moor.check() == []


def test_parents_by_id_survive_and_deleting_one_cascades(path: Path, url: str) -> None:
    older(path, SET_NULL, [linked("a", 0), linked("b", 1, "a"), linked("c", 2, "b"), linked("x", 3)])
    with sync.connect(url) as moor:
        gone = moor.delete("a")
        assert (gone.deleted_sessions, gone.cascaded_children) == (3, 2)
        assert [s.id for s in moor.list().items] == ["x"]
        with pytest.raises(SessionGone):
            moor.get("c")
        assert moor.check() == []


def test_a_link_that_a_deletion_set_to_null_leaves_a_root(path: Path, url: str) -> None:
    rows = [linked("a", 0), linked("b", 1, "a"), linked("c", 2, "b")]
    older(path, SET_NULL, rows, (), "PRAGMA foreign_keys = ON", "DELETE FROM sessions WHERE session_id = 'a'")
    with sync.connect(url) as moor:
        assert parents(moor) == {"b": (None, "b", 0), "c": ("b", "b", 1)}
        assert "orphaned" not in moor.get("b").metadata


def test_a_missing_parent_is_kept_as_a_name_and_flagged(path: Path, url: str) -> None:
    older(
        path,
        BOTH,
        [
            named("by-name", "one", 0, "nobody"),
            {"session_id": "by-id", "parent_session_id": "gone-1"},
            {"session_id": "by-both", "parent_session_id": "gone-2", "parent_session_name": "one"},
            {"session_id": "no-name", "parent_session_name": "no name of ours"},
        ],
    )
    with sync.connect(url) as moor:
        found = {s.id: (s.parent_session_id, s.parent_session_name, s.metadata["orphaned"]) for s in moor.list().items}
        assert found == {
            "by-name": (None, "nobody", True),
            "by-id": (None, "gone-1", True),
            "by-both": (None, "one", True),  # the id says who it was: a namesake is another session
            "no-name": (None, None, True),
        }
        assert moor.get("by-both").metadata["legacy"]["parent_session_id"] == "gone-2"
        assert moor.get("no-name").metadata["legacy"]["parent_session_name"] == "no name of ours"
        assert moor.check() == []  # the old table's dangling links are no problem


def test_a_name_means_the_newest_that_had_it_before(path: Path, url: str) -> None:
    older(
        path,
        NAME_ONLY,
        [
            named("old", "boss", 0, None, "finished"),
            named("new", "boss", 5, None, "finished"),
            named("later", "boss", 20),
            named("child", "child", 10, "boss"),
            named("first", "first", 4, "boss"),
        ],
    )
    with sync.connect(url) as moor:
        assert moor.get("child").parent_session_id == "new"
        assert moor.get("first").parent_session_id == "old"
        assert [s.id for s in moor.list().items] == [
            "later",
            "child",
            "new",
            "first",
            "old",
        ]  # by creation, newest first


def test_a_parent_younger_than_its_child_is_its_parent(path: Path, url: str) -> None:
    older(path, SET_NULL, [linked("child", 0, "young"), linked("young", 9)])
    with sync.connect(url) as moor:
        assert parents(moor) == {"child": ("young", "young", 1), "young": (None, "young", 0)}
        assert moor.delete("young").deleted_sessions == 2


def test_cycles_are_cut_at_their_oldest_member(path: Path, url: str) -> None:
    rows = [linked("tail", 0, "b"), linked("a", 1, "c"), linked("b", 2, "a"), linked("c", 3, "b")]
    older(path, SET_NULL, [*rows, linked("self", 4, "self"), linked("p", 5, "q"), linked("q", 6, "p")])
    done = database.bring_in_file(str(path))
    assert done is not None
    assert (done.cycles, done.orphaned, done.children) == (3, 3, 4)
    with sync.connect(url) as moor:
        assert parents(moor) == {
            "a": (None, "a", 0), "b": ("a", "a", 1), "c": ("b", "a", 2), "tail": ("b", "a", 2),
            "self": (None, "self", 0), "p": (None, "p", 0), "q": ("p", "p", 1),
        }  # fmt: skip
        assert moor.get("a").parent_session_name == "c"
        assert moor.delete("a").deleted_sessions == 4


def test_a_file_without_any_parent_column_comes_in(path: Path, url: str) -> None:
    older(path, NO_PARENTS, [{"session_id": "a", "session_name": "one", "status": "running", "created_at": "never"}])
    with sync.connect(url) as moor:
        session = moor.get("one")
        assert (session.id, session.parent_session_id) == ("a", None)
        assert session.metadata == {"legacy": {"status": "running", "created_at": "never"}}


# Migrated fields --------------------------------------------------------------------------------


def test_nothing_is_lost(path: Path, url: str) -> None:
    family(path)
    before = {table: rows_of(path, table) for table in ("sessions", "events", "runs")}
    with sync.connect(url) as moor:
        assert len(moor.log("b").items) == 4
    assert {table: rows_of(path, f"legacy_{table}") for table in before} == before


def test_events_become_the_log(path: Path, url: str) -> None:
    family(path)
    with sync.connect(url) as moor:
        created, start, said, tool = moor.log("b").items
        assert start.data is not None
        assert tool.data is not None
        assert (created.kind, start.kind, start.data["event_type"]) == ("created", "legacy_event", "session_start")
        assert (said.kind, said.role, said.content) == ("message", "user", "hi")
        assert (tool.kind, tool.data["tool_input"]) == ("legacy_event", {"a": 1})
        assert tool.at == said.at  # without a time of its own: right after the one before
        assert [entry.kind for entry in moor.log("c").items] == ["created", "finalized"]
        assert moor.get("b").last_activity_at == said.at
        assert [hit.session_id for hit in moor.search("hi")] == ["b"]
        moor.append("b", "and on it goes")
        assert moor.get("b").last_entry == 5


@pytest.mark.parametrize(
    ("role", "content"),
    [
        ("robot", text("x")),
        ("user", None),
        ("user", "[1]"),
        ("user", json.dumps([{"type": "text"}])),
        ("user", "y" * 2**21),
    ],
)
def test_foreign_message_is_kept_as_an_event(path: Path, url: str, role: str, content: str | None) -> None:
    said = event("a", "message", NOON.format(1), role=role, content=content)
    older(path, NAME_ONLY, [named("a", "one", 0)], [said])
    with sync.connect(url) as moor:
        entry = moor.log("a").items[1]
        assert entry.data is not None
        assert (entry.kind, entry.data["role"]) == ("legacy_event", role)


@pytest.mark.parametrize("content", ["plain words", '"quoted"', '["not closed', '{"an": "object"}'])
def test_words_that_are_no_parts_are_said_as_they_are(path: Path, url: str, content: str) -> None:
    said = event("a", "message", NOON.format(1), role="user", content=content)
    older(path, NAME_ONLY, [named("a", "one", 0)], [said])
    with sync.connect(url) as moor:
        assert moor.log("a").items[1].content == ("quoted" if content == '"quoted"' else content)


def test_migrated_sessions_pass_the_import_rules(path: Path, url: str) -> None:
    family(path)
    with sync.connect(url) as moor:
        for session in moor.list().items:
            check_bundle(Bundle(session=session, entries=moor.log(session.id, limit=100).items))


def test_ids_and_names_that_are_none_of_ours_are_kept_in_metadata(path: Path, url: str) -> None:
    older(
        path,
        NAME_ONLY,
        [
            named("an id!", "a name!", 0),
            named("b", "twice", 1, "a name!"),
            named("c", "twice", 2),
            named("d", "b", 3),  # another's id
            named("e", "twice", 4, None, "finished"),
        ],
        [{"session_id": "an id!", "event_type": "message", "timestamp": "", "role": "user", "content": "hello"}],
    )
    with sync.connect(url) as moor:
        first = moor.list(limit=10).items[-1]
        assert first.metadata["legacy"] == {"session_id": "an id!", "session_name": "a name!", "status": "running"}
        assert moor.log(first.id).items[1].content == "hello"
        assert moor.get("b").parent_session_id == first.id
        assert moor.get("twice").id == "c"  # the newest open one
        assert (moor.get("b").name, moor.get("b").metadata["legacy"]["session_name"]) == (None, "twice")
        assert (moor.get("d").name, moor.get("d").metadata["legacy"]["session_name"]) == (None, "b")
        assert moor.get("e").name == "twice"


def test_unknown_columns_are_kept(path: Path, url: str) -> None:
    schema = "CREATE TABLE sessions (session_id TEXT PRIMARY KEY, agent_name TEXT, n INTEGER, x REAL, b BLOB, t TEXT);"
    row = {"session_id": "a", "agent_name": "w\0", "n": 2**62, "x": float("inf"), "b": b"\xff", "t": "l" * 70_000}
    older(path, schema, [row])
    with sync.connect(url) as moor:
        kept = moor.get("a").metadata["legacy"]
        assert kept == {"agent_name": "w\0", "n": 2**62, "x": "inf", "b": "/w==", "too_long": True}
    assert rows_of(path, "legacy_sessions") == [tuple(row.values())]


@pytest.mark.parametrize(
    "written",
    [
        "2025-12-01T12:00:00Z", "2025-12-01T12:00:00.000000", "2025-12-01 12:00:00", "2025-12-01T13:00:00+01:00",
        "2025/12/01 12:00:00", "2025-12-01 12:00:00 UTC", "1764590400", 1764590400, 1764590400.0, 1764590400_000,
        1764590400_000_000, 1764590400_000_000_000, " 2025-12-01T12:00:00Z ",
    ],
)  # fmt: skip
def test_times_in_many_spellings(written: object) -> None:
    assert rows.micros_of(written) == 1764590400_000_000


@pytest.mark.parametrize(
    "written", [None, "", "soon", "-", "9999-12-31", "1969-01-01", -5, float("nan"), b"x", "1e400"]
)
def test_invalid_time_becomes_none(written: object) -> None:
    assert rows.micros_of(written) is None


def test_a_session_without_a_time_comes_after_the_one_before_it(path: Path, url: str) -> None:
    rows = [named("a", "one", 5), named("b", "two", 0, "one") | {"created_at": "?"}, named("z", "three", 9)]
    older(path, NAME_ONLY, rows)
    with sync.connect(url) as moor:
        assert [s.id for s in moor.list().items] == ["z", "b", "a"]
        assert moor.get("b").parent_session_id == "a"
        assert moor.get("b").metadata["legacy"]["created_at"] == "?"


# In place, once, whole --------------------------------------------------------------------------


def test_twice_is_harmless(path: Path, url: str) -> None:
    family(path)
    assert database.bring_in_file(str(path)) is not None
    with sync.connect(url) as moor:
        before = moor.list().items
    assert database.bring_in_file(str(path)) is None
    with sync.connect(url) as moor:
        assert moor.list().items == before


def test_it_is_never_done_silently(path: Path, url: str, caplog: pytest.LogCaptureFixture) -> None:
    family(path)
    with caplog.at_level(logging.WARNING):
        sync.connect(url).close()
        sync.connect(url).close()
    assert [record.getMessage() for record in caplog.records] == [
        f"{path} was an older orchestrator's database; brought in: 4 sessions (2 with their parent, 1 orphaned), "
        "1 messages and 2 other events; its own tables are kept as legacy_…"
    ]


def test_the_command_line_says_so_on_standard_error(path: Path, url: str) -> None:
    family(path)
    _, out, err = cli(url, "--json", "list")
    assert {s["session_id"]: s["parent_session_name"] for s in json.loads(out)["items"]}["d"] == "nobody"
    assert err.count("\n") == 1
    assert "brought in: 4 sessions" in err
    assert cli(url, "list")[2] == ""


def test_a_rehearsal_tells_all_and_changes_nothing(path: Path, url: str) -> None:
    family(path)
    before = file_contents(path)
    code, out, err = cli(url, "--json", "migrate", "--dry-run")
    would = json.loads(out)["to_bring_in"]
    assert (code, err) == (0, "")
    assert file_contents(path) == before
    did = json.loads(cli(url, "--json", "migrate")[1])["brought_in"]
    assert did == would
    assert (did["sessions"], did["children"], did["orphaned"], did["messages"], did["events"]) == (4, 2, 1, 1, 2)
    assert did["tables"]["sessions"] == "legacy_sessions"
    assert "brought_in" not in json.loads(cli(url, "--json", "migrate")[1])


def test_doctor_lists_orphans_until_they_are_accepted(path: Path, url: str) -> None:
    family(path)
    before = file_contents(path)
    code, out, _ = cli(url, "doctor")
    assert (code, "older orchestrator" in out) == (0, True)
    assert file_contents(path) == before
    cli(url, "migrate")
    code, out, _ = cli(url, "--json", "doctor")
    found = json.loads(out)
    assert (code, found["ok"], found["orphaned"], found["orphaned_sessions"]) == (0, True, 1, ["d"])
    assert "1 sessions are orphaned" in cli(url, "doctor")[1]
    with sync.connect(url) as moor:
        moor.delete("d")
    assert json.loads(cli(url, "--json", "doctor")[1])["orphaned"] == 0


@pytest.mark.parametrize(
    "schema",
    [
        "CREATE TABLE sessions (id TEXT PRIMARY KEY, session_name TEXT, parent_session_id TEXT)",
        "CREATE TABLE sessions (session_id TEXT PRIMARY KEY, user_id INTEGER, status TEXT, expires TEXT)",
        "CREATE TABLE sessions (session_id INTEGER PRIMARY KEY, agent_name TEXT)",
        "CREATE TABLE s (session_id TEXT, agent_name TEXT); CREATE VIEW sessions AS SELECT * FROM s",
        f"{NAME_ONLY}; PRAGMA application_id = 7",
    ],
)
def test_a_file_that_only_looks_similar_is_refused_and_left_as_it_is(path: Path, url: str, schema: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(schema)
    before = file_contents(path)
    with pytest.raises(StoreUnavailable, match="another program"):
        sync.connect(url)
    assert file_contents(path) == before


def test_schema_that_cannot_be_renamed_is_refused_and_unchanged(path: Path, url: str) -> None:
    family(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE VIEW feed AS SELECT 1")  # a name that we need
    with pytest.raises(StoreUnavailable, match=r"cannot be brought in .*nothing was changed"):
        sync.connect(url)
    assert len(rows_of(path, "sessions")) == 4
    assert database.is_older_file(str(path))


def test_table_with_the_name_of_a_renamed_one_is_kept(path: Path, url: str) -> None:
    older(path, NAME_ONLY, [named("a", "one", 0)], (), "CREATE TABLE legacy_sessions (x)", "PRAGMA user_version = 99")
    done = database.bring_in_file(str(path))
    assert done is not None
    assert done.tables["sessions"] == "legacy_sessions_2"
    with sync.connect(url) as moor:
        assert moor.get("one").id == "a"


DIES = """
import os, signal, sys
from moorage.legacy import database
from moorage.stores.sqlite import writes
real, left = writes.insert, int(sys.argv[2])
def insert(*args, **kwargs):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args, **kwargs)
writes.insert = insert
database.bring_in_file(sys.argv[1])
"""


@pytest.mark.parametrize("after", [0, 1, 1500])
def test_migration_killed_half_way_leaves_the_file_unchanged(path: Path, url: str, after: int) -> None:
    older(path, NAME_ONLY, [named(f"s-{n}", f"n-{n}", n % 60, f"n-{n - 60}") for n in range(2000)])
    before = rows_of(path, "sessions")
    with pytest.raises(WorkerFailed, match="exit code -9"):
        Worker(DIES, path, after).finish()
    assert rows_of(path, "sessions") == before
    assert database.is_older_file(str(path))
    with sync.connect(url) as moor:
        assert moor.check() == []
    assert rows_of(path, "legacy_sessions") == before


OPENS = """
import sys
from moorage import sync
print("ready", flush=True)
sys.stdin.readline()
with sync.connect(sys.argv[1]) as moor:
    print(len(moor.list(limit=1000).items), moor.get("s-999").depth, flush=True)
"""


def test_of_many_who_open_it_at_once_one_brings_it_in(path: Path, url: str) -> None:
    older(path, NAME_ONLY, [named(f"s-{n}", f"n-{n}", n % 60, f"n-{n - 60}") for n in range(1000)])
    workers = [Worker(OPENS, url) for _ in range(5)]
    for worker in workers:
        assert worker.line() == "ready"
    for worker in workers:
        worker.say("go")
    assert {worker.line() for worker in workers} == {"1000 16"}
    for worker in workers:
        worker.finish()
    assert sum("brought in" in worker.errors() for worker in workers) == 1
    assert len(rows_of(path, "legacy_sessions")) == 1000


SHAPES: dict[str, tuple[Callable[[int], str | None], int, int]] = {  # the parent; roots; the depth of the last one
    "ring": (lambda n: f"s-{(n - 1) % 8000}", 1, 7999),
    "chain": (lambda n: f"s-{n - 1}" if n else None, 1, 7999),
    "pairs": (lambda n: f"s-{n ^ 1}", 4000, 1),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_large_families_of_any_shape(path: Path, url: str, shape: str) -> None:
    """Long enough that anything quadratic would be noticed."""
    parent, roots, depth = SHAPES[shape]
    older(path, SET_NULL, (linked(f"s-{n}", 0, parent(n)) for n in range(8000)))
    done = database.bring_in_file(str(path))
    assert done is not None
    assert (done.sessions, done.children) == (8000, 8000 - roots)
    into_one_file(path)
    with sync.connect(url) as moor:
        assert moor.get("s-7999").depth == depth
        assert moor.delete("s-0").deleted_sessions == 8000 // roots
