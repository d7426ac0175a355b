"""A store whose contexts are on a Redis server of their own keeps the rules that concern contexts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from moorage.ports import Store
from moorage.stores.context_beside import ContextBeside
from moorage.stores.redis.session_context import SessionContext
from moorage.stores.sqlite.store import SqliteStore
from moorage.testing.builders import (
    NOON,
    OWNER,
    FakeClock,
    a_session,
    context_of,
    forgetting,
    merging,
    remembering,
    write_context,
)
from moorage.testing.contract.changes import ChangeRules
from moorage.testing.contract.context import ContextRules
from moorage.testing.contract.deletion import DeletionRules
from moorage.testing.contract.forks import ForkRules
from moorage.testing.contract.sweeps import SweepRules
from moorage.testing.contract.transfer import TransferRules
from moorage.testing.redis import RedisServer
from tests.contract.files import new_file


class OwnContextRules(ContextRules):
    """The rules of contexts, but for those of the head: it does not tell of contexts that other programs write, too."""

    test_write_moves_the_head_along = None  # type: ignore[assignment]
    test_forgotten_keys_are_gone = None  # type: ignore[assignment]
    test_decision_sees_head_and_context = None  # type: ignore[assignment]
    test_context_survives_changes_of_the_session = None  # type: ignore[assignment]
    test_writers_of_different_keys_all_succeed = None  # type: ignore[assignment]

    async def test_context_write_leaves_the_head_alone(self, store: Store) -> None:
        before = await store.create(OWNER, a_session("s-1"))
        tries = [write_context(store, OWNER, "s-1", remembering(f"k{n}", n), f"k{n}") for n in range(20)]
        changes = await asyncio.gather(*tries)

        assert await store.get(OWNER, "s-1") == before
        assert sorted(change.session.context_version for change in changes) == list(range(1, 21))
        assert {key: item.value for key, item in (await context_of(store, OWNER, "s-1", NOON)).items()} == {
            f"k{n}": n for n in range(20)
        }

    async def test_forgotten_key_is_gone(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write_context(store, OWNER, "s-1", merging({"a": 1, "b": 2}))
        await write_context(store, OWNER, "s-1", forgetting("a"), "a")
        assert list(await context_of(store, OWNER, "s-1", NOON)) == ["b"]
        change = await write_context(store, OWNER, "s-1", forgetting("b"))
        assert (await context_of(store, OWNER, "s-1", NOON), change.session.context_version) == ({}, 3)


class Rules(OwnContextRules, ForkRules, DeletionRules, SweepRules, TransferRules, ChangeRules):
    """The rules that concern contexts."""


async def opened(folder: Path, server: RedisServer) -> AsyncIterator[Store]:
    server.ask("FLUSHALL", "SYNC")
    url = server.url("ttl=never")  # as in the other stores: the rules have a clock of their own
    store = ContextBeside(SqliteStore.serve(new_file(folder)), lambda: SessionContext(url), FakeClock())
    yield cast(Store, store)
    await store.close()


class TestContextBesideSqlite(Rules):
    @pytest.fixture
    async def store(self, tmp_path: Path, valkey: RedisServer) -> AsyncIterator[Store]:
        async for store in opened(tmp_path, valkey):
            yield store


class TestContextBesideOnACluster(OwnContextRules):
    """The keys of a context are in one slot."""

    @pytest.fixture
    async def store(self, tmp_path: Path, valkey_cluster: RedisServer) -> AsyncIterator[Store]:
        async for store in opened(tmp_path, valkey_cluster):
            yield store
