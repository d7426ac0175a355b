"""Threads of LangGraph's own savers for SQLite and PostgreSQL, moved in."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph.checkpoint.sqlite", reason="langgraph-checkpoint-sqlite is not installed")

from langgraph.checkpoint.serde.types import TASKS
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Send

from moorage import sync
from moorage.adapters.langgraph import MoorageSaver
from moorage.adapters.langgraph.moving import move_in
from moorage.adapters.moving import is_postgres
from moorage.core.errors import InvalidField
from tests.kits.langgraph.threads import Thread, config_of, some_messages
from tests.kits.moving import change, moved


@contextmanager
def opened(source: str) -> Iterator[Any]:
    """Open LangGraph's own saver."""
    if not is_postgres(source):
        with SqliteSaver.from_conn_string(source) as saver:
            yield saver
        return
    missing = "langgraph-checkpoint-postgres is not installed; ./dev kits langgraph has it"
    postgres = pytest.importorskip("langgraph.checkpoint.postgres", reason=missing)
    with postgres.PostgresSaver.from_conn_string(source) as saver:
        saver.setup()
        yield saver


@pytest.fixture
def theirs(source: str) -> str:
    with opened(source) as saver:
        for name in ("t", "other/thread"):
            thread = Thread(saver, name)
            for count in (5, 12, 20):
                thread.put({"run": count}, messages=some_messages(count), more={"count": count}, plain=count)
            saver.put_writes(thread.config, [("a", 1), ("b", [2])], "task", "~path")
            Thread(saver, name, "sub:1").put(notes=["x"])
    return source


def tuples(saver: Any, thread: str) -> list[Any]:
    return list(saver.list({"configurable": {"thread_id": thread}}))


def test_threads_come_in_whole(theirs: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ours.db'}"
    report = move_in(url, theirs)
    assert (report.imported, report.entries, report.left_out) == (["x:other:2fthread", "t"], 8, [])
    with MoorageSaver(url) as ours, opened(theirs) as saver:
        for thread in ("t", "other/thread"):
            assert tuples(ours, thread) == tuples(saver, thread)
    with sync.connect(url) as moor:
        assert len(moor.messages("t").items) == 20
        assert moor.approvals() == []


@pytest.mark.parametrize(("format", "kept"), [(3, [Send("b", 1), Send("a", 2)]), (4, None)])
def test_unfinished_sends_of_an_older_format_come_along(
    source: str, tmp_path: Path, format: int, kept: list[Send] | None
) -> None:
    with opened(source) as saver:
        thread = Thread(saver)
        thread.put(plain=1)
        saver.put_writes(thread.config, [("plain", 0), (TASKS, Send("b", 1))], "task-1", "~1")
        saver.put_writes(thread.config, [(TASKS, Send("a", 2))], "task-2", "~2")
        thread.put(format=format, plain=2)
    url = f"sqlite:///{tmp_path / 'ours.db'}"
    report = move_in(url, source)
    with MoorageSaver(url) as ours:
        found = ours.get_tuple(config_of())

    assert (report.entries, report.left_out) == (2, [])
    assert found is not None
    assert found.checkpoint["channel_values"].get(TASKS) == kept
    assert (TASKS in found.checkpoint["channel_versions"]) == (kept is not None)


def test_importing_twice_changes_nothing(theirs: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ours.db'}"
    move_in(url, theirs)
    again = move_in(url, theirs)
    assert (again.imported, again.entries) == ([], 0)
    assert len(again.already_there) == 2


def test_thread_goes_on_after_the_move(theirs: str, tmp_path: Path) -> None:
    with MoorageSaver(f"sqlite:///{tmp_path / 'ours.db'}") as ours:
        move_in(f"sqlite:///{tmp_path / 'ours.db'}", theirs)
        found = ours.get_tuple(config_of())
        assert found is not None
        thread = Thread(ours)
        thread.config, thread.versions = found.config, dict(found.checkpoint["channel_versions"])
        thread.put(messages=some_messages(21))
        assert thread.versions["messages"] > found.checkpoint["channel_versions"]["messages"]
        assert len(thread.values()["messages"]) == 21


def test_unreadable_threads_are_left_out_and_reported(theirs: str, tmp_path: Path) -> None:
    table = "checkpoint_writes" if is_postgres(theirs) else "writes"
    asyncio.run(change(theirs, f"UPDATE {table} SET type = 'unknown' WHERE thread_id = 't'"))
    report = move_in(f"sqlite:///{tmp_path / 'ours.db'}", theirs)
    assert (report.entries, report.left_out_total) == (7, 1)
    assert report.left_out[0].reason.startswith("thread t, checkpoint")


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database, but long enough to be read as one" * 100)
    with pytest.raises(InvalidField, match="cannot be read"):
        move_in("memory://", str(tmp_path / "text"))
    sqlite3.connect(tmp_path / "empty.db").close()
    with pytest.raises(InvalidField, match="no tables"):
        move_in("memory://", str(tmp_path / "empty.db"))


def test_command_shows_first_and_moves_then(theirs: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ours.db'}"
    counts = [moved(url, "langgraph", theirs, *options)["entries"] for options in (["--dry-run"], [], [])]
    assert counts == [8, 8, 0]
