"""Status: one word for people, what a session waits for, and why a request has not started.

Three functions decide it for every door. `status_of` and `waiting_for` read only the session's head.
`why_not_started` also reads the launchers and the time, so its answer is computed at each read and never stored.

::

    completed | failed | abandoned → waiting (approval) → running → suspended → waiting (child)
        → queued → run_failed → created → idle          the first that holds is the status
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins

from moorage.core.brief import brief

if TYPE_CHECKING:
    from moorage.core.session import Session
    from moorage.core.turn import Launcher

SILENT_AFTER = timedelta(seconds=30)  # a launcher without a heartbeat for this long takes no turns


class Status(StrEnum):
    """One word for people."""

    CREATED = "created"
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    IDLE = "idle"
    RUN_FAILED = "run_failed"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    FAILED = "failed"
    ABANDONED = "abandoned"


class Reason(StrEnum):
    """Why a request has not started, or does not continue."""

    NO_LAUNCHER = "no_launcher"
    LAUNCHER_BUSY = "launcher_busy"
    UNRESPONSIVE = "unresponsive"
    HELD = "held"
    SUSPENDED = "suspended"
    WAITING_FOR_APPROVAL = "waiting_for_approval"
    WAITING_FOR_CHILD = "waiting_for_child"


# Only a person can end these, so a caller that waits for the answer is told at once.
NEEDS_A_PERSON = frozenset({Reason.HELD, Reason.SUSPENDED, Reason.WAITING_FOR_APPROVAL})


@brief("session_id", "run_id")
class Child(Struct, frozen=True):
    """A child whose run still has to call back."""

    session_id: str
    run_id: str


@brief("approval_id", "child")
class WaitingFor(Struct, frozen=True, kw_only=True):
    """The approval or the child that a session waits for."""

    approval_id: str | None = None
    child: Child | None = None


@brief("reason", "by", "until", "since", "approval_id", "child")
class Because(Struct, frozen=True, kw_only=True):
    """A reason with its facts."""

    reason: Reason
    by: str | None = None  # the holder; who suspended: person or agent; the unresponsive launcher
    until: datetime | None = None  # of a hold: its end; of an unresponsive turn: when it is given up
    since: datetime | None = None  # of an unresponsive turn: when its lease expired
    approval_id: str | None = None
    child: Child | None = None

    @property
    def needs_a_person(self) -> bool:
        """Return whether waiting is useless until a person acts."""
        return self.reason in NEEDS_A_PERSON

    @property
    def facts(self) -> dict[str, Any]:
        """Return the fields that are set, as plain values."""
        return {name: value for name, value in to_builtins(self).items() if value is not None}

    @property
    def is_silence(self) -> bool:
        """Return whether the launcher of the live turn is unresponsive."""
        return self.reason is Reason.UNRESPONSIVE

    @property
    def in_words(self) -> str:
        """Return the reason as part of a sentence: the run waits …"""
        if self.reason is Reason.HELD:
            return f"while {self.by} holds the session" + ("" if self.until is None else f", until {_utc(self.until)}")
        if self.reason is Reason.WAITING_FOR_APPROVAL:
            return f"for an answer to approval {self.approval_id}"
        if self.reason is Reason.WAITING_FOR_CHILD and self.child is not None:
            return f"for a child, session {self.child.session_id}"
        if self.is_silence:
            return f"for a turn whose {self.in_silence}"
        return _IN_WORDS[self.reason]

    @property
    def in_silence(self) -> str:
        """Describe an unresponsive launcher and the next step, as part of a sentence."""
        since = "" if self.since is None else f" since {_utc(self.since)}"
        until = "" if self.until is None else f"; if it stays silent, the turn is given up at {_utc(self.until)}"
        return f"launcher is unresponsive{since}{until}"


_IN_WORDS = {
    Reason.NO_LAUNCHER: "for a launcher, and none is running that takes it",
    Reason.LAUNCHER_BUSY: "until a launcher takes it",
    Reason.SUSPENDED: "because the session is suspended",
    Reason.WAITING_FOR_CHILD: "for a child",
}


def _utc(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}Z"


class LastRun(Struct, frozen=True):
    """The run of a session that settled last."""

    id: str
    state: str
    reason: str | None
    settled_at: datetime


def status_of(head: Session) -> Status:
    """Return the status, by precedence."""
    if head.is_final:
        return Status(head.state.value)
    if head.pending_approvals:
        return Status.WAITING
    if head.live_turn is not None:
        return Status.RUNNING
    if head.state.value == Status.SUSPENDED:
        return Status.SUSPENDED
    if head.awaited_child is not None:
        return Status.WAITING
    if head.waits:
        return Status.QUEUED
    if head.last_run is not None and head.last_run.state == "failed":
        return Status.RUN_FAILED
    return Status.CREATED if head.state.value == Status.CREATED else Status.IDLE


def waiting_for(head: Session) -> WaitingFor | None:
    """Return what a session of status `waiting` waits for."""
    if status_of(head) is not Status.WAITING:
        return None
    if head.pending_approvals:
        return WaitingFor(approval_id=head.awaited_approval)
    return WaitingFor(child=head.awaited_child)


def why_not_started(head: Session, launchers: Iterable[Launcher], at: datetime) -> Because | None:
    """Return why a request to a session has not started; None if nothing waits and no turn is unresponsive.

    A message that came while a turn is running waits for the launcher: `launcher_busy`. A turn whose lease has
    expired may not continue: `unresponsive`, whether or not something waits for it.
    """
    if head.is_final:
        return None
    if head.pending_approvals:
        return Because(reason=Reason.WAITING_FOR_APPROVAL, approval_id=head.awaited_approval)
    if (since := head.unresponsive_since(at)) is not None:
        return Because(reason=Reason.UNRESPONSIVE, by=None if head.hold is None else head.hold.holder, since=since)
    if not head.waits:
        is_out = head.awaited_child is not None and head.live_turn is None
        return Because(reason=Reason.WAITING_FOR_CHILD, child=head.awaited_child) if is_out else None
    if head.live_turn is not None:
        return Because(reason=Reason.LAUNCHER_BUSY)
    if head.is_kept_asleep:
        return Because(reason=Reason.SUSPENDED, by=head.suspended_by)
    if head.hold is not None and head.hold.lives(at):
        return Because(reason=Reason.HELD, by=head.hold.holder, until=head.hold.until)
    able = any(can_take(each, head, at) for each in launchers)
    return Because(reason=Reason.LAUNCHER_BUSY if able else Reason.NO_LAUNCHER)


def can_take(launcher: Launcher, head: Session, at: datetime) -> bool:
    """Return whether a launcher lives and takes turns of that session, once it has a free slot."""
    is_there = at - launcher.seen_at < SILENT_AFTER and not launcher.drain and not launcher.draining
    takes_agent = not launcher.agents or head.agent_name in launcher.agents
    return is_there and takes_agent and launcher.works_for(head.owner) and launcher.root in (None, head.root_session_id)
