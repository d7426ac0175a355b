"""The PostgreSQL store keeps the contract and does whatever the in-memory store does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import cast

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from holdfast.core.errors import Unsupported
from holdfast.ports import Capability, Store
from holdfast.stores.sealing import Sealer
from holdfast.testing.builders import OWNER
from holdfast.testing.comparison import Comparison
from holdfast.testing.contract import StoreContract
from holdfast.testing.contract.approvals import ApprovalRules
from holdfast.testing.contract.callbacks import CallbackRules
from holdfast.testing.contract.context import ContextRules
from holdfast.testing.contract.forks import ForkRules
from holdfast.testing.contract.log import LogRules
from holdfast.testing.contract.runs import RunRules
from holdfast.testing.contract.transfer import TransferRules
from holdfast.testing.model import StoreComparison
from holdfast.testing.postgres import GivenServer, PostgresServer
from holdfast.testing.work_model import WorkComparison
from tests.postgres.stores import Loop, Shelf

KEYS = {"k-1": b"1" * 32}


@pytest.fixture(scope="session")
def shelf(postgres: GivenServer | PostgresServer) -> Iterator[Shelf]:
    shelf = Shelf(postgres)
    yield shelf
    shelf.drop()


@pytest.fixture(scope="session")
def sealed_shelf(postgres: GivenServer | PostgresServer) -> Iterator[Shelf]:
    """A sealed database stays so when it is emptied."""
    shelf = Shelf(postgres)
    yield shelf
    shelf.drop()


@pytest.fixture(scope="session")
def oldest_shelf(oldest_postgres: PostgresServer) -> Iterator[Shelf]:
    shelf = Shelf(oldest_postgres)
    yield shelf
    shelf.drop()


class TestPostgresStore(StoreContract):
    @pytest.fixture
    async def store(self, shelf: Shelf, request: pytest.FixtureRequest) -> AsyncIterator[Store]:
        store = await shelf.store(is_new="size" in request.node.name)
        yield store
        await store.close()


class TestPostgresStoreOnTheOldestVersion(StoreContract):
    @pytest.fixture
    async def store(self, oldest_shelf: Shelf, request: pytest.FixtureRequest) -> AsyncIterator[Store]:
        store = await oldest_shelf.store(is_new="size" in request.node.name)
        yield store
        await store.close()


class TestSealedPostgresStore(LogRules, ForkRules, ContextRules, ApprovalRules, TransferRules, RunRules, CallbackRules):
    """Encrypted at rest: the rules about what is sealed."""

    @pytest.fixture
    async def store(self, sealed_shelf: Shelf, request: pytest.FixtureRequest) -> AsyncIterator[Store]:
        store = await sealed_shelf.store(Sealer(KEYS), is_new="size" in request.node.name)
        yield store
        await store.close()

    async def test_says_why_it_cannot_search(self, store: Store) -> None:
        assert store.capabilities == {Capability.PUSH}
        with pytest.raises(Unsupported, match="encrypted at rest"):
            await store.search(OWNER, "hello", 10)


class OnPostgres(Comparison):
    """Every run has the same database, emptied."""

    shelf: Shelf

    def make_store(self) -> Store:
        self.run = Loop()  # type: ignore[method-assign]  # of its own, for as long as the comparison lasts
        return cast(Store, self.run(self.shelf.store()))

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            cast(Loop, self.run).close()


class PostgresAgainstTheModel(OnPostgres, StoreComparison):
    """Everything at random."""


class PostgresAtWorkAgainstTheModel(OnPostgres, WorkComparison):
    """What launchers do at random."""


@pytest.mark.parametrize("comparison", [PostgresAgainstTheModel, PostgresAtWorkAgainstTheModel])
def test_postgres_does_what_the_model_does(shelf: Shelf, comparison: type[OnPostgres]) -> None:
    machine = type(comparison.__name__, (comparison,), {"shelf": shelf})
    run_state_machine_as_test(machine, settings=settings(max_examples=10, stateful_step_count=40, deadline=None))


@pytest.mark.parametrize("comparison", [PostgresAgainstTheModel, PostgresAtWorkAgainstTheModel])
def test_the_oldest_postgres_does_what_the_model_does(oldest_shelf: Shelf, comparison: type[OnPostgres]) -> None:
    machine = type(comparison.__name__, (comparison,), {"shelf": oldest_shelf})
    run_state_machine_as_test(machine, settings=settings(max_examples=6, stateful_step_count=40, deadline=None))
