"""The rules of work, one session at a time and without any store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from moorage.core import work
from moorage.core.errors import HeldByAnother, HoldLost, MoorageError, RunSettled, SessionClosed, TurnLost
from moorage.core.inbox import MAX_GIVEN
from moorage.core.run import MAX_RESULT_BYTES, Join, Mode, RunState
from moorage.core.session import HOLD_FOR, Change, OpenWork, State, View
from moorage.core.turn import LEASE, LOST_AFTER, MAX_ATTEMPTS, Retry, Turn, TurnState
from moorage.core.work import TurnEnd, callbacks_of_deleted, cut, fate_with
from moorage.testing.builders import NOON, a_stamp
from moorage.testing.work import LATE, TOO_LATE, a_child_run, a_claim, a_run
from tests.core.cases import Case
from tests.core.heads import a_head

TICK = timedelta(microseconds=1)


def asked(*names: str) -> Case:
    case = Case()
    for name in names or ("run-1",):
        case.ask(name)
    return case


def at_work(*names: str, retry: Retry = Retry.RESUME, started: bool = True) -> tuple[Case, Turn]:
    case = asked(*names)
    turn = case.claim(retry)
    assert turn is not None
    if started:
        case.start(turn)
    return case, turn


# Waking -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "suspended_by", "wakes", "is_woken"),
    [
        (State.CREATED, None, False, True),
        (State.ACTIVE, None, False, True),
        (State.SUSPENDED, "agent", False, True),
        (State.SUSPENDED, "person", False, False),
        (State.SUSPENDED, "agent", True, True),
        (State.SUSPENDED, "person", True, True),
    ],
)
def test_ask_queues_a_turn_unless_a_person_suspended_the_session(
    state: State, suspended_by: str | None, wakes: bool, is_woken: bool
) -> None:
    case = Case(a_head(state, suspended_by=suspended_by))
    case.ask(wakes=wakes)
    assert case.states() == (["queued"], ["queued"] if is_woken else [], ["waiting"])


def test_ask_that_wakes_says_so_and_forgets_who_suspended_the_session() -> None:
    case = Case(a_head(State.SUSPENDED, suspended_by="person"))
    case.ask()
    assert (case.head.state, case.head.suspended_by) == (State.ACTIVE, None)
    assert [entry.kind for entry in case.entries] == ["resumed", "message"]


def test_ask_waits_for_a_pending_approval_whose_answer_then_wakes_the_session() -> None:
    case, turn = at_work()
    case.ask_person()
    case.finish(turn)
    case.keep(case.head.suspend(a_stamp()))
    case.ask("run-2")
    assert (case.head.state, case.states()[1]) == (State.SUSPENDED, ["completed"])
    case.answer()
    assert (case.head.state, case.states()[1]) == (State.ACTIVE, ["completed", "queued"])


def test_several_messages_ask_once() -> None:
    case = Case()
    case.ask(before=["one", "two"])
    assert [entry.content for entry in case.entries] == ["one", "two", "go"]
    assert case.runs["run-1"].asked_entry == case.entries[-1].number
    assert case.states() == (["queued"], ["queued"], ["waiting"])


def test_input_to_a_final_session_is_refused() -> None:
    for state in (State.COMPLETED, State.FAILED, State.ABANDONED):
        with pytest.raises(SessionClosed):
            Case(a_head(state)).ask()


def test_held_session_is_woken_when_the_hold_ends() -> None:
    case = Case(a_head(State.ACTIVE).resume("ann", "secret", a_stamp()).session)
    case.ask(queue=True)
    assert case.turns["s-1:t1"].not_before == NOON + HOLD_FOR
    case.after(case.head.release(a_stamp()))
    assert case.turns["s-1:t1"].not_before is None


@pytest.mark.parametrize("who", [{"holder": "ann"}, {"token": "secret"}])
def test_ask_by_the_holder_ends_its_hold_and_queues_a_turn(who: dict[str, str]) -> None:
    case = Case(a_head(State.ACTIVE).resume("ann", "secret", a_stamp()).session)
    case.ask(**who)
    assert case.head.hold is None
    assert case.turns["s-1:t1"].not_before is None
    assert [entry.kind for entry in case.entries] == ["released", "message"]


def test_ask_while_another_holds_the_session_is_refused() -> None:
    case = Case(a_head(State.ACTIVE).resume("ann", "secret", a_stamp()).session)
    with pytest.raises(HeldByAnother):
        case.ask(holder="bob")
    with pytest.raises(HoldLost):
        case.ask(holder="ann", token="guessed")
    assert case.states() == ([], [], [])


def test_ask_while_a_turn_lives_waits_for_the_next_one() -> None:
    case, _ = at_work()
    case.ask("run-2", holder="bob")
    assert case.states() == (["running", "queued"], ["running"], ["given", "waiting"])


def test_a_session_that_no_launcher_has_to_do_with_is_never_woken() -> None:
    case = Case()
    case.hear_of(a_child_run("run-c", "s-1"))
    assert case.states() == ([], [], ["waiting"])


def test_nothing_waits_nothing_wakes() -> None:
    case = asked()
    case.carry()
    assert case.after(Change(session=case.head)) == Change(session=case.head)


# Claims -----------------------------------------------------------------------------------------


def test_claim_postpones_the_turn_of_a_held_session() -> None:
    case = asked()
    case.keep(case.head.resume("ann", "secret", a_stamp()))
    assert case.claim() is None
    assert case.turns["s-1:t1"].not_before == NOON + HOLD_FOR
    case.at = NOON + HOLD_FOR
    assert case.claim() is not None


@pytest.mark.parametrize("reason", ["suspended by a person", "waiting for a person", "nothing waits"])
def test_a_claim_drops_a_turn_that_is_not_needed_any_more(reason: str) -> None:
    case = asked()
    if reason == "suspended by a person":
        case.keep(case.head.suspend(a_stamp()))
    elif reason == "waiting for a person":
        case.ask_person()
    else:
        case.items.clear()
    assert case.claim() is None
    assert case.turns["s-1:t1"].state is TurnState.STOPPED
    assert case.claim() is None


def test_a_claim_that_comes_second_changes_nothing() -> None:
    case, _ = at_work()
    case.ask("run-2")
    assert work.claim(case.view(), a_claim(), a_stamp()) == Change(session=case.head)


def test_token_of_a_turn_is_the_one_its_claim_brought() -> None:
    case = asked()
    claim = work.claim(case.view(), a_claim(token="brought"), a_stamp())
    head, turn = claim.session, claim.turns[0]
    assert head.token_of(turn) == "brought"
    for other in (replace(turn, epoch=2), replace(turn, turn_id="s-1:t2")):
        with pytest.raises(TurnLost):
            head.token_of(other)
    with pytest.raises(TurnLost):
        case.head.token_of(turn)


def test_renewing_keeps_the_token_of_a_turn_and_adopting_changes_it() -> None:
    case, turn = at_work()
    before = case.head.token_of(turn)
    renewed = work.renewed(case.view(), turn.turn_id, turn.epoch, a_stamp())
    assert renewed.session.token_of(turn) == before
    adopted = work.adopted(case.view(), turn.turn_id, turn.epoch, "launcher-2", a_stamp(), token="new")
    assert adopted.session.token_of(adopted.turns[0]) == "new"


# Fencing ----------------------------------------------------------------------------------------

REPORTS: dict[str, Callable[[View, str, int], Change]] = {
    "started": lambda view, turn, epoch: work.started(view, turn, epoch, a_stamp()),
    "renewed": lambda view, turn, epoch: work.renewed(view, turn, epoch, a_stamp()),
    "adopted": lambda view, turn, epoch: work.adopted(view, turn, epoch, "launcher-2", a_stamp(), token="new"),
    "released": lambda view, turn, epoch: work.released(view, turn, epoch, a_stamp()),
    "finished": lambda view, turn, epoch: work.finished(view, turn, epoch, TurnEnd(), a_stamp()),
}


@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.parametrize(("turn_id", "epoch"), [("s-1:t1", 0), ("s-1:t1", 2), ("s-1:t2", 1), ("", 1)])
def test_a_report_must_name_the_live_turn_and_its_epoch(report: str, turn_id: str, epoch: int) -> None:
    case, _ = at_work()
    with pytest.raises(TurnLost):
        REPORTS[report](case.view(turn="s-1:t1"), turn_id, epoch)
    REPORTS[report](case.view(turn="s-1:t1"), "s-1:t1", 1)


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_of_no_live_turn_is_refused(report: str) -> None:
    case = asked()
    with pytest.raises(TurnLost):
        REPORTS[report](case.view(), "s-1:t1", 0)


# Silence ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("started", "moment", "states"),
    [
        (False, LEASE - TICK, ["running"]),
        (False, LEASE, ["queued"]),
        (True, LEASE, ["running"]),
        (True, LOST_AFTER - TICK, ["running"]),
        (True, LOST_AFTER, ["lost", "queued"]),
    ],
)
def test_silence_has_consequences_at_its_very_end(started: bool, moment: timedelta, states: list[str]) -> None:
    case, _ = at_work(started=started)
    case.expire(NOON + moment)
    assert case.states()[1] == states


@pytest.mark.parametrize(
    ("retry", "lost", "state"),
    [
        (Retry.RESUME, MAX_ATTEMPTS - 1, RunState.QUEUED),
        (Retry.RESUME, MAX_ATTEMPTS, RunState.FAILED),
        (Retry.NEVER, 1, RunState.FAILED),
        (Retry.ALWAYS, 3 * MAX_ATTEMPTS, RunState.QUEUED),
    ],
)
def test_a_lost_turn_is_tried_again_as_often_as_its_agent_says(retry: Retry, lost: int, state: RunState) -> None:
    case = asked()
    for _ in range(lost):
        turn = case.claim(retry)
        assert turn is not None
        case.start(turn)
        case.expire(case.at + TOO_LATE)
    assert case.runs["run-1"].state is state
    assert case.items["message:run-1"].state == ("dead_letter" if state is RunState.FAILED else "waiting")
    assert case.items["message:run-1"].given == lost


def test_turns_that_failed_and_turns_that_were_lost_count_together() -> None:
    case = asked()
    case.carry("failed")
    turn = case.claim()
    assert turn is not None
    case.start(turn)
    case.expire(NOON + TOO_LATE)
    case.carry("failed", error="once more")
    assert case.states() == (["failed"], ["failed", "lost", "failed"], ["dead_letter"])
    assert MAX_GIVEN == MAX_ATTEMPTS, "an item becomes a dead letter when its run fails, not before"


def test_a_turn_that_was_never_started_leaves_no_trace() -> None:
    case = asked()
    before = (dict(case.runs), dict(case.items), case.head.error_count)
    case.claim()
    case.expire(NOON + LATE)
    assert (case.runs, case.items, case.head.error_count) == before
    assert [entry.kind for entry in case.entries] == ["message"]


# Settling ---------------------------------------------------------------------------------------


def test_a_run_settles_only_with_nothing_outstanding() -> None:
    case, turn = at_work()
    case.children = {"run-1": 1}
    case.finish(turn)
    assert case.runs["run-1"].state is RunState.QUEUED
    case.children = {}
    case.hear_of(a_child_run("run-c", "s-1", "run-1"))
    case.ask_person()
    assert case.claim() is None
    case.answer()
    case.carry(result="all of it")
    assert (case.runs["run-1"].state, case.runs["run-1"].result) == (RunState.COMPLETED, "all of it")
    assert case.is_at_rest()


def test_runs_that_waited_for_one_answer_end_with_the_turn_that_heard_it() -> None:
    case, turn = at_work("run-1", "run-2")
    case.ask_person()
    case.finish(turn)
    case.answer()
    assert [item.run_id for item in case.items.values()] == ["run-1", "run-2", "run-1"]
    case.carry(result="both")
    assert {(run.state, run.result) for run in case.runs.values()} == {(RunState.COMPLETED, "both")}


@pytest.mark.parametrize("whole", [False, True])
def test_an_answer_that_others_waited_for_outlives_the_run_it_belonged_to(whole: bool) -> None:
    case, turn = at_work("run-1", "run-2", "run-3")
    case.ask_person()
    case.finish(turn)
    case.answer()
    case.stop(None if whole else "run-1")
    if not whole:
        case.carry()
    ending = "stopped" if whole else "completed"
    assert case.states()[0] == ["stopped", ending, ending]
    assert case.is_at_rest()


def test_a_result_that_is_too_long_is_cut_at_a_letter() -> None:
    case, turn = at_work()
    case.finish(turn, result="ü" * MAX_RESULT_BYTES)
    result = case.runs["run-1"].result
    assert result is not None
    assert len(result.encode()) <= MAX_RESULT_BYTES
    assert result.endswith("ü…")


@given(st.text(), st.integers(3, 40))
def test_cut_text_is_valid_and_within_the_limit(text: str, limit: int) -> None:
    short = cut(text, limit)
    assert len(short.encode()) <= limit
    assert short == text or (short.endswith("…") and text.startswith(short[:-1]))


def test_a_run_that_is_over_cannot_be_stopped() -> None:
    case = asked()
    case.carry()
    with pytest.raises(RunSettled):
        case.stop("run-1")


@pytest.mark.parametrize("ends", ["stopped later", "stopped at work", "failed for good"])
def test_question_of_a_settled_run_does_not_block_others(ends: str) -> None:
    case, turn = at_work()
    case.ask_person()
    if ends == "stopped later":
        case.finish(turn)
        case.stop("run-1")
    elif ends == "stopped at work":
        case.stop("run-1")
        case.finish(turn, "stopped")
    else:
        case.runs["run-1"] = replace(case.runs["run-1"], failures=2)
        case.finish(turn, "failed", error="no")
    assert (case.approvals["a-1"].state, case.head.pending_approvals) == ("withdrawn", 0)
    case.ask("run-2")
    case.carry()
    assert case.runs["run-2"].state == "completed"


def test_a_question_outlives_a_run_that_never_was_at_work() -> None:
    case = Case()
    case.ask_person()
    case.ask("run-1")
    case.stop("run-1")
    assert case.head.pending_approvals == 1


@pytest.mark.parametrize("is_joined", [False, True])
def test_joined_callbacks_wait_for_each_other(is_joined: bool) -> None:
    case, turn = at_work()
    join = Join.ALL if is_joined else Join.EACH
    case.children, case.joined = {"run-1": 1}, {"run-1": 1} if is_joined else {}
    case.hear_of(a_child_run("run-a", "s-1", "run-1", join=join))
    assert case.items["callback:run-a"].state == ("held" if is_joined else "waiting")
    case.finish(turn)
    case.children, case.joined = {}, {}
    case.hear_of(a_child_run("run-b", "s-1", "run-1", join=join))
    assert {case.items[f"callback:run-{name}"].state for name in "ab"} == {"waiting"}


def test_callbacks_are_held_for_no_run_that_is_over() -> None:
    case = asked()
    for _ in range(3):
        case.carry("failed", error="no")
    case.joined = {"run-1": 3}
    case.hear_of(a_child_run("run-a", "s-1", "run-1", join=Join.ALL))
    assert (case.items["callback:run-a"].state, case.items["callback:run-a"].run_id) == ("waiting", None)


def test_callbacks_to_a_stopped_run_queue_no_turn() -> None:
    case, turn = at_work()
    case.finish(turn, "stopped")
    case.hear_of(a_child_run("run-a", "s-1", "run-1"))
    assert case.items["callback:run-a"].state == "consumed"
    assert [entry.kind for entry in case.entries].count("callback") == 1
    assert case.is_at_rest()


def test_every_run_that_asked_to_be_called_back_is() -> None:
    case = Case()
    case.ask(a_child_run("run-1", "p-1", "run-p"))
    case.ask(a_run("run-2", parent_session_id="p-1"))
    case.ask(a_child_run("run-3", "p-2"))
    case.carry()
    told = [(callback.parent_session_id, callback.run_id, callback.child_run_id) for callback in case.callbacks]
    assert told == [("p-1", "run-p", "run-1"), ("p-2", None, "run-3")]
    assert {callback.stamp for callback in case.callbacks} == {a_stamp()}


def test_outcome_of_a_callback_depends_on_the_parent() -> None:
    assert fate_with(None) == "parent_deleted"
    assert fate_with(a_head(State.SUSPENDED)) == "delivered"
    assert fate_with(a_head(State.FAILED)) == "parent_closed"


def test_parents_outside_a_deleted_tree_are_told() -> None:
    runs = [a_child_run("run-1", "p-1"), a_child_run("run-2", "c-1"), a_child_run("run-3", "p-1", mode=Mode.SYNC)]
    (callback,) = callbacks_of_deleted(runs, {"c-1"}, a_stamp())
    assert (callback.child_run_id, callback.body["outcome"], callback.body["reason"]) == ("run-1", "stopped", "deleted")


def test_closing_consumes_items_without_a_run_too() -> None:
    case, turn = at_work()
    case.finish(turn)
    case.hear_of(a_child_run("run-c", "s-1"))
    case.after(case.head.finalize("completed", a_stamp()))
    assert case.is_at_rest()
    assert case.head.is_final


def test_nothing_is_said_twice_about_a_session_without_work() -> None:
    change = a_head(State.ACTIVE, launched=True).finalize("completed", a_stamp())
    view = View(a_head(State.ACTIVE, launched=True), work=OpenWork())
    assert work.after(view, change, a_stamp()) == change


def test_an_item_sent_again_has_not_been_given_yet() -> None:
    case = asked()
    for _ in range(3):
        case.carry("failed")
    case.keep(work.sent_again(case.view(item="message:run-1"), a_stamp()))
    item = case.items["message:run-1"]
    assert (item.state, item.given, item.run_id) == ("waiting", 0, None)
    assert case.states()[1][-1] == "queued"


@pytest.mark.parametrize("outcome", ["failed", "lost"])
def test_an_item_that_belongs_to_no_run_is_not_given_for_ever(outcome: str) -> None:
    case = asked()
    case.carry()
    case.hear_of(a_child_run("run-a", "s-1", "run-1"))
    for _ in range(MAX_GIVEN):
        assert case.items["callback:run-a"].state == "waiting"
        if outcome == "failed":
            case.carry("failed")
            continue
        turn = case.claim()
        assert turn is not None
        case.start(turn)
        case.expire(case.at + TOO_LATE)
    assert case.items["callback:run-a"].state == "dead_letter"
    assert "queued" not in case.states()[1]


# Anything at all --------------------------------------------------------------------------------

Step = Callable[[Case], object]


def _live(case: Case) -> Turn:
    turn = case.view().work.running
    if turn is None:
        raise TurnLost("none", 0)
    return turn


def _settle_child(case: Case) -> None:
    """A child that is out calls back: the first that is, as long as one is."""
    if not case.children:
        return
    ((run_id, out),) = case.children.items()
    case.children = case.joined = {} if out == 1 else {run_id: out - 1}
    case.hear_of(a_child_run(f"child-{len(case.items)}", "s-1", run_id, join=Join.ALL))


def _send_child(case: Case) -> None:
    open_runs = case.view().work.runs
    if case.view().work.running is not None and open_runs and set(case.children) <= {open_runs[0].run_id}:
        case.children = case.joined = {open_runs[0].run_id: case.children.get(open_runs[0].run_id, 0) + 1}


STEPS: dict[str, Step] = {
    "ask": lambda case: case.ask(f"run-{len(case.runs) + 1}"),
    "claim": lambda case: case.claim(),
    "claim once": lambda case: case.claim(Retry.NEVER),
    "claim always": lambda case: case.claim(Retry.ALWAYS),
    "start": lambda case: case.start(_live(case)),
    "renew": lambda case: case.renew(_live(case)),
    "complete": lambda case: case.finish(_live(case)),
    "fail": lambda case: case.finish(_live(case), "failed", error="no"),
    "end stopped": lambda case: case.finish(_live(case), "stopped"),
    "release": lambda case: case.release(_live(case)),
    "send a child": _send_child,
    "child calls": _settle_child,
    "late": lambda case: case.expire(case.at + LATE),
    "too late": lambda case: case.expire(case.at + TOO_LATE),
    "stop one": lambda case: case.stop(next(iter(case.runs), "none")),
    "stop all": lambda case: case.stop(),
    "ask a person": lambda case: case.ask_person(f"a-{len(case.approvals)}"),
    "ask and wait": lambda case: case.ask_person(f"a-{len(case.approvals)}", waits=True),
    "answer": lambda case: case.answer(next(one.approval_id for one in case.view().pending)),
    "suspend": lambda case: case.after(case.head.suspend(a_stamp(case.at))),
    "resume": lambda case: case.after(case.head.resume("ann", "secret", a_stamp(case.at))),
    "let go": lambda case: case.after(case.head.release(a_stamp(case.at))),
}


def _does(case: Case, name: str) -> None:
    try:
        STEPS[name](case)
    except (MoorageError, StopIteration):
        return  # refused: that is an answer too


@settings(max_examples=400)
@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=40))
def test_whatever_happens_every_move_is_in_the_tables_and_everything_ends(names: list[str]) -> None:
    case = Case()
    case.ask()
    for name in names:
        _does(case, name)
        case.at += timedelta(seconds=1)
    for _ in range(200):
        if case.is_at_rest() and not case.children:
            break
        for name in ("answer", "resume", "let go", "child calls", "too late", "claim", "start", "complete"):
            _does(case, name)
    assert case.is_at_rest(), case.states()
    settled = [entry.data["run_id"] for entry in case.entries if entry.kind == "run_settled" and entry.data]
    assert sorted(settled) == sorted(case.runs), "each run once"


def test_a_case_notices_a_move_that_no_table_has() -> None:
    case = asked()
    case.carry()
    with pytest.raises(AssertionError):
        case.keep(Change(session=case.head, runs=(replace(case.runs["run-1"], state=RunState.RUNNING),)))
