"""The feed on PostgreSQL: gap-free cursors, and no late commit is skipped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from moorage.core.query import SessionQuery
from moorage.stores.postgres.store import PostgresStore
from moorage.testing.builders import OWNER, a_session, a_stamp, said, whole_feed

# The rows of a commit, written by hand, so that its transaction can be kept open.
_LATE = """
INSERT INTO moorage.entries (owner, root, segment, number, kind, at, role, content)
SELECT owner, pk, pk, last_entry + 1, 'message', 0, 'user', 'late' FROM moorage.sessions WHERE id = 'slow';
INSERT INTO moorage.arrivals (owner, subject, root, last, count)
SELECT owner, pk, pk, last_entry + 1, 1 FROM moorage.sessions WHERE id = 'slow';
UPDATE moorage.sessions SET last_entry = last_entry + 1, revision = revision + 1 WHERE id = 'slow';
"""


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url)
    yield store
    await store.close()


async def test_late_commit_is_not_skipped_and_does_not_block_readers(store: PostgresStore, postgres_url: str) -> None:
    for name in ("slow", "fast"):
        await store.create(OWNER, a_session(name))
    other = await asyncpg.connect(postgres_url)
    transaction = other.transaction()
    await transaction.start()
    await other.execute(_LATE)  # its place among the arrivals is taken before all that follows
    for number in range(3):
        await store.append(OWNER, "fast", said(str(number)), a_stamp())

    before = await whole_feed(store)
    assert [event.id for event in before] == [1, 2, 3, 4, 5], "others are not held up by an open transaction"
    assert await store.feed_end(OWNER) == 5
    await transaction.commit()
    await store.append(OWNER, "fast", said("after"), a_stamp())

    later = await store.feed(OWNER, 5, 100)
    assert [(event.id, event.data["content"]) for event in later] == [(6, "late"), (7, "after")]
    await other.close()


async def test_a_list_by_update_walks_a_part_of_the_feed_and_goes_on_from_there(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        await store.create(OWNER, a_session(f"s-{number:02}", agent_name="rare" if number % 6 == 0 else "often"))
        await store.append(OWNER, "s-00", said(str(number)), a_stamp())
    monkeypatch.setattr("moorage.stores.sql.find.WALK", 5)
    pages = await store.find(OWNER, SessionQuery(agent="rare", sort="updated", limit=2))
    while pages[-1].next:
        query = SessionQuery(agent="rare", sort="updated", limit=2, cursor=pages[-1].next)
        pages += await store.find(OWNER, query)
    assert [each.session_id for page in pages for each in page] == ["s-06", "s-00"]
    assert [len(page) for page in pages] == [0, 0, 1, 0, 1]


async def test_readers_that_race_give_every_event_one_cursor(postgres_url: str) -> None:
    stores = [PostgresStore(postgres_url) for _ in range(3)]
    for number in range(8):
        await stores[0].create(OWNER, a_session(f"s-{number}"))

    async def write(store: PostgresStore, number: int) -> None:
        for _ in range(10):
            await store.append(OWNER, f"s-{number}", said("x"), a_stamp())

    async def read(store: PostgresStore) -> list[tuple[int, str]]:
        seen: list[tuple[int, str]] = []
        while len(seen) < 88:
            pulse = store.pulse()
            seen += [(event.id, event.session_id) for event in await store.feed(OWNER, seen[-1][0] if seen else 0, 7)]
            await store.wait(pulse, 0.05)
        return seen

    async with asyncio.timeout(60):
        writing = [write(stores[number % 3], number) for number in range(8)]
        written = asyncio.gather(*writing)
        read_by = await asyncio.gather(*(read(store) for store in stores))
        await written
    assert [number for number, _ in read_by[0]] == list(range(1, 89))
    assert read_by[0] == read_by[1] == read_by[2]
    for store in stores:
        await store.close()


async def test_others_hear_of_a_commit_without_being_asked(postgres_url: str) -> None:
    here, there = PostgresStore(postgres_url), PostgresStore(postgres_url)
    await here.create(OWNER, a_session("s-1"))
    seen = there.pulse()
    await there.get(OWNER, "s-1")
    async with asyncio.timeout(30):
        waiting = asyncio.ensure_future(there.wait(seen, 30))
        await asyncio.sleep(0)
        await here.append(OWNER, "s-1", said("x"), a_stamp())
        assert await waiting != seen
    await here.close()
    await there.close()


@pytest.mark.parametrize("options", ["", "pooler=transaction"])
async def test_a_lost_notification_costs_a_second_and_no_event(postgres_url: str, options: str) -> None:
    store = PostgresStore(f"{postgres_url}&{options}")
    await store.create(OWNER, a_session("slow"))
    seen = store.pulse()
    await store.get(OWNER, "slow")
    silent = await asyncpg.connect(postgres_url)
    await silent.execute(_LATE)  # by a process that dies before it notifies
    async with asyncio.timeout(30):
        assert await store.wait(seen, 30) != seen
    assert [event.id for event in await whole_feed(store)] == [1, 2]
    await silent.close()
    await store.close()
