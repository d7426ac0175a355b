"""The SQLite store keeps the contract and does whatever the model does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import settings

from moorage.ports import Store
from moorage.stores.sqlite.store import SqliteStore
from moorage.testing.builders import drive
from moorage.testing.comparison import Comparison
from moorage.testing.contract import StoreContract
from moorage.testing.model import StoreComparison
from moorage.testing.work_model import WorkComparison
from tests.contract.files import new_file


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        store = SqliteStore.open(new_file(tmp_path))
        yield store
        drive(store.close())

    @asynccontextmanager
    async def meanwhile(self, work: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
        """Its `wait` blocks the thread, so another one has to do the work."""
        worker = threading.Timer(0.05, drive, [work])
        worker.start()
        yield
        await asyncio.to_thread(worker.join)


class TestSqliteStoreOnThreads(StoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        store = SqliteStore.serve(new_file(tmp_path))
        yield store
        await store.close()


class OnAFile(Comparison):
    """Every run has a file of its own."""

    def make_store(self) -> Store:
        self.folder = TemporaryDirectory(prefix="moorage-")
        return SqliteStore.open(Path(self.folder.name) / "moorage.db")

    def teardown(self) -> None:
        with self.folder:
            super().teardown()


class SqliteAgainstTheModel(OnAFile, StoreComparison):
    """Everything at random."""


class SqliteAtWorkAgainstTheModel(OnAFile, WorkComparison):
    """Random actions of launchers."""


TestSqliteAgainstTheModel = SqliteAgainstTheModel.TestCase
TestSqliteAgainstTheModel.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
TestSqliteAtWorkAgainstTheModel = SqliteAtWorkAgainstTheModel.TestCase
TestSqliteAtWorkAgainstTheModel.settings = settings(max_examples=40, stateful_step_count=50, deadline=None)
