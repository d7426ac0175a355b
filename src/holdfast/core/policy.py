"""Policies: may this work be picked up, and what may be thrown away.

Both are judged by values a person can read in the answer; neither looks at anything
but the session's head and the time.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct, field

from holdfast.core.errors import HoldfastError, SessionCorrupt
from holdfast.core.session import FINAL_STATES, RESUMABLE_PHASES, Phase, Session

IDLE_LIMIT = timedelta(minutes=30)
APPROVAL_IDLE_LIMIT = timedelta(days=7)
MAX_ERRORS = 3


class ResumePolicy(Struct, frozen=True, kw_only=True):
    """How long work stays fresh, by phase, and how often it may have failed."""

    idle_limit: timedelta = IDLE_LIMIT
    idle_limits: dict[str, timedelta] = field(default_factory=lambda: {Phase.APPROVAL.value: APPROVAL_IDLE_LIMIT})
    max_errors: int = MAX_ERRORS

    def idle_limit_in(self, phase: Phase) -> timedelta:
        """The idle limit that counts in this phase."""
        return self.idle_limits.get(phase, self.idle_limit)


class Criterion(Struct, frozen=True):
    """One thing that was looked at."""

    value: Any
    ok: bool
    limit: Any = None


class Verdict(Struct, frozen=True, kw_only=True):
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
    limit = policy.idle_limit_in(session.phase).total_seconds()
    held = session.hold is not None and session.hold.lives(at) and session.hold.holder != holder
    open_, resumable = session.state not in FINAL_STATES, session.phase in RESUMABLE_PHASES
    criteria = {
        "exists": Criterion(True, True),
        "whole": Criterion(True, True),
        "open": Criterion(session.state.value, open_),
        "phase": Criterion(session.phase.value, resumable),
        "resume_ready": Criterion(session.resume_ready, session.resume_ready),
        "idle_seconds": Criterion(idle, idle < limit, limit),
        "error_count": Criterion(session.error_count, session.error_count < policy.max_errors, policy.max_errors),
        "held_by": Criterion(session.hold.holder if session.hold and held else None, not held),
    }
    for reason, name in _REASONS:
        if not criteria[name].ok:
            return Verdict(decision=False, reason=reason, session_id=session.session_id, criteria=criteria)
    return Verdict(decision=True, reason="session_resumable", session_id=session.session_id, criteria=criteria)


_REASONS = (
    ("session_closed", "open"),
    ("phase_not_resumable", "phase"),
    ("not_resume_ready", "resume_ready"),
    ("idle_too_long", "idle_seconds"),
    ("too_many_errors", "error_count"),
    ("held_by_another", "held_by"),
)


def verdict_without(error: HoldfastError | None, session_id: str | None) -> Verdict:
    """The verdict when there is no session to judge: none asked for, none found, or not whole."""
    if isinstance(error, SessionCorrupt):
        criteria = {"exists": Criterion(True, True), "whole": Criterion(False, False)}
        return Verdict(decision=False, reason="session_corrupt", session_id=session_id, criteria=criteria)
    reason = "no_existing_session" if session_id is None else "session_not_found"
    return Verdict(decision=False, reason=reason, session_id=session_id, criteria={"exists": Criterion(False, False)})


# Retention --------------------------------------------------------------------------------------


class Retention(Struct, frozen=True, kw_only=True):
    """What may go: sessions in these states, untouched since `before`. TTLs count always."""

    before: datetime
    states: frozenset[str] | None = None  # None: whatever their state


def why_removable(session: Session, retention: Retention, at: datetime) -> str | None:
    """The reason this session may go (`expired`, `retention`), or None if it must stay.

    A tree goes only when every member may.
    """
    if _is_in_use(session, at):
        return None
    if session.expires_at is not None and session.expires_at <= at:
        return "expired"
    if session.last_activity_at >= retention.before:
        return None
    if retention.states is not None and session.state.value not in retention.states:
        return None
    return "retention"


def _is_in_use(session: Session, at: datetime) -> bool:
    return bool(session.pending_approvals) or (session.hold is not None and session.hold.lives(at))
