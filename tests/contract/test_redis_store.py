"""The Redis store keeps the contract and does whatever the model does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, cast

import pytest
import pytest_asyncio
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from moorage.core.errors import Unsupported
from moorage.ports import Capability, Store
from moorage.stores.redis.store import RedisStore
from moorage.stores.sealing import Sealer
from moorage.testing.builders import OWNER
from moorage.testing.comparison import Comparison
from moorage.testing.contract import StoreContract
from moorage.testing.model import StoreComparison
from moorage.testing.redis import RedisServer
from moorage.testing.work_model import WorkComparison
from tests.contract.choice import RulesOfSealedBodies, RulesOfVersions, unless_all
from tests.contract.files import KEYS


async def emptied(server: RedisServer, sealer: Sealer | None = None) -> AsyncIterator[Store]:
    """A store on a server from which everything else is gone."""
    server.ask("FLUSHALL", "SYNC")
    store = RedisStore(server.url(), sealer)
    yield store
    await store.close()


class TestRedisStoreOnValkey(StoreContract):
    @pytest_asyncio.fixture
    async def store(self, valkey: RedisServer) -> AsyncIterator[Store]:
        async for store in emptied(valkey):
            yield store

    async def test_says_which_stores_can_search(self, store: Store) -> None:
        assert store.capabilities == {Capability.PUSH}
        with pytest.raises(Unsupported, match=r"SQLite or PostgreSQL"):
            await store.search(OWNER, "hello", 10)


class TestRedisStoreOnACluster(unless_all(RulesOfVersions)):  # type: ignore[misc]
    """A key in the wrong slot is an error here."""

    @pytest_asyncio.fixture
    async def store(self, valkey_cluster: RedisServer) -> AsyncIterator[Store]:
        async for store in emptied(valkey_cluster):
            yield store


class TestRedisStoreOnRedis7(unless_all(object)):  # type: ignore[misc]
    @pytest_asyncio.fixture
    async def store(self, redis_7: RedisServer) -> AsyncIterator[Store]:
        async for store in emptied(redis_7):
            yield store


class TestSealedRedisStore(unless_all(RulesOfSealedBodies)):  # type: ignore[misc]
    """Encrypted at rest: the rules about what is sealed."""

    @pytest_asyncio.fixture
    async def store(self, valkey: RedisServer) -> AsyncIterator[Store]:
        async for store in emptied(valkey, Sealer(KEYS)):
            yield store


class OnRedis(Comparison):
    """Every run has the same server, emptied."""

    server: RedisServer

    def make_store(self) -> Store:
        loop = asyncio.new_event_loop()
        self.loop = loop

        def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
            return loop.run_until_complete(coroutine)

        self.run = run  # type: ignore[method-assign]  # one loop for as long as the comparison lasts
        self.server.ask("FLUSHALL", "SYNC")
        return cast(Store, RedisStore(self.server.url()))

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.loop.close()


class RedisAgainstTheModel(OnRedis, StoreComparison):
    """Everything at random."""


class RedisAtWorkAgainstTheModel(OnRedis, WorkComparison):
    """Random work of launchers."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("comparison", [RedisAgainstTheModel, RedisAtWorkAgainstTheModel])
@pytest.mark.parametrize("server", ["valkey", "valkey_cluster", "redis_7"])
def test_redis_matches_the_model(request: pytest.FixtureRequest, server: str, comparison: type[OnRedis]) -> None:
    machine = type(comparison.__name__, (comparison,), {"server": request.getfixturevalue(server)})
    run_state_machine_as_test(machine, settings=settings(max_examples=10, stateful_step_count=40, deadline=None))
