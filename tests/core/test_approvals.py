"""Approvals: one answer, kept; time running out is no answer."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from moorage.core.approval import APPROVAL_MOVES, Approval, ApprovalState, hash_of_plan
from moorage.core.entry import Kind
from moorage.core.errors import AlreadyDecided, ApprovalClosed, InvalidField
from moorage.core.session import BY_APPROVAL, BY_PERSON, Phase, Session, State, Update
from moorage.testing.builders import NOON, a_stamp, after, an_approval, said
from tests.core.heads import LATER, a_head

STAMP = a_stamp(LATER)
ENDED = {
    ApprovalState.APPROVED: an_approval("s-1").decided("approve", by="ann", at=NOON),
    ApprovalState.REJECTED: an_approval("s-1").decided("reject", by="ann", at=NOON),
    ApprovalState.ANSWERED: an_approval("s-1", options=("blue",)).decided("blue", by="ann", at=NOON),
    ApprovalState.EXPIRED: an_approval("s-1").expired(NOON),
    ApprovalState.WITHDRAWN: an_approval("s-1").withdrawn(NOON),
}


def test_every_way_to_end_is_reached_from_pending() -> None:
    assert {approval.state for approval in ENDED.values()} == APPROVAL_MOVES[ApprovalState.PENDING]
    assert all(approval.state is state for state, approval in ENDED.items())


@pytest.mark.parametrize("state", ENDED)
@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_an_ended_approval_takes_only_the_answer_it_has(state: ApprovalState, decision: str) -> None:
    approval = ENDED[state]
    if approval.decision == decision:
        assert approval.decided(decision, by="bob", at=LATER) is approval
    elif approval.decision is None:
        with pytest.raises(ApprovalClosed) as closed:
            approval.decided(decision, by="bob", at=LATER)
        assert closed.value.code == f"approval_{state.value}"
    else:
        with pytest.raises(AlreadyDecided) as refused:
            approval.decided(decision, by="bob", at=LATER)
        assert refused.value.facts["decided_by"] == "ann"


def test_an_answer_says_who_when_and_why() -> None:
    decided = an_approval("s-1").decided("reject", by="ann", at=LATER, note="too risky")
    assert (decided.decision, decided.decided_by, decided.decided_at, decided.note) == (
        "reject",
        "ann",
        LATER,
        "too risky",
    )


def test_an_answer_is_one_of_those_offered() -> None:
    approval = an_approval("s-1", options=("blue", "green"))
    with pytest.raises(InvalidField, match="approve, reject, withdraw, blue, green") as refused:
        approval.decided("red", by="ann", at=NOON)
    assert refused.value.code == "invalid_decision"
    assert approval.decided("green", by="ann", at=NOON).state is ApprovalState.ANSWERED
    assert approval.decided("approve", by="ann", at=NOON).state is ApprovalState.APPROVED


def test_withdrawing_is_no_answer_and_may_be_repeated() -> None:
    withdrawn = an_approval("s-1").decided("withdraw", by="ann", at=NOON, note="not needed")
    assert (withdrawn.state, withdrawn.decision, withdrawn.decided_by) == (ApprovalState.WITHDRAWN, None, "ann")
    assert withdrawn.decided("withdraw", by="bob", at=LATER) is withdrawn
    with pytest.raises(ApprovalClosed):
        withdrawn.decided("approve", by="bob", at=LATER)
    with pytest.raises(AlreadyDecided):
        an_approval("s-1").decided("approve", by="ann", at=NOON).decided("withdraw", by="bob", at=LATER)


def test_option_called_withdraw_is_an_answer() -> None:
    answered = an_approval("s-1", options=("withdraw",)).decided("withdraw", by="ann", at=NOON)
    assert (answered.state, answered.decision) == (ApprovalState.ANSWERED, "withdraw")
    assert answered.decided("withdraw", by="bob", at=LATER) is answered


def test_running_out_of_time_is_no_refusal() -> None:
    approval = an_approval("s-1", expires_at=LATER)
    assert not approval.is_due(LATER - timedelta(microseconds=1))
    assert approval.is_due(LATER)
    with pytest.raises(ApprovalClosed) as closed:
        approval.decided("approve", by="ann", at=LATER)
    assert closed.value.code == "approval_expired"
    assert (approval.expired(LATER).state, approval.expired(LATER).decision) == ("expired", None)


def test_an_approval_without_expiry_is_never_due() -> None:
    assert not an_approval("s-1").is_due(NOON + timedelta(days=36500))


def test_an_answer_to_another_plan_is_refused() -> None:
    approval = an_approval("s-1", plan={"steps": [1, 2]})
    with pytest.raises(InvalidField) as refused:
        approval.decided("approve", by="ann", at=NOON, plan_hash=hash_of_plan({"steps": [2, 1]}))
    assert refused.value.code == "invalid_plan_hash"
    assert approval.decided("approve", by="ann", at=NOON, plan_hash=hash_of_plan({"steps": [1, 2]})).state == "approved"


def test_equal_plans_have_equal_hashes_however_their_keys_are_ordered() -> None:
    assert hash_of_plan({"a": 1, "b": [{"c": 2, "d": 3}]}) == hash_of_plan({"b": [{"d": 3, "c": 2}], "a": 1})
    assert re.fullmatch("[0-9a-f]{64}", str(hash_of_plan("plan")))
    assert hash_of_plan(None) is None


@given(st.lists(st.integers()), st.lists(st.integers()))
def test_other_plans_have_other_hashes(one: list[int], other: list[int]) -> None:
    assert (hash_of_plan(one) == hash_of_plan(other)) is (one == other)


def test_same_question_has_the_same_words_options_and_plan() -> None:
    asked = an_approval("s-1", "a-1", plan=[1], options=("blue",))
    assert asked.is_same_question(an_approval("s-1", "a-2", plan=[1], options=("blue",), expires_at=LATER))
    others: list[dict[str, Any]] = [{"question": "Really?"}, {"options": ("red",)}, {"plan": [2]}, {"plan": None}]
    for other in others:
        assert not asked.is_same_question(an_approval("s-1", "a-2", **{"plan": [1], "options": ("blue",), **other}))


# In a session's life ----------------------------------------------------------------------------


def asking(head: Session, approval_id: str = "approval-1") -> tuple[Session, Approval]:
    approval = an_approval("s-1", approval_id)
    return head.ask(approval, STAMP).session, approval


def settling(head: Session, approval: Approval, decision: str = "approve") -> Session:
    return head.settle(approval.decided(decision, by="ann", at=LATER), STAMP).session


def test_approval_suspends_and_the_answer_restores_phase_and_wakes() -> None:
    working = a_head(State.ACTIVE, phase=Phase.EXECUTING)
    waiting, approval = asking(working)
    assert (waiting.state, waiting.phase, waiting.suspended_by) == (State.SUSPENDED, Phase.APPROVAL, BY_APPROVAL)
    assert (waiting.status, waiting.pending_approvals, waiting.resume_ready) == ("waiting", 1, True)

    woken = settling(waiting, approval, "reject")

    assert (woken.state, woken.phase, woken.suspended_by) == (State.ACTIVE, Phase.EXECUTING, None)
    assert (woken.pending_approvals, woken.phase_before, woken.status) == (0, None, "idle")


def test_the_last_of_several_answers_wakes() -> None:
    first_asked, first = asking(a_head(State.ACTIVE, phase=Phase.PLANNING))
    both_asked, second = asking(first_asked, "approval-2")
    one_left = settling(both_asked, second)
    assert (one_left.state, one_left.phase, one_left.pending_approvals) == (State.SUSPENDED, Phase.APPROVAL, 1)
    woken = settling(one_left, first)
    assert (woken.state, woken.phase, woken.pending_approvals) == (State.ACTIVE, Phase.PLANNING, 0)


def test_session_suspended_by_a_person_stays_suspended_after_the_answer() -> None:
    waiting, approval = asking(a_head(State.SUSPENDED))
    assert waiting.suspended_by == BY_PERSON
    assert settling(waiting, approval).state is State.SUSPENDED


def test_a_phase_chosen_meanwhile_is_not_overwritten_by_the_answer() -> None:
    waiting, approval = asking(a_head(State.ACTIVE, phase=Phase.PLANNING))
    moved = waiting.update(Update(phase=Phase.VALIDATING), STAMP).session
    assert settling(moved, approval).phase is Phase.VALIDATING


def test_message_does_not_cancel_a_pending_approval() -> None:
    waiting, _ = asking(a_head(State.ACTIVE))
    told = waiting.append(said("hurry up"), STAMP).session
    assert (told.pending_approvals, told.state, told.phase) == (1, State.SUSPENDED, Phase.APPROVAL)


@pytest.mark.parametrize(
    ("ended", "kind"),
    [
        ("approved", Kind.APPROVAL_DECIDED),
        ("rejected", Kind.APPROVAL_DECIDED),
        ("answered", Kind.APPROVAL_DECIDED),
        ("expired", Kind.APPROVAL_EXPIRED),
        ("withdrawn", Kind.APPROVAL_WITHDRAWN),
    ],
)
def test_the_log_tells_how_it_ended(ended: str, kind: Kind) -> None:
    waiting, _ = asking(a_head(State.ACTIVE))
    change = waiting.settle(ENDED[ApprovalState(ended)], STAMP)
    assert change.entries[0].kind == kind
    assert change.entries[0].data is not None
    assert change.entries[0].data["state"] == ended


def test_the_log_keeps_question_plan_and_hash() -> None:
    approval = replace(an_approval("s-1", options=("blue",)), expires_at=after(5))
    asked = a_head(State.ACTIVE).ask(approval, STAMP).entries[-1]
    assert asked.kind == Kind.APPROVAL_REQUESTED
    assert asked.data == {
        "approval_id": "approval-1",
        "question": "Apply the plan?",
        "plan": {"steps": [1, 2]},
        "plan_hash": hash_of_plan({"steps": [1, 2]}),
        "options": ["blue"],
        "expires_at": "2026-03-01T12:00:05Z",
    }
