"""May this work be picked up: every criterion, in its order."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from moorage.core.errors import SessionCorrupt, SessionNotFound
from moorage.core.policy import (
    Criterion,
    ResumePolicy,
    verdict_on,
    verdict_without,
)
from moorage.core.session import FINAL_STATES, RESUMABLE_PHASES, WORKING_PHASES, Hold, Phase, Session, State
from moorage.testing.builders import NOON
from tests.core.heads import a_head

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
POLICY = ResumePolicy()


def a_resumable_head(**fields: object) -> Session:
    return replace(a_head(State.ACTIVE), **{"phase": Phase.PLANNING, "resume_ready": True, **fields})


# Each fails on its own, in the order in which they are looked at.
FAILURES = (
    ("session_closed", "open", {"state": State.COMPLETED}),
    ("phase_not_resumable", "phase", {"phase": Phase.EXECUTING}),
    ("not_resume_ready", "resume_ready", {"resume_ready": False}),
    ("idle_too_long", "idle_seconds", {"last_activity_at": NOON - 30 * MINUTE}),
    ("too_many_errors", "error_count", {"error_count": 3}),
    ("held_by_another", "held_by", {"hold": Hold("bob", NOON + MINUTE, "secret")}),
)


def test_session_that_passes_every_criterion_is_resumable() -> None:
    verdict = verdict_on(a_resumable_head(), POLICY, NOON + MINUTE, "ann")
    assert (verdict.decision, bool(verdict), verdict.reason) == (True, True, "session_resumable")
    assert verdict.session_id == "s-1"
    assert verdict.criteria == {
        "exists": Criterion(True, True),
        "whole": Criterion(True, True),
        "open": Criterion("active", True),
        "phase": Criterion("planning", True),
        "resume_ready": Criterion(True, True),
        "idle_seconds": Criterion(60.0, True, 1800.0),
        "error_count": Criterion(0, True, 3),
        "held_by": Criterion(None, True),
    }


@pytest.mark.parametrize(("reason", "criterion", "fields"), FAILURES)
def test_one_failed_criterion_is_the_reason_and_the_only_one_not_ok(
    reason: str, criterion: str, fields: dict[str, object]
) -> None:
    verdict = verdict_on(a_resumable_head(**fields), POLICY, NOON, "ann")
    assert (verdict.decision, verdict.reason) == (False, reason)
    assert [name for name, looked_at in verdict.criteria.items() if not looked_at.ok] == [criterion]


@pytest.mark.parametrize("first", range(len(FAILURES)))
def test_the_first_of_several_failures_is_the_reason(first: int) -> None:
    fields: dict[str, object] = {}
    for _, _, failing in FAILURES[first:]:
        fields |= failing
    verdict = verdict_on(a_resumable_head(**fields), POLICY, NOON, "ann")
    assert verdict.reason == FAILURES[first][0]
    assert {name for name, looked_at in verdict.criteria.items() if not looked_at.ok} == {
        criterion for _, criterion, _ in FAILURES[first:]
    }


@pytest.mark.parametrize("phase", WORKING_PHASES)
def test_only_approval_investigating_and_planning_are_picked_up(phase: Phase) -> None:
    verdict = verdict_on(a_resumable_head(phase=phase), POLICY, NOON, "ann")
    assert verdict.decision is (phase in RESUMABLE_PHASES)
    assert {name.value for name in RESUMABLE_PHASES} == {"approval", "investigating", "planning"}


@pytest.mark.parametrize("state", sorted(FINAL_STATES))
def test_a_final_session_is_closed_whatever_else(state: State) -> None:
    assert verdict_on(a_head(state), POLICY, NOON, "ann").reason == "session_closed"


def test_thirty_minutes_idle_is_too_long_but_not_a_moment_less() -> None:
    head = a_resumable_head()
    assert verdict_on(head, POLICY, NOON + 30 * MINUTE - timedelta(microseconds=1)).decision
    assert verdict_on(head, POLICY, NOON + 30 * MINUTE).reason == "idle_too_long"


def test_an_approval_may_wait_for_seven_days() -> None:
    head = a_resumable_head(phase=Phase.APPROVAL)
    assert verdict_on(head, POLICY, NOON + 7 * DAY - MINUTE).decision
    late = verdict_on(head, POLICY, NOON + 7 * DAY)
    assert (late.reason, late.criteria["idle_seconds"].limit) == ("idle_too_long", 7 * 86400.0)


def test_limits_are_settable_per_phase() -> None:
    policy = ResumePolicy(idle_limit=MINUTE, idle_limits={"planning": 5 * MINUTE}, max_errors=1)
    at = NOON + 3 * MINUTE
    assert verdict_on(a_resumable_head(), policy, at).decision
    assert verdict_on(a_resumable_head(phase=Phase.INVESTIGATING), policy, at).reason == "idle_too_long"
    assert verdict_on(a_resumable_head(error_count=1), policy, at).reason == "too_many_errors"


def test_two_errors_are_forgiven() -> None:
    assert verdict_on(a_resumable_head(error_count=2), POLICY, NOON).decision


def test_ones_own_hold_and_an_ended_one_do_not_stand_in_the_way() -> None:
    hold = Hold("bob", NOON + MINUTE, "secret")
    assert verdict_on(a_resumable_head(hold=hold), POLICY, NOON, "bob").decision
    assert verdict_on(a_resumable_head(hold=hold), POLICY, NOON + MINUTE, "ann").decision
    assert verdict_on(a_resumable_head(hold=hold), POLICY, NOON).criteria["held_by"].value == "bob"


def test_without_a_session_the_verdict_says_which_kind_of_missing() -> None:
    assert verdict_without(None, None).reason == "no_existing_session"
    assert verdict_without(SessionNotFound("s-1"), "s-1").reason == "session_not_found"
    corrupt = verdict_without(SessionCorrupt("s-1", "broken"), "s-1")
    assert corrupt.reason == "session_corrupt"
    assert {name: looked_at.ok for name, looked_at in corrupt.criteria.items()} == {"exists": True, "whole": False}
    assert not any(verdict.decision for verdict in (verdict_without(None, None), corrupt))
