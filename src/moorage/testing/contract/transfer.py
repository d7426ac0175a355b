"""Restoring whole sessions, and the care of a store."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from moorage.core.approval import ApprovalQuery
from moorage.core.bundle import Bundle
from moorage.core.errors import IdTaken, KeyReused, NameTaken, ParentNotFound, SessionGone
from moorage.core.session import Needs
from moorage.ports import Store
from moorage.testing.builders import *


class TransferRules:
    """Rules of `restore`, `check` and `close`."""

    async def test_restored_session_is_the_same_in_every_part(self, store: Store) -> None:
        await _rich_session(store)
        bundle = await bundle_of(store, "s-1")

        assert await store.restore(OTHER, bundle) is True

        copy = await bundle_of(store, "s-1", owner=OTHER)
        assert replace(copy, session=replace(copy.session, owner=OWNER)) == bundle
        assert copy.session.owner == OTHER

    async def test_restoring_twice_is_harmless(self, store: Store) -> None:
        await _rich_session(store)
        bundle = await bundle_of(store, "s-1")
        await store.restore(OTHER, bundle)
        await store.append(OTHER, "s-1", said("went on"), a_stamp())

        async with nothing_changes(store, OTHER):
            assert await store.restore(OTHER, bundle) is False

    async def test_restored_session_goes_on(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.append(OWNER, "s-1", said("hello", key="k-1"), a_stamp())
        await store.restore(OTHER, await bundle_of(store, "s-1"))

        (again,) = await store.append(OTHER, "s-1", said("hello", key="k-1"), a_stamp(after(9)))
        (added,) = await store.append(OTHER, "s-1", said("more"), a_stamp(after(9)))

        assert (again.number, added.number) == (2, 3)
        with pytest.raises(KeyReused):
            await store.append(OTHER, "s-1", said("something else", key="k-1"), a_stamp())

    async def test_restored_approvals_are_listed_and_answered(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", asked(an_approval("s-1", expires_at=after(60))))
        await store.restore(OTHER, await bundle_of(store, "s-1"))

        assert [approval.approval_id for approval in await store.approvals(OTHER)] == ["approval-1"]
        assert len(await store.approvals(OTHER, ApprovalQuery(due_at=after(60)))) == 1
        await store.apply(OTHER, "s-1", answered("approve"), needs=Needs(approval="approval-1"))
        assert (await store.get(OTHER, "s-1")).pending_approvals == 0
        assert (await store.get(OWNER, "s-1")).pending_approvals == 1

    async def test_feed_tells_of_restored_entries(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.append(OWNER, "s-1", said("one", "two"), a_stamp(after(1)))
        bundle = await bundle_of(store, "s-1")
        await store.create(OTHER, a_session("s-0", owner=OTHER))
        await store.restore(OTHER, bundle)

        events = await whole_feed(store, OTHER)

        assert [(event.id, event.session_id, event.data["number"]) for event in events] == [
            (1, "s-0", 1),
            (2, "s-1", 1),
            (3, "s-1", 2),
            (4, "s-1", 3),
        ]
        assert await store.feed_end(OTHER) == 4

    async def test_restored_family_hangs_together(self, store: Store) -> None:
        for session_id, parent in (("p-1", None), ("c-1", "p-1"), ("g-1", "c-1")):
            await store.create(OWNER, a_session(session_id), parent=parent)
        for session_id in ("p-1", "c-1", "g-1"):
            await store.restore(OTHER, await bundle_of(store, session_id))

        assert [session.session_id for session in await store.tree(OTHER, "p-1", 10)] == ["p-1", "c-1", "g-1"]
        assert [session.session_id for session in await store.ancestors(OTHER, "g-1")] == ["c-1", "p-1"]
        deletion = await store.delete_tree(OTHER, "p-1", may_delete("p-1"), a_stamp())
        assert deletion.session_ids == ["g-1", "c-1", "p-1"]

    async def test_child_is_not_restored_without_its_parent(self, store: Store) -> None:
        await store.create(OWNER, a_session("p-1"))
        await store.create(OWNER, a_session("c-1"), parent="p-1")
        bundle = await bundle_of(store, "c-1")

        async with nothing_changes(store, OTHER):
            with pytest.raises(ParentNotFound):
                await store.restore(OTHER, bundle)

    async def test_missing_parent_is_told_before_a_name_in_use(self, store: Store) -> None:
        await store.create(OWNER, a_session("p-1"))
        await store.create(OWNER, a_session("c-1"), parent="p-1")
        bundle = await bundle_of(store, "c-1")
        await store.create(OTHER, a_session("s-1", "c-1", owner=OTHER))

        with pytest.raises(ParentNotFound):
            await store.restore(OTHER, bundle)

    async def test_deleted_session_is_not_restored(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        bundle = await bundle_of(store, "s-1")
        await store.delete_tree(OWNER, "s-1", may_delete("s-1"), a_stamp())

        async with nothing_changes(store):
            with pytest.raises(SessionGone):
                await store.restore(OWNER, bundle)

    async def test_open_session_is_not_restored_under_a_name_in_use(self, store: Store) -> None:
        bundle = await self._bundle(store, "s-1", "planner")
        await store.create(OTHER, a_session("s-2", "planner", owner=OTHER))

        async with nothing_changes(store, OTHER):
            with pytest.raises(NameTaken):
                await store.restore(OTHER, bundle)

    async def test_open_session_is_not_restored_under_anothers_id_as_its_name(self, store: Store) -> None:
        bundle = await self._bundle(store, "s-1", "s-2")
        await store.create(OTHER, a_session("s-2", owner=OTHER))

        async with nothing_changes(store, OTHER):
            with pytest.raises(NameTaken):
                await store.restore(OTHER, bundle)

    async def test_session_is_not_restored_under_an_open_name_as_its_id(self, store: Store) -> None:
        bundle = await self._bundle(store, "planner", None)
        await store.create(OTHER, a_session("s-2", "planner", owner=OTHER))

        async with nothing_changes(store, OTHER):
            with pytest.raises(IdTaken):
                await store.restore(OTHER, bundle)

    async def test_closed_session_is_restored_though_its_name_is_in_use(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", "planner"))
        await store.apply(OWNER, "s-1", finalized())
        bundle = await bundle_of(store, "s-1")
        await store.create(OTHER, a_session("s-2", "planner", owner=OTHER))

        assert await store.restore(OTHER, bundle)
        assert (await store.get(OTHER, "planner")).session_id == "s-2"

    async def test_fork_is_restored_whole_without_its_source(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.append(OWNER, "s-1", said("hello"), a_stamp())
        await store.fork(OWNER, "s-1", None, a_fork("f-1"))
        bundle = await bundle_of(store, "f-1")
        await store.restore(OTHER, bundle)

        assert await whole_log(store, "f-1", OTHER) == bundle.entries
        assert (await store.get(OTHER, "f-1")).forked_from == "s-1"

    async def test_client_key_that_came_twice_is_that_of_the_newer_entry(self, store: Store) -> None:
        """A fork may use a client key of its source again; after a restore, both entries are its own."""
        await store.create(OWNER, a_session("s-1"))
        await store.append(OWNER, "s-1", said("hello", key="k-1"), a_stamp())
        await store.fork(OWNER, "s-1", None, a_fork("f-1"))
        await store.append(OWNER, "f-1", said("again", key="k-1"), a_stamp())
        bundle = await bundle_of(store, "f-1")
        await store.restore(OTHER, bundle)

        assert await whole_log(store, "f-1", OTHER) == bundle.entries
        (repeated,) = await store.append(OTHER, "f-1", said("again", key="k-1"), a_stamp())
        assert repeated.number == 4
        with pytest.raises(KeyReused):
            await store.append(OTHER, "f-1", said("hello", key="k-1"), a_stamp())

    async def test_nothing_is_wrong_with_a_store_in_use(self, store: Store) -> None:
        await _rich_session(store)
        await store.fork(OWNER, "s-1", 2, a_fork("f-1"))
        await store.create(OWNER, a_session("c-1"), parent="s-1")
        await store.delete_tree(OWNER, "s-1", may_delete("s-1"), a_stamp())

        assert await store.check() == []

    async def _bundle(self, store: Store, session_id: str, name: str | None) -> Bundle:
        await store.create(OWNER, a_session(session_id, name))
        return await bundle_of(store, session_id)


async def _rich_session(store: Store) -> None:
    """Create a session with data of every kind."""
    await store.create(OWNER, a_session("s-1", "planner", metadata={"a": [1, 2.5, None]}, expires_at=after(10**6)))
    await store.append(OWNER, "s-1", said("hello", key="k-1") + said("rules", role="system"), a_stamp(after(1)))
    await write_context(store, OWNER, "s-1", remembering("k", {"v": 1}, ttl=timedelta(hours=1)))
    await store.apply(OWNER, "s-1", asked(an_approval("s-1", "a-1", after(2))))
    await store.apply(OWNER, "s-1", answered("approve", after(3)), needs=Needs(approval="a-1"))
    await store.apply(OWNER, "s-1", asked(an_approval("s-1", "a-2", after(4), expires_at=after(99))))
    await store.apply(OWNER, "s-1", lambda view: view.session.save_checkpoint({"step": 1}, a_stamp(after(5))))
    await store.apply(OWNER, "s-1", lambda view: view.session.compact("summed up", 3, a_stamp(after(6))))
    await store.apply(OWNER, "s-1", lambda view: view.session.resume("ann", "secret", a_stamp(after(7))))
