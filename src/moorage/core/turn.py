"""Turns: attempts of a launcher to continue a session, each under a lease.

::

    queued ──→ running ──→ completed | failed | stopped | lost
       ↑          │
       └──────────┘ not started in time: given out again

A claim gives the turn a number, the epoch, which only grows. A report with an older epoch is refused,
so a launcher that wakes up late can do no harm.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from moorage.core.brief import brief

LEASE = timedelta(seconds=30)  # without renewal, a turn shows as unresponsive
LOST_AFTER = timedelta(minutes=5)  # without renewal, a started turn is lost
RESERVED_FOR = timedelta(seconds=5)  # time for the caller's launcher to start and take the turn
FORGOTTEN_AFTER = timedelta(days=7)  # a launcher without heartbeats for this long is forgotten
MAX_ATTEMPTS = 3  # failed or lost turns in a row


class TurnState(StrEnum):
    """The state of a turn."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"


ENDED = frozenset({TurnState.COMPLETED, TurnState.FAILED, TurnState.STOPPED, TurnState.LOST})
# The transition table of turns; docs/lifecycle.md draws it and a test compares the two.
TURN_MOVES: dict[TurnState, frozenset[TurnState]] = {
    TurnState.QUEUED: frozenset({TurnState.RUNNING, TurnState.STOPPED}),
    TurnState.RUNNING: frozenset({TurnState.QUEUED}) | ENDED,
    **{state: frozenset() for state in ENDED},
}


class Retry(StrEnum):
    """The rule for the work of a lost turn."""

    RESUME = "resume"  # another turn, which is told that the last was cut off; three in a row at most
    ALWAYS = "always"  # another turn, without a limit
    NEVER = "never"  # the run fails


class Turn(Struct, frozen=True, kw_only=True):
    """An attempt to continue a session."""

    turn_id: str
    session_id: str
    agent_name: str | None
    queued_at: datetime
    state: TurnState = TurnState.QUEUED
    epoch: int = 0
    attempt: int = 1  # 1 plus the number of turns that were lost or failed right before it
    cut_off: bool = False  # whether the turn before it was cut off
    heard: dict[str, str] = {}  # answers its agent got: approval ids, by the id under which it asked
    not_before: datetime | None = None
    reserved_until: datetime | None = None  # until then only a launcher of its family may take it
    launcher_id: str | None = None
    of_family: bool = False  # whether that launcher takes turns of this family only
    claimed_at: datetime | None = None
    started_at: datetime | None = None
    lease_until: datetime | None = None
    lost_at: datetime | None = None
    stop_requested: bool = False
    retry: Retry = Retry.RESUME
    lease: timedelta = LEASE
    lost_after: timedelta = LOST_AFTER
    ended_at: datetime | None = None
    reason: str | None = None

    def is_unresponsive(self, at: datetime) -> bool:
        """Return whether its launcher has not renewed the lease in time."""
        return self.state is TurnState.RUNNING and self.lease_until is not None and at >= self.lease_until

    def is_lost(self, at: datetime) -> bool:
        """Return whether its launcher has been silent for so long that a started agent has ended."""
        return self.state is TurnState.RUNNING and self.lost_at is not None and at >= self.lost_at

    @property
    def is_extended(self) -> bool:
        """Return whether its lease was extended because no server could renew it, and was not renewed since."""
        return self.lease_until is not None and self.lease_until == self.lost_at

    def is_reserved(self, at: datetime) -> bool:
        """Return whether only a launcher of its family may take it now. A clock set back reserves nothing."""
        return self.reserved_until is not None and at < self.reserved_until <= at + RESERVED_FOR

    def extended(self, at: datetime) -> Turn:
        """Return the turn with a whole lease from `at` on: no server could renew it, or the clock stepped."""
        if self.lease_until is None or self.lost_at is None:
            return self
        until = at + max(self.lease, self.lost_after)
        return replace(self, lease_until=until, lost_at=until)


def name_of(owner: str, session_id: str) -> str:
    """Return the name by which launchers report a deleted session: ids are unique per owner only."""
    return f"{owner} {session_id}"


@brief("name", "running", "slots", "seen_at", "launcher_id")
class Launcher(Struct, frozen=True, kw_only=True):
    """A process that takes turns and starts agents."""

    launcher_id: str  # a new one for every start
    name: str
    registered_at: datetime
    seen_at: datetime
    host: str | None = None
    pid: int | None = None
    slots: int = 0
    running: int = 0
    draining: bool = False  # whether it is ending
    agents: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()  # the owners it works for; empty: all of its store
    root: str | None = None  # the root session of the only family whose turns it takes
    drain: bool = False  # whether it was told to take no more turns; set by the store only
    boot: str | None = None  # the boot of its monotonic clock
    zero_at: datetime | None = None  # clock time at which its monotonic clock was zero, as last seen
    ended_sessions: tuple[str, ...] = ()  # sessions it had to leave recently (`name_of`), whose agents have ended

    def works_for(self, owner: str) -> bool:
        """Return whether it takes turns of that owner."""
        return not self.owners or owner in self.owners

    @property
    def has_left(self) -> bool:
        """Return whether it has signed off: it takes no more turns, and has none."""
        return self.draining and not self.running
