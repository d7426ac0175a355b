"""Cost of runs on SQLite: it depends on the work, not on the size of the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage.core.run import Join
from moorage.stores import work_rows
from moorage.stores.sqlite.connection import Driven
from moorage.stores.sqlite.store import SqliteStore
from moorage.stores.work_rows import item_of
from moorage.testing.builders import OWNER, a_session, a_stamp, said
from moorage.testing.work import a_child_run, finish, launch, start, take, taken

CHILDREN = 60


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.serve(tmp_path / "moorage.db")
    yield store
    await store.close()


@pytest.fixture
def items_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the inbox items that were read."""
    reading, read = item_of, list[str]()

    def noting(db: Driven, row: Any, session_id: str) -> Any:
        read.append(row[0])
        return reading(db, row, session_id)

    monkeypatch.setattr(work_rows, "item_of", noting)
    return read


@pytest.mark.parametrize("join", Join)
async def test_finishing_a_child_does_not_read_its_siblings(
    store: SqliteStore, items_read: list[str], join: Join
) -> None:
    await launch(store, "parent", "run-0")
    parent = await taken(store)
    await start(store, parent)
    for number in range(CHILDREN):
        run = a_child_run(f"run-c{number}", "parent", "run-0", join=join)
        await launch(store, f"child-{number}", run, parent="parent")
    children = [await taken(store) for _ in range(CHILDREN)]
    costs = []
    for child in children:
        items_read.clear()
        await finish(store, child)
        costs.append(len(items_read))
    assert max(costs[:-1]) <= 3
    assert costs[-1] <= (3 if join is Join.EACH else CHILDREN + 1)  # the last one lets the others go
    await finish(store, parent)
    assert len((await taken(store)).items) == CHILDREN


async def test_empty_claim_wakes_no_waiter(store: SqliteStore) -> None:
    await launch(store, "s-1", "run-1")
    assert await take(store) is not None
    seen = store.pulse()
    while await store.wait(seen, 0.2) != seen:  # what was written above may be noticed late
        seen = store.pulse()
    for _ in range(3):
        assert await take(store) is None
    assert await store.wait(seen, 0.2) == seen


async def test_claims_side_by_side_get_all_there_is_and_no_more(store: SqliteStore) -> None:
    for number in range(5):
        await launch(store, f"s-{number}", f"run-{number}")
    claimed = await asyncio.gather(*[take(store) for _ in range(8)])
    assert sorted(each.session.session_id for each in claimed if each) == [f"s-{number}" for number in range(5)]
    await launch(store, "s-5", "run-5")  # after a claim that found nothing
    assert (await taken(store)).session.session_id == "s-5"


async def test_reads_that_come_together_are_all_answered(store: SqliteStore) -> None:
    await store.create(OWNER, a_session("s-1"))
    reads = [store.get(OWNER, "s-1" if number % 2 else "none") for number in range(200)]
    writes = [store.append(OWNER, "s-1", said(str(number)), a_stamp()) for number in range(50)]
    found, kept = await asyncio.gather(asyncio.gather(*reads, return_exceptions=True), asyncio.gather(*writes))
    assert [getattr(each, "code", "found") for each in found] == ["session_not_found", "found"] * 100
    assert [entry.number for (entry,) in kept] == list(range(2, 52))


async def test_reads_queued_before_close_are_answered(tmp_path: Path) -> None:
    store = SqliteStore.serve(tmp_path / "other.db")
    await store.create(OWNER, a_session("s-1"))
    reads = [asyncio.ensure_future(store.get(OWNER, "s-1")) for _ in range(50)]
    await asyncio.sleep(0)  # they are on their way
    await store.close()
    assert {(await each).session_id for each in reads} == {"s-1"}
