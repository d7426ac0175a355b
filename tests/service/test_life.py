"""A session's life: created, worked on, paused, picked up, closed."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.core.errors import (
    EntryNotFound,
    FinalPhase,
    InvalidField,
    InvalidJson,
    MoorageError,
    OutcomeConflict,
    SessionClosed,
    SessionGone,
    SessionNotFound,
    TooLarge,
    UnknownPhase,
    VersionConflict,
)
from moorage.core.render import session_json
from moorage.core.session import PUBLIC_FIELDS
from tests.service.doors import Place, Timed

BIG = "x" * 65 * 1024


def test_the_example_of_the_python_door_works(place: Place) -> None:
    moor = place.connect()
    session = moor.create(
        agent="terraform-architect", name="plan-prod", purpose="approval_workflow", metadata={"workspace": "prod"}
    )
    moor.append(session.id, [{"role": "user", "content": "Plan the change"}])
    assert [entry.content for entry in moor.messages(session.id, last=20)] == ["Plan the change"]
    moor.update(session.id, phase="planning", metadata={"plan_file": "plan.json"})
    assert moor.should_resume(session.id)
    moor.suspend(session.id, checkpoint={"step": 3}, reason="awaiting approval")
    back = moor.resume(session.id)
    assert back.checkpoint == {"step": 3}
    moor.context.put(session.id, "preference", "italian", ttl=3600)
    done = moor.finalize(session.id, "completed", summary="Applied")
    assert (done.state, done.summary) == ("completed", "Applied")
    assert [found.id for found in moor.list(agent="terraform-architect", state="completed")] == [session.id]
    copy = moor.fork(session.id, at=2)
    assert copy.forked_from == session.id
    assert moor.tree(session.id).session.id == session.id
    assert moor.delete(session.id, cascade=True).session_ids == [session.id]


def test_a_new_session_shows_every_promised_field(timed: Timed) -> None:
    session = timed.moor.create("echo-agent")
    shown = session_json(session)
    assert tuple(shown) == PUBLIC_FIELDS
    assert (shown["state"], shown["status"], shown["phase"]) == ("created", "created", "initializing")
    assert (shown["owner"], shown["interface"], shown["version"], shown["last_entry"]) == (
        "local",
        timed.interface,
        1,
        1,
    )
    assert shown["created_at"] == shown["updated_at"] == shown["last_activity_at"] == "2026-03-01T12:00:00Z"
    assert shown["task_id"]


@pytest.mark.parametrize(
    "first",
    [
        lambda moor, ref: moor.append(ref, "hello"),
        lambda moor, ref: moor.update(ref, phase="planning"),
        lambda moor, ref: moor.resume(ref),
    ],
    ids=["message", "phase", "resume"],
)
def test_the_first_message_phase_or_resume_makes_it_active(place: Place, first: Any) -> None:
    moor = place.connect()
    session = moor.create("echo-agent")
    first(moor, session.id)
    assert moor.get(session.id).state == "active"


def test_metadata_errors_and_context_do_not_make_it_active(place: Place) -> None:
    moor = place.connect()
    session = moor.create("echo-agent")
    moor.update(session.id, metadata={"a": 1}, error="oops")
    moor.context.put(session.id, "k", 1)
    assert moor.get(session.id).state == "created"


def test_the_log_tells_everything_in_order_without_gaps(timed: Timed) -> None:
    moor = timed.moor
    session = moor.create("echo-agent")
    moor.append(session.id, ["one", "two"])
    moor.update(session.id, phase="planning", metadata={"a": 1}, error="oops")
    moor.suspend(session.id, checkpoint={"step": 1}, reason="lunch")
    moor.resume(session.id)
    moor.release(session.id)
    moor.compact(session.id, "two words were said", upto=3)
    moor.finalize(session.id, "completed")
    log = moor.log(session.id).items
    assert [entry.number for entry in log] == list(range(1, len(log) + 1))
    assert [entry.kind for entry in log] == [
        "created",
        "message",
        "message",
        "phase",
        "metadata",
        "error",
        "checkpoint",
        "suspended",
        "resumed",
        "released",
        "summary",
        "finalized",
    ]
    assert {(entry.by, entry.interface, entry.session_id) for entry in log} == {("ann", timed.interface, session.id)}
    assert len({entry.task_id for entry in log}) == 1


def test_an_update_is_whole_or_nothing(place: Place) -> None:
    moor = place.connect()
    session = moor.create("echo-agent", metadata={"old": "x" * 60_000})
    for wrong, error in (
        ({"phase": "planning", "metadata": {"new": "y" * 10_000}}, TooLarge),
        ({"phase": "completed", "metadata": {"a": 1}}, FinalPhase),
        ({"phase": "sleeping", "error": "oops"}, UnknownPhase),
        ({"phase": "planning", "metadata": {"a": float("nan")}}, InvalidJson),
        ({"phase": "planning", "error": BIG}, TooLarge),
        ({"phase": "planning", "resume_ready": "yes"}, InvalidField),
        ({"phase": "planning", "version": 17}, VersionConflict),
    ):
        with pytest.raises(error):
            moor.update(session.id, **wrong)
    assert moor.get(session.id) == session
    assert len(moor.log(session.id)) == 1


def test_a_version_from_yesterday_is_refused_and_nothing_of_its_change_kept(place: Place) -> None:
    moor = place.connect()
    session = moor.create("echo-agent")
    moor.update(session.id, metadata={"winner": True})
    for change in (
        lambda: moor.update(session.id, metadata={"loser": True}, version=session.version),
        lambda: moor.suspend(session.id, checkpoint={"x": 1}, version=session.version),
        lambda: moor.resume(session.id, version=session.version),
        lambda: moor.finalize(session.id, "failed", version=session.version),
    ):
        with pytest.raises(VersionConflict) as refused:
            change()
        assert (refused.value.facts["expected"], refused.value.facts["actual"]) == (1, 2)
    now = moor.get(session.id)
    assert (now.metadata, now.state, now.version, now.last_entry) == ({"winner": True}, "created", 2, 2)


def test_appending_does_not_move_the_version(place: Place) -> None:
    moor = place.connect()
    session = moor.create("echo-agent")
    moor.append(session.id, "hello")
    assert moor.update(session.id, metadata={"a": 1}, version=session.version).version == session.version + 1


# Closed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["completed", "failed", "abandoned"])
def test_a_final_session_takes_nothing_but_reading_exporting_forking_and_deleting(place: Place, outcome: str) -> None:
    moor = place.connect()
    session = moor.create("echo-agent", name="planner")
    moor.append(session.id, "hello")
    closed = moor.finalize(session.id, outcome)
    for change in (
        lambda: moor.append(session.id, "more"),
        lambda: moor.send(session.id, "more"),
        lambda: moor.update(session.id, phase="planning"),
        lambda: moor.update(session.id, metadata={"a": 1}),
        lambda: moor.update(session.id, error="oops"),
        lambda: moor.suspend(session.id),
        lambda: moor.resume(session.id),
        lambda: moor.release(session.id),
        lambda: moor.save_checkpoint(session.id, {}),
        lambda: moor.compact(session.id, "so far"),
        lambda: moor.request_approval(session.id, "Really?"),
        lambda: moor.context.put(session.id, "k", 1),
        lambda: moor.context.merge(session.id, {"k": 1}),
        lambda: moor.context.delete(session.id),
        lambda: moor.create("child", parent=session.id),
    ):
        with pytest.raises(SessionClosed, match="fork") as refused:
            change()
        assert refused.value.code == "session_closed"
    assert moor.get(session.id) == closed
    assert len(moor.log(session.id)) == 3
    assert list(moor.export(session.id))
    assert moor.fork(session.id).state == "created"
    assert moor.delete(session.id).deleted_sessions == 1


def test_finalizing_says_when_and_how_long(timed: Timed) -> None:
    session = timed.moor.create("echo-agent")
    at = timed.forward(seconds=90.5)
    done = timed.moor.finalize(session.id, "failed", summary="It broke")
    assert (done.finalized_at, done.duration_seconds, done.phase, done.summary) == (at, 90.5, "failed", "It broke")


def test_finalizing_twice_is_harmless_and_may_add_a_missing_summary(timed: Timed) -> None:
    moor = timed.moor
    session = moor.create("echo-agent")
    done = moor.finalize(session.id, "completed")
    timed.forward(hours=1)
    assert moor.finalize(session.id, "completed") == done
    summed = moor.finalize(session.id, "completed", summary="All well")
    assert (summed.summary, summed.finalized_at, summed.duration_seconds) == ("All well", done.finalized_at, 0.0)
    assert moor.finalize(session.id, "completed", summary="Other words") == summed


def test_another_outcome_is_refused(place: Place) -> None:
    moor = place.connect()
    session = moor.create("echo-agent")
    done = moor.finalize(session.id, "completed")
    for other in ("failed", "abandoned"):
        with pytest.raises(OutcomeConflict) as refused:
            moor.finalize(session.id, other, summary="no")
        assert refused.value.facts == {"session_id": session.id, "state": "completed", "outcome": other}
    assert moor.get(session.id) == done


@pytest.mark.parametrize("outcome", ["", "done", "active", "COMPLETED", None])
def test_an_unknown_outcome_is_refused(place: Place, outcome: Any) -> None:
    moor = place.connect()
    session = moor.create("echo-agent")
    with pytest.raises(InvalidField) as refused:
        moor.finalize(session.id, outcome)
    assert refused.value.code == "invalid_outcome"
    assert moor.get(session.id) == session


# Suspending -------------------------------------------------------------------------------------


def test_suspending_keeps_the_checkpoint_with_the_conversation_and_the_reason(place: Place) -> None:
    moor = place.connect()
    session = moor.create("echo-agent")
    moor.append(session.id, [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}])
    moor.suspend(session.id, checkpoint={"step": 1}, reason="lunch")
    suspended = moor.log(session.id, kinds=["suspended"]).items[0]
    assert suspended.data == {"reason": "lunch", "suspended_by": "person"}
    packet = moor.resume(session.id)
    assert [entry.content for entry in packet.messages] == ["hi", "ho"]


def test_messages_to_a_suspended_session_wait_without_waking_it(place: Place) -> None:
    moor = place.connect()
    session = moor.create("echo-agent")
    moor.suspend(session.id)
    moor.append(session.id, "are you there?")
    assert moor.get(session.id).state == "suspended"
    assert [entry.content for entry in moor.resume(session.id).messages] == ["are you there?"]


def test_checkpoints_are_kept_newest_first_and_found_by_number(place: Place) -> None:
    moor = place.connect()
    session = moor.create("echo-agent")
    first = moor.save_checkpoint(session.id, {"step": 1})
    moor.suspend(session.id, checkpoint={"step": 2})
    assert [each.checkpoint for each in moor.checkpoints(session.id)] == [{"step": 2}, {"step": 1}]
    assert moor.checkpoint(session.id).checkpoint == {"step": 2}
    assert moor.checkpoint(session.id, first.number).checkpoint == {"step": 1}
    for number in (1, 99):
        with pytest.raises(EntryNotFound):
            moor.checkpoint(session.id, number)


@pytest.mark.parametrize("checkpoint", [[], "text", 7, {"a": float("nan")}, {"a": "x" * 1024 * 1024}])
def test_a_checkpoint_is_an_object_of_at_most_a_mebibyte(place: Place, checkpoint: Any) -> None:
    moor = place.connect()
    session = moor.create("echo-agent")
    with pytest.raises(MoorageError):
        moor.suspend(session.id, checkpoint=checkpoint)
    with pytest.raises(MoorageError):
        moor.save_checkpoint(session.id, checkpoint)
    assert moor.get(session.id) == session


# Bad input --------------------------------------------------------------------------------------


def test_bad_input_is_refused_with_its_code_and_changes_nothing(place: Place) -> None:
    moor = place.connect()
    session = moor.create("echo-agent", session_id="s-1")
    moor.append("s-1", "hello")
    before = list(moor.export("s-1")), moor.list().items
    wrongs: list[tuple[str, Any]] = [
        ("invalid_id", lambda: moor.create(session_id="../../evil")),
        ("invalid_name", lambda: moor.create(name="a b")),
        ("invalid_agent_name", lambda: moor.create(agent="a\nb")),
        ("invalid_task_id", lambda: moor.create(task_id="")),
        ("invalid_purpose", lambda: moor.create(purpose=7)),  # type: ignore[arg-type]
        ("invalid_ttl", lambda: moor.create(ttl=-1)),
        ("invalid_ttl", lambda: moor.context.put("s-1", "k", 1, ttl=-1)),
        ("parent_not_found", lambda: moor.create(parent="nobody")),
        ("own_ancestor", lambda: moor.create(session_id="s-2", parent="s-2")),
        ("id_taken", lambda: moor.create(session_id="s-1")),
        ("unknown_phase", lambda: moor.update("s-1", phase="sleeping")),
        ("final_phase", lambda: moor.update("s-1", phase="completed")),
        ("metadata_too_large", lambda: moor.update("s-1", metadata={"a": BIG})),
        ("metadata_too_large", lambda: moor.create(metadata={"a": BIG})),
        ("invalid_metadata", lambda: moor.update("s-1", metadata=["a"])),  # type: ignore[arg-type]
        ("message_too_large", lambda: moor.append("s-1", "x" * 2 * 1024 * 1024)),
        ("invalid_json", lambda: moor.append("s-1", "\ud800")),
        ("invalid_json", lambda: moor.update("s-1", metadata={"a": float("inf")})),
        ("invalid_json", lambda: moor.update("s-1", metadata={"a": 2**70})),
        ("invalid_json", lambda: moor.context.put("s-1", "k", "\udfff")),
        ("invalid_messages", lambda: moor.append("s-1", [])),
        ("version_conflict", lambda: moor.update("s-1", metadata={"a": 1}, version=9)),
        ("hold_lost", lambda: moor.append("s-1", "x", token="guessed")),
        ("invalid_cursor", lambda: moor.list(cursor="12345678-1")),
        ("invalid_limit", lambda: moor.list(limit=0)),
        ("invalid_state", lambda: moor.list(state="sleeping")),
        ("invalid_cursor", lambda: moor.log("s-1", after="x")),
        ("invalid_cursor", lambda: moor.log("s-1", after="9" * 5000)),
        ("invalid_kinds", lambda: moor.log("s-1", kinds=["gossip"])),
        ("invalid_last", lambda: moor.messages("s-1", last=0)),
        ("invalid_text", lambda: moor.search("  ")),
        ("invalid_hours", lambda: moor.cleanup(-1)),
        ("invalid_states", lambda: moor.cleanup(1, states=["sleeping"])),
        ("invalid_at", lambda: moor.fork("s-1", at=0)),
        ("entry_not_found", lambda: moor.fork("s-1", at=99)),
        ("entry_not_found", lambda: moor.compact("s-1", "x", upto=99)),
        ("approval_not_found", lambda: moor.approve("nobody")),
        ("session_not_found", lambda: moor.get("nobody")),
        ("session_not_found", lambda: moor.get("../../etc/passwd")),
        ("session_not_found", lambda: moor.append("a b", "x")),
        ("invalid_limit", lambda: moor.checkpoints("s-1", limit=0)),
        ("invalid_limit", lambda: moor.resumable(limit=-1)),
        ("invalid_limit", lambda: moor.inbox(limit=-1)),
        ("invalid_limit", lambda: moor.inbox(limit=1001)),
    ]
    for code, wrong in wrongs:
        with pytest.raises(MoorageError) as refused:
            wrong()
        assert refused.value.code == code
    assert (list(moor.export("s-1")), moor.list().items) == before
    assert moor.check() == []
    assert moor.get("s-1").id == session.id


@pytest.mark.parametrize("ref", ["", " ", "\0", "é", "x" * 500, "'; DROP TABLE sessions; --", "\ud800", "%", "_"])
def test_a_reference_that_can_be_none_is_not_found(place: Place, ref: str) -> None:
    moor = place.connect()
    moor.create(session_id="s-1", name="name")
    for read in (moor.get, moor.log, moor.messages, moor.tree, moor.ancestors, moor.resolve, moor.context.get):
        with pytest.raises(SessionNotFound):
            read(ref)


def test_a_deleted_session_is_gone_for_every_call(timed: Timed) -> None:
    moor = timed.moor
    session = moor.create("echo-agent")
    timed.forward(minutes=1)
    moor.delete(session.id, reason="tidying")
    calls = (moor.get, moor.log, moor.resume, moor.tree, moor.children, moor.fork, moor.finalize, moor.delete)
    for call in (*calls, lambda session_id: moor.create(session_id=session_id)):
        with pytest.raises(SessionGone) as gone:
            call(session.id)
        assert gone.value.facts == {
            "session_id": session.id,
            "deleted_at": "2026-03-01T12:01:00Z",
            "deleted_by": "ann",
            "reason": "tidying",
        }
