"""The SQLite store keeps the contract when it is encrypted at rest, too; only the search is missing, and it says so.

The rules of searching are skipped here: an index of words would tell what is in a sealed store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

from moorage.core.errors import Unsupported
from moorage.ports import Capability, Store
from moorage.stores.sealing import Sealer
from moorage.stores.sqlite.store import SqliteStore
from moorage.testing.builders import OWNER, drive
from moorage.testing.comparison import Comparison
from moorage.testing.model import StoreComparison
from moorage.testing.work_model import WorkComparison
from tests.contract.choice import RulesOfSealedBodies, RulesOfSealing, unless_all
from tests.contract.files import KEYS, new_file
from tests.contract.test_sqlite_store import TestSqliteStore as PlainStore


class TestSealedSqliteStore(unless_all(RulesOfSealing)):  # type: ignore[misc]
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        store = SqliteStore.open(new_file(tmp_path, sealed=True), sealer=Sealer(KEYS))
        yield store
        drive(store.close())

    meanwhile = PlainStore.meanwhile


class TestSealedSqliteStoreOnThreads(unless_all(RulesOfSealedBodies)):  # type: ignore[misc]
    """Threads know nothing of sealing: what they do with anything else is tested where nothing is sealed."""

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        store = SqliteStore.serve(new_file(tmp_path, sealed=True), Sealer(KEYS))
        yield store
        await store.close()

    async def test_says_why_it_cannot_search(self, store: Store) -> None:
        assert store.capabilities == {Capability.PUSH}
        with pytest.raises(Unsupported, match="encrypted at rest"):
            await store.search(OWNER, "hello", 10)


class OnASealedFile(Comparison):
    """Every run has a file of its own."""

    def make_store(self) -> Store:
        self.folder = TemporaryDirectory(prefix="moorage-")
        return SqliteStore.open(Path(self.folder.name) / "moorage.db", sealer=Sealer(KEYS))

    def teardown(self) -> None:
        with self.folder:
            super().teardown()


class SealedAgainstTheModel(OnASealedFile, StoreComparison):
    """Everything at random."""


class SealedAtWorkAgainstTheModel(OnASealedFile, WorkComparison):
    """Random actions of launchers."""


TestSealedAgainstTheModel = SealedAgainstTheModel.TestCase
TestSealedAgainstTheModel.settings = settings(max_examples=10, stateful_step_count=40, deadline=None)
TestSealedAtWorkAgainstTheModel = SealedAtWorkAgainstTheModel.TestCase
TestSealedAtWorkAgainstTheModel.settings = settings(max_examples=10, stateful_step_count=50, deadline=None)
