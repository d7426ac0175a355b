"""A cluster of several servers: owners spread over it, nothing crosses a slot, and slots may move."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest
import redis
from redis.crc import key_slot

from moorage.core.approval import ApprovalQuery
from moorage.core.document import Document, DocumentKind
from moorage.core.errors import InvalidField, StoreUnavailable
from moorage.stores.redis.db import RedisDb
from moorage.stores.redis.keys import Keys
from moorage.stores.redis.store import RedisStore
from moorage.testing.builders import NOON, a_session, a_stamp, may_delete, said, updated
from moorage.testing.redis import RedisCluster
from moorage.testing.work import a_run, asked_at_birth, finish, start, take
from tests.redis.writing import Writers

OWNERS = tuple(f"owner-{number}" for number in range(60))


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster() as cluster:
        yield cluster


@pytest.fixture
async def store(cluster: RedisCluster) -> AsyncIterator[RedisStore]:
    for server in cluster.servers:
        server.ask("FLUSHALL")
    store = RedisStore(cluster.url())
    yield store
    await store.close()


def test_all_keys_of_an_owner_are_in_one_slot() -> None:
    for owner in (*OWNERS, "a}b", "{}", "{x}y", "ü", "a:b"):
        keys = Keys("moorage", owner)
        names = [keys("feed"), keys.of("h", "s}{1"), keys.of("l", "{other}"), keys.list("agent", "{tag}")]
        assert len({key_slot(name.encode()) for name in names}) == 1, owner
    db = RedisDb("redis://localhost")
    shared = {key_slot(db.shared(name).encode()) for name in ("numbers", "owners", "documents:key")}
    assert len(shared) == 1


async def test_owners_spread_over_the_servers(cluster: RedisCluster, store: RedisStore) -> None:
    await asyncio.gather(*(_work(store, owner) for owner in OWNERS))
    found: Counter[int] = Counter()
    for place, server in enumerate(cluster.servers):
        with redis.Redis(port=server.port) as raw:
            owners = {key.split(b"{")[1].split(b"}")[0] for key in raw.scan_iter(match="moorage:{o:*")}
        found[place] = len(owners)
    assert sum(found.values()) == len(OWNERS)
    assert min(found.values()) > 5, found


async def _work(store: RedisStore, owner: str) -> None:
    """Something of everything, each a script on one slot."""
    await store.create(owner, a_session("s-1"))
    await store.create(owner, a_session("c-1"), parent="s-1")
    await store.append(owner, "s-1", said("hello", key="k"), a_stamp())
    await store.apply(owner, "s-1", updated(error="oops"))
    await store.create(owner, a_session("gone"))
    await store.delete_tree(owner, "gone", may_delete("gone"), a_stamp())


async def test_whatever_concerns_all_owners_asks_all_servers(store: RedisStore) -> None:
    for number, owner in enumerate(OWNERS):
        wanted = asked_at_birth(f"s-{number}", a_run(f"run-{number}"), at=NOON)
        await store.create(owner, wanted)
    assert sorted(await store.owners()) == sorted(OWNERS)
    assert (await store.totals()).backlog.queued == len(OWNERS)
    size = (await store.totals()).size
    assert size is not None
    assert size.sessions == len(OWNERS)
    taken = []
    while (claimed := await take(store, owners=OWNERS)) is not None:
        await start(store, claimed)
        await finish(store, claimed)
        taken.append(claimed.owner)
    assert sorted(taken) == sorted(OWNERS)
    assert (await store.totals()).backlog.queued == 0
    assert await store.check() == []


async def test_url_that_takes_a_cluster_for_one_server_is_told_so(cluster: RedisCluster) -> None:
    store = RedisStore(f"redis://127.0.0.1:{cluster.servers[0].port}")
    told = set()
    async with asyncio.timeout(10):
        for owner in OWNERS:
            try:
                await store.approvals(owner, ApprovalQuery(limit=1))  # owners that are on this server are found
            except StoreUnavailable as error:
                told.add("add `?cluster=true` to the URL" in error.message)
    await store.close()
    assert told == {True}


async def test_documents_are_kept_beside_the_owners(store: RedisStore) -> None:
    note = Document(kind=DocumentKind.DRAINED_LAUNCHER, key="l-1", body="{}")
    assert await store.put_document(note.kind, note.key, lambda _: note) == note
    assert await store.document(note.kind, note.key) == note


async def test_slot_that_moves_is_found_again(cluster: RedisCluster, store: RedisStore) -> None:
    """Writers go on while the slots of their owners move from server to server, one after the other."""
    writers = Writers(store, list(OWNERS[:6]))
    writing = asyncio.create_task(writers.write())
    while writers.acknowledged < 30:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    for owner in OWNERS[:6]:
        await asyncio.to_thread(_move, cluster, key_slot(Keys("moorage", owner)("feed").encode()))
    before = writers.acknowledged
    while writers.acknowledged < before + 30:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    writers.stop()
    await writing
    assert await writers.problems(store) == []


def _move(cluster: RedisCluster, slot: int) -> None:
    """Move a slot to another server, as `redis-cli --cluster reshard` does."""
    ids = [server.ask("CLUSTER", "MYID").decode() for server in cluster.servers]
    with redis.Redis(port=cluster.servers[0].port) as raw:
        owner = next(place for place, server in enumerate(cluster.servers) if _has(raw, server.port, slot))
    source, target = cluster.servers[owner], cluster.servers[(owner + 1) % 3]
    target.ask("CLUSTER", "SETSLOT", str(slot), "IMPORTING", ids[owner])
    source.ask("CLUSTER", "SETSLOT", str(slot), "MIGRATING", ids[(owner + 1) % 3])
    with redis.Redis(port=source.port) as raw:
        while keys := raw.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
            raw.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
    for server in (target, source, *cluster.servers):
        server.ask("CLUSTER", "SETSLOT", str(slot), "NODE", ids[(owner + 1) % 3])


def _has(raw: redis.Redis, port: int, slot: int) -> bool:
    found = raw.execute_command("CLUSTER", "SLOTS")  # type: ignore[no-untyped-call]
    return any(start <= slot <= end and node[1] == port for start, end, node, *_ in found)


async def test_database_of_a_cluster_is_number_0() -> None:
    with pytest.raises(InvalidField, match="database"):
        RedisStore("redis+cluster://127.0.0.1:1/3")


async def test_cluster_without_a_server_for_a_slot_is_waited_for(cluster: RedisCluster) -> None:
    """Nothing was changed, and no call waits for ever."""
    owner, store = OWNERS[-1], RedisStore(cluster.url("patience=0.5"))
    await store.owners()
    slot = key_slot(Keys("moorage", owner)("feed").encode())
    with redis.Redis(port=cluster.servers[0].port) as raw:
        [server] = [server for server in cluster.servers if _has(raw, server.port, slot)]
    server.ask("CLUSTER", "DELSLOTS", str(slot))
    server.wait_for(lambda: b"cluster_state:fail" in server.ask("CLUSTER", "INFO"))
    try:
        with pytest.raises(StoreUnavailable, match="nothing was changed"):
            await store.create(owner, a_session("s-1"))
    finally:
        server.ask("CLUSTER", "ADDSLOTS", str(slot))
    for each in cluster.servers:
        each.wait_for(lambda: b"cluster_state:ok" in each.ask("CLUSTER", "INFO"))  # noqa: B023
    await store.create(owner, a_session("s-1"))
    await store.close()
