"""Approvals: asked once, answered once, listed until then."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from moorage.core.approval import ApprovalQuery, ApprovalState
from moorage.core.entry import Kind
from moorage.core.errors import AlreadyDecided, ApprovalClosed, ApprovalNotFound
from moorage.core.query import LogQuery
from moorage.core.session import Change, Needs, Phase, State, View
from moorage.ports import Store
from moorage.testing.builders import *
from moorage.testing.texts import DEEP, TEXTS

TICK = timedelta(microseconds=1)


class ApprovalRules:
    """Rules of `approval` and `approvals`, and of `apply` where it concerns them."""

    async def test_asked_approval_reads_back_whole(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        approval = an_approval(
            "s-1",
            plan={"deep": DEEP},
            options=("now", "tonight"),
            asked_by="agent",
            expires_at=after(3600) + TICK,
        )
        await store.apply(OWNER, "s-1", asked(approval))

        assert await store.approval(OWNER, "approval-1") == approval
        assert await store.approvals(OWNER) == [approval]
        assert await store.approvals(OWNER, ApprovalQuery(session_id="s-1")) == [approval]

    @pytest.mark.parametrize("text", TEXTS)
    async def test_any_text_asked_comes_back_the_same(self, store: Store, text: str) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", asked(an_approval("s-1", question=text, plan=text, options=(text,))))

        approval = await store.approval(OWNER, "approval-1")

        assert (approval.question, approval.plan, approval.options) == (text, text, (text,))

    async def test_asking_changes_the_session_in_the_same_commit(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", updated(phase=Phase.PLANNING))
        await store.apply(OWNER, "s-1", asked(an_approval("s-1")))

        session = await store.get(OWNER, "s-1")

        assert (session.state, session.phase, session.status) == (State.SUSPENDED, Phase.APPROVAL, "waiting")
        assert (session.pending_approvals, session.phase_before) == (1, Phase.PLANNING)
        assert [entry.kind for entry in await store.log(OWNER, "s-1", LogQuery(after=2))] == [
            Kind.PHASE,
            Kind.APPROVAL_REQUESTED,
        ]

    async def test_answer_settles_approval_and_session_in_the_same_commit(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", asked(an_approval("s-1")))
        await store.apply(OWNER, "s-1", answered("approve", after(5)), needs=Needs(approval="approval-1"))

        approval, session = await store.approval(OWNER, "approval-1"), await store.get(OWNER, "s-1")

        assert (approval.state, approval.decision) == (ApprovalState.APPROVED, "approve")
        assert (approval.decided_by, approval.decided_at) == ("tester", after(5))
        assert (session.state, session.phase, session.pending_approvals) == (State.ACTIVE, Phase.INITIALIZING, 0)
        assert await store.approvals(OWNER) == []
        assert await store.approvals(OWNER, ApprovalQuery(pending_only=False)) == [approval]

    async def test_unknown_approval_is_not_found(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))

        with pytest.raises(ApprovalNotFound):
            await store.approval(OWNER, "approval-1")
        with pytest.raises(ApprovalNotFound):
            await store.apply(OWNER, "s-1", refusing, needs=Needs(approval="approval-1"))

    async def test_approval_of_another_session_is_not_found_there(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.create(OWNER, a_session("s-2"))
        await store.apply(OWNER, "s-1", asked(an_approval("s-1")))

        async with nothing_changes(store):
            with pytest.raises(ApprovalNotFound):
                await store.apply(OWNER, "s-2", refusing, needs=Needs(approval="approval-1"))

    async def test_decision_sees_pending_approvals_and_the_named_one(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.create(OWNER, a_session("s-2"))
        for name in ("a-1", "a-2", "a-3"):
            await store.apply(OWNER, "s-1", asked(an_approval("s-1", name)))
        await store.apply(OWNER, "s-2", asked(an_approval("s-2", "b-1")))
        await store.apply(OWNER, "s-1", answered("reject"), needs=Needs(approval="a-2"))
        seen: list[View] = []

        def look(view: View) -> Change:
            seen.append(view)
            return Change(session=view.session)

        await store.apply(OWNER, "s-1", look, needs=Needs(approval="a-2"))

        assert [approval.approval_id for approval in seen[0].pending] == ["a-1", "a-3"]
        assert seen[0].approval == await store.approval(OWNER, "a-2")

    async def test_same_answer_again_changes_nothing_and_another_is_refused(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", asked(an_approval("s-1")))
        await store.apply(OWNER, "s-1", answered("approve"), needs=Needs(approval="approval-1"))

        async with nothing_changes(store):
            await store.apply(OWNER, "s-1", answered("approve", after(9)), needs=Needs(approval="approval-1"))
            with pytest.raises(AlreadyDecided):
                await store.apply(OWNER, "s-1", answered("reject"), needs=Needs(approval="approval-1"))

    async def test_one_of_many_wins_a_race_to_answer(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        options = tuple(f"option-{n}" for n in range(8))
        await store.apply(OWNER, "s-1", asked(an_approval("s-1", options=options)))
        tries = [store.apply(OWNER, "s-1", answered(option), needs=Needs(approval="approval-1")) for option in options]
        outcomes = await asyncio.gather(*tries, return_exceptions=True)

        assert [type(outcome) for outcome in outcomes].count(AlreadyDecided) == 7
        assert (await store.get(OWNER, "s-1")).pending_approvals == 0

    async def test_approvals_are_listed_oldest_first_up_to_a_limit(self, store: Store) -> None:
        for ref in ("s-1", "s-2"):
            await store.create(OWNER, a_session(ref))
        for n, ref in enumerate(("s-2", "s-1", "s-2")):
            await store.apply(OWNER, ref, asked(an_approval(ref, f"a-{n}", after(n))))
        await store.apply(OWNER, "s-1", answered("approve", after(9)), needs=Needs(approval="a-1"))

        async def listed(**options: Any) -> list[str]:
            found = await store.approvals(OWNER, ApprovalQuery(**options))
            return [approval.approval_id for approval in found]

        assert await listed() == ["a-0", "a-2"]
        assert await listed(pending_only=False) == ["a-0", "a-1", "a-2"]
        assert await listed(pending_only=False, limit=2) == ["a-0", "a-1"]
        assert await listed(limit=1) == ["a-0"]
        assert await listed(session_id="s-1") == []
        assert await listed(session_id="s-1", pending_only=False) == ["a-1"]
        assert await listed(session_id="s-2") == ["a-0", "a-2"]

    async def test_unknown_session_has_no_approvals(self, store: Store) -> None:
        for session_id in ("nobody", "né", ""):
            assert await store.approvals(OWNER, ApprovalQuery(session_id=session_id)) == []

    async def test_approval_is_due_at_its_very_end(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        for name, expires_at in (("a-1", after(10)), ("a-2", after(10) + TICK), ("a-3", None), ("a-4", after(5))):
            await store.apply(OWNER, "s-1", asked(an_approval("s-1", name, expires_at=expires_at)))

        async def due(at: float) -> set[str]:
            return {approval.approval_id for approval in await store.approvals(OWNER, ApprovalQuery(due_at=after(at)))}

        assert (await due(4), await due(5), await due(10), await due(11)) == (
            set(),
            {"a-4"},
            {"a-1", "a-4"},
            {"a-1", "a-2", "a-4"},
        )
        assert len(await store.approvals(OWNER, ApprovalQuery(due_at=after(11), limit=2))) == 2

    async def test_settled_approval_is_not_due(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        for name in ("a-1", "a-2"):
            await store.apply(OWNER, "s-1", asked(an_approval("s-1", name, expires_at=after(10))))
        await store.apply(OWNER, "s-1", answered("approve", after(9)), needs=Needs(approval="a-1"))
        await store.apply(OWNER, "s-1", run_out(after(10)), needs=Needs(approval="a-2"))

        assert await store.approvals(OWNER, ApprovalQuery(due_at=after(11))) == []
        assert (await store.approval(OWNER, "a-2")).state is ApprovalState.EXPIRED
        with pytest.raises(ApprovalClosed):
            await store.apply(OWNER, "s-1", answered("approve", after(11)), needs=Needs(approval="a-2"))

    async def test_closing_withdraws_pending_approvals(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        for name in ("a-1", "a-2"):
            await store.apply(OWNER, "s-1", asked(an_approval("s-1", name)))
        await store.apply(OWNER, "s-1", answered("approve"), needs=Needs(approval="a-1"))
        await store.apply(OWNER, "s-1", finalized("abandoned"))

        states = [approval.state for approval in await store.approvals(OWNER, ApprovalQuery(pending_only=False))]
        assert states == [ApprovalState.APPROVED, ApprovalState.WITHDRAWN]
        assert await store.approvals(OWNER) == []
