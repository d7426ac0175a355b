"""Runs: work requested of a session, settled exactly once.

::

    queued ⇄ running ──→ completed | failed | stopped | expired

A run takes one or several turns. It settles when a turn ends and nothing is outstanding.
The callback to its parent is part of the same commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from moorage.core.brief import brief
from moorage.core.codec import canonical
from moorage.core.errors import InvalidField
from moorage.core.query import check_any_text, check_choice, check_limit
from moorage.core.status import Because, Reason

MAX_ASKED = 1000  # characters of the prompt stored in the run; the log has all of it
MAX_RESULT_BYTES = 256 * 1024
MAX_TURNS = 1000  # of one run, unless its agent's definition says otherwise
TOO_MANY_TURNS = "too_many_turns"
MOST_TOKENS = 10**12  # of one session; a larger number is an error
NAMES = ("input_tokens", "output_tokens", "total_tokens")

Usage = dict[str, float]


class Mode(StrEnum):
    """How the caller learns of the end."""

    SYNC = "sync"  # by waiting for it
    ASYNC_POLL = "async_poll"  # by asking later
    ASYNC_CALLBACK = "async_callback"  # by a message in its inbox


class Join(StrEnum):
    """The time at which callbacks of several children are delivered."""

    EACH = "each"  # as they come
    ALL = "all"  # together, when the last child of the parent's run has settled


class RunState(StrEnum):
    """The state of a run."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    EXPIRED = "expired"


RETRIABLE = frozenset({RunState.FAILED, RunState.EXPIRED})  # a stopped run was meant to end: request a new one
SETTLED = frozenset({RunState.COMPLETED, RunState.FAILED, RunState.STOPPED, RunState.EXPIRED})
# The transition table of runs; docs/lifecycle.md draws it and a test compares the two.
RUN_MOVES: dict[RunState, frozenset[RunState]] = {
    RunState.QUEUED: frozenset({RunState.RUNNING}) | SETTLED,
    RunState.RUNNING: frozenset({RunState.QUEUED}) | SETTLED,
    **{state: frozenset() for state in SETTLED},
}


@brief("agent_name", "asked", "state", "result", "error", "reason", "because", "session_id", "run_id")
class Run(Struct, frozen=True, kw_only=True):
    """One piece of work asked of a session."""

    run_id: str
    session_id: str
    created_at: datetime
    agent_name: str | None = None
    task_id: str | None = None
    mode: Mode = Mode.ASYNC_POLL
    join: Join = Join.EACH
    asked: str = ""  # the beginning of the prompt
    asked_entry: int | None = None  # the entry with the whole prompt
    parameters: dict[str, Any] = {}  # named values that go with the prompt
    tools: tuple[str, ...] = ()  # tools named by the caller for the agent
    called: bool = False  # whether a call waits for it: its turn serves no other run, its first failure is the answer
    parent_session_id: str | None = None  # the session that requested it and gets its callback
    parent_run_id: str | None = None
    correlation: Any = None  # the parent's own value, returned with the callback
    idempotency_key: str | None = None
    by: str | None = None
    state: RunState = RunState.QUEUED
    result: str | None = None
    result_entry: int | None = None  # the entry with the whole result
    metadata: dict[str, Any] = {}  # the agent's metadata of its answer
    usage: Usage = {}  # tokens of its turns, if its agent reports them
    error: str | None = None
    reason: str | None = None  # a code: agent_failed, launcher_lost, timed_out, too_many_turns, …
    stop_requested: bool = False  # set by a stop while a turn works on it: the run ends as stopped with that turn
    parent_stopped: bool = False  # whether its parent was stopped since: there, its end is only logged
    turns: int = 0
    max_turns: int = MAX_TURNS
    failures: int = 0  # turns that failed in a row
    problems: int = 0  # lines of its agent that did not validate
    cut_off: bool = False  # whether its last turn was cut off: lost, given back, or its agent died or was stopped
    shared_answers: tuple[str, ...] = ()  # inbox items of another run that asked the same
    expires_at: datetime | None = None  # the end of its wait for a launcher
    started_at: datetime | None = None
    settled_at: datetime | None = None
    callback: str | None = None  # fate of the callback: delivered, parent_deleted or parent_closed
    retry_of: str | None = None  # the run that this one repeats
    because: Because | None = None  # why it is queued, or does not continue; computed when it is read, not stored

    @property
    def is_settled(self) -> bool:
        """Return whether it is over."""
        return self.state in SETTLED

    def is_untaken(self, at: datetime) -> bool:
        """Return whether no launcher has taken it in time."""
        is_waiting = self.state is RunState.QUEUED and not self.turns
        return is_waiting and self.expires_at is not None and self.expires_at <= at

    @property
    def is_alone(self) -> bool:
        """Return whether its turns serve no other run: it is called, or has its own parameters or tools."""
        return self.called or bool(self.parameters or self.tools)

    @property
    def needs_a_person(self) -> bool:
        """Return whether only a person can let it start or continue, so that waiting is useless."""
        return self.because is not None and self.because.needs_a_person

    @property
    def is_asking(self) -> bool:
        """Return whether its agent is at work and waits for a person's answer."""
        return self.state is RunState.RUNNING and self.needs_a_person

    def taken_here(self) -> Run:
        """Return the run as shown to a caller that has just started a launcher for it."""
        if self.because is None or self.because.reason is not Reason.NO_LAUNCHER:
            return self
        return replace(self, because=Because(reason=Reason.LAUNCHER_BUSY))

    @property
    def is_awaited_by_a_parent(self) -> bool:
        """Return whether an agent waits for its end, however long that takes."""
        return self.mode is Mode.SYNC and self.parent_session_id is not None

    @property
    def is_cut(self) -> bool:
        """Return whether its result was longer than a run stores and is cut; the log has all of it."""
        return self.result is not None and len(self.result.encode()) > MAX_RESULT_BYTES - 4 and self.result[-1] == "…"

    @property
    def calls_back(self) -> bool:
        """Return whether its end goes into its parent's inbox."""
        return self.mode is Mode.ASYNC_CALLBACK and self.parent_session_id is not None


class RunQuery(Struct, frozen=True, kw_only=True):
    """A query for runs."""

    session_id: str | None = None
    parent_session_id: str | None = None
    agent: str | None = None
    state: str | None = None
    open_only: bool = False
    due_at: datetime | None = None  # only those that no launcher had taken when their time ended, by then; one page
    limit: int = 50
    cursor: str | None = None

    def __post_init__(self) -> None:
        for name in ("session_id", "parent_session_id", "agent", "state"):
            check_any_text(name, getattr(self, name))
        if type(self.open_only) is not bool:
            raise InvalidField("open_only", "must be true or false")
        check_choice("state", self.state, tuple(RunState))
        check_limit(self.limit)

    def admits(self, run: Run) -> bool:
        """Return whether a run matches all filters."""
        return (
            self.session_id in (None, run.session_id)
            and self.parent_session_id in (None, run.parent_session_id)
            and self.agent in (None, run.agent_name)
            and self.state in (None, run.state.value)
            and not (self.open_only and run.is_settled)
            and (self.due_at is None or run.is_untaken(self.due_at))
        )

    def fingerprint(self) -> int:
        """Return the fingerprint that binds cursors to this list."""
        filters = (self.session_id, self.parent_session_id, self.agent, self.state, self.open_only)
        return crc32(canonical(["runs", *filters]))


def check_mode(mode: object) -> Mode:
    """Return a mode, in any case of letters. Raises InvalidField."""
    return mode if isinstance(mode, Mode) else Mode(_choice("mode", mode, tuple(Mode)))


def check_join(join: object) -> Join:
    """Return a join. Raises InvalidField."""
    return join if isinstance(join, Join) else Join(_choice("join", join, tuple(Join)))


def _choice(name: str, value: object, allowed: tuple[str, ...]) -> str:
    wanted = value.strip().lower() if isinstance(value, str) else value
    if wanted not in allowed:
        raise InvalidField(name, f"is {value!r}; use one of {', '.join(allowed)}")
    return str(wanted)


# Usage: how many tokens models have read and written, as agents report ---------------------------
# The metadata of a session have the sum under `usage`. Invalid counts are skipped, so that they cannot spoil others.


def count_of(value: object) -> float | None:
    """Return a number of tokens; None for any other value."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if 0 <= value <= MOST_TOKENS else None


def usage_of(told: Mapping[str, object]) -> Usage:
    """Return the counts in an agent's report of one call; the total is their sum, unless it is reported."""
    counts = {name: count for name in NAMES if (count := count_of(told.get(name))) is not None}
    if counts and "total_tokens" not in counts:
        counts["total_tokens"] = sum(counts.values())
    return counts


def summed(one: Usage, other: Usage) -> Usage:
    """Return the sum of two usages."""
    known = [name for name in NAMES if name in one or name in other]
    return {name: min(one.get(name, 0) + other.get(name, 0), MOST_TOKENS) for name in known}


def added(kept: Mapping[str, object], more: Usage) -> dict[str, object]:
    """Return the usage in metadata with more added; its other fields stay."""
    return {**kept, **summed(usage_of(kept), more)}
