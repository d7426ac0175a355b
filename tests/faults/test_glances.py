"""Reads of a few rows run on the thread of the event loop, as long as they are short."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from moorage.core.errors import StoreUnavailable
from moorage.core.record import RecordName, RecordQuery
from moorage.stores.rows import Row
from moorage.stores.sql.store import SHORT_LIST
from moorage.stores.sqlite import threads
from moorage.stores.sqlite.connection import Driven, Glance
from moorage.stores.sqlite.store import SqliteStore
from moorage.stores.sqlite.threads import Threaded
from moorage.testing.builders import NOON, OWNER, a_session
from moorage.testing.faults import write_lock

LOOP, READER = threading.main_thread().name, "moorage-read"


@pytest.fixture
async def store(path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SqliteStore]:
    monkeypatch.setattr(threads, "LONG_GLANCE", 60.0)  # on a busy machine any look may take long
    store = SqliteStore.serve(path)
    await store.create(OWNER, a_session("s-1"))
    yield store
    async with asyncio.timeout(60):
        await store.close()


def threaded(store: SqliteStore) -> Threaded:
    assert isinstance(store._access, Threaded)
    return store._access


async def place(db: Driven) -> str:
    """Return the thread on which a job runs."""
    await db.one("SELECT 1")
    return threading.current_thread().name


async def test_glance_runs_on_the_thread_of_the_loop(store: SqliteStore) -> None:
    access = threaded(store)
    assert (await access.glance(place), await access.read(place)) == (LOOP, READER)


async def test_long_glance_leaves_the_next_ones_to_threads_for_a_while(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = threaded(store)
    monkeypatch.setattr(threads, "LONG_GLANCE", -1.0)
    assert [await access.glance(place) for _ in range(3)] == [LOOP, READER, READER]
    monkeypatch.setattr(threads, "LONG_GLANCE", 60.0)
    access._threads_until = 0.0
    assert await access.glance(place) == LOOP


async def test_glance_of_another_loop_at_the_same_time_takes_a_thread(store: SqliteStore) -> None:
    access = threaded(store)
    with access._glancing:
        assert await access.glance(place) == READER
    assert await access.glance(place) == LOOP


async def test_glance_does_not_wait_for_a_writer(store: SqliteStore, path: Path) -> None:
    async with asyncio.timeout(10):
        with write_lock(path):
            assert (await store.get(OWNER, "s-1")).session_id == "s-1"
            assert (await store.tail(OWNER, "s-1", 5)).messages == []


async def test_glance_sees_what_was_acknowledged_before_it(store: SqliteStore) -> None:
    for number in range(2, 50):
        await store.create(OWNER, a_session(f"s-{number}"))
        assert (await store.get(OWNER, f"s-{number}")).session_id == f"s-{number}"


async def test_records_and_short_lists_of_them_are_glances(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    places = list[str]()

    async def noting(db: Driven, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        places.append(threading.current_thread().name)
        return []

    monkeypatch.setattr(Driven, "all", noting)
    monkeypatch.setattr(Glance, "all", noting)
    assert await store.records(OWNER, "s-1", [RecordName("n", "k")], NOON) == [None]
    assert await store.list_records(OWNER, "s-1", RecordQuery(namespace="n", limit=SHORT_LIST), NOON) == []
    assert await store.list_records(OWNER, "s-1", RecordQuery(namespace="n", limit=1000), NOON) == []
    for count in (SHORT_LIST - 1, 1000):
        assert await store.records_of(OWNER, ["s-1"] * count, RecordName("n", "k"), NOON) == [None] * count
    assert places == [LOOP, LOOP, READER, LOOP, READER]


async def test_glance_after_closing_is_refused(path: Path) -> None:
    store = SqliteStore.serve(path)
    await store.create(OWNER, a_session("s-1"))
    await store.get(OWNER, "s-1")
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.get(OWNER, "s-1")


async def test_glance_that_reads_for_too_long_begins_again_on_a_thread(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads_of_rows = list[str]()

    async def reading(db: Driven) -> int:
        threads_of_rows.append(threading.current_thread().name)
        return len(
            await db.all("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000) SELECT i FROM n")
        )

    access = threaded(store)
    monkeypatch.setattr(threads, "LONG_GLANCE", 0.0)
    monkeypatch.setattr(threads, "THREADS_FOR", 0.0)
    assert await access.glance(reading) == 1000
    assert threads_of_rows == [LOOP, READER]


async def test_glance_does_not_wait_for_a_locked_file(store: SqliteStore) -> None:
    async def locked_on_the_loop(db: Driven) -> str:
        if threading.current_thread() is threading.main_thread():
            raise apsw.BusyError("database is locked")
        return await place(db)

    assert await threaded(store).glance(locked_on_the_loop) == READER
    assert not threaded(store)._glancing.locked()
