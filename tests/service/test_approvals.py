"""Asking a person: one answer, in time, for the plan that was shown."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from moorage.core.approval import hash_of_plan
from moorage.core.errors import (
    AlreadyDecided,
    ApprovalClosed,
    ApprovalNotFound,
    InvalidField,
    MoorageError,
    SessionClosed,
)
from tests.service.doors import Place, Timed

PLAN = {"steps": ["create", "apply"]}


def test_asking_waits_in_phase_approval_and_the_answer_wakes(timed: Timed) -> None:
    moor = timed.moor
    session = moor.create("planner")
    moor.update(session.id, phase="executing")
    approval = moor.request_approval(session.id, "Apply?", plan=PLAN, options=["later"], expires_in=3600)
    waiting = moor.get(session.id)
    assert (waiting.state, waiting.status, waiting.phase) == ("suspended", "waiting", "approval")
    assert (waiting.pending_approvals, waiting.resume_ready) == (1, True)
    assert moor.approvals() == moor.approvals(session.id) == [approval]

    decided = timed.connect(by="bob").approve(approval.approval_id, note="go ahead")

    assert (decided.state, decided.decision, decided.decided_by, decided.note) == (
        "approved",
        "approve",
        "bob",
        "go ahead",
    )
    woken = moor.get(session.id)
    assert (woken.state, woken.phase, woken.pending_approvals) == ("active", "executing", 0)
    assert moor.approvals() == []
    assert moor.approvals(session.id, pending_only=False) == [decided]
    assert [entry.kind for entry in moor.log(session.id).items[2:]] == [
        "phase",
        "approval_requested",
        "approval_decided",
        "phase",
    ]


@pytest.mark.parametrize(
    ("decision", "state"),
    [("approve", "approved"), ("reject", "rejected"), ("blue", "answered"), ("green", "answered")],
)
def test_an_answer_is_single_use_idempotent_and_refused_for_another(place: Place, decision: str, state: str) -> None:
    moor = place.connect()
    session = moor.create("planner")
    asked = moor.request_approval(session.id, "Which?", options=["blue", "green"])
    decided = moor.decide(asked.approval_id, decision)
    assert decided.state == state
    version = moor.get(session.id).version
    assert moor.decide(asked.approval_id, decision) == decided
    assert moor.get(session.id).version == version
    for other in {"approve", "reject", "blue", "green"} - {decision}:
        with pytest.raises(AlreadyDecided) as refused:
            moor.decide(asked.approval_id, other)
        assert refused.value.facts["decision"] == decision
    assert moor.approval(asked.approval_id) == decided


def test_answer_outside_the_options_is_refused(place: Place) -> None:
    moor = place.connect()
    asked = moor.request_approval(moor.create("planner").id, "Which?", options=["blue"])
    with pytest.raises(InvalidField, match="approve, reject, withdraw, blue"):
        moor.decide(asked.approval_id, "red")
    assert moor.approval(asked.approval_id) == asked


@pytest.mark.parametrize("options", [["blue", "blue"], "blue", 5, [5], ["x"] * 1000])
def test_options_that_a_person_could_not_choose_from_are_refused(place: Place, options: Any) -> None:
    moor = place.connect()
    session = moor.create("planner")
    with pytest.raises(InvalidField, match="options"):
        moor.request_approval(session.id, "Which?", options=options)
    assert moor.get(session.id).last_entry == session.last_entry


# Time -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("look", ["list", "get", "decide"])
def test_running_out_of_time_is_expired_and_not_a_refusal(timed: Timed, look: str) -> None:
    moor = timed.moor
    session = moor.create("planner")
    moor.update(session.id, phase="planning")
    asked = moor.request_approval(session.id, "Apply?", expires_in=60)
    timed.forward(seconds=59)
    assert moor.approvals() == [asked]
    timed.forward(seconds=1)
    if look == "list":
        assert moor.approvals() == []
    elif look == "get":
        assert moor.approval(asked.approval_id).state == "expired"
    else:
        for decision in ("approve", "reject"):
            with pytest.raises(ApprovalClosed) as closed:
                moor.decide(asked.approval_id, decision)
            assert closed.value.code == "approval_expired"
    expired = moor.approval(asked.approval_id)
    assert (expired.state, expired.decision, expired.decided_by) == ("expired", None, None)
    woken = moor.get(session.id)
    assert (woken.state, woken.phase, woken.pending_approvals) == ("active", "planning", 0)
    assert [entry.kind for entry in moor.log(session.id).items][-2:] == ["approval_expired", "phase"]
    assert "approval_decided" not in [entry.kind for entry in moor.log(session.id)]


@pytest.mark.parametrize("expires_in", [0, -1, True, "1h", float("nan")])
def test_an_expiry_is_more_than_nothing(place: Place, expires_in: Any) -> None:
    moor = place.connect()
    session = moor.create("planner")
    with pytest.raises(InvalidField):
        moor.request_approval(session.id, "Apply?", expires_in=expires_in)
    assert moor.get(session.id) == session


# Safety -----------------------------------------------------------------------------------------


def test_a_queued_message_does_not_cancel_the_question(place: Place) -> None:
    moor = place.connect()
    session = moor.create("planner")
    asked = moor.request_approval(session.id, "Apply?")
    moor.append(session.id, "what is taking so long?")
    moor.send(session.id, "hello?")
    waiting = moor.get(session.id)
    assert (waiting.state, waiting.status, waiting.pending_approvals) == ("suspended", "waiting", 1)
    assert moor.approvals() == [asked]
    assert moor.approve(asked.approval_id).state == "approved"


def test_an_old_answer_does_not_count_for_a_new_question(place: Place) -> None:
    moor = place.connect()
    session = moor.create("planner")
    first = moor.request_approval(session.id, "Apply?")
    moor.reject(first.approval_id)
    second = moor.request_approval(session.id, "Apply?")
    assert second.approval_id != first.approval_id
    with pytest.raises(AlreadyDecided):
        moor.approve(first.approval_id)
    assert moor.reject(first.approval_id).state == "rejected"
    assert moor.approvals() == [second]
    assert moor.get(session.id).status == "waiting"


def test_approval_of_one_plan_is_not_used_for_another(place: Place) -> None:
    moor = place.connect()
    session = moor.create("planner")
    asked = moor.request_approval(session.id, "Apply?", plan=PLAN)
    assert asked.plan_hash == hash_of_plan(PLAN)
    with pytest.raises(InvalidField) as refused:
        moor.decide(asked.approval_id, "approve", plan_hash=hash_of_plan({"steps": ["destroy"]}))
    assert refused.value.code == "invalid_plan_hash"
    assert moor.approvals() == [asked]
    assert moor.decide(asked.approval_id, "approve", plan_hash=asked.plan_hash).state == "approved"


def test_several_questions_are_answered_each_for_itself(place: Place) -> None:
    moor = place.connect()
    session = moor.create("planner")
    moor.update(session.id, phase="planning")
    one, two = moor.request_approval(session.id, "One?"), moor.request_approval(session.id, "Two?")
    moor.approve(two.approval_id)
    assert (moor.get(session.id).status, moor.approvals()) == ("waiting", [one])
    moor.reject(one.approval_id)
    assert (moor.get(session.id).state, moor.get(session.id).phase) == ("active", "planning")


def test_closing_the_session_withdraws_its_approvals(place: Place) -> None:
    moor = place.connect()
    session = moor.create("planner")
    asked = moor.request_approval(session.id, "Apply?")
    moor.finalize(session.id, "abandoned")
    assert moor.approval(asked.approval_id).state == "withdrawn"
    with pytest.raises(ApprovalClosed) as closed:
        moor.approve(asked.approval_id)
    assert closed.value.code == "approval_withdrawn"
    with pytest.raises(SessionClosed):
        moor.request_approval(session.id, "Again?")


def test_deleting_the_session_takes_its_questions_with_it(place: Place) -> None:
    moor = place.connect()
    session = moor.create("planner")
    asked = moor.request_approval(session.id, "Apply?")
    moor.delete(session.id)
    assert moor.approvals() == []
    with pytest.raises(ApprovalNotFound):
        moor.approve(asked.approval_id)


def test_another_owner_neither_sees_nor_answers(place: Place) -> None:
    ann, bob = place.connect(owner="ann"), place.connect(owner="bob")
    asked = ann.request_approval(ann.create("planner").id, "Apply?")
    assert bob.approvals() == []
    for call in (bob.approval, bob.approve, bob.reject):
        with pytest.raises(ApprovalNotFound):
            call(asked.approval_id)
    assert ann.approvals() == [asked]


@pytest.mark.parametrize(
    "wrong",
    [
        {"question": 7},
        {"question": ""},
        {"question": " \n"},
        {"question": "x" * 100_000},
        {"question": "Apply?", "plan": float("nan")},
        {"question": "Apply?", "plan": "x" * 2_000_000},
        {"question": "Apply?", "options": ["a"] * 21},
        {"question": "Apply?", "options": [""]},
        {"question": "\ud800"},
    ],
)
def test_a_wrong_question_is_refused_and_asks_nothing(place: Place, wrong: dict[str, Any]) -> None:
    moor = place.connect()
    session = moor.create("planner")
    with pytest.raises(MoorageError):
        moor.request_approval(session.id, **wrong)
    assert moor.get(session.id) == session


def test_of_two_people_who_answer_at_once_one_is_told(place: Place) -> None:
    doors = [place.connect(by=f"p-{number}") for number in range(6)]
    session = doors[0].create("planner")
    asked = doors[0].request_approval(session.id, "Apply?")
    start = threading.Barrier(len(doors))
    answers: list[str] = []

    def answer(number: int) -> None:
        start.wait(30)
        try:
            answers.append(
                doors[number].decide(asked.approval_id, "approve" if number % 2 else "reject").decision or ""
            )
        except AlreadyDecided as error:
            answers.append(f"not: {error.decision}")

    threads = [threading.Thread(target=answer, args=(number,)) for number in range(len(doors))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    (kept,) = {word.removeprefix("not: ") for word in answers}
    assert (answers.count(kept), answers.count(f"not: {kept}")) == (3, 3)
    assert len(doors[0].log(session.id, kinds=["approval_decided"])) == 1
