"""Policies: may this work be picked up, and what may be thrown away.

Both are judged by values a person can read in the answer; neither looks at anything
but the session's head and the time.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct, field

from holdfast.core.errors import HoldfastError, SessionCorrupt
from holdfast.core.session import FINAL_STATES, RESUMABLE_PHASES, Phase, Session, State

IDLE_LIMIT = timedelta(minutes=30)
APPROVAL_IDLE_LIMIT = timedelta(days=7)
MAX_ERRORS = 3


class ResumePolicy(Struct, frozen=True, kw_only=True):
    """How long work stays fresh, by phase, and how often it may have failed."""

    idle_limit: timedelta = IDLE_LIMIT
    idle_limits: dict[str, timedelta] = field(default_factory=lambda: {Phase.APPROVAL.value: APPROVAL_IDLE_LIMIT})
    max_errors: int = MAX_ERRORS


class Criterion(Struct, frozen=True, gc=False):
    """One thing that was looked at."""

    value: Any
    ok: bool
    limit: Any = None


class Verdict(Struct, frozen=True):
    """Whether work may be picked up: the decision, the first reason, everything looked at."""

    decision: bool
    reason: str
    session_id: str | None = None
    criteria: dict[str, Criterion] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.decision


def verdict_on(session: Session, policy: ResumePolicy, at: datetime, holder: str | None = None) -> Verdict:
    """May `holder` pick this work up? The first failed criterion is the reason."""
    idle = (at - session.last_activity_at).total_seconds()
    limit = policy.idle_limits.get(session.phase, policy.idle_limit).total_seconds()
    hold = session.hold
    holder_of_it = hold.holder if hold is not None and hold.holder != holder and hold.lives(at) else None
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


def verdict_without(error: HoldfastError | None, session_id: str | None) -> Verdict:
    """The verdict when there is no session to judge: none asked for, none found, or not whole."""
    if isinstance(error, SessionCorrupt):
        return Verdict(False, "session_corrupt", session_id, {"exists": _YES, "whole": _NO})
    reason = "no_existing_session" if session_id is None else "session_not_found"
    return Verdict(False, reason, session_id, {"exists": _NO})


# Retention --------------------------------------------------------------------------------------


class Retention(Struct, frozen=True, kw_only=True):
    """What may go: sessions in these states, untouched since `before`. TTLs count always."""

    before: datetime
    states: frozenset[str] | None = None  # None: whatever their state
    waiting_since: datetime | None = None  # what waits in phase `approval` since then or later stays


def why_removable(session: Session, retention: Retention, at: datetime) -> str | None:
    """The reason this session may go (`expired`, `retention`), or None if it must stay.

    A tree goes only when every member may.
    """
    if session.is_in_use(at):
        return None
    if session.expires_at is not None and session.expires_at <= at:
        return "expired"
    if session.last_activity_at >= retention.before:
        return None
    if retention.states is not None and session.state.value not in retention.states:
        return None
    if retention.waiting_since is not None and session.phase is Phase.APPROVAL:
        return "retention" if session.last_activity_at < retention.waiting_since else None
    return "retention"
