"""Requests with a key: done once, recorded with their effect, forgotten after a day."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from moorage.core.errors import IdTaken, KeyReused, SessionNotFound, VersionConflict
from moorage.core.once import KEPT_FOR, AlreadyDone, Once, OnceKey
from moorage.core.session import Change, Session
from moorage.ports import Decision, Store
from moorage.testing.builders import *

TICK = timedelta(microseconds=1)


def noted(
    decide: Callable[..., Change],
    key: str = "k-1",
    digest: str = "d-1",
    operation: str = "create",
    at: datetime = NOON,
    ref: str | None = None,
) -> Callable[..., Change]:
    """Return a decision with an idempotency key."""

    def decision(*given: Any) -> Change:
        change = decide(*given)
        return OnceKey(operation, key, digest).on(change, ref or change.session.session_id, at)

    return decision


async def create(store: Store, session_id: str, owner: str = OWNER, **request: Any) -> Session:
    """Create a session with an idempotency key."""
    return await store.create(owner, noted(a_session(session_id, owner=owner), **request))


class OnceRules:
    """Rules of changes with `once`, of `once` and of `purge`."""

    async def test_request_is_stored_with_its_result(self, store: Store) -> None:
        assert await store.once(OWNER, "create", "k-1", NOON) is None

        await create(store, "s-1")

        kept = await store.once(OWNER, "create", "k-1", after(5))
        assert kept == Once("create", "k-1", "d-1", "s-1", NOON)
        assert await store.once(OWNER, "create", "k-2", NOON) is None
        assert await store.once(OWNER, "fork", "k-1", NOON) is None

    async def test_session_asked_for_again_is_not_made_again(self, store: Store) -> None:
        await create(store, "s-1")

        async with nothing_changes(store):
            with pytest.raises(AlreadyDone) as done:
                await create(store, "s-2", at=after(60))
        assert done.value.ref == "s-1"
        with pytest.raises(SessionNotFound):
            await store.get(OWNER, "s-2")

    async def test_key_is_looked_up_before_the_id_is(self, store: Store) -> None:
        await create(store, "s-1")

        with pytest.raises(AlreadyDone):
            await create(store, "s-1")
        with pytest.raises(IdTaken):
            await create(store, "s-1", key="k-2")

    async def test_other_request_under_the_key_is_refused(self, store: Store) -> None:
        await create(store, "s-1")

        async with nothing_changes(store):
            with pytest.raises(KeyReused):
                await create(store, "s-2", digest="d-2")
        kept = await store.once(OWNER, "create", "k-1", NOON)
        assert kept is not None
        assert kept.digest == "d-1"

    async def test_fork_is_made_once(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.fork(OWNER, "s-1", None, noted(a_fork("f-1"), operation="fork"))

        async with nothing_changes(store):
            with pytest.raises(AlreadyDone) as done:
                await store.fork(OWNER, "s-1", None, noted(a_fork("f-2"), operation="fork"))
            with pytest.raises(KeyReused):
                await store.fork(OWNER, "s-1", None, noted(a_fork("f-2"), operation="fork", digest="d-2"))
        assert done.value.ref == "f-1"

    async def test_change_is_made_once(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        change = await store.apply(OWNER, "s-1", noted(updated(error="oops"), operation="count", ref="s-1/2"))
        assert change.session.error_count == 1

        async with nothing_changes(store):
            with pytest.raises(AlreadyDone) as done:
                await store.apply(OWNER, "s-1", noted(updated(error="oops"), operation="count"))
            with pytest.raises(KeyReused):
                await store.apply(OWNER, "s-1", noted(updated(error="no"), operation="count", digest="d-2"))
        assert done.value.ref == "s-1/2"
        assert len(await whole_log(store, "s-1")) == 2

    async def test_refused_request_leaves_its_key_free(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))

        with pytest.raises(IdTaken):
            await create(store, "s-1")
        with pytest.raises(VersionConflict):
            await store.apply(OWNER, "s-1", noted(updated(error="x")), expected=9)
        with pytest.raises(DecisionRefused):
            await store.create(OWNER, noted(refusing))
        assert await store.once(OWNER, "create", "k-1", NOON) is None
        assert (await create(store, "s-2")).session_id == "s-2"

    async def test_operations_and_keys_and_owners_do_not_meet(self, store: Store) -> None:
        await create(store, "s-1")

        await create(store, "s-2", key="k-2")
        await create(store, "s-3", operation="other")
        await create(store, "s-4", owner=OTHER, digest="d-9")
        kept = await store.once(OTHER, "create", "k-1", NOON)
        assert kept is not None
        assert kept.ref == "s-4"
        assert await store.once("nobody", "create", "k-1", NOON) is None

    async def test_of_requests_that_race_one_is_done(self, store: Store) -> None:
        tries = [create(store, f"s-{n}") for n in range(8)]
        outcomes = await asyncio.gather(*tries, return_exceptions=True)

        made = [outcome.session_id for outcome in outcomes if isinstance(outcome, Session)]
        told = {outcome.ref for outcome in outcomes if isinstance(outcome, AlreadyDone)}
        assert (len(made), told) == (1, set(made))
        assert [session.session_id for session in await all_sessions(store)] == made

    async def test_after_a_day_the_key_is_free_again(self, store: Store) -> None:
        await create(store, "s-1")

        with pytest.raises(AlreadyDone):
            await create(store, "s-2", at=NOON + KEPT_FOR - TICK)
        assert await store.once(OWNER, "create", "k-1", NOON + KEPT_FOR - TICK) is not None
        assert await store.once(OWNER, "create", "k-1", NOON + KEPT_FOR) is None

        await create(store, "s-2", at=NOON + KEPT_FOR, digest="d-2")
        with pytest.raises(AlreadyDone) as done:
            await create(store, "s-3", at=NOON + KEPT_FOR + timedelta(hours=23), digest="d-2")
        assert done.value.ref == "s-2"

    async def test_deleting_the_result_does_not_free_the_key(self, store: Store) -> None:
        await create(store, "s-1")
        await store.delete_tree(OWNER, "s-1", may_delete("s-1", reason="gone"), a_stamp())

        with pytest.raises(AlreadyDone):
            await create(store, "s-2")

    async def test_change_without_a_key_is_not_looked_up(self, store: Store) -> None:
        await create(store, "s-1")
        decide: Decision = updated(error="one")

        await store.apply(OWNER, "s-1", decide)
        await store.apply(OWNER, "s-1", decide)
        assert (await store.get(OWNER, "s-1")).error_count == 2

    # Forgetting

    async def test_purge_forgets_old_requests_some_at_a_time(self, store: Store) -> None:
        for n in range(5):
            await create(store, f"s-{n}", key=f"k-{n}", at=after(n), owner=OWNER if n % 2 else OTHER)
        at = NOON + KEPT_FOR + timedelta(seconds=2)  # three of them are too old by now

        assert await store.purge(at, 2) == 2
        assert await store.purge(at, 2) == 1
        assert await store.purge(at, 2) == 0
        kept = [await store.once(owner, "create", f"k-{n}", NOON) for owner in (OWNER, OTHER) for n in range(5)]
        assert [one.ref for one in kept if one is not None] == ["s-3", "s-4"]
