"""Expiry and cleanup: previewed, audited, and never what is in use."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import sync
from holdfast.core.errors import HoldfastError, SessionGone
from holdfast.service.deps import Settings
from tests.service.doors import Timed


def ids(hf: sync.Holdfast) -> set[str]:
    return {session.id for session in hf.list(limit=1000)}


def test_cleanup_takes_what_was_idle_for_a_day_and_leaves_a_trace(timed: Timed) -> None:
    hf = timed.hf
    hf.create("old", session_id="old", name="old-name", task_id="t-1")
    timed.forward(hours=20)
    hf.create(session_id="young")
    at = timed.forward(hours=5)
    done = hf.cleanup()
    assert (done.removed, done.session_ids, done.dry_run) == (1, ["old"], False)
    assert ids(hf) == {"young"}
    (stone,) = hf.deleted()
    assert (stone.session_id, stone.session_name, stone.agent_name, stone.task_id) == ("old", "old-name", "old", "t-1")
    assert (stone.reason, stone.deleted_at, stone.deleted_by, stone.state) == ("retention", at, "ann", "created")
    assert hf.cleanup().removed == 0


def test_a_dry_run_shows_the_same_and_takes_nothing(timed: Timed) -> None:
    hf = timed.hf
    for number in range(120):  # more than one step
        hf.create(session_id=f"s-{number}", parent=None if number % 3 == 0 else f"s-{number - number % 3}")
    timed.forward(hours=25)
    preview = hf.cleanup(24, dry_run=True)
    assert (preview.removed, preview.dry_run, len(ids(hf))) == (120, True, 120)
    assert len(set(preview.session_ids)) == 120
    assert hf.deleted().items == []
    done = hf.cleanup(24)
    assert set(done.session_ids) == set(preview.session_ids)
    assert ids(hf) == set()
    assert hf.check() == []


def test_age_is_judged_by_activity_not_by_metadata_or_reading(timed: Timed) -> None:
    hf = timed.hf
    hf.create(session_id="touched")
    hf.create(session_id="used")
    timed.forward(hours=20)
    hf.update("touched", metadata={"a": 1})
    hf.context.put("touched", "k", 1)
    hf.append("used", "hello")
    timed.forward(hours=5)
    assert hf.cleanup(24).session_ids == ["touched"]


def test_states_and_hours_are_chosen(timed: Timed) -> None:
    hf = timed.hf
    for outcome in ("completed", "failed"):
        hf.create(session_id=outcome)
        hf.finalize(outcome, outcome)
    hf.create(session_id="open")
    timed.forward(hours=2)
    assert hf.cleanup(3).removed == 0
    assert hf.cleanup(1, states=["completed"]).session_ids == ["completed"]
    assert hf.cleanup(1, states=["failed", "abandoned"]).session_ids == ["failed"]
    assert ids(hf) == {"open"}


def test_the_age_is_settable(timed: Timed) -> None:
    patient = timed.with_settings(Settings(retention=timedelta(days=30)))
    patient.hf.create(session_id="s-1")
    patient.forward(days=29)
    assert patient.hf.cleanup().removed == 0
    patient.forward(days=2)
    assert patient.hf.cleanup().removed == 1


@pytest.mark.parametrize("hours", [-1, "24", True, float("nan"), float("inf"), 10**9])
def test_hours_are_a_number_from_nothing(timed: Timed, hours: Any) -> None:
    timed.hf.create(session_id="s-1")
    timed.forward(days=9)
    with pytest.raises(HoldfastError) as refused:
        timed.hf.cleanup(hours)
    assert refused.value.code == "invalid_hours"
    assert ids(timed.hf) == {"s-1"}


def test_a_tree_goes_only_when_every_member_may(timed: Timed) -> None:
    hf = timed.hf
    hf.create(session_id="root")
    hf.create(session_id="child", parent="root")
    hf.create(session_id="grandchild", parent="child")
    timed.forward(hours=25)
    hf.append("grandchild", "still here")
    assert hf.cleanup(24, dry_run=True).removed == 0
    assert hf.cleanup(24).removed == 0
    timed.forward(hours=25)
    done = hf.cleanup(24)
    assert done.session_ids == ["grandchild", "child", "root"]
    assert {stone.root_of_deletion for stone in hf.deleted()} == {"root"}


@pytest.mark.parametrize("member", ["root", "child"])
@pytest.mark.parametrize("use", ["held", "waiting"])
def test_a_tree_that_is_held_or_waits_for_an_answer_stays(timed: Timed, use: str, member: str) -> None:
    hf = timed.hf
    hf.create(session_id="root")
    hf.create(session_id="child", parent="root")
    timed.forward(hours=25)
    if use == "held":
        hf.resume(member)
    else:
        asked = hf.request_approval(member, "Apply?")
        timed.forward(hours=25)
    if member == "root":
        hf.cleanup(24)
        assert "root" in ids(hf)
    else:
        assert hf.cleanup(24).removed == 0
        assert ids(hf) == {"root", "child"}
    if use == "held":
        hf.release(member)
    else:
        hf.reject(asked.approval_id)
    timed.forward(hours=25)
    hf.cleanup(24)
    assert ids(hf) == set()


def test_progress_is_told(timed: Timed) -> None:
    for number in range(60):
        timed.hf.create(session_id=f"s-{number}")
    timed.forward(hours=25)
    told: list[int] = []
    timed.hf.cleanup(24, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 60


# Times to live ----------------------------------------------------------------------------------


def test_a_session_past_its_ttl_is_gone_and_audited_as_expired(timed: Timed) -> None:
    hf = timed.hf
    session = hf.create("agent", session_id="s-1", name="brief", ttl=60)
    assert session.expires_at is not None
    timed.forward(seconds=59)
    assert hf.get("brief").id == "s-1"
    timed.forward(seconds=1)
    with pytest.raises(SessionGone) as gone:
        hf.get("s-1")
    assert gone.value.facts["reason"] == "expired"
    assert [(stone.session_id, stone.reason) for stone in hf.deleted()] == [("s-1", "expired")]
    assert hf.create(name="brief").id != "s-1"


def test_nothing_is_written_to_a_session_past_its_ttl(timed: Timed) -> None:
    hf = timed.hf
    hf.create(session_id="s-1", ttl=60)
    timed.forward(seconds=61)
    for write in (
        lambda: hf.append("s-1", "too late"),
        lambda: hf.update("s-1", phase="planning"),
        lambda: hf.resume("s-1"),
        lambda: hf.suspend("s-1"),
        lambda: hf.context.put("s-1", "k", 1),
    ):
        with pytest.raises(SessionGone):
            write()
    assert hf.list().items == []


def test_cleanup_takes_what_is_past_its_ttl_whatever_the_hours(timed: Timed) -> None:
    hf = timed.hf
    hf.create(session_id="s-1", ttl=60)
    hf.create(session_id="s-2")
    timed.forward(minutes=2)
    done = hf.cleanup(24)
    assert [(stone.session_id, stone.reason) for stone in done.sessions] == [("s-1", "expired")]


def test_an_expired_parent_takes_its_idle_children_along(timed: Timed) -> None:
    hf = timed.hf
    hf.create(session_id="root", ttl=60)
    hf.create(session_id="child", parent="root")
    timed.forward(minutes=2)
    assert hf.cleanup(24).session_ids == ["child", "root"]


def test_an_expired_parent_stays_while_a_child_is_in_use(timed: Timed) -> None:
    hf = timed.hf
    hf.create(session_id="root", ttl=60)
    hf.create(session_id="child", parent="root")
    hf.request_approval("child", "Apply?")
    timed.forward(minutes=2)
    assert hf.cleanup(24).removed == 0
    assert "child" in ids(hf)


def test_a_session_that_is_held_outlives_its_ttl_until_it_is_let_go(timed: Timed) -> None:
    hf = timed.hf
    hf.create(session_id="s-1", ttl=60)
    token = str(hf.resume("s-1").hold.token)
    timed.forward(minutes=2)
    assert hf.get("s-1").id == "s-1"
    hf.append("s-1", "nearly done", token=token)
    hf.release("s-1", token=token)
    with pytest.raises(SessionGone):
        hf.get("s-1")
