"""Before delegation: may this work be picked up, by id or by what it was about."""

from __future__ import annotations

from datetime import timedelta

import pytest

from moorage.core.policy import ResumePolicy
from moorage.service.deps import Settings
from moorage.testing.builders import FakeClock
from tests.service.doors import Place, Timed


def test_every_criterion_is_returned_with_its_value(timed: Timed) -> None:
    session = timed.moor.create("planner")
    timed.moor.update(session.id, phase="planning", error="oops")
    timed.forward(minutes=3)
    verdict = timed.moor.should_resume(session.id)
    assert (verdict.decision, verdict.reason, verdict.session_id) == (True, "session_resumable", session.id)
    assert {name: (looked_at.value, looked_at.limit) for name, looked_at in verdict.criteria.items()} == {
        "exists": (True, None),
        "whole": (True, None),
        "open": ("active", None),
        "phase": ("planning", None),
        "resume_ready": (True, None),
        "idle_seconds": (180.0, 1800.0),
        "error_count": (1, 3),
        "held_by": (None, None),
    }


def test_without_anything_to_look_for_there_is_no_session(place: Place) -> None:
    moor = place.connect()
    moor.update(moor.create("planner").id, phase="planning")
    for verdict in (moor.should_resume(), moor.should_resume(agent="other"), moor.should_resume(task_id="other")):
        assert (verdict.decision, verdict.reason) == (False, "no_existing_session")


def test_an_unknown_or_deleted_session_is_not_found(place: Place) -> None:
    moor = place.connect()
    gone = moor.create("planner")
    moor.delete(gone.id)
    for ref in ("nobody", gone.id, "../evil"):
        assert moor.should_resume(ref).reason == "session_not_found"


@pytest.mark.parametrize(
    ("phase", "idle", "reason"),
    [
        ("planning", {"minutes": 29}, "session_resumable"),
        ("planning", {"minutes": 30}, "idle_too_long"),
        ("approval", {"minutes": 31}, "session_resumable"),
        ("approval", {"hours": 16}, "session_resumable"),
        ("approval", {"days": 7}, "idle_too_long"),
        ("executing", {"minutes": 1}, "phase_not_resumable"),
        ("initializing", {"minutes": 1}, "phase_not_resumable"),
    ],
)
def test_the_limit_depends_on_the_phase(timed: Timed, phase: str, idle: dict[str, float], reason: str) -> None:
    session = timed.moor.create("planner")
    timed.moor.update(session.id, phase=phase)
    timed.forward(**idle)
    assert timed.moor.should_resume(session.id).reason == reason


def test_metadata_context_and_reading_do_not_extend_the_window(timed: Timed) -> None:
    moor = timed.moor
    session = moor.create("planner")
    moor.update(session.id, phase="planning")
    for _ in range(4):
        timed.forward(minutes=8)
        moor.update(session.id, metadata={"touched": True})
        moor.context.put(session.id, "k", 1)
        moor.get(session.id)
        moor.messages(session.id, last=5)
    assert moor.should_resume(session.id).reason == "idle_too_long"


def test_messages_and_phases_extend_the_window(timed: Timed) -> None:
    moor = timed.moor
    session = moor.create("planner")
    moor.update(session.id, phase="planning")
    timed.forward(minutes=20)
    moor.append(session.id, "still there")
    timed.forward(minutes=20)
    moor.update(session.id, phase="investigating")
    timed.forward(minutes=20)
    assert moor.should_resume(session.id).decision


def test_three_errors_are_too_many(timed: Timed) -> None:
    session = timed.moor.create("planner")
    timed.moor.update(session.id, phase="planning", error="one")
    timed.moor.update(session.id, error="two")
    assert timed.moor.should_resume(session.id).decision
    timed.moor.update(session.id, error="three")
    assert timed.moor.should_resume(session.id).reason == "too_many_errors"
    assert timed.moor.get(session.id).last_error == "three"


def test_a_session_may_say_it_is_not_ready(timed: Timed) -> None:
    session = timed.moor.create("planner")
    timed.moor.update(session.id, phase="planning", resume_ready=False)
    assert timed.moor.should_resume(session.id).reason == "not_resume_ready"


def test_the_limits_are_settable(timed: Timed) -> None:
    strict = timed.with_settings(Settings(resume=ResumePolicy(idle_limit=timedelta(minutes=1), max_errors=1)))
    session = strict.moor.create("planner")
    strict.moor.update(session.id, phase="planning")
    strict.clock.forward(timedelta(minutes=2))
    assert strict.moor.should_resume(session.id).reason == "idle_too_long"


# Without an id ----------------------------------------------------------------------------------


def a_plan(timed: Timed, **fields: object) -> str:
    """A resumable session, a second younger than the one before."""
    timed.forward(seconds=1)
    session = timed.moor.create("planner", **fields)  # type: ignore[arg-type]
    timed.moor.update(session.id, phase="planning")
    return session.id


def test_the_newest_fitting_session_of_agent_and_task_is_found(timed: Timed) -> None:
    a_plan(timed, task_id="t-1")
    newest = a_plan(timed, task_id="t-1")
    a_plan(timed, task_id="t-2")
    other = timed.moor.create("other-agent", task_id="t-1")
    timed.moor.update(other.id, phase="planning")
    verdict = timed.moor.should_resume(agent="planner", task_id="t-1")
    assert (verdict.decision, verdict.session_id) == (True, newest)


def test_a_newer_session_that_does_not_fit_is_passed_over(timed: Timed) -> None:
    fitting = a_plan(timed, task_id="t-1")
    busy = a_plan(timed, task_id="t-1")
    timed.moor.update(busy, phase="executing")
    closed = a_plan(timed, task_id="t-1")
    timed.moor.finalize(closed, "completed")
    assert timed.moor.should_resume(agent="planner", task_id="t-1").session_id == fitting


def test_if_none_fits_the_newest_is_judged(timed: Timed) -> None:
    a_plan(timed, task_id="t-1")
    busy = a_plan(timed, task_id="t-1")
    timed.moor.update(busy, phase="executing")
    timed.forward(hours=1)
    verdict = timed.moor.should_resume(agent="planner", task_id="t-1")
    assert (verdict.decision, verdict.reason, verdict.session_id) == (False, "phase_not_resumable", busy)


def test_the_working_directory_will_do_too(timed: Timed) -> None:
    there = a_plan(timed, project_dir="somewhere")
    assert timed.moor.should_resume(agent="planner", project_dir="somewhere").session_id == there
    assert timed.moor.should_resume(agent="planner", project_dir="elsewhere").reason == "no_existing_session"
    assert timed.moor.should_resume(agent="planner", task_id="t-9", project_dir="somewhere").session_id == there


def test_the_agent_alone_will_do(timed: Timed) -> None:
    newest = [a_plan(timed) for _ in range(3)][-1]
    assert timed.moor.should_resume(agent="planner").session_id == newest


def test_session_held_by_another_is_not_suggested(timed: Timed) -> None:
    free, held = a_plan(timed, task_id="t-1"), a_plan(timed, task_id="t-1")
    timed.connect(holder="bob").resume(held)
    assert timed.moor.should_resume(agent="planner", task_id="t-1").session_id == free
    assert timed.moor.should_resume(held).reason == "held_by_another"
    assert timed.connect(holder="bob").should_resume(held).decision


def test_resumable_suggests_suspended_sessions_first_and_none_that_is_held(timed: Timed) -> None:
    idle, suspended, held = (a_plan(timed) for _ in range(3))
    timed.moor.suspend(suspended)
    timed.connect(holder="bob").resume(held)
    timed.moor.create("planner")
    assert [session.id for session in timed.moor.resumable()] == [suspended, idle]
    assert timed.moor.resumable(agent="other") == []


def test_a_clock_that_jumps_back_does_no_harm(timed: Timed) -> None:
    session = timed.moor.create("planner")
    timed.moor.update(session.id, phase="planning")
    timed.clock.forward(timedelta(hours=-5))
    timed.moor.append(session.id, "from the past")
    assert timed.moor.should_resume(session.id).decision
    assert [entry.number for entry in timed.moor.log(session.id)] == [1, 2, 3]
    assert isinstance(timed.clock, FakeClock)
