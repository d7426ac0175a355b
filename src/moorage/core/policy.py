"""Policies: whether work may be resumed, and what may be deleted; and the records of such decisions, delegations.

Both are decided by values that a person can read in the answer. Both read only the session's
head and the time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zlib import crc32

from msgspec import Struct, field

from moorage.core.brief import brief
from moorage.core.codec import canonical
from moorage.core.errors import MoorageError, SessionCorrupt
from moorage.core.query import check_any_text, check_instant
from moorage.core.session import FINAL_STATES, RESUMABLE_PHASES, Phase, Session, State

IDLE_LIMIT = timedelta(minutes=30)
APPROVAL_IDLE_LIMIT = timedelta(days=7)
MAX_ERRORS = 3


class ResumePolicy(Struct, frozen=True, kw_only=True):
    """How long work stays fresh, by phase, and how many errors it may have."""

    idle_limit: timedelta = IDLE_LIMIT
    idle_limits: dict[str, timedelta] = field(default_factory=lambda: {Phase.APPROVAL.value: APPROVAL_IDLE_LIMIT})
    max_errors: int = MAX_ERRORS


class Criterion(Struct, frozen=True, gc=False):
    """One checked criterion."""

    value: Any
    ok: bool
    limit: Any = None


@brief("decision", "reason", "session_id")
class Verdict(Struct, frozen=True):
    """The decision whether work may be resumed, its first reason, and all checked criteria."""

    decision: bool
    reason: str
    session_id: str | None = None
    criteria: dict[str, Criterion] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.decision


def verdict_on(session: Session, policy: ResumePolicy, at: datetime, holder: str | None = None) -> Verdict:
    """Return whether `holder` may resume this work. The first failed criterion is the reason."""
    idle = (at - session.last_activity_at).total_seconds()
    limit = policy.idle_limits.get(session.phase, policy.idle_limit).total_seconds()
    hold = session.hold
    holder_of_it = hold.holder if hold is not None and hold.holder != holder and session.is_held(at) else None
    criteria = {
        "exists": _YES,
        "whole": _YES,
        "open": _OPEN[session.state],
        "phase": _PHASE[session.phase],
        "resume_ready": _YES if session.resume_ready else _NO,
        "idle_seconds": Criterion(idle, idle < limit, limit),
        "error_count": Criterion(session.error_count, session.error_count < policy.max_errors, policy.max_errors),
        "held_by": _FREE if holder_of_it is None else Criterion(holder_of_it, False),
    }
    for name, criterion in criteria.items():
        if not criterion.ok:
            return Verdict(False, _REASONS[name], session.session_id, criteria)
    return Verdict(True, RESUMABLE, session.session_id, criteria)


RESUMABLE = "session_resumable"
_YES = Criterion(True, True)
_NO = Criterion(False, False)
_FREE = Criterion(None, True)
_OPEN = {state: Criterion(state, state not in FINAL_STATES) for state in State}
_PHASE = {phase: Criterion(phase, phase in RESUMABLE_PHASES) for phase in Phase}
_REASONS = {
    "open": "session_closed",
    "phase": "phase_not_resumable",
    "resume_ready": "not_resume_ready",
    "idle_seconds": "idle_too_long",
    "error_count": "too_many_errors",
    "held_by": "held_by_another",
}


def verdict_without(error: MoorageError | None, session_id: str | None) -> Verdict:
    """Return the verdict without a session to judge: none requested, none found, or a corrupt one."""
    if isinstance(error, SessionCorrupt):
        return Verdict(False, "session_corrupt", session_id, {"exists": _YES, "whole": _NO})
    reason = "no_existing_session" if session_id is None else "session_not_found"
    return Verdict(False, reason, session_id, {"exists": _NO})


# Retention --------------------------------------------------------------------------------------

RETENTION_AGE = timedelta(hours=24)
SWEEP_EVERY = timedelta(hours=1)
_LONG_AGO = datetime(1, 1, 2, tzinfo=UTC)


class RetentionPolicy(Struct, frozen=True, kw_only=True):
    """How long sessions are kept, by state, and how often a server cleans up. None: for ever, never."""

    age: timedelta | None = RETENTION_AGE  # in all states that are not in `ages`
    ages: dict[str, timedelta | None] = field(default_factory=dict)
    every: timedelta | None = SWEEP_EVERY


class Limit(Struct, frozen=True, gc=False):
    """How long a session is kept without activity, and the setting that says so."""

    age: timedelta | None  # None: for ever
    setting: str = ""


NOT_BY_AGE = Limit(None)


class Retention(Struct, frozen=True, kw_only=True):
    """How long sessions are kept. TTLs always apply."""

    limit: Limit = NOT_BY_AGE  # in all states that are not in `limits`
    limits: dict[str, Limit] = field(default_factory=dict)
    states: frozenset[str] | None = None  # only sessions in these states are deleted by age; None: in all
    waiting: Limit | None = None  # sessions in phase `approval` are kept at least this long

    def limit_on(self, session: Session) -> Limit:
        """Return how long this session is kept."""
        limit = self._limit_in(session.state.value)
        return limit if self.waiting is None or session.phase is not Phase.APPROVAL else _longer(limit, self.waiting)

    def before(self, at: datetime) -> datetime | None:
        """Return a time: no session with later activity is deleted by age. None: no session is deleted by age."""
        ages = [age for state in State if (age := self._limit_in(state.value).age) is not None]
        return _ago(at, min(ages)) if ages else None

    def _limit_in(self, state: str) -> Limit:
        if self.states is not None and state not in self.states:
            return NOT_BY_AGE
        return self.limits.get(state, self.limit)


def _longer(one: Limit, other: Limit) -> Limit:
    if one.age is None:
        return one
    return other if other.age is None or other.age > one.age else one


def _ago(at: datetime, span: timedelta) -> datetime:
    """Return the time this long before, or the beginning of the calendar."""
    return at - span if span < at - _LONG_AGO else _LONG_AGO


def why_removable(session: Session, retention: Retention, at: datetime) -> str | None:
    """Return the reason to delete this session (`expired`, `retention`), or None if it must stay.

    A tree is deleted only if every member may be, each by the limit on its own state.
    """
    if session.is_in_use(at):
        return None
    if session.expires_at is not None and session.expires_at <= at:
        return "expired"
    age = retention.limit_on(session).age
    return "retention" if age is not None and at - session.last_activity_at > age else None


# Delegations ------------------------------------------------------------------------------------
# They are stored apart from the sessions: most name none, and they are counted long after their session is deleted.


@brief("agent_name", "resumed", "reason", "at", "task_id", "session_id")
class Delegation(Struct, frozen=True, kw_only=True, gc=False):
    """Work to be delegated to an agent, and the decision about it."""

    delegation_id: str  # recorded once, however often it is reported
    at: datetime
    resumed: bool  # whether earlier work was resumed
    reason: str  # of the verdict
    agent_name: str | None = None
    task_id: str | None = None
    project_dir: str | None = None
    session_id: str | None = None  # the session judged, resumed or created for it
    host_session_id: str | None = None  # the delegating session


class Span(Struct, frozen=True, kw_only=True):
    """The range to count: agent, task, start and end."""

    agent: str | None = None
    task_id: str | None = None
    created_after: datetime | None = None  # at that instant or later
    created_before: datetime | None = None  # earlier than that

    def __post_init__(self) -> None:
        check_any_text("agent", self.agent)
        check_any_text("task_id", self.task_id)
        check_instant("created_after", self.created_after)
        check_instant("created_before", self.created_before)

    def fingerprint(self, what: str) -> int:
        """Return the fingerprint that binds cursors to a list over this span."""
        return crc32(canonical([what, self]))

    def has(self, at: datetime, agent: str | None, task: str | None) -> bool:
        """Return whether something of that time, agent and task is to be counted."""
        return (
            (self.agent is None or self.agent == agent)
            and (self.task_id is None or self.task_id == task)
            and (self.created_after is None or at >= self.created_after)
            and (self.created_before is None or at < self.created_before)
        )
