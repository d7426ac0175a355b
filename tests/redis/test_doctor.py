"""Reports of `doctor` about Redis stores, and the stores that `serve` refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.stores.redis.server_facts import ServerFacts, read_facts
from moorage.stores.redis.store import RedisStore
from moorage.testing.builders import OWNER, a_session, a_stamp, said
from moorage.testing.faults import eventually
from moorage.testing.redis import RedisServer
from tests.doors.cli.running import Done, run
from tests.fleet.machines import Fleet


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer(durable=True) as server:
        yield server


def doctor(url: str, home: Path) -> Done:
    return run("--json", "doctor", env={"MOORAGE_URL": url, "MOORAGE_HOME": str(home)})


def test_doctor_reports_durability_of_the_server(server: RedisServer, tmp_path: Path) -> None:
    done = doctor(server.url(), tmp_path)
    assert (done.code, done.json["problems"]) == (0, []), done
    assert done.json["server"].startswith("Valkey 9")
    told = {name: done.json[name] for name in ("appendonly", "appendfsync", "maxmemory_policy", "replicas")}
    assert told == {"appendonly": "yes", "appendfsync": "always", "maxmemory_policy": "noeviction", "replicas": 0}
    assert done.json["durability"] == "server"
    crash, failover = done.json["notes"]
    assert crash == "A crash of the server can cost nothing that was acknowledged, as long as its disk survives."
    assert failover == "There is no replica: without the server's disk, everything is gone."


def test_doctor_warns_of_eviction_and_serve_refuses_it(server: RedisServer, tmp_path: Path) -> None:
    server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    done = doctor(server.url(), tmp_path)
    assert done.code == 1
    assert "maxmemory-policy is allkeys-lru" in done.json["problems"][0]

    refused = run("serve", "--store", server.url(), "--port", "0", env={"MOORAGE_HOME": str(tmp_path)})
    assert (refused.code, "--allow-eviction" in refused.err) == (2, True), refused
    assert "set maxmemory-policy noeviction" in refused.err


def test_serve_takes_an_evicting_server_if_it_is_told_to(server: RedisServer, tmp_path: Path) -> None:
    server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lfu")
    with Fleet(server.url(), tmp_path, 1, launches=False, flags=("--allow-eviction",)) as fleet:
        assert "may lose sessions" in fleet.servers[0].log


async def test_every_policy_that_deletes_sessions_is_a_risk(server: RedisServer) -> None:
    store = RedisStore(server.url())
    for policy in ("allkeys-lru", "allkeys-lfu", "allkeys-random"):
        server.ask("CONFIG", "SET", "maxmemory-policy", policy)
        [risk] = await store.risks()
        assert policy in risk
    for policy in ("volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl", "noeviction"):
        server.ask("CONFIG", "SET", "maxmemory-policy", policy)
        assert await store.risks() == []
    await store.close()


EXPIRING = """\
local count = 0
for _, key in ipairs(redis.call('KEYS', '*')) do
  if redis.call('TTL', key) ~= -1 then count = count + 1 end
end
return count
"""


async def test_no_key_of_a_session_expires(server: RedisServer) -> None:
    """Else the `volatile-` policies could delete it."""
    store = RedisStore(server.url())
    await store.create(OWNER, a_session("s-1"))
    await store.append(OWNER, "s-1", said("hello"), a_stamp())
    assert server.ask("DBSIZE").strip() != b":0"
    assert server.ask("EVAL", EXPIRING, "0").strip() == b":0"
    await store.close()


def test_doctor_finds_evicted_keys(server: RedisServer, tmp_path: Path) -> None:
    import asyncio

    async def fill() -> tuple[str, str]:
        store = RedisStore(server.url())
        for name in ("whole", "headless", "cut"):
            await store.create(OWNER, a_session(name))
            await store.append(OWNER, name, said("one", "two"), a_stamp())
        await store.close()
        keys = store.db.keys(OWNER)
        return keys.of("h", "headless"), keys.of("l", "cut")

    head, log = asyncio.run(fill())
    server.ask("DEL", head)
    server.ask("XDEL", log, "2-0")
    done = doctor(server.url(), tmp_path)
    assert done.code == 1
    assert [problem.partition(" ")[0] for problem in done.json["problems"]] == ["headless", "cut"]
    assert "evicted" in done.json["problems"][0]
    assert "has 2 entries up to 3, and should have 3 up to 3" in done.json["problems"][1]


def test_doctor_counts_the_servers_of_a_cluster(valkey_cluster: RedisServer, tmp_path: Path) -> None:
    done = doctor(valkey_cluster.url(), tmp_path)
    assert done.json["server"].startswith("Valkey 9")
    assert "neither an append-only file nor snapshots" in done.json["notes"][0]


def test_doctor_says_that_the_server_is_away(server: RedisServer, tmp_path: Path) -> None:
    server.kill()
    done = doctor(f"{server.url()}?patience=0.2", tmp_path)
    assert (done.code, "cannot be used" in done.json["problems"][0]) == (1, True), done


def test_doctor_shows_no_password(server: RedisServer, tmp_path: Path) -> None:
    server.ask("ACL", "SETUSER", "ann", "on", ">s3cret", "~*", "&*", "+@all")
    done = doctor(f"redis://ann:s3cret@127.0.0.1:{server.port}/0", tmp_path)
    assert (done.code, done.json["url"]) == (0, f"redis://…@127.0.0.1:{server.port}/0")
    assert "s3cret" not in done.out + done.err


def test_replica_is_counted(server: RedisServer, tmp_path: Path) -> None:
    with RedisServer() as replica:
        replica.ask("REPLICAOF", "127.0.0.1", str(server.port))
        assert eventually(lambda: b"state=online" in server.ask("INFO", "replication"))
        told = doctor(server.url("durability=replica"), tmp_path).json
    assert told["replicas"] == 1
    assert told["notes"][1].startswith("A failover costs nothing that was acknowledged")


@pytest.mark.parametrize(
    ("facts", "durability", "cost"),
    [
        (ServerFacts(keeps_log=True, fsync="everysec"), "server", "about the last second"),
        (ServerFacts(keeps_log=True, fsync="everysec"), "fsync", "nothing that was acknowledged"),
        (ServerFacts(keeps_log=True, fsync="no"), "server", "what the system had not written"),
        (ServerFacts(keeps_log=True), "server", "about the last second"),
        (ServerFacts(takes_snapshots=True), "server", "everything since its last snapshot"),
        (ServerFacts(), "server", "everything since its last snapshot"),
        (ServerFacts(takes_snapshots=False), "server", "neither an append-only file nor snapshots"),
    ],
)
def test_a_crash_is_told_in_plain_words(facts: ServerFacts, durability: str, cost: str) -> None:
    assert cost in facts.costs(durability)[0]


def test_server_that_hides_its_settings_is_told_of_too() -> None:
    info = b"# Server\r\nredis_version:7.2.4\r\nvalkey_version:8.0.1\r\naof_enabled:1\r\nconnected_slaves:2\r\n"
    facts = read_facts(info, {})
    assert facts.shown()["appendfsync"] == "the server does not say"
    assert (facts.name, facts.shown_version, facts.version, facts.replicas) == ("Valkey", "8.0.1", (7, 2), 2)
