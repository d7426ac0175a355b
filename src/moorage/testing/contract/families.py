"""Families: parents, children, and trees of any shape."""

from __future__ import annotations

import pytest

from moorage.core.errors import SessionNotFound
from moorage.ports import Store
from moorage.testing.builders import *


async def family(store: Store) -> None:
    """Create a root `r` with children a, b, c and grandchildren b1, a1, a2, one below a1, and an unrelated session.

    The generations are mixed: b1 is older than a1, though a is older than b, and c is the youngest.
    """
    links = (("r", None), ("a", "r"), ("b", "r"), ("b1", "b"), ("a1", "a"), ("a2", "a"), ("x", "a1"), ("c", "r"))
    for session_id, parent in (*links, ("alone", None)):
        await store.create(OWNER, a_session(session_id), parent=parent)


class FamilyRules:
    """Rules of `ancestors`, `tree` and `count_children`."""

    async def test_ancestors_go_up_to_the_root(self, store: Store) -> None:
        await family(store)

        assert [session.session_id for session in await store.ancestors(OWNER, "x")] == ["a1", "a", "r"]
        assert [session.session_id for session in await store.ancestors(OWNER, "b")] == ["r"]
        assert await store.ancestors(OWNER, "r") == []

    async def test_tree_goes_generation_by_generation_in_order_of_creation(self, store: Store) -> None:
        await family(store)

        assert await _tree(store, "r") == ["r", "a", "b", "c", "b1", "a1", "a2", "x"]
        assert await _tree(store, "a") == ["a", "a1", "a2", "x"]
        assert await _tree(store, "x") == ["x"]

    async def test_tree_is_cut_at_the_limit_parents_first(self, store: Store) -> None:
        await family(store)

        assert await _tree(store, "r", 5) == ["r", "a", "b", "c", "b1"]
        assert await _tree(store, "r", 1) == ["r"]

    async def test_families_hold_sessions_as_they_are(self, store: Store) -> None:
        await family(store)
        await store.apply(OWNER, "a", updated(error="oops"))
        now = await store.get(OWNER, "a")

        assert (await store.tree(OWNER, "r", 10))[1] == now
        assert (await store.ancestors(OWNER, "a1"))[0] == now

    async def test_families_are_found_by_name(self, store: Store) -> None:
        await store.create(OWNER, a_session("p-1", "mother"))
        await store.create(OWNER, a_session("c-1", "child"), parent="mother")

        assert await _tree(store, "mother") == ["p-1", "c-1"]
        assert [session.session_id for session in await store.ancestors(OWNER, "child")] == ["p-1"]
        assert await store.count_children(OWNER, "mother") == 1

    async def test_children_are_counted_open_or_not_and_grandchildren_are_not(self, store: Store) -> None:
        await family(store)
        await store.apply(OWNER, "a", finalized())

        counted = {ref: await store.count_children(OWNER, ref) for ref in ("r", "a", "b", "x", "alone")}

        assert counted == {"r": 3, "a": 2, "b": 1, "x": 0, "alone": 0}

    async def test_deleted_children_are_not_counted(self, store: Store) -> None:
        await family(store)
        await store.delete_tree(OWNER, "a", may_delete("a"), a_stamp())

        assert await store.count_children(OWNER, "r") == 2
        assert await _tree(store, "r") == ["r", "b", "c", "b1"]

    async def test_family_of_an_unknown_session_is_not_found(self, store: Store) -> None:
        with pytest.raises(SessionNotFound):
            await store.ancestors(OWNER, "nobody")
        with pytest.raises(SessionNotFound):
            await store.tree(OWNER, "nobody", 10)
        with pytest.raises(SessionNotFound):
            await store.count_children(OWNER, "nobody")

    async def test_families_may_be_as_deep_as_they_are_allowed_to_be(self, store: Store) -> None:
        await store.create(OWNER, a_session("g-0"))
        for depth in range(1, 17):
            await store.create(OWNER, a_session(f"g-{depth}"), parent=f"g-{depth - 1}")

        assert await _tree(store, "g-0") == [f"g-{depth}" for depth in range(17)]
        assert len(await store.ancestors(OWNER, "g-16")) == 16


async def _tree(store: Store, ref: str, limit: int = 100) -> list[str]:
    return [session.session_id for session in await store.tree(OWNER, ref, limit)]
