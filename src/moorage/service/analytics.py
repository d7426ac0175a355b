"""Analytics: how much was done, how much of it was resumed, and how it went, compared with targets.

One pass over the facts of the sessions created in a span and one over its delegations count everything. Only durations
and the ids of resumed sessions stay in memory until the end: medians and counts of distinct ids need them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from msgspec import Struct, field

from moorage.core.brief import brief
from moorage.core.errors import utc_text
from moorage.core.fact import Fate, SessionFact
from moorage.core.policy import Delegation, Span
from moorage.core.query import check_choice, each_item, each_page
from moorage.core.render import like
from moorage.core.session import FINAL_STATES, State
from moorage.service.deps import Caller, Deps

# Units of time to group by, all in UTC; weeks begin on Monday.
LENGTHS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}
UNITS = tuple(LENGTHS)
GROUPINGS = ("agent", "task", *UNITS)
MOST_GROUPS = 1000
ENOUGH_SESSIONS = 200  # with fewer sessions, the size is mostly that of an empty store
PAGE = 2000  # rows read at once
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class Goal(Struct, frozen=True):
    """The target of a measure."""

    text: str
    limit: float
    unit: str = "share"
    is_floor: bool = False  # whether values should be above it, rather than below

    def measured(self, value: float | None, *, is_known: bool = True) -> Measure:
        """Return a value with its target; `met` is None if it is not known."""
        is_met = None
        if value is not None and is_known:
            is_met = value > self.limit if self.is_floor else value < self.limit
        return Measure(value=value, unit=self.unit, target=self.text, met=is_met)


RESUME_RATE = Goal("> 60 %", 0.6, is_floor=True)
RESUME_SUCCESS = Goal("> 80 %", 0.8, is_floor=True)
MEDIAN = Goal("< 5 min", 300, "seconds")
P95 = Goal("< 30 min", 1800, "seconds")
ERROR_RATE = Goal("< 10 %", 0.1)
PER_SESSION = Goal("< 5 KB per small session", 5 * 1024, "bytes")


class Measure(Struct, frozen=True, kw_only=True):
    """One number with its target."""

    value: float | None  # None: there is nothing to measure
    unit: str  # share, seconds or bytes
    target: str
    met: bool | None  # None: not known


class Tokens(Struct, frozen=True, kw_only=True):
    """Tokens read and written by models, as reported by sessions."""

    input: int | float  # a whole number stays one at every door
    output: int | float
    sessions: int  # how many report tokens


class Callbacks(Struct, frozen=True, kw_only=True):
    """The counts of callbacks by outcome."""

    delivered: int
    waiting: int
    dead_letters: int


@brief("key", "sessions", "delegations", "resumed")
class Counts(Struct, frozen=True, kw_only=True):
    """The measures of a group of sessions and delegations."""

    key: str | None  # the agent, the task or the start of the time unit that they share
    sessions: int
    states: dict[str, int]
    ended: int
    with_errors: int
    delegations: int
    resumed: int  # delegations that resumed earlier work
    resumed_sessions: int  # the resumed sessions, each counted once
    resumed_ended: int  # of those, how many completed, failed, were abandoned or deleted
    resumed_completed: int
    resumed_open: int
    callbacks: Callbacks
    tokens: Tokens | None  # None: no session reports them
    resume_rate: Measure
    resume_success: Measure
    duration_median: Measure
    duration_p95: Measure
    error_rate: Measure


class Storage(Struct, frozen=True, kw_only=True):
    """The size of the whole store, whatever the query."""

    bytes: int | None  # None: the store cannot report it
    sessions: int | None
    bytes_per_session: Measure


@brief("agent", "task_id", "by", "total")
class Analytics(Struct, frozen=True, kw_only=True):
    """The counts, in total and by group."""

    agent: str | None
    task_id: str | None
    created_after: datetime | None
    created_before: datetime | None
    by: str | None
    total: Counts
    groups: list[Counts]
    groups_left_out: int
    storage: Storage


async def analytics(deps: Deps, caller: Caller, *, by: str | None = None, **within: Any) -> Analytics:
    """Count the sessions created, and the delegations made, in a span, given by the fields of `Span`.

    `by` groups them: agents and tasks by size, largest first, times in order. At most 1,000 groups are returned, the
    largest or the newest.
    """
    check_choice("by", by, GROUPINGS)
    span = Span(**within)
    tallies = await _tallied(deps, caller.owner, span, by)
    total = _Tally()
    for tally in tallies.values():
        total.add(tally)
    fates = await _fates(deps, caller.owner, total.picked_up)
    groups = [] if by is None else _chosen(tallies, by)
    return like(
        Analytics,
        span,
        by=by,
        total=total.counts(None, fates),
        groups=[tally.counts(utc_text(key) if isinstance(key, datetime) else key, fates) for key, tally in groups],
        groups_left_out=0 if by is None else len(tallies) - len(groups),
        storage=await _storage(deps),
    )


GroupKey = str | datetime | None
KeyOf = Callable[[str | None, str | None, datetime], GroupKey]  # from an agent, a task and a time


def _key_by(by: str | None) -> KeyOf:
    if by is None:
        return lambda _agent, _task, _at: None
    if by in UNITS:
        return _time_by(by)
    return (lambda agent, _task, _at: agent) if by == "agent" else lambda _agent, task, _at: task


def _time_by(unit: str) -> KeyOf:
    """Return a grouping by time. It caches the last group, because most facts come in the order of time."""
    start = end = start_of(unit, _LONG_AGO)

    def key_of(_agent: str | None, _task: str | None, at: datetime) -> datetime:
        nonlocal start, end
        if not start <= at < end:
            start = start_of(unit, at)
            end = start + LENGTHS[unit]
        return start

    return key_of


def start_of(unit: str, at: datetime) -> datetime:
    """Return the beginning of the hour, day or week, in UTC."""
    hour = at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    if unit == "hour":
        return hour
    day = hour.replace(hour=0)
    return day - timedelta(days=day.weekday()) if unit == "week" else day


def _chosen(tallies: dict[GroupKey, _Tally], by: str) -> list[tuple[GroupKey, _Tally]]:
    if by in UNITS:
        return sorted(tallies.items(), key=lambda item: str(item[0]))[-MOST_GROUPS:]
    largest = sorted(tallies.items(), key=lambda item: (-item[1].sessions, -item[1].delegations, str(item[0])))
    return largest[:MOST_GROUPS]


async def _tallied(deps: Deps, owner: str, span: Span, by: str | None) -> dict[GroupKey, _Tally]:
    key_of = _key_by(by)
    tallies: dict[GroupKey, _Tally] = defaultdict(_Tally)
    async for facts in each_page(partial(deps.store.facts, owner, span, PAGE)):
        for fact in facts.items:
            tallies[key_of(fact.agent_name, fact.task_id, fact.created_at)].add_fact(fact)
    async for one in each_item(partial(deps.store.delegations, owner, span, PAGE)):
        tallies[key_of(one.agent_name, one.task_id, one.at)].add_delegation(one)
    return tallies


async def _fates(deps: Deps, owner: str, session_ids: set[str]) -> dict[str, Fate]:
    wanted, known = sorted(session_ids), dict[str, Fate]()
    for first in range(0, len(wanted), PAGE):
        known |= {fate.session_id: fate for fate in await deps.store.fates(owner, wanted[first : first + PAGE])}
    return known


class _Tally(Struct):
    """The counts of one group while it is read."""

    sessions: int = 0
    ended: int = 0
    with_errors: int = 0
    delegations: int = 0
    resumed: int = 0
    delivered: int = 0
    waiting: int = 0
    dead_letters: int = 0
    telling: int = 0  # sessions that report tokens
    input: float = 0
    output: float = 0
    states: Counter[State] = field(default_factory=Counter)
    durations: list[float] = field(default_factory=list)
    picked_up: set[str] = field(default_factory=set)

    def add_fact(self, fact: SessionFact) -> None:
        """Count a session."""
        self.sessions += 1
        self.states[fact.state] += 1
        self.with_errors += fact.has_errors
        if fact.state in FINAL_STATES:
            self.ended += 1
            if fact.duration_seconds is not None:
                self.durations.append(fact.duration_seconds)
        if fact.input_tokens is not None or fact.output_tokens is not None:
            self.telling += 1
            self.input += fact.input_tokens or 0
            self.output += fact.output_tokens or 0
        if fact.callbacks is not None:
            self.delivered += fact.callbacks.delivered
            self.waiting += fact.callbacks.waiting
            self.dead_letters += fact.callbacks.dead_letters

    def add_delegation(self, delegation: Delegation) -> None:
        """Count a delegation."""
        self.delegations += 1
        if delegation.resumed:
            self.resumed += 1
            if delegation.session_id is not None:
                self.picked_up.add(delegation.session_id)

    def add(self, other: _Tally) -> None:
        """Count all of another tally."""
        for name in self.__struct_fields__[:-3]:  # the numbers
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.states += other.states
        self.durations += other.durations
        self.picked_up |= other.picked_up

    def counts(self, key: str | None, fates: dict[str, Fate]) -> Counts:
        """Return the measures of this group."""
        known = [fates[session_id] for session_id in self.picked_up if session_id in fates]
        ended = sum(fate.has_ended for fate in known)
        completed = sum(fate.state is State.COMPLETED for fate in known)
        durations = sorted(self.durations)
        return like(
            Counts,
            self,
            key=key,
            states={state.value: self.states[state] for state in State if state in self.states},
            resumed_sessions=len(self.picked_up),
            resumed_ended=ended,
            resumed_completed=completed,
            resumed_open=len(known) - ended,
            callbacks=like(Callbacks, self),
            tokens=like(Tokens, self, sessions=self.telling) if self.telling else None,
            resume_rate=RESUME_RATE.measured(_share(self.resumed, self.delegations)),
            resume_success=RESUME_SUCCESS.measured(_share(completed, ended)),
            duration_median=MEDIAN.measured(_percentile(durations, 0.5)),
            duration_p95=P95.measured(_percentile(durations, 0.95)),
            error_rate=ERROR_RATE.measured(_share(self.with_errors, self.sessions)),
        )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _percentile(ordered: list[float], share: float) -> float | None:
    """Return a percentile, interpolated between its two neighbours."""
    if not ordered:
        return None
    place = (len(ordered) - 1) * share
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return round(ordered[below] + (ordered[above] - ordered[below]) * (place - below), 3)


async def _storage(deps: Deps) -> Storage:
    size = (await deps.store.totals()).size
    if size is None:
        return Storage(bytes=None, sessions=None, bytes_per_session=PER_SESSION.measured(None))
    each = round(size.used_bytes / size.sessions, 1) if size.sessions else None
    measure = PER_SESSION.measured(each, is_known=size.sessions >= ENOUGH_SESSIONS)
    return Storage(bytes=size.bytes, sessions=size.sessions, bytes_per_session=measure)
