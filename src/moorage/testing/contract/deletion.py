"""Deleting trees: the deleted rows, the kept ones, and the records of deletions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moorage.core.approval import ApprovalQuery
from moorage.core.errors import (
    ApprovalNotFound,
    HasChildren,
    InvalidCursor,
    SessionClosed,
    SessionGone,
    SessionNotFound,
)
from moorage.core.family import Deletion, Member, Tombstone, TombstoneQuery
from moorage.core.query import SessionQuery
from moorage.ports import Store
from moorage.testing.builders import *
from moorage.testing.contract.families import family


class DeletionRules:
    """Rules of `delete_tree` and `tombstones`."""

    async def test_deletion_takes_the_tree_and_nothing_else(self, store: Store) -> None:
        await family(store)
        deletion = await store.delete_tree(OWNER, "a", may_delete("a"), a_stamp())

        assert [session.session_id for session in await all_sessions(store)] == ["r", "b", "b1", "c", "alone"]
        assert deletion.session_ids == ["x", "a2", "a1", "a"]
        for gone in deletion.session_ids:
            with pytest.raises(SessionGone):
                await store.get(OWNER, gone)

    async def test_deletion_goes_deepest_first_then_newest_first(self, store: Store) -> None:
        await family(store)
        deletion = await store.delete_tree(OWNER, "r", may_delete("r"), a_stamp())

        assert deletion.session_ids == ["x", "a2", "a1", "b1", "c", "b", "a", "r"]

    async def test_deletion_reports_what_it_deleted(self, store: Store) -> None:
        await store.create(OWNER, a_session("p-1", "mother"))
        await store.create(OWNER, a_session("c-1"), parent="p-1")
        await store.append(OWNER, "p-1", said("a", "b"), a_stamp())
        await store.append(OWNER, "c-1", said("c"), a_stamp())
        await store.append(OWNER, "c-1", said("rules", role="system"), a_stamp())
        await store.apply(OWNER, "c-1", lambda view: view.session.suspend(a_stamp(), checkpoint={"step": 1}))
        await store.apply(OWNER, "p-1", updated(error="oops"))

        deletion = await store.delete_tree(OWNER, "mother", may_delete("p-1"), a_stamp())

        assert deletion == Deletion(
            session_id="p-1",
            deleted_sessions=2,
            cascaded_children=1,
            messages=4,
            entries=9,
            checkpoints=1,
            session_ids=["c-1", "p-1"],
        )

    async def test_dry_run_lists_deletions_and_changes_nothing(self, store: Store) -> None:
        await family(store)
        await store.append(OWNER, "x", said("hello"), a_stamp())

        async with nothing_changes(store):
            would = await store.delete_tree(OWNER, "a", may_delete("a"), a_stamp(), dry_run=True)
        does = await store.delete_tree(OWNER, "a", may_delete("a"), a_stamp())

        assert would.dry_run
        assert not does.dry_run
        assert (would.session_ids, would.entries, would.messages) == (does.session_ids, does.entries, does.messages)

    async def test_decision_sees_every_member_with_its_depth(self, store: Store) -> None:
        await family(store)
        seen: list[Member] = []

        def decide(members: list[Member]) -> str:
            seen.extend(members)
            return "deleted"

        await store.delete_tree(OWNER, "a", decide, a_stamp(), dry_run=True)

        assert sorted(seen, key=lambda member: member.session_id) == [
            Member("a", 1),
            Member("a1", 2),
            Member("a2", 2),
            Member("x", 3),
        ]

    @pytest.mark.parametrize("dry_run", [False, True])
    async def test_refused_deletion_changes_nothing(self, store: Store, dry_run: bool) -> None:
        await family(store)

        async with nothing_changes(store):
            for decide, error in ((refusing, DecisionRefused), (may_delete("a", cascade=False), HasChildren)):
                with pytest.raises(error):
                    await store.delete_tree(OWNER, "a", decide, a_stamp(), dry_run=dry_run)

    async def test_unknown_session_cannot_be_deleted(self, store: Store) -> None:
        with pytest.raises(SessionNotFound):
            await store.delete_tree(OWNER, "nobody", refusing, a_stamp())

    async def test_deleted_session_cannot_be_deleted_again(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.delete_tree(OWNER, "s-1", may_delete("s-1"), a_stamp())

        async with nothing_changes(store):
            with pytest.raises(SessionGone):
                await store.delete_tree(OWNER, "s-1", may_delete("s-1"), a_stamp())

    async def test_one_of_many_wins_a_race_to_delete(self, store: Store) -> None:
        await family(store)
        tries = [store.delete_tree(OWNER, "r", may_delete("r", reason=str(n)), a_stamp()) for n in range(5)]
        outcomes = await asyncio.gather(*tries, return_exceptions=True)

        assert [type(outcome) for outcome in outcomes].count(SessionGone) == 4
        assert len(await all_tombstones(store)) == 8

    async def test_child_born_while_its_parent_is_deleted_is_never_orphaned(self, store: Store) -> None:
        await store.create(OWNER, a_session("p-1"))
        await asyncio.gather(
            *(store.create(OWNER, a_session(f"c-{n}"), parent="p-1") for n in range(5)),
            store.delete_tree(OWNER, "p-1", may_delete("p-1"), a_stamp()),
            *(store.create(OWNER, a_session(f"d-{n}"), parent="p-1") for n in range(5)),
            return_exceptions=True,
        )

        assert await all_sessions(store) == []

    async def test_approvals_go_with_their_session(self, store: Store) -> None:
        await store.create(OWNER, a_session("p-1"))
        await store.create(OWNER, a_session("c-1"), parent="p-1")
        await store.create(OWNER, a_session("s-1"))
        for ref in ("p-1", "c-1", "s-1"):
            await store.apply(OWNER, ref, asked(an_approval(ref, f"approval-{ref}", expires_at=after(1))))
        await store.delete_tree(OWNER, "p-1", may_delete("p-1"), a_stamp())

        for query in (ApprovalQuery(pending_only=False), ApprovalQuery(due_at=after(9))):
            assert [approval.session_id for approval in await store.approvals(OWNER, query)] == ["s-1"]
        with pytest.raises(ApprovalNotFound):
            await store.approval(OWNER, "approval-c-1")

    async def test_context_and_log_go_with_their_session(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write_context(store, OWNER, "s-1", merging({"a": 1}))
        await store.delete_tree(OWNER, "s-1", may_delete("s-1"), a_stamp())

        with pytest.raises(SessionGone):
            await context_of(store, OWNER, "s-1", NOON)
        with pytest.raises(SessionGone):
            await store.log(OWNER, "s-1")

    async def test_session_made_after_a_deletion_begins_with_nothing(self, store: Store) -> None:
        """An internal key that is used twice would give the deleted session's log to the new one."""
        await store.create(OWNER, a_session("s-1"))
        await store.append(OWNER, "s-1", said("old", key="k-1"), a_stamp())
        await write_context(store, OWNER, "s-1", merging({"a": 1}))
        await store.delete_tree(OWNER, "s-1", may_delete("s-1"), a_stamp())
        await store.create(OWNER, a_session("s-2"))
        (entry,) = await store.append(OWNER, "s-2", said("new", key="k-1"), a_stamp())

        assert entry.content == "new"
        assert len(await store.log(OWNER, "s-2")) == 2
        assert await context_of(store, OWNER, "s-2", NOON) == {}

    async def test_closed_parent_of_open_children_is_not_deleted_by_closing(self, store: Store) -> None:
        await family(store)
        await store.apply(OWNER, "a", finalized())

        with pytest.raises(SessionClosed):
            await store.create(OWNER, a_session("late"), parent="a")
        assert len(await store.tree(OWNER, "a", MANY)) == 4

    # Tombstones ---------------------------------------------------------------------------------

    async def test_tombstone_has_session_time_actor_and_reason(self, store: Store) -> None:
        await store.create(OWNER, a_session("p-1"))
        await store.create(OWNER, a_session("c-1", "child", task_id="task-7", agent_name="helper"), parent="p-1")
        await store.apply(OWNER, "c-1", finalized("failed"))
        await store.delete_tree(OWNER, "p-1", may_delete("p-1", reason="tidying up"), a_stamp(after(5), by="ann"))

        root, child = await all_tombstones(store)

        assert root.session_id == "p-1"
        assert child == Tombstone(
            session_id="c-1",
            session_name="child",
            agent_name="helper",
            task_id="task-7",
            state="failed",
            root_of_deletion="p-1",
            deleted_at=after(5),
            deleted_by="ann",
            reason="tidying up",
        )

    async def test_tombstones_come_newest_first_page_by_page(self, store: Store) -> None:
        for n in range(5):
            await store.create(OWNER, a_session(f"s-{n}"))
            await store.delete_tree(OWNER, f"s-{n}", may_delete(f"s-{n}"), a_stamp())

        first = await store.tombstones(OWNER, 2)
        await store.create(OWNER, a_session("s-5"))
        await store.delete_tree(OWNER, "s-5", may_delete("s-5"), a_stamp())
        second = await store.tombstones(OWNER, 2, first.next)
        third = await store.tombstones(OWNER, 2, second.next)

        pages = [[tombstone.session_id for tombstone in page.items] for page in (first, second, third)]
        assert pages == [["s-4", "s-3"], ["s-2", "s-1"], ["s-0"]]
        assert third.next is None

    async def test_last_page_of_tombstones_says_that_it_is_the_last(self, store: Store) -> None:
        await family(store)
        await store.delete_tree(OWNER, "a1", may_delete("a1"), a_stamp())

        assert (await store.tombstones(OWNER, 2)).next is None
        assert (await store.tombstones(OWNER, 1)).next is not None

    async def test_tombstones_by_reason_and_time(self, store: Store) -> None:
        for n in range(6):
            await store.create(OWNER, a_session(f"s-{n}"))
            why = "odd" if n % 2 else "even"
            await store.delete_tree(OWNER, f"s-{n}", may_delete(f"s-{n}", reason=why), a_stamp(after(n)))

        async def found(limit: int = 10, cursor: str | None = None, **wanted: Any) -> list[str]:
            page = await store.tombstones(OWNER, limit, cursor, TombstoneQuery(**wanted))
            rest = [] if page.next is None else await found(limit, page.next, **wanted)
            return [tombstone.session_id for tombstone in page] + rest

        for limit in (1, 2, 3, 10):
            assert await found(limit, reason="odd") == ["s-5", "s-3", "s-1"]
            assert await found(limit, since=after(3)) == ["s-5", "s-4", "s-3"]
            assert await found(limit, since=after(2), reason="even") == ["s-4", "s-2"]
        assert await found(reason="neither") == await found(since=after(6)) == []

    async def test_cursor_of_other_tombstones_is_refused(self, store: Store) -> None:
        for n in range(2):
            await store.create(OWNER, a_session(f"s-{n}"))
            await store.delete_tree(OWNER, f"s-{n}", may_delete(f"s-{n}"), a_stamp())
        cursor = (await store.tombstones(OWNER, 1)).next

        assert len(await store.tombstones(OWNER, 1, cursor)) == 1
        for other in (TombstoneQuery(reason="deleted"), TombstoneQuery(since=NOON)):
            with pytest.raises(InvalidCursor):
                await store.tombstones(OWNER, 1, cursor, other)

    async def test_cursor_of_something_else_is_refused(self, store: Store) -> None:
        await family(store)
        [page] = await store.find(OWNER, SessionQuery(limit=1))

        for cursor in (page.next, "", "zz", "1", "-", "00000000-1"):
            with pytest.raises(InvalidCursor):
                await store.tombstones(OWNER, 2, cursor)
