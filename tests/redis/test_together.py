"""Several processes' worth of writers on one Redis store: all of them land, and none starves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest_asyncio

from moorage.core.dump import DumpKind
from moorage.core.record import Append, Put, RecordQuery, decide_records, needs_of, write_with_messages
from moorage.core.session import Needs
from moorage.stores.redis.store import RedisStore
from moorage.testing.builders import NOON, OWNER, a_session, a_stamp, after, may_delete, said, updated, whole_feed
from moorage.testing.redis import RedisServer


@pytest_asyncio.fixture
async def stores(valkey: RedisServer) -> AsyncIterator[list[RedisStore]]:
    """Stores that know nothing of each other, as in several processes."""
    valkey.ask("FLUSHALL")
    stores = [RedisStore(valkey.url()) for _ in range(4)]
    yield stores
    for store in stores:
        await store.close()


async def test_writers_of_several_stores_all_land(stores: list[RedisStore]) -> None:
    await stores[0].create(OWNER, a_session("s-1"))

    async def write(store: RedisStore) -> None:
        for n in range(20):
            await store.append(OWNER, "s-1", said(str(n)), a_stamp())
            await store.apply(OWNER, "s-1", updated(error=str(n)))

    await asyncio.gather(*(write(store) for store in stores))

    session = await stores[0].get(OWNER, "s-1")
    assert (session.last_entry, session.error_count, session.version) == (161, 80, 81)
    assert [event.id for event in await whole_feed(stores[0])] == list(range(1, 162))


async def test_writer_who_loses_too_often_takes_a_lock(stores: list[RedisStore]) -> None:
    """Appends alone would keep a slower decision from ever being committed."""
    await stores[0].create(OWNER, a_session("s-1"))
    is_over = asyncio.Event()

    async def append(store: RedisStore) -> None:
        while not is_over.is_set():
            await store.append(OWNER, "s-1", said("again"), a_stamp())

    busy = [asyncio.create_task(append(store)) for store in stores[1:] for _ in range(4)]
    async with asyncio.timeout(30):
        for n in range(10):
            await stores[0].apply(OWNER, "s-1", updated(error=str(n)))
    is_over.set()
    await asyncio.gather(*busy)

    assert (await stores[0].get(OWNER, "s-1")).error_count == 10
    assert stores[0].tokens == {}


async def test_memory_of_an_owner_takes_the_writes_of_all(stores: list[RedisStore]) -> None:
    wish = [Append(namespace="n", prefix="", value=b"v")]

    async def write(store: RedisStore) -> None:
        for _ in range(10):
            await store.write_memory(OWNER, needs_of(wish), lambda view: decide_records(wish, view, NOON))

    await asyncio.gather(*(write(store) for store in stores))

    found = await stores[0].list_records(OWNER, None, RecordQuery(limit=100), NOON)
    assert [int(record.key) for record in found] == list(range(1, 41))


async def test_purge_spares_a_record_that_is_written_again(stores: list[RedisStore]) -> None:
    await stores[0].create(OWNER, a_session("s-1"))
    short, long = (Put(namespace="n", key="k", value=b"v", ttl=seconds) for seconds in (60, 600))
    for wish in (short, long):
        decide = partial(write_with_messages, messages=[], writes=[wish], stamp=a_stamp())
        await stores[0].apply(OWNER, "s-1", decide, needs=Needs(records=needs_of([wish])))

    assert await stores[1].purge(after(61), 10) == 0
    assert [record.key for record in await stores[1].list_records(OWNER, "s-1", RecordQuery(), after(61))] == ["k"]
    assert await stores[1].purge(after(601), 10) == 1


async def test_store_hears_of_another_stores_commit(stores: list[RedisStore]) -> None:
    await stores[0].create(OWNER, a_session("s-1"))
    seen = stores[1].pulse()
    await stores[1].bus.ready()
    waiting = asyncio.create_task(stores[1].wait(seen, 30))
    await stores[0].append(OWNER, "s-1", said("hello"), a_stamp())

    assert await waiting != seen


async def test_interrupted_deletion_is_finished_by_another_store(stores: list[RedisStore]) -> None:
    """The commit removes the session at once; the rest of its log goes with the next deletion or sweep."""
    from moorage.stores.redis import families
    from moorage.stores.seam import Unit

    await stores[0].create(OWNER, a_session("s-1"))
    await stores[0].append(OWNER, "s-1", said("hello"), a_stamp())
    tree = await families.load_tree(stores[0].db, OWNER, "s-1")
    unit = Unit(stores[0], OWNER)
    tree.join(unit)
    await unit.delete([(tree.sessions, "deleted")], a_stamp())
    await stores[0].commit(unit)  # and here it is killed

    assert [event.type for event in await whole_feed(stores[1])] == ["session_deleted"]
    assert (await stores[1].dump(DumpKind.ENTRY, 10)).items != []
    await stores[1].create(OWNER, a_session("s-2"))
    await stores[1].delete_tree(OWNER, "s-2", may_delete("s-2"), a_stamp())
    assert (await stores[1].dump(DumpKind.ENTRY, 10)).items == []
    assert (await stores[1].dump(DumpKind.SESSION, 10)).items == []
