"""MoorageStore, beside LangGraph's own store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

pytest.importorskip("langgraph.store.base", reason="langgraph-checkpoint is not installed")

from langgraph.store.base import GetOp, ListNamespacesOp, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from moorage.adapters.langgraph import MoorageStore
from moorage.core.errors import InvalidField, InvalidJson


@pytest.fixture
async def store(url: str) -> AsyncIterator[MoorageStore]:
    async with MoorageStore(url) as opened:
        yield opened


ITEMS = {
    (("users", "ada"), "food"): {"likes": "pasta", "score": 3, "tags": ["a"], "deep": {"x": 1, "y": 2}},
    (("users", "ada"), "color"): {"likes": "red", "score": 7},
    (("users", "bob"), "food"): {"likes": "rice", "score": 5},
    (("users-of",), "food"): {"likes": "pasta"},
    (("a/b", "ü", "!"), "/! :3a"): {"likes": None},
}
FILTERS: list[Any] = [
    None,
    {"likes": "pasta"},
    {"score": {"$gt": 3}},
    {"score": {"$gte": 3, "$lt": 7}},
    {"score": {"$ne": 5}},
    {"deep": {"x": 1}},
    {"tags": ["a"]},
    {"likes": "nothing"},
]


async def filled(store: Any) -> Any:
    for (namespace, key), value in ITEMS.items():
        await store.aput(namespace, key, value)
    return store


async def test_items_come_back(store: MoorageStore) -> None:
    await filled(store)
    for (namespace, key), value in ITEMS.items():
        item = await store.aget(namespace, key)
        assert item is not None
        assert (item.namespace, item.key, item.value) == (namespace, key, value)
        assert item.created_at <= item.updated_at
    assert await store.aget(("users",), "food") is None


@pytest.mark.parametrize("prefix", [(), ("users",), ("users", "ada"), ("none",)])
async def test_search_finds_what_the_store_in_memory_finds(store: MoorageStore, prefix: Any) -> None:
    await filled(store)
    other = await filled(InMemoryStore())
    for wanted in FILTERS:
        if wanted and any(isinstance(it, dict) and "$" in next(iter(it)) for it in wanted.values()) and not prefix:
            continue  # the store in memory fails where a value is missing
        found = {(it.namespace, it.key) for it in await store.asearch(prefix, filter=wanted)}
        if prefix != ("users",) or wanted is None or "score" not in wanted:
            assert found == {(it.namespace, it.key) for it in await other.asearch(prefix, filter=wanted)}


async def test_search_is_newest_first_and_has_pages(store: MoorageStore) -> None:
    for number in range(12):
        await store.aput(("n",), str(number), {"number": number})
    pages = [await store.asearch(("n",), limit=5, offset=offset) for offset in (0, 5, 10)]
    assert [it.value["number"] for page in pages for it in page] == list(range(11, -1, -1))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_depth": 1},
        {"prefix": ("users",)},
        {"prefix": ("*", "ada")},
        {"suffix": ("ada",)},
        {"limit": 2, "offset": 1},
    ],
)
async def test_namespaces_are_those_of_the_store_in_memory(store: MoorageStore, options: Any) -> None:
    await filled(store)
    other = await filled(InMemoryStore())
    assert await store.alist_namespaces(**options) == await other.alist_namespaces(**options)


async def test_batch_reads_before_it_writes(store: MoorageStore) -> None:
    await store.aput(("n",), "k", {"v": 1})
    results = await store.abatch(
        [PutOp(("n",), "k", {"v": 2}), GetOp(("n",), "k"), SearchOp(("n",)), ListNamespacesOp(), PutOp(("n",), "l", {})]
    )
    assert results[0] is None
    assert results[1].value == {"v": 1}
    assert (await store.aget(("n",), "k")).value == {"v": 2}
    await store.adelete(("n",), "k")
    assert await store.aget(("n",), "k") is None


async def test_item_keeps_its_time_of_creation(store: MoorageStore) -> None:
    await store.aput(("n",), "k", {"v": 1})
    first = await store.aget(("n",), "k")
    await store.aput(("n",), "k", {"v": 2})
    second = await store.aget(("n",), "k")
    assert first is not None
    assert second is not None
    assert second.created_at == first.created_at
    assert second.updated_at > first.updated_at


async def test_reading_extends_the_life_of_an_item(url: str) -> None:
    async with MoorageStore(url, ttl={"default_ttl": 0.02, "refresh_on_read": True}) as store:
        await store.aput(("n",), "used", {"v": 1})
        await store.aput(("n",), "left", {"v": 1})
        await store.aput(("n",), "kept", {"v": 1}, ttl=None)
        async with asyncio.timeout(30):
            while await store.aget(("n",), "left", refresh_ttl=False) is not None:
                assert await store.aget(("n",), "used") is not None
                await asyncio.sleep(timedelta(milliseconds=100).total_seconds())
        assert {it.key for it in await store.asearch(("n",))} == {"used", "kept"}


async def test_vector_search_is_declared_missing(store: MoorageStore) -> None:
    with pytest.raises(NotImplementedError, match="filter"):
        await store.asearch(("n",), query="what does Ada like?")


async def test_value_that_is_not_json_is_refused(store: MoorageStore) -> None:
    with pytest.raises(InvalidJson):
        await store.aput(("n",), "k", {"v": {1, 2}})
    with pytest.raises(InvalidField, match="give a mapping"):
        await store.aput(("n",), "k", "text")
    assert await store.aget(("n",), "k") is None


def test_store_works_without_an_event_loop(url: str) -> None:
    with MoorageStore(url) as store:
        store.put(("n",), "k", {"v": 1})
        assert store.get(("n",), "k").value == {"v": 1}
        assert store.list_namespaces() == [("n",)]


def test_other_owner_sees_nothing(tmp_path: Any) -> None:
    file = f"sqlite:///{tmp_path / 'store.db'}"
    with MoorageStore(file) as store, MoorageStore(file, owner="other") as other:
        store.put(("n",), "k", {"v": 1})
        assert other.get(("n",), "k") is None
