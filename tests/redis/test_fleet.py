"""Several servers on one Redis store: none is special, and together they are one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moorage.testing.redis import RedisServer, redis_program
from tests.contract.choice import all_only
from tests.fleet.rules import FleetRules


class TestServersOnValkey(FleetRules):
    @pytest.fixture
    def store_url(self) -> Iterator[str]:
        with RedisServer() as server:
            yield server.url()


@all_only
class TestServersOnRedis7(FleetRules):
    @pytest.fixture
    def store_url(self, redis_7: RedisServer) -> Iterator[str]:
        with RedisServer(redis_program()) as server:
            yield server.url(tcp=True)


class TestServersOnACluster(FleetRules):
    @pytest.fixture
    def store_url(self) -> Iterator[str]:
        with RedisServer(cluster=True) as server:
            yield server.url()
