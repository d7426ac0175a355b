"""The rules of work: requesting runs, claiming and ending turns, delivering callbacks.

Every rule takes a `View`, the data that a store has loaded of one session at one instant. It returns one `Change` or
raises. A change includes the callbacks to parents: the store passes each to `deliver` with the parent's view, in the
same transaction.

A session is woken when something waits in its inbox, it has no holder and nothing blocks it: one turn is queued.
One place decides that (`WorkDraft.wake`), after every change.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from moorage.core.approval import Approval
from moorage.core.entry import Entry, Kind, Message, Problem
from moorage.core.errors import HeldByAnother, RunNotFailed, RunSettled, TooLarge, TurnLost
from moorage.core.inbox import MAX_GIVEN, OPEN_ITEMS, Item, ItemKind, ItemState
from moorage.core.run import (
    MAX_RESULT_BYTES,
    RETRIABLE,
    SETTLED,
    TOO_MANY_TURNS,
    Join,
    Mode,
    Run,
    RunState,
    Usage,
    added,
    summed,
)
from moorage.core.session import (
    BY_APPROVAL,
    Callback,
    Change,
    Hold,
    OpenWork,
    Session,
    Stamp,
    State,
    View,
    merged_metadata,
)
from moorage.core.status import LastRun
from moorage.core.turn import ENDED, MAX_ATTEMPTS, RESERVED_FOR, Retry, Turn, TurnState

MAX_CALLBACK_BYTES = 16 * 1024  # bytes of the result in a callback; `moorage result` returns the rest
LAUNCHER = "launcher:"  # prefix of the holder's name in the hold of a live turn
# The fates of a callback, as stored in `callback` of a run.
DELIVERED, PARENT_CLOSED, PARENT_DELETED = "delivered", "parent_closed", "parent_deleted"

# Requests ---------------------------------------------------------------------------------------


class Asking(Struct, frozen=True, kw_only=True):
    """The caller of a request, and whether it waits for obstacles."""

    holder: str | None = None  # whose hold ends with the request
    token: str | None = None  # token of the hold that ends with the request
    queue: bool = False  # whether to wait while another holder has the session
    wakes: bool = True  # whether to resume the session, even if a person suspended it


BY_NO_HOLDER = Asking()


def ask(
    view: View,
    run: Run,
    message: Message,
    stamp: Stamp,
    wish: Claim | None = None,
    *,
    before: tuple[Message, ...] = (),
    asking: Asking = BY_NO_HOLDER,
) -> Change:
    """Request a run in a session: append its prompt, after the messages before it; the run waits for the next turn.

    With `wish`, its turn begins in the same commit, unless another turn blocks it. Raises HeldByAnother at once if
    another holder has the session, unless the caller wants to wait for that.
    """
    draft = _open_draft(view, stamp, asking)
    draft.head = replace(draft.head, launched=True)
    draft.say([*before, message])
    draft.put_run(put_to(run, draft.head))
    draft.put_prompt(run, message, draft.head.last_entry)
    draft.wake()
    if wish is not None:
        draft.begin_here(run, wish)
    return draft.change()


def _open_draft(view: View, stamp: Stamp, asking: Asking) -> WorkDraft:
    """Begin the change of what is asked of a session."""
    view.asker.check_not_stopped()
    view.session.check_open()
    draft = WorkDraft(view, stamp)
    draft.make_way(asking)
    return draft


def answered_here(
    view: View,
    run: Run,
    message: Message,
    end: TurnEnd,
    stamp: Stamp,
    wish: Claim,
    *,
    after_turns: int,
    asking: Asking = BY_NO_HOLDER,
) -> Change:
    """Record a run with its turn and its answer, all in one commit.

    `end` was made without knowledge of turns after the first `after_turns`. Raises AnotherTurn if there was one since,
    or if one blocks the run. No launcher is involved: the holder of the session keeps driving it.
    """
    draft = _open_draft(view, stamp, asking)
    if view.session.turns != after_turns or not draft.is_free():
        raise AnotherTurn
    draft.say([message])
    draft.answer(put_to(run, draft.head), end, wish)
    return draft.change()


def take_here(view: View, run_id: str, wish: Claim, stamp: Stamp) -> Change:
    """Begin the turn of a queued run if it is the next; otherwise change nothing."""
    draft = WorkDraft(view, stamp)
    if (run := draft.runs.get(run_id)) is not None:
        draft.begin_here(run, wish)
    return draft.change()


class AnotherTurn(Exception):
    """A run could not be answered at once: another turn came first."""


def retried(view: View, run: Run, prompt: Message, stamp: Stamp) -> Change:
    """Retry a failed run (`view.run`) as `run`, with its prompt and its dead letters.

    The log already has the prompt, so it is not appended again.
    """
    view.asker.check_not_stopped()
    view.session.check_open()
    failed = view.run
    assert failed is not None
    if failed.state not in RETRIABLE:
        raise RunNotFailed(failed.run_id, failed.state.value)
    draft = WorkDraft(view, stamp)
    draft.head = replace(draft.head, launched=True)
    draft.put_run(repeating(run, failed))
    draft.note(Kind.RUN_RETRIED, {"run_id": run.run_id, "retry_of": failed.run_id})
    for item in view.dead_letters:
        draft.put_item(replace(item, state=ItemState.WAITING, given=0, turn_id=None, run_id=run.run_id))
    if not any(item.kind is ItemKind.MESSAGE and item.entry == failed.asked_entry for item in view.dead_letters):
        draft.put_prompt(run, prompt, failed.asked_entry)
    draft.wake()
    return draft.change()


def repeating(run: Run, failed: Run) -> Run:
    """Return a run that repeats the request of a failed run. Its caller waits for it no longer, except by callback."""
    mode = Mode.ASYNC_POLL if failed.mode is Mode.SYNC else failed.mode
    return replace(run, mode=mode, retry_of=failed.run_id, **{name: getattr(failed, name) for name in _REPEATED})


_REPEATED = (
    "session_id", "agent_name", "task_id", "join", "asked", "asked_entry", "parent_session_id", "parent_run_id",
    "correlation", "max_turns",
)  # fmt: skip


def put_to(run: Run, head: Session) -> Run:
    """Return the run with its place in the session: the entry that was just appended."""
    return replace(run, session_id=head.session_id, task_id=head.task_id, asked_entry=head.last_entry)


# A turn -----------------------------------------------------------------------------------------


class Claim(Struct, frozen=True, kw_only=True):
    """The request of a launcher to take a turn, and how long the launcher may be silent."""

    launcher_id: str
    lease: timedelta
    lost_after: timedelta
    token: str  # of the hold that comes with the turn; impossible to guess
    retries: dict[str, Retry] = {}  # by agent: the rule for the turn if it is lost
    of_family: bool = False  # whether the launcher takes turns of one family only


def claim(view: View, wish: Claim, stamp: Stamp) -> Change:
    """Give the queued turn to a launcher, with all waiting items."""
    draft = WorkDraft(view, stamp)
    turn = draft.queued
    if turn is None or draft.running is not None:
        return Change(session=view.session)  # another launcher claimed it first
    if turn.is_reserved(stamp.at) and not wish.of_family:
        return Change(session=view.session)
    due = draft.due_for(turn.agent_name)
    if not due or not draft.may_wake():
        draft.unqueue("not_needed")  # suspended meanwhile, or waiting for a person: waking it queues a new turn
        draft.wake()
        return draft.change()
    if (hold := draft.head.hold) is not None and hold.lives(stamp.at):
        # The holder that resumed the session drives it until then.
        draft.turns[turn.turn_id] = replace(turn, not_before=hold.until)
        return draft.change()
    draft.give(turn, due, wish)
    return draft.change()


def started(view: View, turn_id: str, epoch: int, stamp: Stamp) -> Change:
    """Record that the launcher is about to start the agent. A turn that falls silent later is lost, not requeued."""
    draft = WorkDraft(view, stamp)
    turn = _fenced(view, turn_id, epoch)
    if turn.started_at is not None:
        return Change(session=view.session)
    draft.start(turn)
    return draft.change()


def misspoken(view: View, turn_id: str, epoch: int, problem: Problem, stamp: Stamp) -> Change:
    """Log a line of the agent that does not validate, and count it in the runs that the turn serves."""
    draft = WorkDraft(view, stamp)
    turn = _fenced(view, turn_id, epoch)
    draft.note(Kind.PROBLEM, to_builtins(problem))
    for run in draft.served_by(turn):
        draft.put_run(replace(run, problems=run.problems + 1))
    return draft.change()


def renewed(view: View, turn_id: str, epoch: int, stamp: Stamp) -> Change:
    """Renew the lease of a turn, even an expired one, as long as no other launcher has the turn."""
    draft = WorkDraft(view, stamp)
    draft.drive(_fenced(view, turn_id, epoch))
    return draft.change()


def adopted(
    view: View, turn_id: str, epoch: int, launcher_id: str, stamp: Stamp, *, token: str, former: str | None = None
) -> Change:
    """Let a restarted launcher continue a turn from its spool; reports of the process before the restart are refused.

    The turn's hold gets `token`.

    The request may be repeated, because its answer may get lost. `former` is an earlier start of the launcher that may
    have adopted the turn under the next epoch and died before it could store that.
    """
    draft = WorkDraft(view, stamp)
    live = view.work.running
    is_told_again = live is not None and live.epoch == epoch + 1 and live.launcher_id in (launcher_id, former)
    turn = _fenced(view, turn_id, epoch + 1 if is_told_again else epoch)
    if not is_told_again or turn.launcher_id != launcher_id:
        turn = replace(turn, epoch=turn.epoch + 1, launcher_id=launcher_id)
        draft.head = replace(draft.head, epoch=turn.epoch)
    draft.drive(turn, token)
    return draft.change()


def released(view: View, turn_id: str, epoch: int, stamp: Stamp) -> Change:
    """Give back a turn that its launcher cannot finish; tell the next launcher that it was cut off."""
    draft = WorkDraft(view, stamp)
    turn = _fenced(view, turn_id, epoch)
    if turn.stop_requested:
        _stopped(draft, turn)
    else:
        _given_out_again(draft, replace(turn, cut_off=turn.cut_off or turn.started_at is not None))
    return draft.change()


class TurnEnd(Struct, frozen=True, kw_only=True):
    """The end of a turn, as its launcher reports it."""

    outcome: TurnState = TurnState.COMPLETED  # completed, failed or stopped
    messages: tuple[Message, ...] = ()  # the last messages of the agent
    result: str | None = None
    error: str | None = None
    reason: str | None = None
    usage: Usage = {}  # tokens of the turn, if its agent reports them
    problems: int = 0  # number of lines that did not validate and are not entries
    metadata: dict[str, Any] = {}  # the agent's metadata of its answer
    context: dict[str, Any] = {}  # values for the session's context, by key
    cut_off: bool = False  # for a failed turn: whether its agent died without a report


def finished(view: View, turn_id: str, epoch: int, end: TurnEnd, stamp: Stamp) -> Change:
    """End a turn: append its messages, settle its runs, call back and continue with waiting items, all in one commit.

    The report may be repeated, because its answer may get lost: the same end is recognised.
    """
    turn = view.turn
    if turn is not None and turn.state in ENDED and (turn.epoch, turn.state) == (epoch, end.outcome):
        return Change(session=view.session)
    turn = _fenced(view, turn_id, epoch)
    draft = WorkDraft(view, stamp)
    _finish(draft, turn, end)
    return draft.change()


def _finish(draft: WorkDraft, turn: Turn, end: TurnEnd) -> None:
    end = replace(end, cut_off=end.cut_off and end.outcome is TurnState.FAILED)
    if end.messages:
        draft.say(end.messages)
    said = draft.head.last_entry if end.messages else None
    draft.end(turn, end.outcome, end.reason, end.usage)
    if end.outcome is not TurnState.COMPLETED and not end.cut_off:
        draft.withdraw_approvals(of_turn=True)
    stopped = [run for run in draft.served_by(turn) if run.stop_requested]
    for run in stopped:  # first: their waiting items must not be given back
        draft.settle_stopped(_with_turn(run, end), end, said)
    cut_short, served = turn.stop_requested and end.outcome is not TurnState.COMPLETED, draft.served_by(turn)
    if end.outcome is TurnState.COMPLETED:
        draft.head = replace(draft.head, error_count=0)
        draft.consume(turn)
    elif end.outcome is TurnState.FAILED:
        draft.fail(end.error or end.reason or "the agent failed")
        draft.give_back(turn, counted=not cut_short)
    elif cut_short:
        draft.give_back(turn, counted=False)
    else:
        draft.consume(turn)
    for run in draft.concerned_by(turn):
        told = _with_turn(run, end)
        if cut_short:  # for the sake of another run
            _go_on_after_stop(draft, replace(told, cut_off=run.cut_off or run in served))
        else:
            _judge_run(draft, told, end, said)
    if stopped or end.outcome is not TurnState.COMPLETED:
        draft.forget_questions()
    is_retried = end.outcome is TurnState.FAILED and not cut_short
    draft.wake(attempt=turn.attempt + 1 if is_retried else 1, cut_off=end.cut_off)


def _with_turn(run: Run, end: TurnEnd) -> Run:
    """Return a run with the results of an ended turn."""
    usage = summed(run.usage, end.usage) if end.usage else run.usage
    return replace(run, problems=run.problems + end.problems, usage=usage, metadata=end.metadata)


def _judge_run(draft: WorkDraft, run: Run, end: TurnEnd, said: int | None) -> None:
    """Settle a run that the ended turn served, or leave it open if something is outstanding."""
    if end.outcome is TurnState.STOPPED:
        draft.settle_stopped(run, end, said)
    elif end.outcome is TurnState.FAILED:
        failures = run.failures + 1
        reason = end.reason or "agent_failed"
        failed = replace(run, failures=failures, error=end.error, reason=reason, cut_off=end.cut_off)
        most = 1 if run.called else MAX_ATTEMPTS
        if failures >= most:
            draft.settle(failed, RunState.FAILED, error=end.error, reason=failed.reason)
            draft.make_dead_letters(run)
        else:
            draft.requeue(failed)
    elif draft.is_outstanding(run):
        draft.requeue(replace(run, failures=0, cut_off=False))
    else:
        draft.settle(run, RunState.COMPLETED, result=end.result, entry=said)


# Missing reports --------------------------------------------------------------------------------


def expired(view: View, stamp: Stamp, *, living: Container[str] = (), gone: Container[str] = ()) -> Change:
    """Apply deadlines: requeue turns that never started, lose silent ones, expire runs that no launcher took.

    A started turn of a launcher in `living` is not lost. A turn that was not started is requeued: its launcher may
    not know that it has the turn. A turn of a launcher in `gone`, whose agents have ended too, does not have to wait
    for its deadline.
    """
    draft = WorkDraft(view, stamp)
    turn = draft.running
    is_gone = turn is not None and turn.launcher_id in gone
    if turn is not None and (is_gone or turn.is_unresponsive(stamp.at)):
        if turn.started_at is None and turn.stop_requested:
            _stopped(draft, turn)
        elif turn.started_at is None:
            _given_out_again(draft, turn)
        elif is_gone or (turn.launcher_id not in living and turn.is_lost(stamp.at)):
            _lost(draft, turn)
    _expire_untaken(draft)
    return draft.change()


def untaken(view: View, stamp: Stamp) -> Change:
    """Expire the runs that no launcher took in time, and judge no lease: for callers that are no launcher."""
    draft = WorkDraft(view, stamp)
    _expire_untaken(draft)
    return draft.change()


def _expire_untaken(draft: WorkDraft) -> None:
    for run in list(draft.runs.values()):
        if run.is_untaken(draft.stamp.at):
            draft.withdraw(run, RunState.EXPIRED, "expired")
    draft.wake()


def extended(view: View, at: datetime) -> Change:
    """Let the lease of a running turn, and the hold of its session, end `lost_after` from `at`; change nothing else."""
    head, turn = view.session, view.work.running
    if turn is None:
        return Change(session=head)
    later = turn.extended(at)
    if head.hold is not None:
        head = replace(head, hold=replace(head.hold, until=later.lease_until or at))
    return Change(session=head, turns=(later,) if later != turn else ())


def _given_out_again(draft: WorkDraft, turn: Turn) -> None:
    """Return the turn to the queue as if it had never been claimed."""
    for run in draft.served_by(turn):
        started_at = None if run.turns == 1 else run.started_at
        cut_off = run.cut_off or turn.cut_off
        draft.put_run(replace(run, state=RunState.QUEUED, turns=run.turns - 1, started_at=started_at, cut_off=cut_off))
    for item in draft.given_to(turn):
        draft.put_item(replace(item, state=ItemState.WAITING, turn_id=None))
    again = replace(turn, state=TurnState.QUEUED, launcher_id=None, claimed_at=None, lease_until=None, lost_at=None)
    draft.let_go(again)
    draft.queued = again


def _stopped(draft: WorkDraft, turn: Turn, state: TurnState = TurnState.STOPPED, reason: str = "stopped") -> None:
    """End a turn that was told to stop and has no agent: settle its stopped runs, queue another turn for the others."""
    draft.end(turn, state, reason)
    for run in draft.served_by(turn):
        if run.stop_requested:
            draft.settle_stopped(run, TurnEnd(outcome=TurnState.STOPPED))
    draft.give_back(turn, counted=False)
    was_cut_off = turn.started_at is not None
    served = draft.served_by(turn)
    for run in draft.concerned_by(turn):
        _go_on_after_stop(draft, replace(run, cut_off=run.cut_off or (was_cut_off and run in served)))
    draft.forget_questions()
    draft.wake(cut_off=was_cut_off)


def _go_on_after_stop(draft: WorkDraft, run: Run) -> None:
    """Requeue a run that was not stopped; if another turn answers it, let it wait for the end of that turn."""
    if draft.is_outstanding(run):
        draft.requeue(run)
    elif not draft.of_state(ItemState.WAITING):
        draft.settle_stopped(run, TurnEnd(outcome=TurnState.STOPPED, reason="stopped"))


def _lost(draft: WorkDraft, turn: Turn) -> None:
    """End a turn whose launcher is gone: its supervisor has ended the agent too. Its pending approvals stay."""
    if turn.stop_requested:
        draft.withdraw_approvals(of_turn=True)
        _stopped(draft, turn, TurnState.LOST, "launcher_lost")
        return
    draft.end(turn, TurnState.LOST, "launcher_lost")
    draft.fail("the launcher was lost in the middle of a turn")
    most = _LOST_BEFORE_FAILURE[turn.retry]
    draft.give_back(turn, most)
    for run in draft.concerned_by(turn):
        failed = replace(run, failures=run.failures + 1, reason="launcher_lost", cut_off=True)
        if most is not None and failed.failures >= most:
            draft.settle(failed, RunState.FAILED, error="the launcher was lost", reason="launcher_lost")
            draft.make_dead_letters(run)
        else:
            draft.requeue(failed)
    draft.forget_questions()
    draft.wake(attempt=turn.attempt + 1, cut_off=True)


# Failed turns in a row after which a run fails and its inbox items become dead letters; None: never.
_LOST_BEFORE_FAILURE = {Retry.RESUME: MAX_ATTEMPTS, Retry.ALWAYS: None, Retry.NEVER: 1}


# Stopping and closing ---------------------------------------------------------------------------


def stop(view: View, run_id: str | None, stamp: Stamp, *, again: bool = False) -> Change:
    """Stop a run, or all of a session: end those without an agent now, mark the others and tell their turn to stop.

    With `again` the session was stopped a moment ago: runs that its tree has requested since are stopped too, but not
    later requests.
    """
    draft = WorkDraft(view, stamp)
    wanted = [run for run in draft.runs.values() if run_id in (None, run.run_id)]
    if not wanted and run_id is not None:
        raise RunSettled(run_id)
    if again:
        wanted = [run for run in wanted if run.created_at <= stamp.at]
    if run_id is None:
        draft.drop_items(None, callbacks_only=again)
    turn = draft.running
    served = [] if turn is None else draft.served_by(turn)
    for run in wanted:
        if run not in served:
            draft.withdraw(run, RunState.STOPPED, "stopped")
        elif not run.stop_requested:
            draft.put_run(replace(run, stop_requested=True))
    if turn is not None and (any(run in wanted for run in served) or (run_id is None and not served)):
        _tell_to_stop(draft, turn)
        if draft.running is not None and all(run.stop_requested for run in draft.served_by(turn)):
            draft.withdraw_approvals(of_turn=True)  # an answer must not move an agent that is about to be killed
    elif turn is None and any(run.turns for run in wanted):
        draft.forget_questions()
    draft.unqueue_idle("stopped")
    draft.wake()
    return draft.change()


def unheard(view: View, run_id: str, stamp: Stamp) -> Change:
    """Let the end of a run be only logged in its parent, which is about to be stopped."""
    draft = WorkDraft(view, stamp)
    if (run := draft.runs.get(run_id)) is not None:
        draft.put_run(replace(run, parent_stopped=True))
    return draft.change()


def _tell_to_stop(draft: WorkDraft, turn: Turn) -> None:
    """Tell a turn's launcher to stop its agent; end the turn at once if its agent was not started yet."""
    if turn.started_at is None:
        _stopped(draft, replace(turn, stop_requested=True))
    elif not turn.stop_requested:
        draft.running = draft.turns[turn.turn_id] = replace(turn, stop_requested=True)


def settled_with(view: View, change: Change, outcome: State, stamp: Stamp) -> Change:
    """Return the change that closes a session, settles its open runs and tells their parents."""
    if view.work == OpenWork():
        return change
    draft = WorkDraft(replace(view, session=change.session, pending=()), stamp)  # its approvals are withdrawn already
    if draft.running is not None:
        draft.end(draft.running, TurnState.STOPPED, "session_closed")
    ends = {State.COMPLETED: RunState.COMPLETED, State.FAILED: RunState.FAILED, State.ABANDONED: RunState.STOPPED}
    for run in list(draft.runs.values()):
        draft.withdraw(run, ends[outcome], "session_closed", result=change.session.summary)
    for item in list(draft.items.values()):  # items that belong to no open run
        if item.state is not ItemState.CONSUMED:
            draft.put_item(replace(item, state=ItemState.CONSUMED))
    draft.unqueue("session_closed")
    return change.then(lambda _: draft.change())


def callbacks_of_deleted(runs: Iterable[Run], deleted: set[str], stamp: Stamp) -> list[Callback]:
    """Return the callbacks to parents outside a deleted tree for its open runs."""
    outside = [run for run in runs if run.calls_back and run.parent_session_id not in deleted]
    end = {"state": RunState.STOPPED, "settled_at": stamp.at, "reason": "deleted"}
    return [_callback(replace(run, **end), stamp) for run in outside]


# Callbacks and decisions ------------------------------------------------------------------------


def fate_with(parent: Session | None) -> str:
    """Return the fate of a callback to that parent; None stands for a deleted parent."""
    if parent is None:
        return PARENT_DELETED
    return PARENT_CLOSED if parent.is_final else DELIVERED


def deliver(view: View, callback: Callback, stamp: Stamp) -> Change:
    """Put a callback into a parent's inbox, and wake the parent once all callbacks that belong together are there.

    If the parent or its run was stopped, the callback is only logged: a stopped tree stays stopped. If that run has
    used up its turns, the callback becomes a dead letter.
    The view needs only one waiting item of the inbox, if there is any, and the items held for the callback's run, if
    no other callback that belongs with them is on its way.
    """
    if view.session.is_final:
        return Change(session=view.session)
    draft = WorkDraft(view, stamp)
    body = {**callback.body, "still_out": view.work.children.get(callback.run_id or "", 0)}
    draft.note(Kind.CALLBACK, body)
    run_id = callback.run_id if callback.run_id in draft.runs else None
    item = draft.new_item(ItemKind.CALLBACK, callback.child_run_id, body, run_id=run_id, join=callback.join)
    asked_by = draft.runs.get(callback.run_id or "") or view.run
    is_stopped = asked_by is not None and (asked_by.stop_requested or asked_by.state is RunState.STOPPED)
    if callback.is_unheard or is_stopped:
        draft.put_item(replace(item, state=ItemState.CONSUMED))
    elif asked_by is not None and asked_by.reason == TOO_MANY_TURNS:
        draft.put_item(replace(item, state=ItemState.DEAD_LETTER))
    elif callback.join is Join.ALL and run_id is not None and view.work.joined.get(run_id, 0):
        draft.put_item(replace(item, state=ItemState.HELD))
    else:
        draft.put_item(item)
        draft.release_held(run_id)
    draft.wake()
    return draft.change()


def decided(view: View, change: Change, approval: Approval, stamp: Stamp) -> Change:
    """Return the change that settles an approval, with the answer in the inbox.

    A turn that waits for the answer gets it directly. The answer counts as given to that turn: if the turn is cut off,
    the next one gets it.
    """
    if not change.session.launched:
        return change
    draft = WorkDraft(replace(view, session=change.session), stamp)
    receiver = view.work.running if approval.waits else None
    asking = [run_id for run_id in draft.runs if run_id in approval.run_ids] or list(draft.runs)
    run_id = asking[0] if asking else None
    item = draft.new_item(ItemKind.DECISION, approval.approval_id, approval.answered(), run_id=run_id)
    if receiver is not None:
        item = replace(item, state=ItemState.GIVEN, turn_id=receiver.turn_id)
        draft.hear(receiver, approval, approval.approval_id)
    draft.put_item(item)
    for run_id in asking[1:]:
        draft.share(draft.runs[run_id], item.item_id)
    draft.wake()
    return change.then(lambda _: draft.change())


def replayed(view: View, asked_id: str, stamp: Stamp, *, waits: bool, token: str | None = None) -> Change:
    """Repeat an answer for an agent that was cut off and asks the same again; change nothing if it may not have it.

    Each answer is replayed once in a turn, and only for the run it was given to. A turn that does not wait for the
    answer gets it like every answer: at the beginning of the next turn.
    """
    approval, turn = view.approval, view.work.running
    assert approval is not None
    view.session.driven(token, stamp.at)
    draft = WorkDraft(view, stamp)
    item = draft.items.get(_item_id(ItemKind.DECISION, approval.approval_id))
    if turn is None or not turn.cut_off or item not in draft.given_to(turn) or item.run_id not in draft.runs:
        return Change(session=view.session)
    if approval.approval_id in turn.heard.values() or not approval.may_be_replayed(stamp.at):
        return Change(session=view.session)
    draft.hear(turn, approval, asked_id)
    draft.note(Kind.APPROVAL_REPLAYED, approval.settled())
    if not waits:
        draft.put_item(replace(item, state=ItemState.WAITING, turn_id=None))
    return draft.change()


def after(view: View, change: Change, stamp: Stamp) -> Change:
    """Return a change of another rule with its consequences: a closed session's runs settle, a free session wakes."""
    if change.session.is_final:
        return change if view.session.is_final else settled_with(view, change, change.session.state, stamp)
    if not view.work.items:
        return change
    draft = WorkDraft(replace(view, session=change.session), stamp)
    draft.wake()
    return change.then(lambda _: draft.change())


def handed_over(view: View, item_ids: set[str], stamp: Stamp) -> Change:
    """Consume the items given to the holder that resumed the session: no turn will take them."""
    draft = WorkDraft(view, stamp)
    for item in draft.of_state(ItemState.WAITING):
        if item.item_id in item_ids and not view.session.launched:
            draft.put_item(replace(item, state=ItemState.CONSUMED))
    return draft.change()


def sent_again(view: View, stamp: Stamp) -> Change:
    """Let a dead letter wait for the next turn again, as if it had just arrived."""
    view.session.check_open()
    draft = WorkDraft(view, stamp)
    item = view.item
    assert item is not None
    if item.state is not ItemState.DEAD_LETTER:
        return Change(session=view.session)
    draft.put_item(replace(item, state=ItemState.WAITING, given=0, turn_id=None, run_id=None))
    draft.wake()
    return draft.change()


# Composing a change -----------------------------------------------------------------------------


class WorkDraft:
    """An unfinished change: the decisions of the rules so far."""

    def __init__(self, view: View, stamp: Stamp) -> None:
        self.head, self.stamp, self.pending = view.session, stamp, view.pending
        self.runs = {run.run_id: run for run in view.work.runs}
        self.items = {item.item_id: item for item in view.work.items}
        self.queued, self.running = view.work.queued, view.work.running
        self._children, self._joined = view.work.children, view.work.joined
        self.turns: dict[str, Turn] = {}
        self.callbacks: list[Callback] = []
        self._entries: list[Entry] = []
        self._touched: dict[str, Run] = {}
        self._moved: dict[str, Item] = {}
        self._approvals: list[Approval] = []
        self._before = view.session

    def change(self) -> Change:
        """Return all decisions as one change."""
        if self.head == self._before and not (self._touched or self.turns or self._moved or self._entries):
            return Change(session=self._before)
        self.head = replace(self.head, waits=self.head.launched and bool(self.of_state(ItemState.WAITING)))
        is_silent = not self._entries and self.head.live_turn == self._before.live_turn
        head = self.head if is_silent else replace(self.head, version=self.head.version + 1, updated_at=self.stamp.at)
        return Change(
            session=head,
            entries=tuple(self._entries),
            approvals=tuple(self._approvals),
            runs=tuple(self._touched.values()),
            turns=tuple(self.turns.values()),
            items=tuple(self._moved.values()),
            callbacks=tuple(self.callbacks),
        )

    # The log

    def say(self, messages: Iterable[Message]) -> None:
        """Append messages."""
        self.follow(lambda head: head.append(messages, self.stamp))

    def note(self, kind: Kind, data: dict[str, Any]) -> None:
        """Append an event."""
        self._entries += self.head.noted(self.stamp, [(kind, data)])
        self.head = replace(self.head, last_entry=self.head.last_entry + 1, updated_at=self.stamp.at)

    def fail(self, error: str) -> None:
        """Count an error."""
        self.head = replace(self.head, error_count=self.head.error_count + 1, last_error=error)
        self.note(Kind.ERROR, {"error": error})

    # Turns

    def make_way(self, asking: Asking) -> None:
        """End the caller's hold, and resume the session if the caller may. Raises HeldByAnother, HoldLost."""
        try:
            self.follow(lambda head: head.handed_over(asking.holder, self.stamp, token=asking.token))
        except HeldByAnother:
            if not asking.queue:
                raise
        if not asking.wakes or self.head.state is not State.SUSPENDED:
            return
        if self.head.pending_approvals:  # the answer wakes the session, even if a person suspended it
            self.head = replace(self.head, suspended_by=BY_APPROVAL)
        else:
            self.follow(lambda head: head.activated(self.stamp))

    def drive(self, turn: Turn, token: str | None = None) -> None:
        """Renew the lease and the hold of a live turn, under a new token if one is given."""
        at = self.stamp.at
        turn = replace(turn, lease_until=at + turn.lease, lost_at=at + turn.lost_after)
        assert turn.lease_until is not None
        self.running = self.turns[turn.turn_id] = turn
        if token is None:
            assert self.head.hold is not None
            token = str(self.head.hold.token)
        hold = Hold(f"{LAUNCHER}{turn.launcher_id}", turn.lease_until, token)
        self.head = replace(self.head, hold=hold, live_turn=turn.turn_id)

    def end(self, turn: Turn, state: TurnState, reason: str | None, usage: Usage | None = None) -> None:
        """End a turn."""
        self.let_go(replace(turn, state=state, ended_at=self.stamp.at, reason=reason))
        told = {"turn_id": turn.turn_id, "epoch": turn.epoch, "outcome": state.value, "reason": reason}
        self.note(Kind.TURN_ENDED, {**told, "usage": usage} if usage else told)
        self.head = replace(self.head, last_activity_at=self.stamp.at)
        if usage:
            self.count(usage)

    def count(self, usage: Usage) -> None:
        """Add the usage of a turn to the session's sum, if the metadata have room for it: they belong to the agent."""
        kept = self.head.metadata.get("usage", {})
        if isinstance(kept, dict):
            with suppress(TooLarge):
                metadata = merged_metadata(self.head.metadata, {"usage": added(kept, usage)})
                self.head = replace(self.head, metadata=metadata)

    def let_go(self, turn: Turn) -> None:
        """End the hold of a turn."""
        self.turns[turn.turn_id], self.running = turn, None
        self.head = replace(self.head, hold=None, live_turn=None)

    def hear(self, turn: Turn, approval: Approval, asked_id: str) -> None:
        """Record that the agent of a live turn gets an answer to what it asked under that id."""
        self.running = self.turns[turn.turn_id] = replace(turn, heard={**turn.heard, asked_id: approval.approval_id})

    def unqueue(self, reason: str) -> None:
        """Cancel the queued turn, if there is one."""
        if self.queued is not None:
            over = replace(self.queued, state=TurnState.STOPPED, ended_at=self.stamp.at, reason=reason)
            self.turns[over.turn_id], self.queued = over, None
            if over.cut_off and over.epoch:  # it was given back after its start, which is in the log
                told = {"turn_id": over.turn_id, "epoch": over.epoch, "outcome": over.state.value, "reason": reason}
                self.note(Kind.TURN_ENDED, told)

    def unqueue_idle(self, reason: str) -> None:
        """Cancel the queued turn if no item waits for its agent."""
        if self.queued is not None and not self.due_for(self.queued.agent_name):
            self.unqueue(reason)

    def give(self, turn: Turn, items: list[Item], wish: Claim) -> Turn:
        """Give the queued turn to a launcher, with its items."""
        self.queued, at = None, self.stamp.at
        turn = replace(
            turn,
            state=TurnState.RUNNING,
            epoch=self.head.epoch + 1,
            launcher_id=wish.launcher_id,
            of_family=wish.of_family,
            claimed_at=at,
            started_at=None,
            reserved_until=None,
            heard={},
            lease=wish.lease,
            lost_after=wish.lost_after,
            retry=wish.retries.get(turn.agent_name or "", Retry.RESUME),
        )
        self.drive(turn, wish.token)
        self.head = replace(self.head, epoch=turn.epoch, state=State.ACTIVE, suspended_by=None)
        for item in items:
            self.put_item(replace(item, state=ItemState.GIVEN, turn_id=turn.turn_id))
        for run in self.served_by(turn):
            started = run.started_at or at
            self.put_run(replace(run, state=RunState.RUNNING, turns=run.turns + 1, started_at=started))
        assert self.running is not None
        return self.running

    def start(self, turn: Turn) -> None:
        """Record that the turn's agent is about to be started."""
        self.drive(replace(turn, started_at=self.stamp.at))
        self.note(Kind.TURN_STARTED, {"turn_id": turn.turn_id, "epoch": turn.epoch, "attempt": turn.attempt})
        self.head = replace(self.head, last_activity_at=self.stamp.at)

    def is_free(self) -> bool:
        """Return whether a turn could begin now: no other blocks it, no hold and no suspension by a person."""
        head, hold = self.head, self.head.hold
        is_held = hold is not None and hold.lives(self.stamp.at)
        is_busy = self.running is not None or self.queued is not None or is_held
        return not (is_busy or head.pending_approvals or head.is_kept_asleep)

    def answer(self, run: Run, end: TurnEnd, wish: Claim) -> None:
        """Store the turn of a run that is answered at once; the log has no entries of such a turn."""
        at, number = self.stamp.at, self.head.turns + 1
        turn = Turn(
            turn_id=f"{self.head.session_id}:t{number}",
            session_id=self.head.session_id,
            agent_name=run.agent_name,
            queued_at=at,
            state=end.outcome,
            epoch=self.head.epoch + 1,
            launcher_id=wish.launcher_id,
            claimed_at=at,
            started_at=at,
            ended_at=at,
            reason=end.reason,
        )
        self.turns[turn.turn_id] = turn
        self.stamp = replace(self.stamp, by=run.agent_name)
        self.head = replace(self.head, turns=number, epoch=turn.epoch, state=State.ACTIVE, suspended_by=None)
        if end.messages:
            self.say(end.messages)
        said = self.head.last_entry if end.messages else None
        done = _with_turn(replace(run, turns=1, started_at=at), end)
        if end.outcome is TurnState.COMPLETED:
            self.head = replace(self.head, error_count=0)
        else:
            self.fail(end.error or end.reason or "the agent failed")
        state = RunState(end.outcome.value)
        self.settle(done, state, result=end.result, entry=said, error=end.error, reason=end.reason)

    def begin_here(self, run: Run, wish: Claim) -> None:
        """Begin the run's turn for its caller, if it is the next turn and the session is not held."""
        turn, hold = self.queued, self.head.hold
        if turn is None or self.running is not None or (hold is not None and hold.lives(self.stamp.at)):
            return
        due = self.due_for(turn.agent_name)
        if self.may_wake() and all(item.run_id == run.run_id for item in due):
            self.stamp = replace(self.stamp, by=run.agent_name)
            self.start(self.give(turn, due, wish))

    def wake(self, *, attempt: int = 1, cut_off: bool = False) -> None:
        """Queue a turn if something waits and nothing blocks it."""
        if self.running is not None or not self.may_wake():
            return
        head = self.head
        held = head.hold.until if head.hold is not None and head.hold.lives(self.stamp.at) else None
        reserved = self.stamp.at + RESERVED_FOR if self.stamp.takes_turns else None
        if self.queued is not None:
            again = replace(self.queued, not_before=held, reserved_until=reserved or self.queued.reserved_until)
            if again != self.queued:
                self.queued = self.turns[again.turn_id] = again
            return
        self.head, agent = replace(head, turns=head.turns + 1), self.next_agent()
        runs = self.runs_of(self.due_for(agent))
        self.queued = Turn(
            turn_id=f"{head.session_id}:t{head.turns + 1}",
            session_id=head.session_id,
            agent_name=agent,
            queued_at=self.stamp.at,
            attempt=max([attempt, *(run.failures + 1 for run in runs)]),
            cut_off=cut_off or any(run.cut_off for run in runs),
            not_before=held,
            reserved_until=reserved,
        )
        self.turns[self.queued.turn_id] = self.queued

    def may_wake(self) -> bool:
        """Return whether something waits, and neither a person nor an approval blocks it."""
        head = self.head
        if not head.launched or head.is_final or head.pending_approvals or self.next_agent() is None:
            return False
        return not head.is_kept_asleep

    def next_agent(self) -> str | None:
        """Return the agent of the oldest waiting item that has one; None if there is no such item."""
        agents = (self.agent_of(item) for item in self.of_state(ItemState.WAITING))
        return next((agent for agent in agents if agent is not None), None)

    def agent_of(self, item: Item) -> str | None:
        """Return the agent of an item: its run's, or the session's own."""
        run = self.runs.get(item.run_id or "")
        return self.head.agent_name if run is None else run.agent_name

    def due_for(self, agent: str | None) -> list[Item]:
        """Return the items of an agent's next turn: those of one run that `is_alone`, or else all others that wait."""
        waiting = [item for item in self.of_state(ItemState.WAITING) if self.agent_of(item) == agent]
        alone = {run.run_id for run in self.runs.values() if run.is_alone}
        if waiting and waiting[0].run_id in alone:
            return [item for item in waiting if item.run_id == waiting[0].run_id]
        return [item for item in waiting if item.run_id not in alone]

    def runs_of(self, items: list[Item]) -> list[Run]:
        """Return the open runs that items belong to."""
        wanted = {item.run_id for item in items}
        return [run for run in self.runs.values() if run.run_id in wanted]

    # Items

    def new_item(self, kind: ItemKind, ref: str, body: dict[str, Any], **more: Any) -> Item:
        """Return a new item, which came with the newest entry."""
        more = {"session_id": self.head.session_id, "entry": self.head.last_entry, **more}
        return Item(item_id=_item_id(kind, ref), kind=kind, created_at=self.stamp.at, body=body, **more)

    def put_prompt(self, run: Run, message: Message, entry: int | None) -> None:
        """Put the prompt of a run, which has this entry, into the inbox."""
        body = {"role": message.role, "content": message.content}
        self.put_item(self.new_item(ItemKind.MESSAGE, run.run_id, body, run_id=run.run_id, entry=entry))

    def put_item(self, item: Item) -> None:
        """Store the current state of an item."""
        self.items[item.item_id] = self._moved[item.item_id] = item

    def of_state(self, state: ItemState) -> list[Item]:
        """Return the items in this state, oldest first."""
        return [item for item in self.items.values() if item.state is state]

    def given_to(self, turn: Turn) -> list[Item]:
        """Return the items given to a turn."""
        return [item for item in self.items.values() if item.turn_id == turn.turn_id and item.state is ItemState.GIVEN]

    def consume(self, turn: Turn) -> None:
        """Consume the items given to the turn."""
        for item in self.given_to(turn):
            self.put_item(replace(item, state=ItemState.CONSUMED))

    def give_back(self, turn: Turn, most: int | None = MAX_GIVEN, *, counted: bool = True) -> None:
        """Return the turn's items to the inbox, or make them dead letters after too many counted turns."""
        for item in self.given_to(turn):
            given = item.given + counted
            state = _aside(item) if most is not None and given >= most else ItemState.WAITING
            self.put_item(replace(item, state=state, given=given, turn_id=turn.turn_id))

    def drop_items(self, run: Run | None, *, callbacks_only: bool = False) -> None:
        """Consume the waiting items of a run, or of no run; pass on answers that other runs requested too."""
        run_id = None if run is None else run.run_id
        self._pass_on(run_id)
        for item in list(self.items.values()):
            is_meant = item.run_id == run_id and (item.kind is ItemKind.CALLBACK or not callbacks_only)
            if is_meant and item.state in OPEN_ITEMS:
                self.put_item(replace(item, state=ItemState.CONSUMED))

    def make_dead_letters(self, run: Run) -> None:
        """Make the waiting items of a failed run dead letters; pass answers on to other runs that asked."""
        if run.called:  # the waiting caller has been told
            self.drop_items(run)
            return
        self._pass_on(run.run_id)
        for item in list(self.items.values()):
            if item.run_id == run.run_id and item.state in (ItemState.WAITING, ItemState.HELD):
                self.put_item(replace(item, state=_aside(item)))

    def release_held(self, run_id: str | None) -> None:
        """Deliver the held callbacks of a run, once none that belongs with them is on its way."""
        for item in self.of_state(ItemState.HELD):
            if item.run_id == run_id and not self._joined.get(run_id or "", 0):
                self.put_item(replace(item, state=ItemState.WAITING))

    # Runs

    def put_run(self, run: Run) -> None:
        """Store the current state of a run; forget a settled run."""
        self._touched[run.run_id] = run
        if run.state in SETTLED:
            self.runs.pop(run.run_id, None)
        else:
            self.runs[run.run_id] = run

    def requeue(self, run: Run) -> None:
        """Let a run wait for another turn, or fail it if it has used up its turns."""
        if run.turns < run.max_turns:
            self.put_run(replace(run, state=RunState.QUEUED))
            return
        error = f"it took {run.turns} turns, and its agent allows no more for one run (max_turns)"
        self.settle(run, RunState.FAILED, error=error, reason=TOO_MANY_TURNS)
        self.make_dead_letters(run)

    def settle_stopped(self, run: Run, end: TurnEnd, said: int | None = None) -> None:
        """End a run whose turn was stopped, or ended by itself after the stop."""
        reason = end.reason if end.outcome is TurnState.STOPPED else None
        if run.stop_requested:
            reason = reason or "stopped"
        self.drop_items(run)
        self.settle(run, RunState.STOPPED, result=end.result, entry=said, error=end.error, reason=reason)

    def served_by(self, turn: Turn) -> list[Run]:
        """Return the runs whose items a turn was given."""
        return self.runs_of([item for item in self.items.values() if item.turn_id == turn.turn_id])

    def concerned_by(self, turn: Turn) -> list[Run]:
        """Return the runs that an ended turn concerns: those it served, and those that wait for nothing else.

        Several runs may have waited for one approval; its answer belongs to the first of them.
        """
        served = {run.run_id: run for run in self.served_by(turn)}
        if any(run.called for run in served.values()):
            return list(served.values())
        done = (run for run in self.runs.values() if run.turns and not self.is_outstanding(run))
        finished = [run for run in done if run.agent_name == turn.agent_name and not run.called]
        return list({**served, **{run.run_id: run for run in finished}}.values())

    def share(self, run: Run, item_id: str) -> None:
        """Record that the answer in an item of another run belongs to this run, too."""
        known = tuple(each for each in run.shared_answers if each in self.items)
        self.put_run(replace(run, shared_answers=(*known, item_id)))

    def _pass_on(self, run_id: str | None) -> None:
        """Give the answers of a run that ends to the next run that asked the same: its agent need not ask again."""
        for item in [*self.of_state(ItemState.WAITING), *self.of_state(ItemState.GIVEN)]:
            others = [run for run in self.runs.values() if item.item_id in run.shared_answers and run.run_id != run_id]
            if others and item.run_id == run_id:
                self.put_item(replace(item, run_id=others[0].run_id))

    def is_outstanding(self, run: Run) -> bool:
        """Return whether a run has to wait for something: its children, its inbox, a person."""
        waits = any(
            item.run_id == run.run_id and item.state in (ItemState.HELD, ItemState.WAITING)
            for item in self.items.values()
        )
        return waits or self._children.get(run.run_id, 0) > 0 or self.head.pending_approvals > 0

    def withdraw(self, run: Run, state: RunState, reason: str, result: str | None = None) -> None:
        """End a run that no turn works on; cancel a turn that was queued for it alone."""
        self.drop_items(run)
        self.settle(run, state, result=result, reason=reason)
        self.unqueue_idle(reason)

    def settle(
        self,
        run: Run,
        state: RunState,
        *,
        result: str | None = None,
        entry: int | None = None,
        error: str | None = None,
        reason: str | None = None,
    ) -> None:
        """End a run, once, and tell the session that asked for it."""
        over = replace(
            run,
            state=state,
            settled_at=self.stamp.at,
            result=None if result is None else cut(result, MAX_RESULT_BYTES),
            result_entry=entry,
            error=error or run.error if state is not RunState.COMPLETED else None,
            reason=reason,
        )
        self.note(Kind.RUN_SETTLED, {"run_id": run.run_id, "outcome": state.value, "reason": reason})
        self.put_run(over)
        self.head = replace(self.head, last_run=LastRun(over.run_id, state.value, reason, self.stamp.at))
        self._withdraw([each for each in self.pending if each.run_ids and not self.runs.keys() & {*each.run_ids}])
        if over.calls_back:
            self.callbacks.append(_callback(over, self.stamp))

    def withdraw_approvals(self, *, of_turn: bool = False) -> None:
        """Withdraw pending approvals; with `of_turn`, those that the turn waits for itself."""
        self._withdraw([each for each in self.pending if each.waits or not of_turn])

    def _withdraw(self, withdrawn: list[Approval]) -> None:
        self.pending = tuple(each for each in self.pending if each not in withdrawn)
        for approval in withdrawn:
            gone = approval.withdrawn(self.stamp.at)
            self.follow(lambda head, gone=gone: head.settle(gone, self.stamp))  # type: ignore[misc]  # bound at once

    def forget_questions(self) -> None:
        """Withdraw approvals once no started run is left to wait for the answer.

        They must not block later runs.
        """
        if not any(run.turns for run in self.runs.values()):
            self.withdraw_approvals()

    def follow(self, rule: Callable[[Session], Change]) -> None:
        """Apply another rule to the session as changed so far."""
        change = rule(self.head)
        self.head = change.session
        self._entries += change.entries
        self._approvals += change.approvals


def _callback(run: Run, stamp: Stamp) -> Callback:
    assert run.parent_session_id is not None
    return Callback(
        stamp=stamp,
        parent_session_id=run.parent_session_id,
        run_id=run.parent_run_id,
        child_run_id=run.run_id,
        join=run.join,
        is_unheard=run.parent_stopped,
        body={
            "child_session_id": run.session_id,
            "run_id": run.run_id,
            "agent_name": run.agent_name,
            "asked": run.asked,
            "outcome": run.state.value,
            "result": None if run.result is None else cut(run.result, MAX_CALLBACK_BYTES),
            "is_cut": run.result is not None and len(run.result.encode()) > MAX_CALLBACK_BYTES,
            "error": run.error,
            "reason": run.reason,
            "correlation": run.correlation,
        },
    )


def _item_id(kind: ItemKind, ref: str) -> str:
    return f"{kind.value}:{ref}"


def _aside(item: Item) -> ItemState:
    """Return the state of an item whose run failed: a person sees it, but another run may not use an answer."""
    return ItemState.CONSUMED if item.kind is ItemKind.DECISION else ItemState.DEAD_LETTER


def cut(text: str, limit: int) -> str:
    """Cut a text to at most this many bytes."""
    encoded = text.encode()
    return text if len(encoded) <= limit else encoded[: limit - 3].decode(errors="ignore") + "…"


def _fenced(view: View, turn_id: str, epoch: int) -> Turn:
    """Return the live turn, if it is this one. Raises TurnLost if another launcher has it, or if it is over."""
    turn = view.work.running
    if turn is None or turn.turn_id != turn_id or turn.epoch != epoch:
        raise TurnLost(turn_id, epoch)
    return turn
