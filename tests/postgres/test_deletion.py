"""Deleting while others write: decided on what is committed, in two round trips, without a lock in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest

from moorage.core.errors import SessionRunning
from moorage.core.family import Deletion
from moorage.core.session import Session, Stamp
from moorage.stores.postgres.connection import PostgresConnection
from moorage.stores.postgres.store import PostgresStore
from moorage.stores.sql import family
from moorage.stores.sql.db import Db, Target
from moorage.testing.builders import (
    OWNER,
    a_fork,
    a_session,
    a_stamp,
    all_sessions,
    all_tombstones,
    may_delete,
    said,
    whole_log,
)
from moorage.testing.work import a_child_run, ask, inbox_of, launch, start, taken

IN_TIME = 20  # seconds for what takes one


@pytest.fixture
async def stores(postgres_url: str) -> AsyncIterator[list[PostgresStore]]:
    stores = [PostgresStore(f"{postgres_url}&pool=2") for _ in range(2)]
    yield stores
    for store in stores:
        await store.close()


Write = Callable[[], Awaitable[object]]


class Interrupted:
    """A connection on which deleting begins after another server has written, which must not have to wait."""

    def __init__(self, db: PostgresConnection, writes: list[Write]) -> None:
        self._db, self._writes = db, writes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    async def delete_sessions(self, owner: str, targets: list[Target], stamp: Stamp) -> None:
        if self._writes:  # at the next try there is no other writer
            async with asyncio.timeout(IN_TIME):
                await self._writes.pop()()
        await self._db.delete_sessions(owner, targets, stamp)


async def deleted(store: PostgresStore, ref: str, *writes: Write) -> Deletion:
    left = list(writes)

    async def job(db: PostgresConnection) -> Deletion:
        found = cast("Db", Interrupted(db, left))
        return await family.delete_tree(found, OWNER, ref, may_delete(ref), a_stamp(), dry_run=False)

    return await store._access.write(job)


async def swept(store: PostgresStore, *writes: Write) -> list[str]:
    left = list(writes)

    def decide(members: list[Session]) -> str | None:
        return None if any(member.live_turn for member in members) else "test"

    async def job(db: PostgresConnection) -> list[str]:
        pks = [row[0] for row in await db.all("SELECT pk FROM moor.sessions WHERE parent IS NULL ORDER BY pk")]
        found = cast("Db", Interrupted(db, left))
        return [
            tombstone.session_id
            for tombstone in await family.sweep(found, OWNER, pks, decide, a_stamp(), dry_run=False)
        ]

    return await store._access.write(job)


async def entries_of(store: PostgresStore) -> int:
    [(count,)] = await store._access.read(lambda db: db.all("SELECT count(*) FROM moor.entries"))
    return int(count)


async def test_child_born_after_the_look_goes_with_its_tree(stores: list[PostgresStore]) -> None:
    one, other = stores
    await one.create(OWNER, a_session("root"))
    await one.create(OWNER, a_session("child"), parent="root")

    gone = await deleted(one, "root", lambda: other.create(OWNER, a_session("late"), parent="child"))
    assert gone.session_ids == ["late", "child", "root"]

    assert await all_sessions(one) == []
    assert [tombstone.session_id for tombstone in await all_tombstones(one)] == ["root", "child", "late"]


async def test_message_that_comes_after_the_look_is_counted(stores: list[PostgresStore]) -> None:
    one, other = stores
    await one.create(OWNER, a_session("s-1"))

    gone = await deleted(one, "s-1", lambda: other.append(OWNER, "s-1", said("late"), a_stamp()))

    assert (gone.messages, gone.entries) == (1, 2)
    assert await entries_of(one) == 0


async def test_turn_that_starts_after_the_look_keeps_the_tree(stores: list[PostgresStore]) -> None:
    one, other = stores
    await one.create(OWNER, a_session("root"))
    await launch(one, "child", "run-1", "root")

    async def begin() -> None:
        await start(other, await taken(other))

    with pytest.raises(SessionRunning):
        await deleted(one, "root", begin)
    assert len(await all_sessions(one)) == 2
    assert await all_tombstones(one) == []


async def test_sweep_decides_again_about_changed_sessions(stores: list[PostgresStore]) -> None:
    one, other = stores
    await one.create(OWNER, a_session("alone"))
    await launch(one, "at-work", "run-1")

    async def begin() -> None:
        await start(other, await taken(other))

    assert await swept(one, begin) == ["alone"]
    assert [session.session_id for session in await all_sessions(one)] == ["at-work"]


async def test_fork_created_during_deletion_keeps_shared_entries(stores: list[PostgresStore]) -> None:
    one, other = stores
    await one.create(OWNER, a_session("source"))
    await one.append(OWNER, "source", said("shared"), a_stamp())

    await deleted(one, "source", lambda: other.fork(OWNER, "source", None, a_fork("fork")))

    assert [entry.content for entry in await whole_log(one, "fork")][1:2] == ["shared"]
    await deleted(one, "fork")
    assert await entries_of(one) == 0


async def test_parent_that_asks_after_the_look_is_called_back(stores: list[PostgresStore]) -> None:
    one, other = stores
    await launch(one, "asker", "run-1")
    await one.create(OWNER, a_session("s-1"))

    await deleted(one, "s-1", lambda: ask(other, "s-1", a_child_run("run-2", "asker", "run-1")))

    assert (await inbox_of(one, "asker"))["callback:run-2"] == "waiting"


async def test_session_is_deleted_in_two_round_trips(stores: list[PostgresStore]) -> None:
    one, _ = stores
    for session_id in ("first", "second"):
        await one.create(OWNER, a_session(session_id))
    await one.delete_tree(OWNER, "first", may_delete("first"), a_stamp())
    asked: list[str] = []
    for db in one._access.pool._idle:
        db.raw.add_query_logger(lambda record: asked.append(record.query))

    await one.delete_tree(OWNER, "second", may_delete("second"), a_stamp())

    await asyncio.sleep(0)  # the driver tells with the loop's next round
    assert [query.split()[0] for query in asked if "pg_" not in query] == ["WITH", "SELECT"], asked
