"""Expiry and cleanup: previewed, audited, and never what is in use."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from moorage import sync
from moorage.core.errors import MoorageError, SessionGone
from moorage.core.policy import ResumePolicy, RetentionPolicy
from moorage.core.session import State
from moorage.service.deps import Settings
from tests.service.doors import Timed

DAY = timedelta(days=1)


def ids(moor: sync.Moorage) -> set[str]:
    return {session.id for session in moor.list(limit=1000)}


def keeping(age: timedelta | None, **ages: timedelta | None) -> Settings:
    return Settings(retention=RetentionPolicy(age=age, ages=ages))


def test_cleanup_deletes_sessions_idle_for_a_day_and_audits_them(timed: Timed) -> None:
    moor = timed.moor
    moor.create("old", session_id="old", name="old-name", task_id="t-1")
    timed.forward(hours=20)
    moor.create(session_id="young")
    at = timed.forward(hours=5)
    done = moor.cleanup()
    assert (done.removed, done.session_ids, done.dry_run) == (1, ["old"], False)
    assert ids(moor) == {"young"}
    (tombstone,) = moor.deleted()
    assert (tombstone.session_id, tombstone.session_name, tombstone.agent_name, tombstone.task_id) == (
        "old",
        "old-name",
        "old",
        "t-1",
    )
    assert (tombstone.reason, tombstone.deleted_at, tombstone.deleted_by, tombstone.state) == (
        "retention",
        at,
        "ann",
        "created",
    )
    assert moor.cleanup().removed == 0


def test_a_dry_run_shows_the_same_and_takes_nothing(timed: Timed) -> None:
    moor = timed.moor
    for number in range(120):  # more than one step
        moor.create(session_id=f"s-{number}", parent=None if number % 3 == 0 else f"s-{number - number % 3}")
    timed.forward(hours=25)
    preview = moor.cleanup(24, dry_run=True)
    assert (preview.removed, preview.dry_run, len(ids(moor))) == (120, True, 120)
    assert len(set(preview.session_ids)) == 120
    assert moor.deleted().items == []
    done = moor.cleanup(24)
    assert set(done.session_ids) == set(preview.session_ids)
    assert ids(moor) == set()
    assert moor.check() == []


def test_age_is_judged_by_activity_not_by_metadata_or_reading(timed: Timed) -> None:
    moor = timed.moor
    moor.create(session_id="touched")
    moor.create(session_id="used")
    timed.forward(hours=20)
    moor.update("touched", metadata={"a": 1})
    moor.context.put("touched", "k", 1)
    moor.append("used", "hello")
    timed.forward(hours=5)
    assert moor.cleanup(24).session_ids == ["touched"]


def test_states_and_hours_are_chosen(timed: Timed) -> None:
    moor = timed.moor
    for outcome in ("completed", "failed"):
        moor.create(session_id=outcome)
        moor.finalize(outcome, outcome)
    moor.create(session_id="open")
    timed.forward(hours=2)
    assert moor.cleanup(3).removed == 0
    assert moor.cleanup(1, states=["completed"]).session_ids == ["completed"]
    assert moor.cleanup(1, states=["failed", "abandoned"]).session_ids == ["failed"]
    assert ids(moor) == {"open"}


def test_the_age_is_settable(timed: Timed) -> None:
    patient = timed.with_settings(keeping(timedelta(days=30)))
    patient.moor.create(session_id="s-1")
    patient.forward(days=29)
    assert patient.moor.cleanup().removed == 0
    patient.forward(days=2)
    assert patient.moor.cleanup().removed == 1


# By state ---------------------------------------------------------------------------------------


def one_of_each_state(moor: sync.Moorage) -> None:
    for state in State:
        moor.create(session_id=state.value)
    moor.append("active", "hello")
    moor.suspend("suspended")
    for outcome in ("completed", "failed", "abandoned"):
        moor.finalize(outcome, outcome)


def test_each_state_has_its_own_age(timed: Timed) -> None:
    there = timed.with_settings(keeping(DAY, completed=7 * DAY, failed=30 * DAY, suspended=None))
    moor = there.moor
    one_of_each_state(moor)
    there.forward(days=2)
    assert set(moor.cleanup().session_ids) == {"created", "active", "abandoned"}
    there.forward(days=6)
    assert moor.cleanup().session_ids == ["completed"]
    there.forward(days=30)
    assert moor.cleanup().session_ids == ["failed"]
    there.forward(days=3000)
    assert moor.cleanup().session_ids == []
    assert ids(moor) == {"suspended"}


def test_retention_never_deletes_only_named_states(timed: Timed) -> None:
    there = timed.with_settings(keeping(None, failed=DAY))
    one_of_each_state(there.moor)
    there.forward(days=2000)
    assert there.moor.cleanup().session_ids == ["failed"]
    assert len(ids(there.moor)) == 5


def test_hours_go_before_the_whole_policy(timed: Timed) -> None:
    there = timed.with_settings(keeping(30 * DAY, completed=None, created=timedelta(hours=1)))
    one_of_each_state(there.moor)
    there.forward(hours=5)
    assert there.moor.cleanup(6, dry_run=True).removed == 0
    assert there.moor.cleanup(4, states=["completed"]).session_ids == ["completed"]
    assert there.moor.cleanup(4).removed == 5


def test_states_restrict_the_policy(timed: Timed) -> None:
    there = timed.with_settings(keeping(DAY, completed=7 * DAY, suspended=None))
    one_of_each_state(there.moor)
    there.forward(days=2)
    assert there.moor.cleanup(states=["completed", "suspended"]).removed == 0
    assert there.moor.cleanup(states=["failed", "suspended"]).session_ids == ["failed"]


def test_a_state_that_is_kept_for_ever_still_ends_with_its_ttl(timed: Timed) -> None:
    there = timed.with_settings(keeping(None))
    there.moor.create(session_id="s-1", ttl=60)
    there.moor.create(session_id="s-2")
    there.forward(days=99)
    assert [(gone.session_id, gone.reason) for gone in there.moor.cleanup().sessions] == [("s-1", "expired")]


def test_a_member_is_judged_by_the_age_of_its_own_state(timed: Timed) -> None:
    there = timed.with_settings(keeping(DAY, failed=7 * DAY))
    moor = there.moor
    for name, parent in (("root", None), ("child", "root"), ("grandchild", "child"), ("other", "root")):
        moor.create(session_id=name, parent=parent)
    moor.finalize("child", "failed")
    there.forward(days=2)
    assert moor.cleanup(dry_run=True).session_ids == ["grandchild", "other"]
    assert moor.cleanup().session_ids == ["grandchild", "other"]
    there.forward(days=6)
    assert moor.cleanup().session_ids == ["child", "root"]


def test_session_in_phase_approval_is_kept_for_a_week(timed: Timed) -> None:
    there = timed.with_settings(keeping(DAY, suspended=timedelta(hours=1)))
    moor = there.moor
    moor.create(session_id="s-1")
    moor.update("s-1", phase="approval")
    moor.suspend("s-1")
    there.forward(days=6)
    assert moor.cleanup().removed == moor.cleanup(0).removed == 0
    there.forward(days=2)
    (gone,) = moor.cleanup().sessions
    assert (gone.limit_seconds, gone.limit_from) == (7 * 86400, "resume.idle_limits.approval")


def test_an_age_longer_than_the_calendar_is_no_error(timed: Timed) -> None:
    endless = timedelta(weeks=999_999)
    there = timed.with_settings(
        Settings(retention=RetentionPolicy(age=endless), resume=ResumePolicy(idle_limits={"approval": endless}))
    )
    one_of_each_state(there.moor)
    there.forward(days=9999)
    assert there.moor.cleanup().removed == 0


# Why ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dry_run", [True, False])
def test_cleanup_names_the_limit_that_applied(timed: Timed, dry_run: bool) -> None:
    there = timed.with_settings(keeping(DAY, completed=7 * DAY))
    moor = there.moor
    moor.create(session_id="root")
    moor.create(session_id="child", parent="root")
    moor.finalize("child", "completed")
    moor.create(session_id="brief", ttl=60)
    moor.create(session_id="helper", parent="brief")
    born = there.clock.now()
    there.forward(days=8)
    done = moor.cleanup(dry_run=dry_run)
    assert {gone.session_id: (gone.reason, gone.limit_seconds, gone.limit_from) for gone in done.sessions} == {
        "root": ("retention", 86400, "retention.age"),
        "child": ("retention", 7 * 86400, "retention.ages.completed"),
        "brief": ("expired", None, "ttl"),
        "helper": ("expired", None, "ttl"),
    }
    assert {gone.last_activity_at for gone in done.sessions} == {born}


def test_hours_are_told_as_the_limit(timed: Timed) -> None:
    timed.moor.create(session_id="s-1")
    timed.forward(hours=3)
    (gone,) = timed.moor.cleanup(1.5).sessions
    assert (gone.limit_seconds, gone.limit_from) == (5400, "hours")


def test_an_approval_that_ran_out_keeps_nothing(timed: Timed) -> None:
    moor = timed.moor
    moor.create(session_id="s-1")
    moor.update("s-1", phase="approval")
    moor.request_approval("s-1", "Apply?", expires_in=3600)
    timed.forward(days=8)
    assert moor.cleanup(dry_run=True).session_ids == ["s-1"]  # only a cleanup could notice
    assert moor.cleanup().session_ids == ["s-1"]


@pytest.mark.parametrize("hours", [-1, "24", True, float("nan"), float("inf"), 10**9])
def test_hours_are_a_number_from_nothing(timed: Timed, hours: Any) -> None:
    timed.moor.create(session_id="s-1")
    timed.forward(days=9)
    with pytest.raises(MoorageError) as refused:
        timed.moor.cleanup(hours)
    assert refused.value.code == "invalid_hours"
    assert ids(timed.moor) == {"s-1"}


def test_a_tree_goes_only_when_every_member_may(timed: Timed) -> None:
    moor = timed.moor
    moor.create(session_id="root")
    moor.create(session_id="child", parent="root")
    moor.create(session_id="grandchild", parent="child")
    timed.forward(hours=25)
    moor.append("grandchild", "still here")
    assert moor.cleanup(24, dry_run=True).removed == 0
    assert moor.cleanup(24).removed == 0
    timed.forward(hours=25)
    done = moor.cleanup(24)
    assert done.session_ids == ["grandchild", "child", "root"]
    assert {tombstone.root_of_deletion for tombstone in moor.deleted()} == {"root"}


@pytest.mark.parametrize("member", ["root", "child"])
@pytest.mark.parametrize("use", ["held", "waiting"])
def test_a_tree_that_is_held_or_waits_for_an_answer_stays(timed: Timed, use: str, member: str) -> None:
    moor = timed.moor
    moor.create(session_id="root")
    moor.create(session_id="child", parent="root")
    timed.forward(hours=25)
    if use == "held":
        moor.resume(member)
    else:
        asked = moor.request_approval(member, "Apply?")
        timed.forward(hours=25)
    if member == "root":
        moor.cleanup(24)
        assert "root" in ids(moor)
    else:
        assert moor.cleanup(24).removed == 0
        assert ids(moor) == {"root", "child"}
    if use == "held":
        moor.release(member)
    else:
        moor.reject(asked.approval_id)
    timed.forward(hours=25)
    moor.cleanup(24)
    assert ids(moor) == set()


def test_progress_is_told(timed: Timed) -> None:
    for number in range(60):
        timed.moor.create(session_id=f"s-{number}")
    timed.forward(hours=25)
    told: list[int] = []
    timed.moor.cleanup(24, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 60


# Times to live ----------------------------------------------------------------------------------


def test_a_session_past_its_ttl_is_gone_and_audited_as_expired(timed: Timed) -> None:
    moor = timed.moor
    session = moor.create("agent", session_id="s-1", name="brief", ttl=60)
    assert session.expires_at is not None
    timed.forward(seconds=59)
    assert moor.get("brief").id == "s-1"
    timed.forward(seconds=1)
    with pytest.raises(SessionGone) as gone:
        moor.get("s-1")
    assert gone.value.facts["reason"] == "expired"
    assert [(tombstone.session_id, tombstone.reason) for tombstone in moor.deleted()] == [("s-1", "expired")]
    assert moor.create(name="brief").id != "s-1"


def test_nothing_is_written_to_a_session_past_its_ttl(timed: Timed) -> None:
    moor = timed.moor
    moor.create(session_id="s-1", ttl=60)
    timed.forward(seconds=61)
    for write in (
        lambda: moor.append("s-1", "too late"),
        lambda: moor.update("s-1", phase="planning"),
        lambda: moor.resume("s-1"),
        lambda: moor.suspend("s-1"),
        lambda: moor.context.put("s-1", "k", 1),
    ):
        with pytest.raises(SessionGone):
            write()
    assert moor.list().items == []


def test_cleanup_deletes_expired_sessions_of_any_age(timed: Timed) -> None:
    moor = timed.moor
    moor.create(session_id="s-1", ttl=60)
    moor.create(session_id="s-2")
    timed.forward(minutes=2)
    done = moor.cleanup(24)
    assert [(tombstone.session_id, tombstone.reason) for tombstone in done.sessions] == [("s-1", "expired")]


def test_an_expired_parent_takes_its_idle_children_along(timed: Timed) -> None:
    moor = timed.moor
    moor.create(session_id="root", ttl=60)
    moor.create(session_id="child", parent="root")
    timed.forward(minutes=2)
    assert moor.cleanup(24).session_ids == ["child", "root"]


def test_an_expired_parent_stays_while_a_child_is_in_use(timed: Timed) -> None:
    moor = timed.moor
    moor.create(session_id="root", ttl=60)
    moor.create(session_id="child", parent="root")
    moor.request_approval("child", "Apply?")
    timed.forward(minutes=2)
    assert moor.cleanup(24).removed == 0
    assert "child" in ids(moor)


def test_a_session_that_is_held_outlives_its_ttl_until_it_is_let_go(timed: Timed) -> None:
    moor = timed.moor
    moor.create(session_id="s-1", ttl=60)
    token = str(moor.resume("s-1").hold.token)
    timed.forward(minutes=2)
    assert moor.get("s-1").id == "s-1"
    moor.append("s-1", "nearly done", token=token)
    moor.release("s-1", token=token)
    with pytest.raises(SessionGone):
        moor.get("s-1")


# Audit ------------------------------------------------------------------------------------------


def test_the_trace_can_be_asked_for_a_reason_and_a_time(timed: Timed) -> None:
    moor = timed.moor
    moor.create(session_id="by-age")
    moor.create(session_id="by-ttl", ttl=60)
    timed.forward(days=2)
    moor.cleanup()
    later = timed.forward(hours=1)
    for name in ("by-hand", "by-hand-too"):
        moor.create(session_id=name)
        moor.delete(name)

    def found(**wanted: Any) -> list[str]:
        return [tombstone.session_id for tombstone in moor.deleted(**wanted)]

    assert found(reason="retention") == ["by-age"]
    assert found(reason="expired") == ["by-ttl"]
    assert found(reason="nothing") == []
    assert found(since=later) == found(reason="deleted") == ["by-hand-too", "by-hand"]
    assert found(since=later + timedelta(microseconds=1)) == []
    assert found(since=later, reason="retention") == []
    assert len(found()) == 4


def test_audit_cursor_belongs_to_its_query(timed: Timed) -> None:
    moor = timed.moor
    for number in range(7):
        moor.create(session_id=f"s-{number}")
        moor.delete(f"s-{number}", reason="odd" if number % 2 else "even")
    seen: list[str] = []
    cursor = None
    while True:
        page = moor.deleted(reason="even", limit=2, cursor=cursor)
        seen += [tombstone.session_id for tombstone in page]
        cursor = page.next
        if cursor is None:
            break
        with pytest.raises(MoorageError) as refused:
            moor.deleted(reason="odd", cursor=cursor)
        assert refused.value.code == "invalid_cursor"
    assert seen == ["s-6", "s-4", "s-2", "s-0"]


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({"reason": 7}, "invalid_reason"),
        ({"reason": "\ud800"}, "invalid_reason"),
        ({"since": "yesterday"}, "invalid_since"),
        ({"since": datetime(2026, 1, 1)}, "invalid_since"),  # noqa: DTZ001  # that is what is wrong with it
    ],
)
def test_invalid_audit_filter_is_refused(timed: Timed, wanted: Any, code: str) -> None:
    with pytest.raises(MoorageError) as refused:
        timed.moor.deleted(**wanted)
    assert refused.value.code == code
