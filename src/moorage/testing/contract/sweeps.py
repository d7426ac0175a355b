"""Sweeping: which sessions are checked, and that trees are deleted completely or not at all."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from moorage.core.family import Tombstone
from moorage.core.policy import Limit, Retention, why_removable
from moorage.core.session import Needs, Session
from moorage.ports import Store, SweepDecision, SweepPart
from moorage.testing.builders import *

LATER = NOON + timedelta(days=1)


def retention(before: datetime = LATER, at: datetime = LATER, states: frozenset[str] | None = None) -> SweepDecision:
    """Return a decision as the service uses it: a tree is deleted when every member may be."""

    def decide(members: list[Session]) -> str | None:
        reasons = [why_removable(member, Retention(limit=Limit(at - before), states=states), at) for member in members]
        return reasons[0] if None not in reasons else None

    return decide


async def sweep(
    store: Store,
    decide: SweepDecision | None = None,
    *,
    before: datetime = LATER,
    limit: int = 50,
    dry_run: bool = False,
) -> list[str]:
    """Sweep to the end; return the ids of the deleted sessions."""
    return [
        tombstone.session_id
        for tombstone in await _tombstones(store, decide or retention(before), before, limit, dry_run)
    ]


async def _tombstones(
    store: Store, decide: SweepDecision, before: datetime, limit: int, dry_run: bool
) -> list[Tombstone]:
    gone: list[Tombstone] = []
    position: int | None = 0
    while position is not None:
        step = await store.sweep(
            OWNER,
            decide,
            a_stamp(LATER, "sweeper"),
            SweepPart(before=before, position=position, limit=limit),
            dry_run=dry_run,
        )
        gone += step.gone
        assert step.next is None or step.next > position, "a sweep must come to its end"
        position = step.next
    return gone


class SweepRules:
    """Rules of `sweep`."""

    async def test_sweep_looks_at_sessions_idle_since_the_limit_in_order_of_creation(self, store: Store) -> None:
        for session_id, seconds in (("s-3", 0), ("s-1", 10), ("s-2", 9), ("s-4", 11)):
            await store.create(OWNER, a_session(session_id, at=after(seconds)))
        seen: list[str] = []

        assert await sweep(store, _noting(seen), before=after(10)) == []
        assert seen == ["s-3", "s-2"]

    async def test_sweep_judges_by_activity_not_by_creation_or_metadata(self, store: Store) -> None:
        for session_id in ("talks", "rests"):
            await store.create(OWNER, a_session(session_id))
        await store.append(OWNER, "talks", said("hello"), a_stamp(after(20)))
        await store.apply(OWNER, "rests", updated(after(20), metadata={"a": 1}))

        assert await sweep(store, before=after(10)) == ["rests"]

    async def test_sweep_looks_at_sessions_past_their_time_to_live(self, store: Store) -> None:
        tick = timedelta(microseconds=1)
        for session_id, expires_at in (
            ("ended", LATER),
            ("lives", LATER + tick),
            ("ended-too", NOON),
            ("for-ever", None),
        ):
            await store.create(OWNER, a_session(session_id, expires_at=expires_at))
        seen: list[str] = []

        await sweep(store, _noting(seen), before=NOON)

        assert seen == ["ended", "ended-too"]

    async def test_swept_sessions_leave_tombstones_with_the_reason(self, store: Store) -> None:
        await store.create(OWNER, a_session("idle"))
        await store.create(OWNER, a_session("ended", at=LATER, expires_at=LATER))
        await _tombstones(store, retention(), LATER, 50, False)

        assert await all_sessions(store) == []
        assert [
            (tombstone.session_id, tombstone.reason, tombstone.root_of_deletion)
            for tombstone in await all_tombstones(store)
        ] == [
            ("ended", "expired", "ended"),
            ("idle", "retention", "idle"),
        ]
        assert {(tombstone.deleted_at, tombstone.deleted_by) for tombstone in await all_tombstones(store)} == {
            (LATER, "sweeper")
        }

    async def test_sweep_answers_with_the_tombstones_it_leaves(self, store: Store) -> None:
        await _tree(store)
        gone = await _tombstones(store, retention(), LATER, 50, False)

        assert gone == (await all_tombstones(store))[::-1]

    async def test_tree_goes_whole_leaves_first(self, store: Store) -> None:
        await _tree(store)

        assert await sweep(store) == ["g-1", "c-2", "c-1", "p-1"]
        assert await all_sessions(store) == []

    async def test_retained_member_keeps_its_ancestors(self, store: Store) -> None:
        await _tree(store)
        await store.append(OWNER, "c-2", said("still here"), a_stamp(LATER))

        assert await sweep(store) == ["g-1", "c-1"]
        assert [session.session_id for session in await all_sessions(store)] == ["p-1", "c-2"]

    async def test_idle_child_goes_though_its_parent_lives(self, store: Store) -> None:
        await _tree(store)
        await store.append(OWNER, "p-1", said("still here"), a_stamp(LATER))

        assert await sweep(store) == ["g-1", "c-1", "c-2"]

    async def test_live_child_of_an_idle_parent_is_judged_too(self, store: Store) -> None:
        seen: list[str] = []
        await store.create(OWNER, a_session("p-1"))
        await store.create(OWNER, a_session("c-1", at=LATER), parent="p-1")

        assert await sweep(store, _noting(seen)) == []
        assert seen == ["p-1 c-1"]

    async def test_decision_sees_the_tree_parents_first(self, store: Store) -> None:
        await _tree(store)
        seen: list[str] = []

        await sweep(store, _noting(seen))

        assert seen == ["p-1 c-1 c-2 g-1", "c-1 g-1", "c-2", "g-1"]

    async def test_member_of_a_tree_that_went_is_not_looked_at_again(self, store: Store) -> None:
        await _tree(store)
        seen: list[str] = []

        await sweep(store, _noting(seen, "enough"))

        assert seen == ["p-1 c-1 c-2 g-1"]

    async def test_sessions_in_use_stay(self, store: Store) -> None:
        for session_id in ("asks", "held", "idle"):
            await store.create(OWNER, a_session(session_id))
        await store.apply(OWNER, "asks", asked(an_approval("asks")))
        await store.apply(OWNER, "held", lambda view: view.session.resume("ann", "secret", a_stamp(LATER)))

        assert await sweep(store, before=LATER + timedelta(1)) == ["idle"]

    async def test_sweep_by_states(self, store: Store) -> None:
        for session_id in ("done", "open"):
            await store.create(OWNER, a_session(session_id))
        await store.apply(OWNER, "done", finalized())

        assert await sweep(store, retention(states=frozenset({"completed"}))) == ["done"]

    async def test_dry_run_tells_the_same_and_changes_nothing(self, store: Store) -> None:
        await _tree(store)
        await store.create(OWNER, a_session("s-1"))
        await store.append(OWNER, "c-2", said("still here"), a_stamp(LATER))

        async with nothing_changes(store):
            would = await sweep(store, dry_run=True)

        assert would == await sweep(store) == ["g-1", "c-1", "s-1"]

    async def test_dry_run_tells_of_a_tree_once(self, store: Store) -> None:
        await _tree(store)

        assert await sweep(store, dry_run=True) == ["g-1", "c-2", "c-1", "p-1"]

    @pytest.mark.parametrize("limit", [1, 2, 3, 5, 6])
    async def test_sweep_in_small_steps_takes_the_same(self, store: Store, limit: int) -> None:
        await _tree(store)
        await store.append(OWNER, "c-2", said("still here"), a_stamp(LATER))
        for n in range(5):
            await store.create(OWNER, a_session(f"s-{n}"))

        assert await sweep(store, limit=limit) == ["g-1", "c-1", *(f"s-{n}" for n in range(5))]

    async def test_step_looks_at_no_more_than_its_limit(self, store: Store) -> None:
        for n in range(5):
            await store.create(OWNER, a_session(f"s-{n}"))
        seen: list[str] = []

        first = await store.sweep(OWNER, _noting(seen), a_stamp(LATER), SweepPart(before=LATER, limit=2))
        assert seen == ["s-0", "s-1"]
        assert first.next is not None
        second = await store.sweep(
            OWNER, _noting(seen), a_stamp(LATER), SweepPart(before=LATER, limit=2, position=first.next)
        )
        assert seen == ["s-0", "s-1", "s-2", "s-3"]
        assert second.next is not None
        third = await store.sweep(
            OWNER, _noting(seen), a_stamp(LATER), SweepPart(before=LATER, limit=2, position=second.next)
        )
        assert seen == ["s-0", "s-1", "s-2", "s-3", "s-4"]
        assert third.next is None

    async def test_sweep_of_nothing_ends_at_once(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        step = await store.sweep(OWNER, retention(), a_stamp(LATER), SweepPart(before=NOON))

        assert (step.gone, step.next) == ([], None)

    @pytest.mark.parametrize("limit", [1, 50])
    async def test_sweep_without_an_age_deletes_only_expired_sessions(self, store: Store, limit: int) -> None:
        await store.create(OWNER, a_session("idle"))
        await store.create(OWNER, a_session("past", expires_at=NOON + timedelta(minutes=1)))
        await store.create(OWNER, a_session("later", expires_at=LATER + timedelta(days=1)))
        seen: list[str] = []
        position: int | None = 0

        while position is not None:
            step = await store.sweep(
                OWNER, _noting(seen), a_stamp(LATER), SweepPart(before=None, position=position, limit=limit)
            )
            position = step.next

        assert seen == ["past"]

    async def test_next_expiry_is_the_earliest_ttl_or_approval(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        assert await store.next_expiry(OWNER) is None
        await store.create(OWNER, a_session("s-2", expires_at=NOON + timedelta(hours=2)))
        assert await store.next_expiry(OWNER) == NOON + timedelta(hours=2)
        await store.apply(OWNER, "s-1", asked(an_approval("s-1", "a-1", expires_at=NOON + timedelta(hours=1))))
        assert await store.next_expiry(OWNER) == NOON + timedelta(hours=1)
        await store.apply(OWNER, "s-1", answered("approve"), needs=Needs(approval="a-1"))
        assert await store.next_expiry(OWNER) == NOON + timedelta(hours=2)
        assert await store.next_expiry(OTHER) is None

    async def test_decision_that_raises_in_a_sweep_changes_nothing(self, store: Store) -> None:
        for n in range(3):
            await store.create(OWNER, a_session(f"s-{n}"))

        def decide(members: list[Session]) -> str:
            if members[0].session_id == "s-2":
                raise DecisionRefused
            return "enough"

        async with nothing_changes(store):
            with pytest.raises(DecisionRefused):
                await store.sweep(OWNER, decide, a_stamp(LATER), SweepPart(before=LATER))

    async def test_deleted_sessions_are_not_swept(self, store: Store) -> None:
        await _tree(store)
        await store.delete_tree(OWNER, "c-1", may_delete("c-1"), a_stamp())

        assert await sweep(store) == ["c-2", "p-1"]


def _noting(seen: list[str], reason: str | None = None) -> SweepDecision:
    """Return a decision that notes each tree it gets."""

    def decide(members: list[Session]) -> str | None:
        seen.append(" ".join(member.session_id for member in members))
        return reason

    return decide


async def _tree(store: Store) -> None:
    for session_id, parent in (("p-1", None), ("c-1", "p-1"), ("c-2", "p-1"), ("g-1", "c-1")):
        await store.create(OWNER, a_session(session_id), parent=parent)
