"""The PostgreSQL store keeps the contract and does whatever the model does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest
import pytest_asyncio
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from moorage.core.errors import Unsupported
from moorage.ports import Capability, Store
from moorage.stores.sealing import Sealer
from moorage.testing.builders import OWNER
from moorage.testing.comparison import Comparison
from moorage.testing.contract import StoreContract
from moorage.testing.model import StoreComparison
from moorage.testing.postgres import Databases, GivenServer, PostgresServer
from moorage.testing.work_model import WorkComparison
from tests.contract.choice import RulesOfSealedBodies, unless_all
from tests.contract.files import KEYS
from tests.postgres.stores import DatabasePool, Loop


def on_one_loop(rules: type) -> type:
    """Let the tests share an event loop, as they share connections. A few have nothing to wait for: never mind."""
    unawaited = pytest.mark.filterwarnings("ignore:.*is marked with .*asyncio.* but it is not an async function")
    return unawaited(pytest.mark.asyncio(loop_scope="session")(rules))


@asynccontextmanager
async def opened(server: Databases) -> AsyncIterator[DatabasePool]:
    pool = DatabasePool(server)
    yield pool
    await pool.close()
    pool.drop()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def pool(postgres: GivenServer | PostgresServer) -> AsyncIterator[DatabasePool]:
    async with opened(postgres) as pool:
        yield pool


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def sealed_pool(postgres: GivenServer | PostgresServer) -> AsyncIterator[DatabasePool]:
    """A sealed database stays so when it is emptied."""
    async with opened(postgres) as pool:
        yield pool


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def oldest_pool(oldest_postgres: PostgresServer) -> AsyncIterator[DatabasePool]:
    async with opened(oldest_postgres) as pool:
        yield pool


@on_one_loop
class TestPostgresStore(StoreContract):
    @pytest_asyncio.fixture(loop_scope="session")
    async def store(self, pool: DatabasePool, request: pytest.FixtureRequest) -> Store:
        return await pool.kept_store(is_new="size" in request.node.name)


@on_one_loop
class TestPostgresStoreOnTheOldestVersion(unless_all(object)):  # type: ignore[misc]
    @pytest_asyncio.fixture(loop_scope="session")
    async def store(self, oldest_pool: DatabasePool, request: pytest.FixtureRequest) -> Store:
        return await oldest_pool.kept_store(is_new="size" in request.node.name)


@on_one_loop
class TestSealedPostgresStore(unless_all(RulesOfSealedBodies)):  # type: ignore[misc]
    """Encrypted at rest: the rules about what is sealed."""

    @pytest_asyncio.fixture(loop_scope="session")
    async def store(self, sealed_pool: DatabasePool, request: pytest.FixtureRequest) -> Store:
        return await sealed_pool.kept_store(Sealer(KEYS), is_new="size" in request.node.name)

    async def test_says_why_it_cannot_search(self, store: Store) -> None:
        assert store.capabilities == {Capability.PUSH}
        with pytest.raises(Unsupported, match="encrypted at rest"):
            await store.search(OWNER, "hello", 10)


class OnPostgres(Comparison):
    """Every run has the same database, emptied."""

    pool: DatabasePool

    def make_store(self) -> Store:
        self.run = Loop()  # type: ignore[method-assign]  # of its own, for as long as the comparison lasts
        return cast(Store, self.run(self.pool.store()))

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            cast(Loop, self.run).close()


class PostgresAgainstTheModel(OnPostgres, StoreComparison):
    """Everything at random."""


class PostgresAtWorkAgainstTheModel(OnPostgres, WorkComparison):
    """Random actions of launchers."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("comparison", [PostgresAgainstTheModel, PostgresAtWorkAgainstTheModel])
def test_postgres_matches_the_model(pool: DatabasePool, comparison: type[OnPostgres]) -> None:
    machine = type(comparison.__name__, (comparison,), {"pool": pool})
    run_state_machine_as_test(machine, settings=settings(max_examples=10, stateful_step_count=40, deadline=None))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("comparison", [PostgresAgainstTheModel, PostgresAtWorkAgainstTheModel])
def test_oldest_postgres_matches_the_model(oldest_pool: DatabasePool, comparison: type[OnPostgres]) -> None:
    machine = type(comparison.__name__, (comparison,), {"pool": oldest_pool})
    run_state_machine_as_test(machine, settings=settings(max_examples=6, stateful_step_count=40, deadline=None))
