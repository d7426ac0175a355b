"""Turns: attempts of a launcher to carry a session forward, each under a lease.

::

    queued ──→ running ──→ completed | failed | stopped | lost
       ↑          │
       └──────────┘ not started in time: given out again

A claim gives a number, the epoch, that only grows; a report with an older one is refused,
so a launcher that woke up late can do no harm.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from moorage.core.brief import brief

LEASE = timedelta(seconds=30)  # without renewal, a turn shows as unresponsive
LOST_AFTER = timedelta(minutes=5)  # without renewal, one that was started is lost
RESERVED_FOR = timedelta(seconds=5)  # time for the caller's launcher to start and take the turn
FORGOTTEN_AFTER = timedelta(days=7)  # a launcher that was silent for so long
MAX_ATTEMPTS = 3  # turns that may fail or get lost in a row


class TurnState(StrEnum):
    """Where a turn stands."""

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

    RESUME = "resume"  # another turn, which is told that it was cut off; three in a row at most
    ALWAYS = "always"  # another turn, however often
    NEVER = "never"  # the run fails


class Turn(Struct, frozen=True, kw_only=True):
    """One attempt to carry a session forward."""

    turn_id: str
    session_id: str
    agent_name: str | None
    queued_at: datetime
    state: TurnState = TurnState.QUEUED
    epoch: int = 0
    attempt: int = 1  # one more than turns that got lost or failed right before it
    cut_off: bool = False  # whether the one before got lost in the middle of its work
    heard: dict[str, str] = {}  # answers its agent got: approval ids, by the id under which it asked
    not_before: datetime | None = None
    reserved_until: datetime | None = None  # until then for a launcher of its family alone
    launcher_id: str | None = None
    of_family: bool = False  # whether that launcher takes turns of this family alone
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
        """Whether its launcher has not renewed the lease in time."""
        return self.state is TurnState.RUNNING and self.lease_until is not None and at >= self.lease_until

    def is_lost(self, at: datetime) -> bool:
        """Whether its launcher has been silent for so long that the agent, if it was started, has ended by then."""
        return self.state is TurnState.RUNNING and self.lost_at is not None and at >= self.lost_at

    @property
    def is_extended(self) -> bool:
        """Whether its lease was extended because no server could renew it, and was not renewed since."""
        return self.lease_until is not None and self.lease_until == self.lost_at

    def is_reserved(self, at: datetime) -> bool:
        """Whether only a launcher of its family may take it yet. A clock that was set back reserves nothing."""
        return self.reserved_until is not None and at < self.reserved_until <= at + RESERVED_FOR

    def extended(self, at: datetime) -> Turn:
        """With the time of a whole silence from `at` on: no server could renew it, or its lease is of another time."""
        if self.lease_until is None or self.lost_at is None:
            return self
        until = at + max(self.lease, self.lost_after)
        return replace(self, lease_until=until, lost_at=until)


def name_of(owner: str, session_id: str) -> str:
    """By which a launcher tells of a session that may be gone: ids are unique per owner only."""
    return f"{owner} {session_id}"


@brief("name", "running", "slots", "seen_at", "launcher_id")
class Launcher(Struct, frozen=True, kw_only=True):
    """A process that takes turns and starts agents."""

    launcher_id: str  # another one for every start
    name: str
    registered_at: datetime
    seen_at: datetime
    host: str | None = None
    pid: int | None = None
    slots: int = 0
    running: int = 0
    draining: bool = False  # whether it is ending
    agents: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()  # it works for; empty: for all of its store
    root: str | None = None  # the one family it takes turns of, by its root session
    drain: bool = False  # whether it was told to take no more turns; the store's word, not the launcher's
    boot: str | None = None  # which boot its monotonic clock counts from
    zero_at: datetime | None = None  # the time when that clock was at zero, as it saw it last
    ended_sessions: tuple[
        str, ...
    ] = ()  # sessions it had to leave a short while ago (`name_of`), and whose agents are gone

    def works_for(self, owner: str) -> bool:
        """Whether it takes turns of that owner."""
        return not self.owners or owner in self.owners

    @property
    def has_left(self) -> bool:
        """Whether it has said farewell: it takes no more turns, and has none."""
        return self.draining and not self.running
