"""Facts: the data of a session for analytics, and the outcome of sessions whose work was resumed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from moorage.core.inbox import ItemState
from moorage.core.run import count_of
from moorage.core.session import FINAL_STATES, State


class CallbackCounts(Struct, frozen=True, gc=False):
    """The counts of the callbacks to a session, by outcome."""

    delivered: int = 0  # with a turn, or to the caller that resumed or closed the session
    waiting: int = 0
    dead_letters: int = 0


_OUTCOMES = {
    ItemState.HELD: "waiting",
    ItemState.WAITING: "waiting",
    ItemState.GIVEN: "delivered",
    ItemState.CONSUMED: "delivered",
    ItemState.DEAD_LETTER: "dead_letters",
}


def callback_counts(states: Iterable[tuple[str, int]]) -> CallbackCounts:
    """Return the counts of callbacks by outcome, from their counts by state."""
    sums: Counter[str] = Counter()
    for state, count in states:
        sums[_OUTCOMES[ItemState(state)]] += count
    return CallbackCounts(**sums)


class SessionFact(Struct, frozen=True, gc=False):  # the collector would be busy with a hundred thousand of them
    """The facts of one session that analytics count."""

    session_id: str
    agent_name: str | None
    task_id: str
    created_at: datetime
    state: State
    duration_seconds: float | None  # once it has ended
    has_errors: bool  # whether an error is in its own entries; a fork counts only its own errors
    input_tokens: float | None = None
    output_tokens: float | None = None
    callbacks: CallbackCounts | None = None  # None: it got no callbacks


class Fate(Struct, frozen=True, gc=False):
    """The outcome of a session, whether or not it was deleted."""

    session_id: str
    state: State  # of a deleted session: its last state
    is_deleted: bool = False

    @property
    def has_ended(self) -> bool:
        """Return whether nothing more can come of it."""
        return self.is_deleted or self.state in FINAL_STATES


class Size(Struct, frozen=True, kw_only=True):
    """The size of a store, over all owners."""

    bytes: int  # on disk, including data not yet in the main file
    used_bytes: int  # of those, the bytes that hold data
    sessions: int


class Backlog(Struct, frozen=True, kw_only=True):
    """The waiting work of a store, over all owners."""

    queued: int = 0  # turns that no launcher has claimed
    running: int = 0
    oldest_queued_at: datetime | None = None
    callbacks: int = 0  # waiting for a parent's turn
    dead_letters: int = 0  # waiting for a person


class Totals(Struct, frozen=True):
    """The waiting work of a store and its size."""

    backlog: Backlog
    size: Size | None  # None if the store cannot tell


TokenCounts = tuple[float | None, float | None]  # input and output tokens


def tokens_of(usage: object) -> TokenCounts:
    """Return the token counts under `usage` in a session's metadata; None for invalid counts."""
    if not isinstance(usage, dict):
        return None, None
    return count_of(usage.get("input_tokens")), count_of(usage.get("output_tokens"))


class _Used(Struct):
    """The one field of the metadata that is decoded."""

    usage: object = None


_read_used = Decoder(_Used).decode


def tokens_in(metadata: str | bytes) -> TokenCounts:
    """Return the token counts from metadata as JSON; None for invalid JSON."""
    try:
        return tokens_of(_read_used(metadata).usage)
    except DecodeError:
        return None, None
