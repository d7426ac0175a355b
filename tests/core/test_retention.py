"""Retention: how long a session is kept, by its state, and what keeps it in any case."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from moorage.core.policy import Limit, Retention, why_removable
from moorage.core.session import Hold, Phase, State
from moorage.testing.builders import NOON
from tests.core.heads import a_head

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
A_DAY = Retention(limit=Limit(DAY))
USUAL = {"created", "active", "completed", "abandoned"}
A_DAY_OR_A_WEEK = Retention(limit=Limit(DAY), limits={"failed": Limit(7 * DAY), "suspended": Limit(None)})


def test_session_idle_for_longer_is_deleted() -> None:
    head = a_head(State.COMPLETED, last_activity_at=NOON - DAY - timedelta(microseconds=1))
    assert why_removable(head, A_DAY, NOON) == "retention"
    assert why_removable(replace(head, last_activity_at=NOON - DAY), A_DAY, NOON) is None


def test_without_a_limit_nothing_goes_by_its_age() -> None:
    head = a_head(State.COMPLETED, last_activity_at=NOON - 9999 * DAY)
    assert why_removable(head, Retention(), NOON) is None
    assert why_removable(replace(head, expires_at=NOON), Retention(), NOON) == "expired"


def test_a_session_past_its_ttl_goes_however_fresh_it_is() -> None:
    head = a_head(State.ACTIVE, expires_at=NOON)
    assert why_removable(head, A_DAY, NOON) == "expired"
    assert why_removable(head, A_DAY, NOON - MINUTE) is None


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize(("days", "going"), [(1, set()), (2, USUAL), (8, USUAL | {"failed"})])
def test_each_state_has_its_own_age(state: State, days: int, going: set[str]) -> None:
    head = a_head(state, last_activity_at=NOON - days * DAY)
    assert (why_removable(head, A_DAY_OR_A_WEEK, NOON) == "retention") == (state.value in going)


def test_a_state_that_is_kept_for_ever_still_ends_with_its_ttl() -> None:
    old = a_head(State.SUSPENDED, last_activity_at=NOON - 9999 * DAY)
    assert why_removable(old, A_DAY_OR_A_WEEK, NOON) is None
    assert why_removable(replace(old, expires_at=NOON), A_DAY_OR_A_WEEK, NOON) == "expired"


@pytest.mark.parametrize("state", State)
def test_cleanup_by_age_is_limited_to_the_given_states(state: State) -> None:
    retention = replace(A_DAY, states=frozenset({"failed"}))
    head = a_head(state, last_activity_at=NOON - 2 * DAY)
    assert why_removable(head, retention, NOON) == ("retention" if state is State.FAILED else None)


@pytest.mark.parametrize(
    "in_use", [{"pending_approvals": 1}, {"hold": Hold("ann", NOON + MINUTE, "secret")}], ids=["waiting", "held"]
)
def test_held_or_waiting_session_is_never_deleted(in_use: dict[str, object]) -> None:
    old = a_head(State.ACTIVE, last_activity_at=NOON - 9 * DAY, expires_at=NOON - DAY)
    assert why_removable(old, A_DAY, NOON) == "expired"
    assert why_removable(replace(old, **in_use), A_DAY, NOON) is None


def test_an_ended_hold_keeps_nothing() -> None:
    head = a_head(State.ACTIVE, last_activity_at=NOON - 9 * DAY, hold=Hold("ann", NOON, "secret"))
    assert why_removable(head, A_DAY, NOON) == "retention"


# Limits -----------------------------------------------------------------------------------------

WAITING = replace(A_DAY_OR_A_WEEK, limit=Limit(DAY, "usual"), waiting=Limit(7 * DAY, "waiting"))


def test_session_in_phase_approval_is_kept_for_that_limit() -> None:
    head = a_head(State.ACTIVE, phase=Phase.APPROVAL, last_activity_at=NOON - 2 * DAY)
    assert WAITING.limit_on(head) == Limit(7 * DAY, "waiting")
    assert why_removable(head, WAITING, NOON) is None
    assert why_removable(replace(head, last_activity_at=NOON - 8 * DAY), WAITING, NOON) == "retention"
    assert why_removable(replace(head, phase=Phase.PLANNING), WAITING, NOON) == "retention"


def test_waiting_never_shortens_a_limit() -> None:
    patient = replace(WAITING, limit=Limit(30 * DAY, "usual"))
    assert patient.limit_on(a_head(State.ACTIVE, phase=Phase.APPROVAL)).setting == "usual"
    assert WAITING.limit_on(a_head(State.SUSPENDED, phase=Phase.APPROVAL)).age is None


def test_waiting_may_be_for_ever() -> None:
    retention = replace(A_DAY, waiting=Limit(None, "waiting"))
    assert why_removable(a_head(State.ACTIVE, phase=Phase.APPROVAL, at=NOON - 99 * DAY), retention, NOON) is None


def test_the_limit_names_the_setting_it_comes_from() -> None:
    retention = Retention(limit=Limit(DAY, "age"), limits={"failed": Limit(7 * DAY, "ages.failed")})
    assert retention.limit_on(a_head(State.FAILED)).setting == "ages.failed"
    assert retention.limit_on(a_head(State.COMPLETED)).setting == "age"


# Where a store begins to look -------------------------------------------------------------------


def test_a_store_looks_from_the_shortest_age_on() -> None:
    assert A_DAY_OR_A_WEEK.before(NOON) == NOON - DAY
    assert replace(A_DAY_OR_A_WEEK, limits={"active": Limit(MINUTE)}).before(NOON) == NOON - MINUTE


def test_ages_of_states_that_were_not_asked_for_do_not_count() -> None:
    assert replace(A_DAY_OR_A_WEEK, states=frozenset({"failed"})).before(NOON) == NOON - 7 * DAY
    assert replace(A_DAY_OR_A_WEEK, states=frozenset({"failed", "suspended"})).before(NOON) == NOON - 7 * DAY


def test_where_all_is_kept_for_ever_it_need_not_look() -> None:
    assert Retention().before(NOON) is None
    assert replace(A_DAY_OR_A_WEEK, states=frozenset({"suspended"})).before(NOON) is None


def test_the_default_does_not_count_if_every_state_has_an_age_of_its_own() -> None:
    named = {state.value: Limit(7 * DAY) for state in State}
    assert Retention(limit=Limit(MINUTE), limits=named).before(NOON) == NOON - 7 * DAY


def test_an_age_from_before_the_calendar_keeps_everything() -> None:
    retention = Retention(limit=Limit(timedelta(weeks=999_999)))
    before = retention.before(NOON)
    assert before is not None
    assert before < datetime(2, 1, 1, tzinfo=UTC)
    assert why_removable(a_head(State.COMPLETED, at=datetime(1970, 1, 1, tzinfo=UTC)), retention, NOON) is None


ages = st.one_of(st.none(), st.integers(0, 10).map(lambda days: days * DAY))
limits = ages.map(Limit)


@given(
    limit=limits,
    by_state=st.dictionaries(st.sampled_from([str(state) for state in State]), limits),
    waiting=st.one_of(st.none(), limits),
    states=st.one_of(st.none(), st.frozensets(st.sampled_from([str(state) for state in State]))),
    state=st.sampled_from(State),
    waits=st.booleans(),
    idle=st.integers(0, 12),
)
def test_whatever_may_go_by_its_age_is_found_by_the_store(
    limit: Limit,
    by_state: dict[str, Limit],
    waiting: Limit | None,
    states: frozenset[str] | None,
    state: State,
    waits: bool,
    idle: int,
) -> None:
    retention = Retention(limit=limit, limits=by_state, waiting=waiting, states=states)
    head = a_head(state, last_activity_at=NOON - idle * DAY)
    if waits and not head.is_final:
        head = replace(head, phase=Phase.APPROVAL)
    if why_removable(head, retention, NOON) is not None:
        before = retention.before(NOON)
        assert before is not None
        assert head.last_activity_at < before
