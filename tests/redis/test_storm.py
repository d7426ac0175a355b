"""A storm over servers on Valkey, Redis and a cluster, which are killed again and again: see tests/fleet/storm.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.testing.redis import RedisServer, redis_program
from tests.fleet.storm import LENGTH, rage
from tests.long import long_only


def survives(server: RedisServer, folder: Path, options: str = "") -> bool:
    def url(port: int) -> str:
        return server.url(options, tcp=True).replace(str(server.port), str(port))

    assert rage(url, server.port, folder, crash=server.kill, start=server.start) == []
    return True


@pytest.mark.timeout(300 * LENGTH)
def test_nothing_is_lost_and_nothing_done_twice_on_valkey(tmp_path: Path) -> None:
    with RedisServer(durable=True) as server:
        assert survives(server, tmp_path, "durability=fsync")


@long_only
@pytest.mark.timeout(300 * LENGTH)
def test_nothing_is_lost_and_nothing_done_twice_on_redis_7(redis_7: RedisServer, tmp_path: Path) -> None:
    with RedisServer(redis_program(), durable=True) as server:
        assert survives(server, tmp_path)


@long_only
@pytest.mark.timeout(300 * LENGTH)
def test_nothing_is_lost_and_nothing_done_twice_on_a_cluster(tmp_path: Path) -> None:
    """The cluster tells its clients its own address: faults of the wire end with the first answer."""
    with RedisServer(durable=True, cluster=True) as server:
        assert survives(server, tmp_path)
