"""Runs, turns and inboxes in memory: the work of one owner.

They are kept as JSON and decoded for every answer, like everything in this store. Each gets a number on insertion,
which gives their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Generic, TypeVar

from msgspec.json import Decoder
from msgspec.structs import replace

from moorage.core.codec import encode
from moorage.core.errors import ItemNotFound, KeyReused, RunNotFound, TurnNotFound
from moorage.core.inbox import OPEN_ITEMS, Item, ItemState
from moorage.core.run import Join, Mode, Run, RunState
from moorage.core.session import Asker, AskerView, Change, OpenWork
from moorage.core.status import Child
from moorage.core.turn import Turn, TurnState

T = TypeVar("T")


class Numbers:
    """Numbers that only grow."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        """Return a new number."""
        self._last += 1
        return self._last

    def advance_to(self, number: int) -> None:
        """Mark a number as used."""
        self._last = max(self._last, number)


class Pile(Generic[T]):
    """Values by their ids, each with its number; decoded once, as from a database."""

    def __init__(self, kind: type[T]) -> None:
        self._read: Callable[[bytes], T] = Decoder(kind).decode
        self._kept: dict[str, tuple[int, T]] = {}

    def put(self, id_: str, value: T, number: int) -> None:
        """Store a value; a known one keeps its number."""
        self._kept[id_] = (self._kept[id_][0] if id_ in self._kept else number, self._read(encode(value)))

    def get(self, id_: str) -> T | None:
        """Return the value of that id."""
        return self._kept[id_][1] if id_ in self._kept else None

    def all(self) -> list[tuple[int, T]]:
        """Return numbers and values, oldest first."""
        return list(self._kept.values())

    def numbered(self, id_: str) -> tuple[int, T]:
        """Return the number and the value of that id."""
        return self._kept[id_]


class Case:
    """The work of one session."""

    def __init__(self) -> None:
        self.runs, self.turns, self.items = Pile(Run), Pile(Turn), Pile(Item)


class WorkTable:
    """The work of all sessions of an owner."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers  # shared by all owners, so that the oldest turn of several can be found
        self._cases: dict[str, Case] = {}  # by session
        self._run_sessions: dict[str, str] = {}  # by run: its session
        self._turn_sessions: dict[str, str] = {}  # by turn: its session
        self._keys: dict[str, str] = {}  # by idempotency key: the run
        self._live: dict[str, None] = {}  # turns that are queued or running
        self._open: dict[str, None] = {}  # runs that are not settled
        self._children: dict[str, dict[str, Join]] = {}  # by parent's run: the children that still have to call back
        self._out: dict[str, dict[str, None]] = {}  # by parent: the runs that still have to call back, oldest first

    # Reading ------------------------------------------------------------------------------------

    def case(self, session_id: str) -> Case:
        """Return the work of a session."""
        return self._cases.get(session_id) or Case()

    def work_of(self, session_id: str) -> OpenWork:
        """Return the open work of a session."""
        case = self.case(session_id)
        runs = tuple(run for _, run in case.runs.all() if not run.is_settled)
        turns = {turn.state: turn for _, turn in case.turns.all()}
        out = {run.run_id: self._children[run.run_id] for run in runs if self._children.get(run.run_id)}
        joined = {run_id: [join for join in joins.values() if join is Join.ALL] for run_id, joins in out.items()}
        return OpenWork(
            runs=runs,
            queued=turns.get(TurnState.QUEUED),
            running=turns.get(TurnState.RUNNING),
            items=tuple(replace(item, body={}) for _, item in case.items.all() if item.state in OPEN_ITEMS),
            children={run_id: len(joins) for run_id, joins in out.items()},
            joined={run_id: len(joins) for run_id, joins in joined.items() if joins},
        )

    def awaited_child(self, session_id: str) -> Child | None:
        """Return the oldest child that still has to call back; children of a stopped run do not count."""
        for run in map(self.run, self._out.get(session_id, ())):
            asking = self.over(run.parent_run_id)
            if asking is None or asking.state is not RunState.STOPPED:
                return Child(run.session_id, run.run_id)
        return None

    def turn(self, turn_id: str, session_id: str | None = None) -> Turn:
        """Return a turn, of that session if one is named. Raise TurnNotFound."""
        of = self._turn_sessions.get(turn_id)
        turn = self.case(of or "").turns.get(turn_id)
        if turn is None or session_id not in (None, of):
            raise TurnNotFound(turn_id)
        return turn

    def item(self, item_id: str, session_id: str) -> Item:
        """Return an item of that session. Raise ItemNotFound."""
        item = self.case(session_id).items.get(item_id)
        if item is None:
            raise ItemNotFound(item_id)
        return item

    def run(self, run_id: str) -> Run:
        """Return a run. Raise RunNotFound."""
        run = self.case(self._run_sessions.get(run_id, "")).runs.get(run_id)
        if run is None:
            raise RunNotFound(run_id)
        return run

    def run_of(self, session_id: str, run_id: str) -> Run:
        """Return a run of that session. Raise RunNotFound."""
        run = self.case(session_id).runs.get(run_id)
        if run is None:
            raise RunNotFound(run_id)
        return run

    def dead_letters(self, session_id: str, run_id: str) -> tuple[Item, ...]:
        """Return the dead letters of a run, oldest first."""
        every = [item for _, item in self.items(session_id)]
        return tuple(item for item in every if item.run_id == run_id and item.state is ItemState.DEAD_LETTER)

    def over(self, run_id: str | None) -> Run | None:
        """Return a run if it exists and is settled."""
        run = self.case(self._run_sessions.get(run_id or "", "")).runs.get(run_id or "")
        return run if run is not None and run.is_settled else None

    def asker(self, asker: Asker | None, session_id: str | None = None) -> AskerView:
        """Return the asker of a new session or run; `session_id` is the session of the turn if no other is named."""
        if asker is None:
            return AskerView()
        of = self._run_sessions.get(asker.run_id or "")
        run = None if of is None else self.case(of).runs.get(asker.run_id or "")
        turns = self.case(of or asker.session_id or session_id or "").turns.all()
        return AskerView(run, next((turn for _, turn in turns if turn.state is TurnState.RUNNING), None))

    def run_by_key(self, key: str) -> Run | None:
        """Return the run that was requested with that idempotency key."""
        return self.run(self._keys[key]) if key in self._keys else None

    def runs(self) -> list[tuple[int, Run]]:
        """Return all runs, newest first."""
        found = [run for case in self._cases.values() for run in case.runs.all()]
        return sorted(found, key=lambda one: one[0], reverse=True)

    def items(self, session_id: str | None) -> list[tuple[int, Item]]:
        """Return all items, of one session or of all, oldest first."""
        cases = self._cases.values() if session_id is None else [self.case(session_id)]
        return sorted((item for case in cases for item in case.items.all()), key=lambda one: one[0])

    def turns(self, state: TurnState) -> list[tuple[int, Turn]]:
        """Return all queued or all running turns, oldest first."""
        found = [self.case(self._turn_sessions[turn_id]).turns.numbered(turn_id) for turn_id in self._live]
        return sorted(((number, turn) for number, turn in found if turn.state is state), key=lambda one: one[0])

    def open_runs(self) -> list[Run]:
        """Return all runs that are not settled."""
        return [self.run(run_id) for run_id in self._open]

    # Queues -------------------------------------------------------------------------------------

    def due(self, agents: Iterable[str], at: datetime) -> list[tuple[int, str]]:
        """Return numbers and sessions of the due queued turns of these agents, oldest first."""
        return [
            (number, turn.session_id)
            for number, turn in self.turns(TurnState.QUEUED)
            if turn.agent_name in tuple(agents) and (turn.not_before is None or turn.not_before <= at)
        ]

    def silent(self, at: datetime) -> list[tuple[datetime, str]]:
        """Return when a turn's silence had consequences, and its session."""
        ends = [(_due_at(turn), turn.session_id) for _, turn in self.turns(TurnState.RUNNING)]
        return sorted((due, session_id) for due, session_id in ends if due <= at)

    def waiting_runs(self) -> list[Run]:
        """Return the runs that no launcher has taken yet."""
        return [run for run in self.open_runs() if run.state is RunState.QUEUED and not run.turns]

    def untaken(self, at: datetime) -> list[tuple[datetime, str]]:
        """Return when a run's time to be taken ended, and its session."""
        ends = [(run.expires_at, run.session_id) for run in self.waiting_runs() if run.expires_at is not None]
        return sorted((due, session_id) for due, session_id in ends if due <= at)

    def turns_of(self, launcher_id: str) -> list[tuple[int, Turn, bool]]:
        """Return numbers and live turns of a launcher, and whether their sessions wait for a sync child."""
        awaiting = {run.parent_session_id for run in self.open_runs() if run.mode is Mode.SYNC}
        turns = [one for one in self.turns(TurnState.RUNNING) if one[1].launcher_id == launcher_id]
        return [(number, turn, turn.session_id in awaiting) for number, turn in turns]

    # Writing ------------------------------------------------------------------------------------

    def check(self, change: Change) -> None:
        """Raise KeyReused if another run has the idempotency key of a new one."""
        for run in change.runs:
            if run.idempotency_key is not None and self._keys.get(run.idempotency_key, run.run_id) != run.run_id:
                raise KeyReused(run.idempotency_key)

    def write(self, session_id: str, change: Change) -> None:
        """Store the runs, turns and items of a change."""
        if not (change.runs or change.turns or change.items):
            return
        case = self._cases.setdefault(session_id, Case())
        for run in change.runs:
            case.runs.put(run.run_id, run, self._numbers.next())
            self._run_sessions[run.run_id] = session_id
            self._note(run)
        for turn in change.turns:
            self.write_turn(turn, self._numbers.next())
        for item in change.items:
            kept = case.items.get(item.item_id)  # its body never changes and is not part of a decision
            case.items.put(item.item_id, item if kept is None else replace(item, body=kept.body), self._numbers.next())

    def write_turn(self, turn: Turn, number: int) -> None:
        """Store a turn; a known one keeps its number."""
        self._numbers.advance_to(number)
        self._cases.setdefault(turn.session_id, Case()).turns.put(turn.turn_id, turn, number)
        self._turn_sessions[turn.turn_id] = turn.session_id
        _keep(self._live, turn.turn_id, turn.state in (TurnState.QUEUED, TurnState.RUNNING))

    def _note(self, run: Run) -> None:
        _keep(self._open, run.run_id, not run.is_settled)
        if run.calls_back:
            _keep(self._out.setdefault(str(run.parent_session_id), {}), run.run_id, not run.is_settled)
        if run.idempotency_key is not None:
            self._keys[run.idempotency_key] = run.run_id
        if run.parent_run_id is not None and run.mode is Mode.ASYNC_CALLBACK:
            siblings = self._children.setdefault(run.parent_run_id, {})
            siblings.pop(run.run_id, None)
            if not run.is_settled:
                siblings[run.run_id] = run.join

    def forget(self, session_id: str) -> None:
        """Delete the work of a deleted session."""
        case = self._cases.pop(session_id, None) or Case()
        for _, run in case.runs.all():
            self._note(replace(run, state=RunState.STOPPED))
            self._keys.pop(run.idempotency_key or "", None)
            del self._run_sessions[run.run_id]
        for _, turn in case.turns.all():
            self._live.pop(turn.turn_id, None)
            del self._turn_sessions[turn.turn_id]


def _keep(names: dict[str, Any], name: str, wanted: bool) -> None:
    if wanted:
        names[name] = None
    else:
        names.pop(name, None)


def _due_at(turn: Turn) -> datetime:
    """Return when a turn is due: an unstarted one is queued again after its lease, a started one is lost later."""
    assert turn.lease_until is not None
    assert turn.lost_at is not None
    return turn.lease_until if turn.started_at is None else max(turn.lease_until, turn.lost_at)
