"""Every rule of a session in every state: where it leads, or how it is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from moorage.core.entry import Kind
from moorage.core.errors import (
    FinalPhase,
    InvalidField,
    MoorageError,
    OutcomeConflict,
    SessionClosed,
    TooLarge,
    UnknownPhase,
)
from moorage.core.session import (
    FINAL_PHASES,
    FINAL_STATES,
    MAX_METADATA_BYTES,
    OUTCOMES,
    PUBLIC_FIELDS,
    RESUMABLE_PHASES,
    WORKING_PHASES,
    Change,
    Phase,
    Session,
    State,
    Update,
    check_labels,
    check_metadata,
    check_outcome,
    check_phase,
    merged_metadata,
)
from moorage.testing.builders import NOON, a_stamp, after, an_approval, said
from tests.core.heads import LATER, a_head

Rule = Callable[[Session], Change]
STAMP = a_stamp(LATER)

RULES: dict[str, Rule] = {
    "append": lambda head: head.append(said("hello"), STAMP),
    "phase": lambda head: head.update(Update(phase=Phase.PLANNING), STAMP),
    "metadata": lambda head: head.update(Update(metadata={"a": 1}), STAMP),
    "rename": lambda head: head.rename("other", STAMP),
    "error": lambda head: head.update(Update(error="oops"), STAMP),
    "resume_ready": lambda head: head.update(Update(resume_ready=False), STAMP),
    "nothing": lambda head: head.update(Update(), STAMP),
    "suspend": lambda head: head.suspend(STAMP, reason="lunch"),
    "checkpoint": lambda head: head.save_checkpoint({"step": 1}, STAMP),
    "resume": lambda head: head.resume("ann", "secret", STAMP),
    "release": lambda head: head.release(STAMP),
    "compact": lambda head: head.compact("so far", 1, STAMP),
    "ask": lambda head: head.ask(an_approval("s-1"), STAMP),
    "completed": lambda head: head.finalize("completed", STAMP),
    "failed": lambda head: head.finalize("failed", STAMP),
    "abandoned": lambda head: head.finalize("abandoned", STAMP),
}

CREATED, ACTIVE, SUSPENDED = State.CREATED, State.ACTIVE, State.SUSPENDED
LEADS_TO: dict[str, dict[State, State]] = {
    "append": {CREATED: ACTIVE, ACTIVE: ACTIVE, SUSPENDED: SUSPENDED},
    "phase": {CREATED: ACTIVE, ACTIVE: ACTIVE, SUSPENDED: SUSPENDED},
    "rename": {CREATED: CREATED, ACTIVE: ACTIVE, SUSPENDED: SUSPENDED},
    "metadata": {CREATED: CREATED, ACTIVE: ACTIVE, SUSPENDED: SUSPENDED},
    "error": {CREATED: CREATED, ACTIVE: ACTIVE, SUSPENDED: SUSPENDED},
    "resume_ready": {CREATED: CREATED, ACTIVE: ACTIVE, SUSPENDED: SUSPENDED},
    "nothing": {CREATED: CREATED, ACTIVE: ACTIVE, SUSPENDED: SUSPENDED},
    "suspend": {CREATED: SUSPENDED, ACTIVE: SUSPENDED, SUSPENDED: SUSPENDED},
    "checkpoint": {CREATED: CREATED, ACTIVE: ACTIVE, SUSPENDED: SUSPENDED},
    "resume": {CREATED: ACTIVE, ACTIVE: ACTIVE, SUSPENDED: ACTIVE},
    "release": {CREATED: CREATED, ACTIVE: ACTIVE, SUSPENDED: SUSPENDED},
    "compact": {CREATED: CREATED, ACTIVE: ACTIVE, SUSPENDED: SUSPENDED},
    "ask": {CREATED: SUSPENDED, ACTIVE: SUSPENDED, SUSPENDED: SUSPENDED},
    "completed": dict.fromkeys((CREATED, ACTIVE, SUSPENDED, State.COMPLETED), State.COMPLETED),
    "failed": dict.fromkeys((CREATED, ACTIVE, SUSPENDED, State.FAILED), State.FAILED),
    "abandoned": dict.fromkeys((CREATED, ACTIVE, SUSPENDED, State.ABANDONED), State.ABANDONED),
}


def test_every_rule_is_in_the_table() -> None:
    assert RULES.keys() == LEADS_TO.keys()


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("rule", RULES)
def test_a_rule_leads_where_the_table_says_or_is_refused(rule: str, state: State) -> None:
    head = a_head(state)
    if state in LEADS_TO[rule]:
        assert RULES[rule](head).session.state is LEADS_TO[rule][state]
    elif rule in OUTCOMES:
        with pytest.raises(OutcomeConflict):
            RULES[rule](head)
    else:
        with pytest.raises(SessionClosed) as refused:
            RULES[rule](head)
        assert "fork" in refused.value.message
        assert refused.value.facts == {"session_id": "s-1", "state": state.value}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("rule", RULES)
def test_every_change_numbers_its_entries_on_without_a_gap(rule: str, state: State) -> None:
    head = a_head(state)
    try:
        change = RULES[rule](head)
    except MoorageError:
        return
    numbers = [entry.number for entry in change.entries]
    assert numbers == list(range(head.last_entry + 1, change.session.last_entry + 1))
    assert all((entry.at, entry.by, entry.session_id) == (LATER, "tester", "s-1") for entry in change.entries)


@pytest.mark.parametrize("state", [CREATED, ACTIVE, SUSPENDED])
@pytest.mark.parametrize("rule", sorted(RULES.keys() - {"append", "nothing", "release"}))
def test_a_state_change_raises_the_version_by_one(rule: str, state: State) -> None:
    head = a_head(state)
    assert RULES[rule](head).session.version == head.version + 1


@pytest.mark.parametrize("rule", ["append", "nothing", "release"])
def test_appends_and_no_ops_leave_the_version(rule: str) -> None:
    head = a_head(ACTIVE)
    assert RULES[rule](head).session.version == head.version


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_refused_or_applied_rule_never_changes_the_head_it_was_asked_of(rule: str) -> None:
    head = a_head(ACTIVE, metadata={"old": [1, {"deep": True}]})
    before = replace(head, metadata={"old": [1, {"deep": True}]})
    RULES[rule](head)
    assert head == before


# Phases -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", WORKING_PHASES)
@pytest.mark.parametrize("end", WORKING_PHASES)
def test_phases_move_freely_among_the_working_ones(start: Phase, end: Phase) -> None:
    head = a_head(ACTIVE, phase=start)
    change = head.update(Update(phase=end), STAMP)
    assert change.session.phase is end
    expected = [] if start is end else [(Kind.PHASE, {"from": start.value, "to": end.value})]
    assert [(entry.kind, entry.data) for entry in change.entries] == expected


def test_there_are_six_working_phases_and_three_final_ones() -> None:
    assert [phase.value for phase in WORKING_PHASES] == [
        "initializing",
        "investigating",
        "planning",
        "approval",
        "executing",
        "validating",
    ]
    assert {phase.value for phase in FINAL_PHASES} == set(OUTCOMES)


@pytest.mark.parametrize("phase", sorted(FINAL_PHASES))
def test_a_final_phase_is_never_entered_by_update(phase: Phase) -> None:
    with pytest.raises(FinalPhase, match="finalize"):
        check_phase(phase.value)


@pytest.mark.parametrize("phase", ["", "Planning", "plan", "idle", None, 3, ["planning"]])
def test_an_unknown_phase_is_refused_with_those_there_are(phase: object) -> None:
    with pytest.raises(UnknownPhase) as refused:
        check_phase(phase)
    assert refused.value.facts["allowed"] == [phase.value for phase in WORKING_PHASES]


@pytest.mark.parametrize("phase", WORKING_PHASES)
def test_resume_ready_follows_the_phase(phase: Phase) -> None:
    start = Phase.EXECUTING if phase is not Phase.EXECUTING else Phase.VALIDATING
    change = a_head(ACTIVE, phase=start).update(Update(phase=phase), STAMP)
    assert change.session.resume_ready is (phase in RESUMABLE_PHASES)


def test_resume_ready_may_be_set_false_and_stays_so_in_that_phase() -> None:
    ready = a_head(ACTIVE).update(Update(phase=Phase.PLANNING), STAMP).session
    unready = ready.update(Update(resume_ready=False), STAMP).session
    assert not unready.resume_ready
    assert not unready.update(Update(phase=Phase.PLANNING), STAMP).session.resume_ready
    assert unready.update(Update(phase=Phase.INVESTIGATING), STAMP).session.resume_ready


def test_resume_ready_cannot_be_set_true_in_a_phase_that_is_not_resumable() -> None:
    assert not a_head(ACTIVE, phase=Phase.EXECUTING).update(Update(resume_ready=True), STAMP).session.resume_ready


def test_readiness_may_be_unset_in_the_same_update_that_enters_the_phase() -> None:
    change = a_head(ACTIVE).update(Update(phase=Phase.PLANNING, resume_ready=False), STAMP)
    assert (change.session.phase, change.session.resume_ready) == (Phase.PLANNING, False)


# Updates ----------------------------------------------------------------------------------------


def test_one_update_tells_of_everything_in_one_version() -> None:
    head = a_head(CREATED, metadata={"a": 1, "b": {"x": 1}})
    change = head.update(Update(phase=Phase.PLANNING, metadata={"b": {"y": 2}, "c": 3}, error="oops"), STAMP)
    assert [entry.kind for entry in change.entries] == [Kind.PHASE, Kind.METADATA, Kind.ERROR]
    assert change.session.metadata == {"a": 1, "b": {"y": 2}, "c": 3}
    assert (change.session.error_count, change.session.last_error) == (1, "oops")
    assert change.session.version == head.version + 1


def test_metadata_and_errors_do_not_count_as_activity() -> None:
    head = a_head(ACTIVE)
    for rule in ("metadata", "error", "resume_ready", "checkpoint", "compact", "nothing"):
        assert RULES[rule](head).session.last_activity_at == NOON, rule


def test_messages_and_phases_count_as_activity() -> None:
    head = a_head(ACTIVE)
    for rule in ("append", "phase", "completed"):
        assert RULES[rule](head).session.last_activity_at == LATER, rule


def test_a_plain_update_never_resets_the_error_count() -> None:
    head = a_head(ACTIVE, error_count=2, last_error="oops")
    for rule in ("append", "phase", "metadata", "suspend", "resume"):
        assert RULES[rule](head).session.error_count == 2, rule


def test_merged_metadata_above_the_limit_is_refused() -> None:
    head = a_head(ACTIVE, metadata={"old": "x" * (MAX_METADATA_BYTES - 100)})
    with pytest.raises(TooLarge) as refused:
        head.update(Update(metadata={"new": "y" * 200}), STAMP)
    assert refused.value.code == "metadata_too_large"


def test_metadata_fits_up_to_exactly_the_limit() -> None:
    fitting = {"k": "x" * (MAX_METADATA_BYTES - len('{"k":""}'))}
    assert check_metadata(fitting) == fitting
    assert merged_metadata({}, fitting) == fitting
    with pytest.raises(TooLarge):
        check_metadata({"k": fitting["k"] + "x"})
    with pytest.raises(TooLarge):
        check_metadata({"k": "é" * (MAX_METADATA_BYTES // 2)})


@pytest.mark.parametrize("metadata", [[], "text", 1, None, ("a", 1)])
def test_metadata_is_an_object(metadata: object) -> None:
    with pytest.raises(InvalidField) as refused:
        check_metadata(metadata)
    assert refused.value.code == "invalid_metadata"


# Suspending -------------------------------------------------------------------------------------


def test_suspending_keeps_the_checkpoint_where_the_head_says() -> None:
    change = a_head(ACTIVE).suspend(STAMP, checkpoint={"step": 3}, reason="lunch")
    checkpoint, suspended = change.entries
    assert (checkpoint.kind, checkpoint.data) == (Kind.CHECKPOINT, {"checkpoint": {"step": 3}})
    assert suspended.data == {"reason": "lunch", "suspended_by": "person"}
    assert change.session.last_checkpoint == checkpoint.number


def test_suspending_twice_changes_nothing() -> None:
    head = a_head(SUSPENDED)
    assert head.suspend(STAMP) == Change(session=head)


def test_suspending_again_with_a_checkpoint_keeps_it() -> None:
    change = a_head(SUSPENDED).suspend(STAMP, checkpoint={"step": 4})
    assert change.session.last_checkpoint == change.entries[0].number


# Finalizing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_finalizing_says_when_how_long_and_why(outcome: str) -> None:
    head = a_head(ACTIVE, phase=Phase.EXECUTING, resume_ready=True)
    change = head.finalize(outcome, a_stamp(NOON + timedelta(seconds=90.25)), summary="Done")
    session = change.session
    assert (session.state, session.phase, session.resume_ready) == (State(outcome), Phase(outcome), False)
    assert (session.finalized_at, session.duration_seconds) == (NOON + timedelta(seconds=90.25), 90.25)
    assert [(entry.kind, entry.data) for entry in change.entries] == [
        (Kind.FINALIZED, {"outcome": outcome, "summary": "Done", "from": "executing"})
    ]


@pytest.mark.parametrize("state", sorted(FINAL_STATES))
def test_the_same_outcome_again_changes_nothing(state: State) -> None:
    head = a_head(state)
    assert head.finalize(state.value, STAMP) == Change(session=head)


def test_the_same_outcome_again_may_add_a_missing_summary_but_not_replace_one() -> None:
    change = a_head(State.COMPLETED).finalize("completed", STAMP, summary="Late words")
    assert change.session.summary == "Late words"
    assert len(change.entries) == 1
    assert change.session.finalized_at == NOON
    again = change.session.finalize("completed", STAMP, summary="Other words")
    assert again == Change(session=change.session)


def test_finalizing_withdraws_pending_approvals() -> None:
    approval = an_approval("s-1")
    head = a_head(ACTIVE).ask(approval, STAMP).session
    change = head.finalize("failed", STAMP, pending=(approval,))
    assert [each.state for each in change.approvals] == ["withdrawn"]
    assert [entry.kind for entry in change.entries] == [Kind.APPROVAL_WITHDRAWN, Kind.FINALIZED]
    assert (change.session.pending_approvals, change.session.phase_before) == (0, None)


@pytest.mark.parametrize("outcome", ["", "done", "COMPLETED", "active", None, 1])
def test_an_unknown_outcome_is_refused_with_those_there_are(outcome: object) -> None:
    with pytest.raises(InvalidField, match="completed, failed, abandoned"):
        check_outcome(outcome)


@pytest.mark.parametrize(
    "labels", ["word", {"a"}, [1], [""], ["a b"], ["-a"], ["x" * 65], [f"w{n}" for n in range(33)]]
)
def test_bad_labels_are_refused(labels: object) -> None:
    with pytest.raises(InvalidField, match="labels"):
        check_labels(labels)


def test_labels_are_sorted_and_each_is_there_once() -> None:
    assert check_labels(["b", "x" * 64, "a", "b"]) == ["a", "b", "x" * 64]


def test_labels_replace_those_before_and_are_told_in_the_log() -> None:
    change = a_head(ACTIVE).update(Update(labels=["prod"]), STAMP)
    assert [(entry.kind, entry.data) for entry in change.entries] == [(Kind.LABELS, {"labels": ["prod"]})]
    again = change.session.update(Update(labels=["prod"]), STAMP)
    assert again.entries == ()
    assert change.session.update(Update(labels=[]), STAMP).session.labels == []


# Public fields ----------------------------------------------------------------------------------


def test_a_session_has_the_fields_that_were_promised_in_that_order() -> None:
    promised = (
        "session_id session_name task_id agent_name purpose project_dir owner state status waiting_for because "
        "phase resume_ready interface parent_session_id parent_session_name root_session_id depth forked_from "
        "version last_entry error_count last_error metadata labels created_at updated_at last_activity_at expires_at "
        "finalized_at duration_seconds summary hold pending_approvals last_run"
    )
    assert tuple(promised.split()) == PUBLIC_FIELDS


def test_core_uses_only_the_given_time() -> None:
    change = a_head(ACTIVE).append(said("one", "two"), a_stamp(after(5)))
    assert {entry.at for entry in change.entries} == {after(5)}
    assert change.session.updated_at == after(5)
