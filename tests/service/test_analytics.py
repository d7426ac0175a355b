"""Analytics: every measure beside its target, by agent, task and time; and the same as counting it all by hand."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import moorage
from moorage.core.errors import InvalidField
from moorage.core.policy import Delegation, Span
from moorage.core.session import FINAL_STATES, Stamp, State
from moorage.ports import Store
from moorage.service import analytics as module
from moorage.service.analytics import Analytics, Callbacks, Counts, Measure, start_of
from moorage.testing.builders import MANY, NOON, all_sessions, all_tombstones, drive, whole_log
from tests.service.doors import Timed, timed_on

OWNER = "local"


def delegated(timed: Timed, session_id: str | None = None, *, owner: str = OWNER, **fields: Any) -> None:
    """Record that work was delegated; with a session, that it was picked up."""
    fields = {"at": timed.clock.now(), "resumed": session_id is not None, "agent_name": "builder", **fields}
    delegation = Delegation(delegation_id=timed.deps.new_id(), reason="test", session_id=session_id, **fields)
    assert drive(timed.store.record_delegation(owner, delegation))


def finished(timed: Timed, session_id: str, outcome: str = "completed", **after: float) -> None:
    """Create a session that is closed after a while; the clock moves on."""
    timed.moor.create("builder", session_id=session_id)
    timed.forward(**after)
    timed.moor.finalize(session_id, outcome)


def value(measure: Measure) -> tuple[float | None, bool | None]:
    return measure.value, measure.met


# The measures -----------------------------------------------------------------------------------


def test_nothing_counted_is_nothing_measured(timed: Timed) -> None:
    found = timed.moor.stats()

    assert found.total == Counts(
        key=None,
        sessions=0,
        states={},
        ended=0,
        with_errors=0,
        delegations=0,
        resumed=0,
        resumed_sessions=0,
        resumed_ended=0,
        resumed_completed=0,
        resumed_open=0,
        callbacks=Callbacks(delivered=0, waiting=0, dead_letters=0),
        tokens=None,
        resume_rate=Measure(value=None, unit="share", target="> 60 %", met=None),
        resume_success=Measure(value=None, unit="share", target="> 80 %", met=None),
        duration_median=Measure(value=None, unit="seconds", target="< 5 min", met=None),
        duration_p95=Measure(value=None, unit="seconds", target="< 30 min", met=None),
        error_rate=Measure(value=None, unit="share", target="< 10 %", met=None),
    )
    assert (found.groups, found.groups_left_out, found.by) == ([], 0, None)


def test_sessions_are_counted_by_state(timed: Timed) -> None:
    for name in ("new", "busy", "paused"):
        timed.moor.create(session_id=name)
    timed.moor.append("busy", "hello")
    timed.moor.suspend("paused")
    finished(timed, "done")
    finished(timed, "broken", "failed")

    total = timed.moor.stats().total

    assert (total.sessions, total.ended) == (5, 2)
    assert total.states == {"created": 1, "active": 1, "suspended": 1, "completed": 1, "failed": 1}


@pytest.mark.parametrize(
    ("resumed", "asked", "expected"),
    [(0, 1, (0.0, False)), (3, 5, (0.6, False)), (2, 3, (2 / 3, True)), (5, 5, (1.0, True))],
)
def test_resume_rate_is_the_share_of_delegations_that_picked_work_up(
    timed: Timed, resumed: int, asked: int, expected: tuple[float, bool]
) -> None:
    timed.moor.create(session_id="s-1")
    for number in range(asked):
        delegated(timed, "s-1" if number < resumed else None)

    total = timed.moor.stats().total

    assert (total.delegations, total.resumed) == (asked, resumed)
    assert value(total.resume_rate) == expected


def test_resume_success_counts_each_session_once_and_leaves_open_ones_apart(timed: Timed) -> None:
    finished(timed, "completed")
    finished(timed, "failed", "failed")
    timed.moor.create(session_id="open")
    timed.moor.create(session_id="never-resumed")
    for session_id in ("completed", "completed", "completed", "failed", "open"):
        delegated(timed, session_id)
    delegated(timed, "never-was")
    delegated(timed, "never-resumed", resumed=False)

    total = timed.moor.stats().total

    assert (total.resumed, total.resumed_sessions) == (6, 4)
    assert (total.resumed_completed, total.resumed_ended, total.resumed_open) == (1, 2, 1)
    assert value(total.resume_success) == (0.5, False)


def test_outcome_of_a_resumed_session_survives_its_deletion(timed: Timed) -> None:
    finished(timed, "completed")
    timed.moor.create(session_id="given-up")
    for session_id in ("completed", "given-up"):
        delegated(timed, session_id)
        timed.moor.delete(session_id)

    total = timed.moor.stats().total

    assert (total.sessions, total.resumed_sessions) == (0, 2)
    assert (total.resumed_completed, total.resumed_ended, total.resumed_open) == (1, 2, 0)


def test_a_resumed_session_counts_whenever_it_was_created(timed: Timed) -> None:
    finished(timed, "old")
    since = timed.forward(days=3)
    delegated(timed, "old")

    total = timed.moor.stats(created_after=since).total

    assert (total.sessions, total.resumed_completed) == (0, 1)
    assert value(total.resume_success) == (1.0, True)


def test_durations_are_those_of_sessions_that_ended(timed: Timed) -> None:
    for number in range(1, 21):
        finished(timed, f"s-{number}", "completed" if number % 2 else "abandoned", minutes=number)
    timed.moor.create(session_id="goes-on")
    timed.forward(days=9)

    total = timed.moor.stats().total

    assert value(total.duration_median) == (10.5 * 60, False)
    assert value(total.duration_p95) == (19.05 * 60, True)


@pytest.mark.parametrize(
    ("seconds", "median_met", "p95_met"),
    [(299, True, True), (300, False, True), (1799, False, True), (1800, False, False)],
)
def test_a_duration_must_stay_below_its_target(timed: Timed, seconds: int, median_met: bool, p95_met: bool) -> None:
    finished(timed, "s-1", seconds=seconds)

    total = timed.moor.stats().total

    assert value(total.duration_median) == (seconds, median_met)
    assert value(total.duration_p95) == (seconds, p95_met)


def test_error_rate_is_the_share_of_sessions_with_errors_forgiven_or_not(timed: Timed) -> None:
    for number in range(20):
        timed.moor.create(session_id=f"s-{number}")
    timed.moor.update("s-1", error="oops")
    timed.moor.update("s-1", error="and again")
    assert value(timed.moor.stats().total.error_rate) == (0.05, True)

    timed.moor.update("s-2", error="oops")
    stamp = Stamp(timed.clock.now(), "ann", "test")
    drive(timed.store.apply(OWNER, "s-2", lambda view: view.session.end_turn(stamp)))
    assert timed.moor.get("s-2").error_count == 0

    total = timed.moor.stats().total
    assert total.with_errors == 2
    assert value(total.error_rate) == (0.1, False)


def test_tokens_are_summed_where_sessions_tell_of_them(timed: Timed) -> None:
    timed.moor.create(metadata={"usage": {"input_tokens": 100, "output_tokens": 10}})
    timed.moor.create(metadata={"usage": {"input_tokens": 11}})
    timed.moor.create(metadata={"usage": "a lot"})
    timed.moor.create()

    tokens = timed.moor.stats().total.tokens

    assert tokens is not None
    assert (tokens.input, tokens.output, tokens.sessions) == (111, 10, 2)


def test_storage_is_that_of_the_whole_store(timed: Timed) -> None:
    timed.moor.create("builder")
    timed.connect(owner="somebody-else").create()

    storage = timed.moor.stats(agent="nobody").storage

    if storage.bytes is None:
        assert (storage.sessions, value(storage.bytes_per_session)) == (None, (None, None))
        return
    assert storage.bytes > 100_000, "an empty store takes that much"
    assert storage.sessions == 2
    assert storage.bytes_per_session.value is not None
    assert storage.bytes_per_session.met is None, "two sessions say nothing about the size of one"


def test_many_small_sessions_take_less_than_the_target(tmp_path: Path) -> None:
    with moorage.sync.connect(f"sqlite:///{tmp_path / 'moorage.db'}") as moor:
        for number in range(module.ENOUGH_SESSIONS):
            moor.append(moor.create("builder").id, f"message {number}")
        assert moor.stats().storage.bytes_per_session.met is True
        moor.append(moor.create("builder").id, ["x" * 100_000] * 20)
        assert moor.stats().storage.bytes_per_session.met is False


# Spans and groups -------------------------------------------------------------------------------


@pytest.fixture
def week(timed: Timed) -> Timed:
    """Two agents and two tasks over some days from Sunday noon, with a delegation each."""
    for day, (agent, task) in enumerate([("a", "t-1"), ("b", "t-1"), ("a", "t-2"), ("a", "t-2")]):
        timed.moor.create(agent, session_id=f"s-{day}", task_id=task)
        delegated(timed, None, agent_name=agent, task_id=task)
        timed.forward(days=1)
    other = timed.connect(owner="somebody-else")
    other.create("a", task_id="t-1")
    delegated(timed, None, owner="somebody-else", agent_name="a", task_id="t-1")
    return timed


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, 4),
        ({"agent": "a"}, 3),
        ({"agent": "nobody"}, 0),
        ({"task_id": "t-1"}, 2),
        ({"agent": "a", "task_id": "t-1"}, 1),
        ({"created_after": NOON + timedelta(days=1)}, 3),
        ({"created_before": NOON + timedelta(days=1)}, 1),
        ({"created_after": NOON + timedelta(days=1), "created_before": NOON + timedelta(days=3), "agent": "a"}, 1),
    ],
)
def test_a_span_limits_sessions_and_delegations_alike(week: Timed, filters: dict[str, Any], expected: int) -> None:
    found = week.moor.stats(**filters)

    assert (found.total.sessions, found.total.delegations) == (expected, expected)
    assert {name: getattr(found, name) for name in filters} == filters


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("agent", {"a": 3, "b": 1}),
        ("task", {"t-1": 2, "t-2": 2}),
        ("hour", {f"2026-03-0{day}T12:00:00Z": 1 for day in (1, 2, 3, 4)}),
        ("day", {f"2026-03-0{day}T00:00:00Z": 1 for day in (1, 2, 3, 4)}),
        ("week", {"2026-02-23T00:00:00Z": 1, "2026-03-02T00:00:00Z": 3}),
    ],
)
def test_groups(week: Timed, by: str, expected: dict[str, int]) -> None:
    found = week.moor.stats(by=by)

    assert {group.key: group.sessions for group in found.groups} == expected
    assert [group.key for group in found.groups] == list(expected), "in order"
    assert [group.delegations for group in found.groups] == list(expected.values())
    assert found.total == week.moor.stats().total


def test_sessions_without_an_agent_form_a_group(timed: Timed) -> None:
    timed.moor.create()
    delegated(timed, None, agent_name=None)

    assert [(group.key, group.sessions, group.delegations) for group in timed.moor.stats(by="agent").groups] == [
        (None, 1, 1)
    ]


def test_a_session_resumed_on_two_days_counts_on_both_and_once_in_all(timed: Timed) -> None:
    finished(timed, "s-1")
    for _ in range(2):
        delegated(timed, "s-1")
        timed.forward(days=1)

    found = timed.moor.stats(by="day")

    assert [group.resumed_completed for group in found.groups] == [1, 1]
    assert found.total.resumed_completed == 1


@pytest.mark.parametrize(("by", "kept"), [("task", ["t-5", "t-4"]), ("day", ["2026-03-04", "2026-03-05"])])
def test_the_largest_or_newest_groups_are_kept_and_the_others_counted(
    timed: Timed, monkeypatch: pytest.MonkeyPatch, by: str, kept: list[str]
) -> None:
    monkeypatch.setattr(module, "MOST_GROUPS", 2)
    for number in range(1, 6):
        for _ in range(number):
            timed.moor.create(task_id=f"t-{number}")
        timed.forward(days=1)

    found = timed.moor.stats(by=by)

    assert [str(group.key)[:10] for group in found.groups] == kept
    assert (found.groups_left_out, found.total.sessions) == (3, 15)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"by": "month"}, "invalid_by"),
        ({"by": ["day"]}, "invalid_by"),
        ({"agent": 7}, "invalid_agent"),
        ({"agent": "\ud800"}, "invalid_agent"),
        ({"task_id": b"t"}, "invalid_task_id"),
        ({"created_after": "yesterday"}, "invalid_created_after"),
        ({"created_before": datetime(2026, 1, 1)}, "invalid_created_before"),  # noqa: DTZ001  # that is what is wrong
    ],
)
def test_invalid_grouping_is_refused(timed: Timed, wrong: dict[str, Any], code: str) -> None:
    with pytest.raises(InvalidField) as refused:
        timed.moor.stats(**wrong)
    assert refused.value.code == code


async def test_an_event_loop_gets_the_same(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'moorage.db'}"
    async with moorage.connect(url) as moor:
        await moor.create("builder")
        found = await moor.stats(by="agent")
    assert [(group.key, group.sessions) for group in found.groups] == [("builder", 1)]


def test_page_size_does_not_change_the_counts(week: Timed, monkeypatch: pytest.MonkeyPatch) -> None:
    finished(week, "done")
    delegated(week, "done")
    delegated(week, "s-1")
    whole = week.moor.stats(by="day")
    monkeypatch.setattr(module, "PAGE", 1)

    assert week.moor.stats(by="day") == whole


def test_one_damaged_session_does_not_keep_the_others_from_being_counted(tmp_path: Path) -> None:
    from moorage.testing.faults import opened_raw

    path = tmp_path / "moorage.db"
    with moorage.sync.connect(f"sqlite:///{path}") as moor:
        for name in ("whole", "no-state", "no-json", "no-time"):
            moor.create(session_id=name)
        with opened_raw(path) as db:
            db.execute("UPDATE sessions SET state = 'asleep' WHERE id = 'no-state'")
            db.execute("UPDATE sessions SET metadata = '{\"usage\"' WHERE id = 'no-json'")
            db.execute("UPDATE sessions SET created_at = 1 << 61 WHERE id = 'no-time'")
        assert moor.stats().total.sessions == 2


# The same by hand -------------------------------------------------------------------------------

DAY = timedelta(days=1)
acts = st.lists(
    st.tuples(
        st.sampled_from(["create", "create", "error", "finalize", "delete", "delegate", "delegate", "wait", "fork"]),
        st.integers(0, 5),
        st.sampled_from([None, "a", "b"]),
        st.sampled_from([None, "t-1", "t-2"]),
        st.sampled_from([timedelta(seconds=1), timedelta(minutes=7), timedelta(hours=5), DAY, 8 * DAY]),
    ),
    max_size=30,
)
asked = st.fixed_dictionaries(
    {"by": st.sampled_from([None, "agent", "task", "hour", "day", "week"])},
    optional={
        "agent": st.sampled_from(["a", "b"]),
        "task_id": st.sampled_from(["t-1", "s-1"]),
        "created_after": st.integers(0, 20).map(lambda days: NOON + days * DAY),
        "created_before": st.integers(0, 20).map(lambda days: NOON + days * DAY),
    },
)


@pytest.mark.parametrize("kind", ["model", "sqlite"])
def test_it_is_the_same_as_counting_everything_by_hand(kind: str) -> None:
    @settings(max_examples=60, deadline=None)
    @given(acts, asked)
    def check(acts: list[Any], asked: dict[str, Any]) -> None:
        with TemporaryDirectory() as folder, ExitStack() as connections:
            timed = timed_on(kind, Path(folder), connections)
            for act in acts:
                happen(timed, *act)
            found = timed.moor.stats(**asked)
            assert by_key(found) == by_hand(timed.store, **asked)

    check()


def happen(timed: Timed, what: str, number: int, agent: str | None, task: str | None, by: timedelta) -> None:
    """Do one thing, if it can be done."""
    moor, session_id = timed.moor, f"s-{number}"
    try:
        if what == "create":
            usage = {"input_tokens": number, "output_tokens": "many" if number % 2 else 2}
            metadata = {"usage": usage} if number % 3 else {}
            moor.create(agent, session_id=session_id, task_id=task, metadata=metadata)
        elif what == "error":
            moor.update(session_id, error="oops")
        elif what == "finalize":
            moor.finalize(session_id, "completed" if number % 3 else "failed")
        elif what == "delete":
            moor.delete(session_id)
        elif what == "fork":
            moor.fork(session_id)
        elif what == "delegate":
            delegated(timed, session_id, resumed=agent is not None or number == 0, agent_name=agent, task_id=task)
    except moorage.MoorageError:
        pass
    timed.clock.forward(by if what == "wait" else timedelta(seconds=1))


def by_key(found: Analytics) -> dict[str | None, dict[str, Any]]:
    """Return the counts by group, the total under `in all`."""
    groups = {group.key: plain(group) for group in found.groups}
    return {**groups, "in all": plain(found.total)}


def plain(counts: Counts) -> dict[str, Any]:
    names = ("sessions", "states", "ended", "with_errors", "delegations", "resumed", "resumed_sessions")
    more = ("resumed_ended", "resumed_completed", "resumed_open")
    numbers = {name: getattr(counts, name) for name in (*names, *more)}
    measures = ("resume_rate", "resume_success", "duration_median", "duration_p95", "error_rate")
    tokens = counts.tokens and (counts.tokens.input, counts.tokens.output, counts.tokens.sessions)
    return {**numbers, "tokens": tokens, **{name: getattr(counts, name).value for name in measures}}


def by_hand(
    store: Store,
    by: str | None,
    agent: str | None = None,
    task_id: str | None = None,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
) -> dict[str | None, dict[str, Any]]:
    """The same from whole sessions, whole logs, all tombstones and all delegations."""

    def wanted(at: datetime, of: str | None, task: str | None) -> bool:
        begun = created_after is None or at >= created_after
        return (
            begun
            and (created_before is None or at < created_before)
            and agent in (None, of)
            and task_id in (None, task)
        )

    def key(at: datetime, of: str | None, task: str | None) -> str | None:
        if by in ("agent", "task"):
            return of if by == "agent" else task
        if by is None:
            return "in all"
        hours = {"hour": at.hour, "day": 0, "week": 0}[by]
        back = timedelta(days=at.isoweekday() - 1 if by == "week" else 0)
        return (datetime(at.year, at.month, at.day, hours, tzinfo=UTC) - back).isoformat().replace("+00:00", "Z")

    sessions = [s for s in drive(all_sessions(store, OWNER)) if wanted(s.created_at, s.agent, s.task_id)]
    everything = drive(store.delegations(OWNER, Span(), MANY)).items
    delegations = [d for d in everything if wanted(d.at, d.agent_name, d.task_id)]
    groups: dict[str | None, tuple[list[Any], list[Any]]] = {"in all": (sessions, delegations)}
    if by is not None:
        for session in sessions:
            groups.setdefault(key(session.created_at, session.agent, session.task_id), ([], []))[0].append(session)
        for one in delegations:
            groups.setdefault(key(one.at, one.agent_name, one.task_id), ([], []))[1].append(one)
    return {name: counted_by_hand(store, *group) for name, group in groups.items()}


def counted_by_hand(store: Store, sessions: list[Any], delegations: list[Any]) -> dict[str, Any]:
    fates = {s.session_id: (s.state.value, s.state in FINAL_STATES) for s in drive(all_sessions(store, OWNER))}
    fates |= {tombstone.session_id: (tombstone.state, True) for tombstone in drive(all_tombstones(store, OWNER))}
    picked_up = {d.session_id for d in delegations if d.resumed}
    ended = [fates[name][0] for name in picked_up if name in fates and fates[name][1]]
    broken = [s for s in sessions if has_errors(store, s)]
    durations = [s.duration_seconds for s in sessions if s.duration_seconds is not None]
    told = [s.metadata["usage"] for s in sessions if "usage" in s.metadata]
    resumed = sum(d.resumed for d in delegations)
    return {
        "sessions": len(sessions),
        "states": {state.value: n for state in State if (n := sum(s.state is state for s in sessions))},
        "ended": len(durations),
        "with_errors": len(broken),
        "delegations": len(delegations),
        "resumed": resumed,
        "resumed_sessions": len(picked_up),
        "resumed_ended": len(ended),
        "resumed_completed": ended.count("completed"),
        "resumed_open": sum(name in fates and not fates[name][1] for name in picked_up),
        "tokens": (
            (sum(u["input_tokens"] for u in told), 2 * sum(u["output_tokens"] == 2 for u in told), len(told))
            if told
            else None
        ),
        "resume_rate": resumed / len(delegations) if delegations else None,
        "resume_success": ended.count("completed") / len(ended) if ended else None,
        "duration_median": pytest.approx(statistics.median(durations), abs=0.001) if durations else None,
        "duration_p95": pytest.approx(p95(durations), abs=0.001) if durations else None,
        "error_rate": len(broken) / len(sessions) if sessions else None,
    }


def has_errors(store: Store, session: Any) -> bool:
    """Whether an error stands in its log after what it shares with the session it was forked from."""
    log = drive(whole_log(store, session.session_id, OWNER))
    begun = max(entry.number for entry in log if entry.kind in ("created", "forked"))
    return any(entry.kind == "error" and entry.number > begun for entry in log)


def p95(values: list[float]) -> float:
    return values[0] if len(values) == 1 else statistics.quantiles(values, n=20, method="inclusive")[-1]


@given(st.datetimes(timezones=st.just(UTC)), st.sampled_from(["hour", "day", "week"]))
def test_a_time_belongs_to_the_hour_day_or_week_it_is_in(at: datetime, unit: str) -> None:
    if at.year == 1 or at.year == 9999:  # no week before or after those
        return
    start = start_of(unit, at)
    assert start <= at < start + module.LENGTHS[unit]
    assert start_of(unit, start) == start
    assert unit != "week" or start.weekday() == 0


def test_time_zones_do_not_matter_for_hours_days_and_weeks() -> None:
    late = datetime(2026, 3, 2, 1, 30, tzinfo=timezone(timedelta(hours=5)))
    assert start_of("week", late) == datetime(2026, 2, 23, tzinfo=UTC)
