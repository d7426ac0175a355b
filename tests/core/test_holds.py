"""The hold: who drives a session, until when, and what ends it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from moorage.core.entry import Kind
from moorage.core.errors import HeldByAnother, HoldLost
from moorage.core.session import HOLD_FOR, Change, Hold, Session, State, Update
from moorage.testing.builders import NOON, a_stamp, after, an_approval, said
from tests.core.heads import LATER, a_head, a_held_head

STAMP = a_stamp(LATER)
DRIVING = {
    "append": lambda head, token: head.append(said("hello"), STAMP, token=token),
    "update": lambda head, token: head.update(Update(metadata={"a": 1}), STAMP, token=token),
    "checkpoint": lambda head, token: head.save_checkpoint({}, STAMP, token=token),
    "compact": lambda head, token: head.compact("so far", 1, STAMP, token=token),
}
ENDING = {
    "ask": lambda head, token: head.ask(an_approval("s-1"), STAMP, token=token),
    "suspend": lambda head, token: head.suspend(STAMP, token=token),
    "finalize": lambda head, token: head.finalize("completed", STAMP, token=token),
    "release": lambda head, token: head.release(STAMP, token=token),
}


def test_a_hold_lasts_ten_minutes() -> None:
    head = a_held_head(at=NOON)
    assert head.hold == Hold("ann", NOON + timedelta(minutes=10), "secret")


def test_a_hold_ends_at_its_last_instant() -> None:
    hold = Hold("ann", NOON, "secret")
    assert hold.lives(NOON - timedelta(microseconds=1))
    assert not hold.lives(NOON)


def test_another_is_told_who_holds_it_and_until_when() -> None:
    with pytest.raises(HeldByAnother) as refused:
        a_held_head(at=NOON).resume("bob", "other", STAMP)
    assert refused.value.facts == {"session_id": "s-1", "holder": "ann", "until": "2026-03-01T12:10:00Z"}
    assert "ann" in refused.value.message
    assert "2026-03-01T12:10:00Z" in refused.value.message


def test_same_holder_resuming_again_renews_its_hold_under_a_new_token() -> None:
    held = a_held_head(at=NOON)
    change = held.resume("ann", "another token", STAMP)
    assert change == Change(session=replace(held, hold=Hold("ann", LATER + HOLD_FOR, "another token")))
    with pytest.raises(HoldLost):
        change.session.driven("secret", LATER)


def test_resume_under_the_name_of_a_live_turn_is_refused() -> None:
    hold = Hold("launcher:launcher-1", NOON, "secret")
    running = replace(a_head(State.ACTIVE), live_turn="s-1:t1", hold=hold)
    with pytest.raises(HeldByAnother, match="wait until that turn ends, or stop it"):  # it cannot be released
        running.resume("launcher:launcher-1", "another token", STAMP)


def test_expired_hold_can_be_taken_by_any_holder() -> None:
    change = a_held_head(at=NOON).resume("bob", "other", a_stamp(NOON + HOLD_FOR))
    assert change.session.hold == Hold("bob", NOON + HOLD_FOR + HOLD_FOR, "other")
    assert change.entries[0].kind == Kind.RESUMED


def test_the_same_holder_gets_a_new_token_once_its_time_is_over() -> None:
    change = a_held_head(at=NOON).resume("ann", "fresh", a_stamp(NOON + HOLD_FOR))
    assert change.session.hold is not None
    assert change.session.hold.token == "fresh"


@pytest.mark.parametrize("write", DRIVING)
def test_a_write_with_the_token_renews_the_hold(write: str) -> None:
    hold = DRIVING[write](a_held_head(at=NOON), "secret").session.hold
    assert hold == Hold("ann", LATER + HOLD_FOR, "secret")


@pytest.mark.parametrize("write", DRIVING | ENDING)
def test_a_wrong_token_is_refused(write: str) -> None:
    for head in (a_held_head(), a_head(State.ACTIVE)):
        with pytest.raises(HoldLost, match="resume it again"):
            (DRIVING | ENDING)[write](head, "guessed")


@pytest.mark.parametrize("write", DRIVING | ENDING)
def test_a_token_is_lost_with_the_hold_it_belonged_to(write: str) -> None:
    taken = a_held_head(at=NOON).resume("bob", "other", a_stamp(NOON + HOLD_FOR)).session
    with pytest.raises(HoldLost):
        (DRIVING | ENDING)[write](taken, "secret")


@pytest.mark.parametrize("write", DRIVING)
def test_plain_writes_by_others_land_and_leave_the_hold(write: str) -> None:
    held = a_held_head(at=NOON)
    assert DRIVING[write](held, None).session.hold == held.hold


@pytest.mark.parametrize("end", ENDING)
@pytest.mark.parametrize("token", ["secret", None])
def test_suspending_asking_finalizing_and_releasing_end_the_hold(end: str, token: str | None) -> None:
    assert ENDING[end](a_held_head(), token).session.hold is None


def test_releasing_says_so_once() -> None:
    change = a_held_head().release(STAMP, token="secret")
    assert [(entry.kind, entry.data) for entry in change.entries] == [(Kind.RELEASED, {"holder": "ann"})]
    assert change.session.release(STAMP) == Change(session=change.session)


def test_absent_hold_matches_no_token() -> None:
    shown = replace(a_held_head(), hold=Hold("ann", after(600), UNSET))
    with pytest.raises(HoldLost):
        shown.driven("secret", NOON)


def test_resuming_wakes_a_suspended_session_and_forgets_who_suspended_it() -> None:
    head: Session = a_head(State.SUSPENDED)
    change = head.resume("ann", "secret", STAMP)
    assert (change.session.state, change.session.suspended_by) == (State.ACTIVE, None)
    assert change.entries[0].data == {"holder": "ann", "from": "suspended"}


# Without a hold ---------------------------------------------------------------------------------


def test_waking_makes_a_suspended_session_active_and_gives_no_hold() -> None:
    change = a_head(State.SUSPENDED).wake("ann", STAMP)
    assert (change.session.state, change.session.suspended_by, change.session.hold) == (State.ACTIVE, None, None)
    assert [(entry.kind, entry.data) for entry in change.entries] == [
        (Kind.RESUMED, {"holder": None, "from": "suspended"})
    ]


def test_waking_leaves_an_active_or_running_session_as_it_is() -> None:
    running = replace(a_head(State.ACTIVE), live_turn="s-1:t1", hold=Hold("launcher:l", after(600), "secret"))
    for head in (a_head(State.ACTIVE), running):
        assert head.wake("ann", STAMP) == Change(session=head)


def test_waking_is_refused_while_another_holds_the_session() -> None:
    for holder in ("bob", None):
        with pytest.raises(HeldByAnother):
            a_held_head(at=NOON).wake(holder, STAMP)


def test_waking_ends_the_hold_of_the_caller() -> None:
    change = a_held_head(at=NOON).wake("ann", STAMP)
    assert change.session.hold is None
    assert [(entry.kind, entry.data) for entry in change.entries] == [(Kind.RELEASED, {"holder": "ann"})]


# Asking hands over ------------------------------------------------------------------------------


@pytest.mark.parametrize("who", [{"holder": "ann"}, {"holder": "bob", "token": "secret"}])
def test_hold_is_handed_over_by_its_name_or_its_token(who: dict[str, str]) -> None:
    change = a_held_head(at=NOON).handed_over(who["holder"], STAMP, token=who.get("token"))
    assert change.session.hold is None
    assert [entry.kind for entry in change.entries] == [Kind.RELEASED]


def test_hold_is_handed_over_only_by_its_holder() -> None:
    with pytest.raises(HeldByAnother, match="ask with `queue`"):
        a_held_head(at=NOON).handed_over("bob", STAMP)
    with pytest.raises(HoldLost):
        a_held_head(at=NOON).handed_over("ann", STAMP, token="guessed")


def test_expired_hold_does_not_block_others() -> None:
    head = a_held_head(at=NOON)
    assert head.handed_over("bob", a_stamp(NOON + HOLD_FOR)) == Change(session=head)


def test_hold_of_a_live_turn_is_neither_handed_over_nor_in_the_way() -> None:
    running = replace(a_head(State.ACTIVE), live_turn="s-1:t1", hold=Hold("launcher:l", after(600), "secret"))
    for holder in ("launcher:l", "bob"):
        assert running.handed_over(holder, STAMP) == Change(session=running)
