"""Approvals: a question to a person, with at most one answer.

::

    pending ──→ approved | rejected | answered      a person decided
            ──→ expired                             no answer in time; that is not a refusal
            ──→ withdrawn                           the session was closed, or the runs that asked have settled

An answer is single-use. Giving the same one again is harmless, another is refused.
The plan's hash is kept, so that approval of one plan is never used for another.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from moorage.core.brief import brief
from moorage.core.codec import canonical
from moorage.core.errors import AlreadyDecided, ApprovalClosed, InvalidField, utc_text


class ApprovalState(StrEnum):
    """The state of an approval."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    ANSWERED = "answered"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


# The transition table of approvals; docs/lifecycle.md draws it and a test compares the two.
APPROVAL_MOVES: dict[ApprovalState, frozenset[ApprovalState]] = {
    state: frozenset(ApprovalState) - {state} if state is ApprovalState.PENDING else frozenset()
    for state in ApprovalState
}
WITHDRAW = "withdraw"  # ends a question without an answer, unless it is one of its options
_OFFERED = {"approve": ApprovalState.APPROVED, "reject": ApprovalState.REJECTED}
_DECISIONS = {**_OFFERED, WITHDRAW: ApprovalState.WITHDRAWN}


@brief("question", "state", "decision", "plan", "options", "expires_at", "session_id", "approval_id")
class Approval(Struct, frozen=True, kw_only=True):
    """A question to a person."""

    approval_id: str
    session_id: str
    question: str
    plan: Any = None
    plan_hash: str | None = None
    options: tuple[str, ...] = ()
    state: ApprovalState = ApprovalState.PENDING
    asked_at: datetime
    asked_by: str | None = None
    waits: bool = False  # whether the turn that asks waits for the answer
    expires_at: datetime | None = None
    decision: str | None = None  # approve, reject, or one of the options
    note: str | None = None
    decided_at: datetime | None = None
    decided_by: str | None = None
    run_ids: tuple[str, ...] = ()  # runs at work when a turn asked; when the last of them settles, it is withdrawn

    def is_due(self, at: datetime) -> bool:
        """Return whether its deadline has passed without an answer."""
        return self.state is ApprovalState.PENDING and self.expires_at is not None and self.expires_at <= at

    def decided(
        self, decision: str, *, by: str | None, at: datetime, note: str | None = None, plan_hash: str | None = None
    ) -> Approval:
        """Return the approval with this answer; itself if it has that answer. `withdraw` ends it without one."""
        state = self._state_for(decision)
        if plan_hash is not None and plan_hash != self.plan_hash:
            raise InvalidField("plan_hash", "does not match the plan of this approval; read the plan again")
        if self.state is not ApprovalState.PENDING:
            return self._decided_again(decision)
        if self.is_due(at):
            raise ApprovalClosed(self.approval_id, ApprovalState.EXPIRED.value)
        answer = None if state is ApprovalState.WITHDRAWN else decision
        return replace(self, state=state, decision=answer, note=note, decided_at=at, decided_by=by)

    def _state_for(self, decision: str) -> ApprovalState:
        if not isinstance(decision, str):
            raise InvalidField("decision", "must be text")
        if decision in self.options:
            return _OFFERED.get(decision, ApprovalState.ANSWERED)
        if decision in _DECISIONS:
            return _DECISIONS[decision]
        choices = ", ".join((*_DECISIONS, *self.options))
        raise InvalidField("decision", f"is {decision!r}; use one of {choices}")

    def _decided_again(self, decision: str) -> Approval:
        if self.decision == decision or (decision == WITHDRAW and self.state is ApprovalState.WITHDRAWN):
            return self
        if self.decision is None:
            raise ApprovalClosed(self.approval_id, self.state.value)
        raise AlreadyDecided(self.approval_id, self.decision, self.decided_by)

    def is_same_question(self, other: Approval) -> bool:
        """Return whether the other has the same question, options and plan."""
        return (self.question, self.options, self.plan_hash) == (other.question, other.options, other.plan_hash)

    def may_be_replayed(self, at: datetime) -> bool:
        """Return whether a person gave an answer that has not expired."""
        return self.decision is not None and (self.expires_at is None or at < self.expires_at)

    def expired(self, at: datetime) -> Approval:
        """Return the approval as expired."""
        return replace(self, state=ApprovalState.EXPIRED, decided_at=at)

    def withdrawn(self, at: datetime) -> Approval:
        """Return the approval as withdrawn."""
        return replace(self, state=ApprovalState.WITHDRAWN, decided_at=at)

    def asked(self) -> dict[str, Any]:
        """Return the data of the log entry for a new approval."""
        return {
            "approval_id": self.approval_id,
            "question": self.question,
            "plan": self.plan,
            "plan_hash": self.plan_hash,
            "options": list(self.options),
            "expires_at": None if self.expires_at is None else utc_text(self.expires_at),
        }

    def settled(self) -> dict[str, Any]:
        """Return the data of the log entry for its end."""
        return {
            "approval_id": self.approval_id,
            "state": self.state.value,
            "decision": self.decision,
            "note": self.note,
            "decided_by": self.decided_by,
        }

    def answered(self) -> dict[str, Any]:
        """Return the question and its outcome, as the agent gets them at the beginning of its next turn."""
        asked = {"question": self.question, "options": list(self.options), "plan_hash": self.plan_hash}
        return {**self.settled(), **{name: value for name, value in asked.items() if value}}


class ApprovalQuery(Struct, frozen=True, kw_only=True):
    """A query for approvals, of one session or of all."""

    session_id: str | None = None
    pending_only: bool = True
    due_at: datetime | None = None  # only pending ones whose deadline has passed by then
    limit: int = 100

    def admits(self, approval: Approval) -> bool:
        """Return whether an approval matches all filters."""
        return (
            self.session_id in (None, approval.session_id)
            and (approval.state is ApprovalState.PENDING or not self.pending_only)
            and (self.due_at is None or approval.is_due(self.due_at))
        )


PENDING = ApprovalQuery()


def hash_of_plan(plan: Any) -> str | None:
    """Return the SHA-256 of the plan's canonical JSON; equal plans have equal hashes."""
    if plan is None:
        return None
    from hashlib import sha256  # five milliseconds of start-up that most commands do not need

    return sha256(canonical(plan)).hexdigest()
