"""The life of a session: its states, its phases, its hold, and the rules that change them.

::

    created ──→ active ⇄ suspended          created, active, suspended ──→ completed | failed | abandoned

Every rule is a method that returns a `Change` (the new head with its entries) or
raises. It awaits nothing and reads no clock: a `Stamp` brings the time, the actor
and the door. Stores run these rules inside their own transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import replace

from moorage.core.approval import Approval, ApprovalState
from moorage.core.brief import brief
from moorage.core.codec import check_json, encode
from moorage.core.entry import Entry, Kind, Message
from moorage.core.errors import (
    FinalPhase,
    HeldByAnother,
    HoldLost,
    IllegalMove,
    InvalidField,
    KeyReused,
    OutcomeConflict,
    RunNotFailed,
    RunStopped,
    SessionClosed,
    SessionRunning,
    TooLarge,
    TurnLost,
    UnknownPhase,
    VersionConflict,
)
from moorage.core.ids import looks_like_ref
from moorage.core.status import Because, Child, LastRun, WaitingFor, status_of, waiting_for

if TYPE_CHECKING:  # needed only to start agents
    from moorage.core.inbox import Item
    from moorage.core.once import Once
    from moorage.core.record import RecordNeeds, RecordsView, RecordWrite
    from moorage.core.run import Join, Run
    from moorage.core.turn import Turn

MAX_METADATA_BYTES = 64 * 1024
MAX_LABELS, MAX_LABEL_LENGTH = 32, 64
MAX_CHECKPOINT_BYTES = 1024 * 1024
MAX_TEXT = 64 * 1024
HOLD_FOR = timedelta(minutes=10)

Happening = tuple[str, dict[str, Any]]  # the kind of an entry, and its data


class State(StrEnum):
    """The state of a session, which decides whether it may run."""

    CREATED = "created"
    ACTIVE = "active"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    FAILED = "failed"
    ABANDONED = "abandoned"


class Phase(StrEnum):
    """The agent's own report of its progress."""

    INITIALIZING = "initializing"
    INVESTIGATING = "investigating"
    PLANNING = "planning"
    APPROVAL = "approval"
    EXECUTING = "executing"
    VALIDATING = "validating"
    COMPLETED = "completed"
    FAILED = "failed"
    ABANDONED = "abandoned"


FINAL_STATES = frozenset({State.COMPLETED, State.FAILED, State.ABANDONED})
OPEN_STATES = frozenset(State) - FINAL_STATES
FINAL_PHASES = frozenset({Phase.COMPLETED, Phase.FAILED, Phase.ABANDONED})
WORKING_PHASES = tuple(phase for phase in Phase if phase not in FINAL_PHASES)
RESUMABLE_PHASES = frozenset({Phase.APPROVAL, Phase.INVESTIGATING, Phase.PLANNING})
OUTCOMES = ("completed", "failed", "abandoned")

# The transition table of sessions; docs/lifecycle.md draws it and a test compares the two.
SESSION_MOVES: dict[State, frozenset[State]] = {
    State.CREATED: frozenset({State.ACTIVE, State.SUSPENDED}) | FINAL_STATES,
    State.ACTIVE: frozenset({State.SUSPENDED}) | FINAL_STATES,
    State.SUSPENDED: frozenset({State.ACTIVE}) | FINAL_STATES,
    **{state: frozenset() for state in FINAL_STATES},
}

# Who may wake a suspended session.
BY_PERSON = "person"
BY_AGENT = "agent"
BY_APPROVAL = "approval"


class Stamp(Struct, frozen=True, gc=False):
    """The time, the actor and the door of a change."""

    at: datetime
    by: str | None = None
    interface: str | None = None
    takes_turns: bool = False  # whether the caller has a launcher for the family, which may claim the turn first


@brief("holder", "until")
class Hold(Struct, frozen=True, gc=False):
    """The right to drive a session, until it expires or is released."""

    holder: str
    until: datetime
    token: str | UnsetType = UNSET  # shown to its holder alone

    def lives(self, at: datetime) -> bool:
        """Return whether the hold still excludes other holders."""
        return at < self.until


@brief("session_name", "status", "phase", "agent_name", "purpose", "updated_at", "session_id")
class Session(Struct, frozen=True, gc=False):
    """One agent's durable conversation and state, from creation to deletion."""

    session_id: str
    task_id: str
    root_session_id: str
    created_at: datetime
    updated_at: datetime
    last_activity_at: datetime
    session_name: str | None = None
    agent_name: str | None = None
    purpose: str | None = None
    project_dir: str | None = None
    owner: str = "local"
    state: State = State.CREATED
    phase: Phase = Phase.INITIALIZING
    resume_ready: bool = False
    interface: str | None = None
    parent_session_id: str | None = None
    parent_session_name: str | None = None
    depth: int = 0
    forked_from: str | None = None
    version: int = 1  # grows by one with every state change; never a time
    last_entry: int = 0
    error_count: int = 0
    last_error: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)  # words to find it by, sorted
    expires_at: datetime | None = None
    finalized_at: datetime | None = None
    duration_seconds: float | None = None
    summary: str | None = None
    hold: Hold | None = None
    pending_approvals: int = 0
    # Only the rules use these fields; no door shows them.
    suspended_by: str | None = None
    phase_before: Phase | None = None
    last_checkpoint: int | None = None
    context_version: int = 0
    launched: bool = False  # whether a run was ever requested of it: then waiting items of its inbox queue a turn
    live_turn: str | None = None  # the turn that a launcher has claimed
    turns: int = 0  # how many turns were ever queued
    epoch: int = 0  # grows with every claim; a report with an older one is refused
    waits: bool = False  # whether an item in its inbox waits for a turn
    last_run: LastRun | None = None
    # Read with the head but written elsewhere: stores fill these in and do not store them with the head.
    awaited_approval: str | None = None  # the oldest pending one
    awaited_child: Child | None = None  # the oldest child that still has to call back
    # Fields of one answer, which are never stored.
    redacted: tuple[str, ...] = ()  # paths of the secrets removed from the request
    messages: list[Entry] | None = None  # the window, if it was requested
    because: Because | None = None  # why a request has not started; computed when it is read

    @property
    def id(self) -> str:
        """Short for `session_id`."""
        return self.session_id

    @property
    def name(self) -> str | None:
        """Short for `session_name`."""
        return self.session_name

    @property
    def agent(self) -> str | None:
        """Short for `agent_name`."""
        return self.agent_name

    @property
    def is_final(self) -> bool:
        """Return whether the session allows only reading, exporting, forking and deleting."""
        return self.state in FINAL_STATES

    @property
    def status(self) -> str:
        """Return the status in one word; `core.status` defines the precedence."""
        return status_of(self).value

    @property
    def waiting_for(self) -> WaitingFor | None:
        """Return the approval or the child that the session waits for."""
        return waiting_for(self)

    @property
    def is_kept_asleep(self) -> bool:
        """Return whether a person suspended it: then waiting items of its inbox do not wake it."""
        return self.state is State.SUSPENDED and self.suspended_by == BY_PERSON

    def as_kept(self) -> Session:
        """Return the head alone: without fields that are written elsewhere or belong to one answer."""
        return replace(self, awaited_approval=None, awaited_child=None, redacted=(), messages=None, because=None)

    # Rules -------------------------------------------------------------------------------------

    def is_in_use(self, at: datetime) -> bool:
        """Return whether the session is driven or waits for an approval: then it is not deleted."""
        return self.pending_approvals > 0 or self.is_held(at)

    def is_held(self, at: datetime) -> bool:
        """Return whether it is driven. A live turn drives it until it ends or is lost, however late its launcher is."""
        return self.live_turn is not None or (self.hold is not None and self.hold.lives(at))

    def unresponsive_since(self, at: datetime) -> datetime | None:
        """Return the time when the lease of its live turn expired; None if it has not expired, or no turn is live."""
        if self.live_turn is None or self.hold is None or self.hold.lives(at):
            return None
        return self.hold.until

    def check_open(self) -> None:
        """Raise SessionClosed if the session is final."""
        if self.state in FINAL_STATES:
            raise SessionClosed(self.session_id, self.state.value)

    def check_run_ended(self) -> LastRun:
        """Return the run that settled last. Raise RunNotFailed if none has."""
        if self.last_run is None:
            raise RunNotFailed(None, None, self.session_id)
        return self.last_run

    def check_version(self, expected: int | None) -> None:
        """Raise VersionConflict unless the session is at the expected version."""
        if expected is not None and self.version != expected:
            raise VersionConflict(self.session_id, expected, self.version)

    def check_not_driven(self, token: str | None) -> None:
        """Raise SessionRunning if a launcher drives the session, and the caller is not that launcher."""
        if self.live_turn is not None and (self.hold is None or self.hold.token != token):
            raise SessionRunning([self.session_id])

    def driven(self, token: str | None, at: datetime) -> Session:
        """Return the session with its hold renewed for the holder of this token; unchanged without a token."""
        if token is None:
            return self
        if self.hold is None or self.hold.token != token:
            raise HoldLost(self.session_id)
        if self.live_turn is not None:  # its hold lasts as long as its lease
            return self
        return replace(self, hold=replace(self.hold, until=at + HOLD_FOR))

    def token_of(self, turn: Turn) -> str:
        """Return the token with which a launcher writes. Raises TurnLost if its turn is not the live one."""
        if self.live_turn != turn.turn_id or self.epoch != turn.epoch or self.hold is None:
            raise TurnLost(turn.turn_id, turn.epoch)
        return str(self.hold.token)

    def append(self, messages: Iterable[Message], stamp: Stamp, *, token: str | None = None) -> Change:
        """Append messages. Appending commutes, so the version stays."""
        self.check_open()
        session = self.driven(token, stamp.at)
        entries = tuple(message_entries(messages, stamp, self.last_entry + 1, self.session_id, self.task_id))
        head = replace(
            session,
            state=State.ACTIVE if self.state is State.CREATED else self.state,
            last_entry=self.last_entry + len(entries),
            last_activity_at=stamp.at,
            updated_at=stamp.at,
        )
        return Change(session=head, entries=entries)

    def update(self, update: Update, stamp: Stamp, *, token: str | None = None) -> Change:
        """Change phase, metadata, labels or readiness, or count an error; all of it or nothing."""
        self.check_open()
        if update.is_empty:
            return Change(session=self)
        head = self.driven(token, stamp.at)
        happened: list[Happening] = []
        if update.phase is not None:
            head = head._enter(update.phase, stamp.at)
            if update.phase is not self.phase:
                happened.append((Kind.PHASE, {"from": self.phase.value, "to": update.phase.value}))
        if update.resume_ready is not None:
            head = replace(head, resume_ready=update.resume_ready and head.phase in RESUMABLE_PHASES)
            happened.append((Kind.READINESS, {"resume_ready": head.resume_ready}))
        if update.metadata:
            head = replace(head, metadata=merged_metadata(head.metadata, update.metadata))
            happened.append((Kind.METADATA, {"metadata": update.metadata}))
        if update.labels is not None and update.labels != head.labels:
            head = replace(head, labels=update.labels)
            happened.append((Kind.LABELS, {"labels": update.labels}))
        if update.error is not None:
            head = replace(head, error_count=head.error_count + 1, last_error=update.error)
            happened.append((Kind.ERROR, {"error": update.error}))
        if not happened:  # the same phase again is only a sign of life
            return Change(session=replace(head, updated_at=stamp.at))
        return head.changed(stamp, happened)

    def rename(self, name: str | None, stamp: Stamp, *, token: str | None = None) -> Change:
        """Change or remove the session's name; the store checks whether the name is free."""
        self.check_open()
        if name == self.session_name:
            return Change(session=self)
        head = replace(self.driven(token, stamp.at), session_name=name)
        return head.changed(stamp, [(Kind.RENAMED, {"from": self.session_name, "to": name})])

    def end_turn(self, stamp: Stamp) -> Change:
        """End a turn that went well: the errors before it no longer count."""
        self.check_open()
        state = State.ACTIVE if self.state is State.CREATED else self.state
        head = replace(self, state=state, error_count=0, last_activity_at=stamp.at)
        return head.changed(stamp, [(Kind.TURN_ENDED, {"outcome": "completed"})])

    def suspend(
        self,
        stamp: Stamp,
        *,
        checkpoint: dict[str, Any] | None = None,
        reason: str | None = None,
        by: str = BY_PERSON,
        token: str | None = None,
    ) -> Change:
        """Pause the session and keep the agent's checkpoint. Suspending twice is harmless."""
        self.check_open()
        self.check_not_driven(token)
        head = self.driven(token, stamp.at)
        if self.state is State.SUSPENDED and checkpoint is None and reason is None and self.hold is None:
            return Change(session=self)
        hold = None if self.live_turn is None else head.hold  # a live turn keeps its hold until it ends
        head = replace(head._moved(State.SUSPENDED), hold=hold, suspended_by=by)
        happened: list[Happening] = []
        if checkpoint is not None:
            head = replace(head, last_checkpoint=self.last_entry + 1)
            happened.append((Kind.CHECKPOINT, {"checkpoint": checkpoint}))
        happened.append((Kind.SUSPENDED, {"reason": reason, "suspended_by": by}))
        return head.changed(stamp, happened)

    def save_checkpoint(self, checkpoint: dict[str, Any], stamp: Stamp, *, token: str | None = None) -> Change:
        """Keep a checkpoint without pausing."""
        self.check_open()
        head = replace(self.driven(token, stamp.at), last_checkpoint=self.last_entry + 1)
        return head.changed(stamp, [(Kind.CHECKPOINT, {"checkpoint": checkpoint})])

    def resume(self, holder: str, token: str, stamp: Stamp) -> Change:
        """Give `holder` the session to drive. The same holder may repeat this and gets a new token."""
        self.check_open()
        hold = Hold(holder, stamp.at + HOLD_FOR, token)
        if self.is_held(stamp.at):
            self.check_holder(holder, stamp.at)
            return Change(session=replace(self, hold=hold))
        return replace(self, hold=hold).activated(stamp, holder)

    def wake(self, holder: str | None, stamp: Stamp) -> Change:
        """Let the session's agent continue: activate a suspended session and end a hold of `holder`.

        A running session is left as it is. Raises HeldByAnother.
        """
        self.check_open()
        if self.live_turn is not None:
            return Change(session=self)
        change = self.handed_over(holder, stamp)
        return change if self.state is State.ACTIVE else change.then(lambda head: head.activated(stamp))

    def activated(self, stamp: Stamp, holder: str | None = None) -> Change:
        """Resume the session, even if a person suspended it."""
        head = replace(self._moved(State.ACTIVE), suspended_by=None)
        return head.changed(stamp, [(Kind.RESUMED, {"holder": holder, "from": self.state.value})])

    def handed_over(self, holder: str | None, stamp: Stamp, *, token: str | None = None) -> Change:
        """End the caller's hold, by its name or its token. Raises HeldByAnother, or HoldLost for a wrong token.

        The hold of a live turn stays and refuses no caller: the request waits for the next turn.
        """
        if token is not None:
            self.driven(token, stamp.at)
        if self.live_turn is not None or self.hold is None or not self.hold.lives(stamp.at):
            return Change(session=self)
        if token is None:
            self.check_holder(holder, stamp.at, asks=True)
        return replace(self, hold=None).changed(stamp, [(Kind.RELEASED, {"holder": self.hold.holder})])

    def check_holder(self, holder: str | None, at: datetime, *, asks: bool = False) -> None:
        """Raise HeldByAnother if a launcher or a holder other than `holder` drives the session."""
        if self.hold is not None and self.is_held(at) and (self.live_turn is not None or self.hold.holder != holder):
            runs = self.live_turn is not None
            raise HeldByAnother(self.session_id, self.hold.holder, self.hold.until, asks=asks, runs=runs)

    def release(self, stamp: Stamp, *, token: str | None = None) -> Change:
        """Release the hold. Releasing no hold is harmless."""
        self.check_open()
        if self.live_turn is not None:  # the hold ends with the turn
            raise SessionRunning([self.session_id])
        if self.hold is None:
            if token is not None:
                raise HoldLost(self.session_id)
            return Change(session=self)
        head = replace(self.driven(token, stamp.at), hold=None)
        return head.changed(stamp, [(Kind.RELEASED, {"holder": self.hold.holder})])

    def finalize(
        self,
        outcome: str,
        stamp: Stamp,
        *,
        summary: str | None = None,
        pending: tuple[Approval, ...] = (),
        token: str | None = None,
    ) -> Change:
        """Close the session. Repeating the same outcome is harmless and may add a missing summary."""
        wanted = check_outcome(outcome)
        if self.state in FINAL_STATES:
            return self._finalized_again(wanted, summary, stamp)
        self.check_not_driven(token)
        head = replace(
            self.driven(token, stamp.at)._moved(wanted),
            phase=Phase(wanted.value),
            resume_ready=False,
            hold=None,
            suspended_by=None,
            phase_before=None,
            pending_approvals=0,
            awaited_approval=None,
            finalized_at=stamp.at,
            duration_seconds=round((stamp.at - self.created_at).total_seconds(), 3),
            summary=summary,
            last_activity_at=stamp.at,
        )
        withdrawn = tuple(approval.withdrawn(stamp.at) for approval in pending)
        happened: list[Happening] = [
            (Kind.APPROVAL_WITHDRAWN, {"approval_id": approval.approval_id}) for approval in withdrawn
        ]
        happened.append((Kind.FINALIZED, {"outcome": wanted.value, "summary": summary, "from": self.phase.value}))
        return replace(head.changed(stamp, happened), approvals=withdrawn)

    def _finalized_again(self, wanted: State, summary: str | None, stamp: Stamp) -> Change:
        if wanted is not self.state:
            raise OutcomeConflict(self.session_id, self.state.value, wanted.value)
        if summary is None or self.summary is not None:
            return Change(session=self)
        head = replace(self, summary=summary)
        return head.changed(stamp, [(Kind.FINALIZED, {"outcome": wanted.value, "summary": summary})])

    def compact(self, summary: str, upto: int, stamp: Stamp, *, token: str | None = None) -> Change:
        """Add a summary that stands for the entries up to `upto`; the log itself stays."""
        self.check_open()
        head = self.driven(token, stamp.at)
        return head.changed(stamp, [(Kind.SUMMARY, {"summary": summary, "upto": upto})])

    def ask(self, approval: Approval, stamp: Stamp, *, token: str | None = None) -> Change:
        """Ask a person a question and wait for the answer."""
        self.check_open()
        self.driven(token, stamp.at)
        stays = self.state is State.SUSPENDED or (approval.waits and self.live_turn is not None)
        moved = self if stays else self._moved(State.SUSPENDED)
        head = replace(
            moved._enter(Phase.APPROVAL, stamp.at),
            suspended_by=self.suspended_by if stays else BY_APPROVAL,
            phase_before=self.phase_before if self.pending_approvals else self.phase,
            pending_approvals=self.pending_approvals + 1,
            awaited_approval=self.awaited_approval or approval.approval_id,
            hold=self.hold if self.live_turn is not None else None,
        )
        happened: list[Happening] = []
        if self.phase is not Phase.APPROVAL:
            happened.append((Kind.PHASE, {"from": self.phase.value, "to": Phase.APPROVAL.value}))
        happened.append((Kind.APPROVAL_REQUESTED, approval.asked()))
        return replace(head.changed(stamp, happened), approvals=(approval,))

    def settle(self, approval: Approval, stamp: Stamp) -> Change:
        """Record the end of an approval; the last one restores the phase and wakes the session."""
        left = self.pending_approvals - 1
        is_next = approval.approval_id == self.awaited_approval
        head = replace(self, pending_approvals=left, awaited_approval=None if is_next else self.awaited_approval)
        happened: list[Happening] = [(_ENDS.get(approval.state, Kind.APPROVAL_DECIDED), approval.settled())]
        if left == 0:
            if self.phase is Phase.APPROVAL and self.phase_before not in (None, Phase.APPROVAL):
                assert self.phase_before is not None
                head = head._enter(self.phase_before, stamp.at)
                happened.append((Kind.PHASE, {"from": self.phase.value, "to": self.phase_before.value}))
            head = replace(head, phase_before=None)
            if self.suspended_by == BY_APPROVAL and self.state is State.SUSPENDED:
                head = replace(head._moved(State.ACTIVE), suspended_by=None)
        return replace(head.changed(stamp, happened), approvals=(approval,))

    # Helpers, in the order the rules call them ---------------------------------------------------

    def _enter(self, phase: Phase, at: datetime) -> Session:
        state = State.ACTIVE if self.state is State.CREATED else self.state
        ready = self.resume_ready if phase is self.phase else phase in RESUMABLE_PHASES
        return replace(self, state=state, phase=phase, resume_ready=ready, last_activity_at=at)

    def _moved(self, to: State) -> Session:
        if to is self.state:
            return self
        if to not in SESSION_MOVES[self.state]:
            raise IllegalMove("a session", self.state.value, to.value, SESSION_MOVES[self.state])
        return replace(self, state=to)

    def changed(self, stamp: Stamp, happened: Iterable[Happening]) -> Change:
        """Return this head one version later, with an entry for each event."""
        entries = self.noted(stamp, happened)
        head = replace(self, version=self.version + 1, last_entry=self.last_entry + len(entries), updated_at=stamp.at)
        return Change(session=head, entries=entries)

    def noted(self, stamp: Stamp, happened: Iterable[Happening]) -> tuple[Entry, ...]:
        """Return an entry for each event, numbered after the newest one."""
        return tuple(
            Entry(
                number=number,
                kind=str(kind),
                at=stamp.at,
                data=data,
                by=stamp.by,
                interface=stamp.interface,
                session_id=self.session_id,
                task_id=self.task_id,
            )
            for number, (kind, data) in enumerate(happened, self.last_entry + 1)
        )


def message_entries(
    messages: Iterable[Message], stamp: Stamp, first: int, session_id: str, task_id: str
) -> list[Entry]:
    """Return messages as entries, numbered from `first`."""
    at, by, interface = stamp.at, stamp.by, stamp.interface
    return [
        Entry(
            number, "message", at, message.role, message.content, None, by, interface, message.client_key, session_id,
            task_id,
        )
        for number, message in enumerate(messages, first)
    ]  # fmt: skip


def unsaid(messages: list[Message], seen: Mapping[str, Entry]) -> list[Message]:
    """Return the messages whose client keys the log does not have. Raises KeyReused if an entry has another message."""
    fresh = []
    for message in messages:
        known = seen.get(message.client_key or "")
        if known is None:
            fresh.append(message)
        elif (known.role, known.content) != (message.role, message.content):
            raise KeyReused(str(message.client_key))
    return fresh


def as_said(messages: list[Message], seen: Mapping[str, Entry], fresh: Iterable[Entry]) -> list[Entry]:
    """Return the entries of the messages, old and new, in the order of the messages."""
    rest = iter(fresh)
    return [seen.get(message.client_key or "") or next(rest) for message in messages]


class OpenWork(Struct, frozen=True, kw_only=True):
    """The work of a session: open runs, turns that have not ended, waiting items."""

    runs: tuple[Run, ...] = ()  # not settled, oldest first
    queued: Turn | None = None
    running: Turn | None = None
    items: tuple[Item, ...] = ()  # held, waiting or given, oldest first; without their bodies, which no rule reads
    children: dict[str, int] = {}  # by run: how many of its children still have to call back
    joined: dict[str, int] = {}  # by run: how many of those callbacks are to be delivered together


class Asker(Struct, frozen=True):
    """The run that makes a request; without a run, the session whose live turn makes it."""

    run_id: str | None = None
    session_id: str | None = None


class AskerView(Struct, frozen=True):
    """The asker as the store has it at the commit of its request."""

    run: Run | None = None
    turn: Turn | None = None  # the live turn of its session

    @property
    def takes_turns(self) -> bool:
        """Return whether its launcher serves this family alone, and so may claim first what is asked of a child."""
        return self.turn is not None and self.turn.of_family

    def check_not_stopped(self) -> None:
        """Raise RunStopped if the run was stopped, or its turn was told to stop."""
        run, turn = self.run, self.turn
        if run is not None and (run.stop_requested or run.state == "stopped"):
            raise RunStopped(run.run_id, run.session_id)
        if turn is not None and turn.stop_requested:
            raise RunStopped(None, turn.session_id)


class Needs(Struct, frozen=True, kw_only=True):
    """The data that a view holds besides the session, its pending approvals and its open work."""

    approval: str | None = None
    turn: str | None = None
    item: str | None = None
    run: str | None = None  # with its dead letters
    asker: Asker | None = None
    records: RecordNeeds | None = None
    memory: RecordNeeds | None = None  # records of the owner
    client_keys: tuple[str, ...] = ()
    work: bool = True  # if false, a store may leave approvals and open work out of the view


NO_NEEDS = Needs()


class View(Struct, frozen=True):
    """The data that a store loads for a decision, all from one instant."""

    session: Session
    pending: tuple[Approval, ...] = ()
    approval: Approval | None = None
    work: OpenWork = OpenWork()
    turn: Turn | None = None  # the requested turn, in whatever state
    item: Item | None = None  # likewise
    run: Run | None = None  # the run that a callback is for, if it is over; or the requested run
    dead_letters: tuple[Item, ...] = ()  # of the requested run
    asker: AskerView = AskerView()  # the asker of a request
    records: RecordsView | None = None  # the records that the decision needs
    memory: RecordsView | None = None  # likewise, of the owner
    seen: dict[str, Entry] = {}  # entries that have one of the requested client keys

    @property
    def at_work(self) -> tuple[str, ...]:
        """Return the ids of the runs that the live turn serves, oldest first."""
        if self.work.running is None:
            return ()
        served = {item.run_id for item in self.work.items if item.turn_id == self.work.running.turn_id}
        return tuple(run.run_id for run in self.work.runs if run.run_id in served)

    def ask(self, approval: Approval, stamp: Stamp, *, token: str | None = None) -> Change:
        """Ask a person a question, for the runs at work."""
        return self.session.ask(replace(approval, run_ids=self.at_work), stamp, token=token)


class Callback(Struct, frozen=True, kw_only=True):
    """The message a parent gets when a child's run has settled."""

    parent_session_id: str
    run_id: str | None  # the parent's run that asked
    child_run_id: str
    join: Join
    body: dict[str, Any]
    is_unheard: bool = False  # whether it is only logged, because the parent was stopped
    stamp: Stamp  # of the settlement: the parent gets the callback at the same instant


class Change(Struct, frozen=True, kw_only=True):
    """The result of one decision. A store applies all of it or nothing."""

    session: Session
    entries: tuple[Entry, ...] = ()
    approvals: tuple[Approval, ...] = ()
    runs: tuple[Run, ...] = ()
    turns: tuple[Turn, ...] = ()
    items: tuple[Item, ...] = ()
    records: tuple[RecordWrite, ...] = ()
    memory: tuple[RecordWrite, ...] = ()  # records of the owner
    callbacks: tuple[Callback, ...] = ()  # for the parents of runs that settled, delivered in the same commit
    once: Once | None = None  # the request under an idempotency key: stored with this change, or refused with it
    open_at_most: int | None = None  # sessions below the root of a family, this new one among them

    def then(self, rule: Callable[[Session], Change]) -> Change:
        """Return one change: this one, and then what another rule makes of the changed session."""
        later = rule(self.session)
        both = {name: getattr(self, name) + getattr(later, name) for name in _ADDED_UP}
        return Change(session=later.session, once=later.once or self.once, open_at_most=self.open_at_most, **both)


_ADDED_UP = ("entries", "approvals", "runs", "turns", "items", "records", "memory", "callbacks")  # concatenated


class AppendDecision:
    """The decision to append messages: those whose client keys are new. `entries` has the entries of all of them."""

    def __init__(self, messages: list[Message], stamp: Stamp, token: str | None = None) -> None:
        self._messages, self._stamp, self._token = messages, stamp, token
        keys = tuple(message.client_key for message in messages if message.client_key is not None)
        self.needs = Needs(client_keys=keys, work=False)
        self.entries: list[Entry] = []

    def __call__(self, view: View) -> Change:
        view.session.check_open()
        view.session.driven(self._token, self._stamp.at)
        fresh = unsaid(self._messages, view.seen)
        change = Change(session=view.session)
        if fresh:
            change = view.session.append(fresh, self._stamp, token=self._token)
        self.entries = as_said(self._messages, view.seen, change.entries)
        return change


class Update(Struct, frozen=True, kw_only=True):
    """The fields that `update` may change; None leaves a field unchanged."""

    phase: Phase | None = None
    metadata: dict[str, Any] | None = None
    labels: list[str] | None = None  # all labels: they replace the earlier ones
    error: str | None = None
    resume_ready: bool | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether no change was requested."""
        given = (self.phase, self.labels, self.error, self.resume_ready)
        return not self.metadata and all(each is None for each in given)


class Birth(Struct, frozen=True, kw_only=True):
    """The facts that a store provides when it creates a session under a parent."""

    parent: Session | None = None
    open_descendants: int = 0  # of the parent's whole tree
    asker: AskerView = AskerView()


# The ends of approvals that no person decided.
_ENDS = {ApprovalState.EXPIRED: Kind.APPROVAL_EXPIRED, ApprovalState.WITHDRAWN: Kind.APPROVAL_WITHDRAWN}


def check_phase(phase: object) -> Phase:
    """Return a working phase. Raises UnknownPhase, FinalPhase."""
    try:
        known = Phase(phase)  # type: ignore[arg-type]  # any value may come in; only texts of phases get through
    except ValueError:
        raise UnknownPhase(phase, WORKING_PHASES) from None
    if known in FINAL_PHASES:
        raise FinalPhase(known.value)
    return known


def check_outcome(outcome: object) -> State:
    """Return the final state of that name. Raises InvalidField."""
    if outcome not in OUTCOMES:
        raise InvalidField("outcome", f"is {outcome!r}; use one of {', '.join(OUTCOMES)}")
    return State(outcome)


def check_metadata(value: object, what: str = "metadata", limit: int = MAX_METADATA_BYTES) -> dict[str, Any]:
    """Return a JSON object. Raises TooLarge, InvalidField, InvalidJson."""
    if not isinstance(value, dict):
        raise InvalidField(what, "must be a JSON object")
    check_json(value, what)
    return _within(value, what, limit)


def merged_metadata(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Merge metadata, only at the top level, within the size limit."""
    return _within({**old, **new}, "metadata", MAX_METADATA_BYTES)


def check_labels(labels: object) -> list[str]:
    """Return labels sorted, each once."""
    if not isinstance(labels, (list, tuple)) or not all(isinstance(each, str) for each in labels):
        raise InvalidField("labels", "must be a list of words")
    for label in labels:
        if len(label) > MAX_LABEL_LENGTH or not looks_like_ref(label):
            raise InvalidField(
                "labels",
                f"has {label[:80]!r}; a label has 1 to {MAX_LABEL_LENGTH} letters, digits, '.', '_', ':' or '-', "
                "and begins with a letter or digit",
            )
    if len(set(labels)) > MAX_LABELS:
        raise InvalidField("labels", f"has {len(set(labels))} words, at most {MAX_LABELS} are allowed")
    return sorted(set(labels))


def check_checkpoint(checkpoint: object) -> dict[str, Any]:
    """Return a JSON object within the size limit."""
    return check_metadata(checkpoint, "checkpoint", MAX_CHECKPOINT_BYTES)


def check_text(field_name: str, text: object, limit: int = MAX_TEXT) -> str:
    """Return a valid text of at most `limit` bytes."""
    if not isinstance(text, str):
        raise InvalidField(field_name, "must be text")
    check_json(text, field_name)
    size = len(text.encode())
    if size > limit:
        raise TooLarge(field_name, size, limit)
    return text


def check_said(field_name: str, text: object, wanted: str = "say what happened") -> str:
    """Return a text that is not empty."""
    said = check_text(field_name, text)
    if not said.strip():
        raise InvalidField(field_name, f"is empty; {wanted}")
    return said


def _within(value: dict[str, Any], what: str, limit: int) -> dict[str, Any]:
    size = len(encode(value))
    if size > limit:
        raise TooLarge(what, size, limit)
    return value


PUBLIC_FIELDS = (
    "session_id", "session_name", "task_id", "agent_name", "purpose", "project_dir", "owner", "state", "status",
    "waiting_for", "because", "phase", "resume_ready", "interface", "parent_session_id", "parent_session_name",
    "root_session_id", "depth", "forked_from", "version", "last_entry", "error_count", "last_error", "metadata",
    "labels", "created_at", "updated_at", "last_activity_at", "expires_at", "finalized_at", "duration_seconds",
    "summary", "hold", "pending_approvals", "last_run",
)  # fmt: skip
