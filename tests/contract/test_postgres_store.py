"""The PostgreSQL store keeps the contract and does whatever the in-memory store does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from holdfast.ports import Store
from holdfast.testing.contract import StoreContract
from holdfast.testing.postgres import GivenServer, PostgresServer
from tests.postgres.stores import Shelf


@pytest.fixture(scope="session")
def shelf(postgres: GivenServer | PostgresServer) -> Iterator[Shelf]:
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
    async def store(self, shelf: Shelf) -> AsyncIterator[Store]:
        store = await shelf.store()
        yield store
        await store.close()


class TestPostgresStoreOnTheOldestVersion(StoreContract):
    @pytest.fixture
    async def store(self, oldest_shelf: Shelf) -> AsyncIterator[Store]:
        store = await oldest_shelf.store()
        yield store
        await store.close()
