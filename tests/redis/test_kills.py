"""Servers that die under load: nothing that was acknowledged is lost, nothing is there twice.

MOORAGE_KILLS says how often a server is killed: `MOORAGE_KILLS=100 python -m pytest tests/redis/test_kills.py`.
"""

from __future__ import annotations

import asyncio
import os
import random

import pytest

from moorage.stores.redis.store import RedisStore
from moorage.testing.proxy import Proxy
from moorage.testing.redis import RedisCluster, RedisServer, redis_program
from tests.counting import count
from tests.long import long_only
from tests.redis.writing import Writers

KILLS = int(os.environ.get("MOORAGE_KILLS", "8"))
SEED = int(os.environ.get("MOORAGE_SEED", "20261118"))
OWNERS = ["ann", "bob", "ann", "cid"]


async def progress(writers: Writers, steps: int = 5) -> None:
    """Wait until something more is acknowledged."""
    goal = writers.acknowledged + steps
    async with asyncio.timeout(60):
        while writers.acknowledged < goal:  # noqa: ASYNC110 - by any of the servers
            await asyncio.sleep(0.005)


async def survives(server: RedisServer, options: str = "", kills: int = KILLS) -> Writers:
    """Kill a server again and again under load; return the writers."""
    chance, store = random.Random(SEED), RedisStore(server.url(options))
    writers = Writers(store, OWNERS)
    writing = asyncio.create_task(writers.write())
    for _ in range(kills):
        await progress(writers)
        await asyncio.sleep(chance.uniform(0, 0.05))
        server.kill()
        await asyncio.to_thread(server.start)
    writers.stop()
    await writing
    await store.close()
    fresh = RedisStore(server.url())
    assert await writers.problems(fresh) == []
    await fresh.close()
    count("kills of Redis under load", kills)
    count("writes acknowledged under kills of Redis and found", writers.acknowledged)
    return writers


@pytest.mark.timeout(120 + 10 * KILLS)
async def test_killed_server_with_appendfsync_always_loses_nothing() -> None:
    with RedisServer(durable=True) as server:
        writers = await survives(server)
    assert writers.acknowledged >= 5 * KILLS


@long_only
@pytest.mark.timeout(120 + 10 * KILLS)
async def test_killed_redis_7_loses_nothing(redis_7: RedisServer) -> None:
    with RedisServer(redis_program(), durable=True) as server:
        await survives(server)


@pytest.mark.timeout(120 + 10 * KILLS)
async def test_killed_server_loses_nothing_that_waited_for_its_file() -> None:
    """The server alone would lose up to a second: durability=fsync waits for its file."""
    with RedisServer(durable=True, settings={"appendfsync": "everysec"}) as server:
        await survives(server, "durability=fsync", max(2, KILLS // 4))


@pytest.mark.timeout(120 + 10 * KILLS)
async def test_failover_loses_nothing_that_waited_for_the_replica() -> None:
    """Neither server has a file: what is there afterwards came from the other one, over a slow wire."""
    with (
        RedisServer() as one,
        RedisServer() as other,
        Proxy(("127.0.0.1", one.port)) as name,
        Proxy(("127.0.0.1", one.port)) as to_one,
        Proxy(("127.0.0.1", other.port)) as to_other,
    ):
        follow(other, one, to_one)
        store = RedisStore(f"redis://127.0.0.1:{name.port}?durability=replica&timeout=2")
        writers = Writers(store, OWNERS)
        writing = asyncio.create_task(writers.write())
        for number in range(max(2, KILLS // 4)):
            old, new, wire = (one, other, to_other) if number % 2 == 0 else (other, one, to_one)
            await progress(writers)
            old.kill()
            new.ask("REPLICAOF", "NO", "ONE")
            name.lead_to(("127.0.0.1", new.port))
            await asyncio.to_thread(old.start)
            await asyncio.to_thread(follow, old, new, wire)
        await progress(writers)
        writers.stop()
        await writing
        assert await writers.problems(store) == []
        await store.close()


def follow(replica: RedisServer, server: RedisServer, wire: Proxy) -> None:
    """Make one server the replica of another behind a slow wire, and wait until it is."""
    wire.mend()
    replica.ask("REPLICAOF", "127.0.0.1", str(wire.port))
    server.wait_for(lambda: b"state=online" in server.ask("INFO", "replication"))
    wire.delay(0.03)


@pytest.mark.timeout(300)
async def test_cluster_that_replaces_a_dead_server_loses_nothing() -> None:
    with RedisCluster(replicas=True) as cluster:
        store = RedisStore(cluster.url("durability=replica&timeout=2&patience=60"))
        writers = Writers(store, [f"owner-{number}" for number in range(12)])
        writing = asyncio.create_task(writers.write())
        await progress(writers, 50)
        cluster.servers[1].kill()
        replica = cluster.servers[4]
        await asyncio.to_thread(replica.wait_for, lambda: b"role:master" in replica.ask("INFO", "replication"))
        await asyncio.to_thread(cluster.servers[1].start)  # empty; it follows the new one
        await asyncio.to_thread(replica.wait_for, lambda: b"state=online" in replica.ask("INFO", "replication"))
        await progress(writers, 50)
        writers.stop()
        await writing
        assert await writers.problems(store) == []
        await store.close()
