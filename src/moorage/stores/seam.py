"""View, decide, commit: the steps that every optimistic store performs for a decision, in one place.

A backend loads sessions and commits a `Unit`: all changes of one decision, to several sessions at once, guarded by
what was loaded. It raises Stale if something changed meanwhile; then the operation is repeated. A unit tracks the state
of the sessions after its own changes so far, so that a second callback to one parent is decided on the parent after the
first one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from moorage.core.approval import Approval, ApprovalState
from moorage.core.entry import Entry
from moorage.core.errors import SessionCorrupt
from moorage.core.family import Tombstone
from moorage.core.inbox import OPEN_ITEMS, Item
from moorage.core.once import Once
from moorage.core.record import RecordWrite
from moorage.core.run import Join, Mode, Run, RunState
from moorage.core.session import AskerView, Callback, Change, OpenWork, Session, Stamp, View
from moorage.core.status import Child
from moorage.core.turn import Turn, TurnState
from moorage.core.work import DELIVERED, Claim, callbacks_of_deleted, claim, deliver, fate_with
from moorage.ports import Claimed
from moorage.stores import Stale
from moorage.stores.rows import tombstone_for
from moorage.stores.work_rows import PARENT_CORRUPT

T = TypeVar("T")
Value = Run | Turn | Item | Approval
LIVE_TURNS = (TurnState.QUEUED, TurnState.RUNNING)


class Out(Struct, frozen=True):
    """An open run that a session requested and waits for."""

    run_id: str
    session_id: str
    parent_run_id: str | None
    mode: Mode
    join: Join
    is_forgotten: bool = False  # whether the requesting run was stopped: then the end of this run wakes no session

    @property
    def calls_back(self) -> bool:
        """Return whether its end is delivered as a callback."""
        return self.mode is Mode.ASYNC_CALLBACK


class Loaded:
    """A session as it was loaded, and as the changes of a unit have left it."""

    def __init__(self, session: Session, guard: Any = None, *, is_new: bool = False) -> None:
        self.before, self.session, self.guard, self.is_new = session, session, guard, is_new
        self.values: dict[tuple[type, str], Value] = {}  # open values, oldest first, and values that were requested
        self.out: dict[str, Out] = {}  # by run, oldest first
        self.was: dict[tuple[type, str], Value] = {}  # the original of each changed value
        self.out_was: dict[str, Out] | None = None
        self.now: dict[tuple[type, str], Value] = {}  # the new state of each changed value
        self.entries: list[Entry] = []
        self.records: list[RecordWrite] = []  # in order
        self.is_touched = is_new

    @property
    def session_id(self) -> str:
        """Return the id of its session."""
        return self.session.session_id

    def add(self, value: Value) -> None:
        """Record a stored value."""
        self.values[type(value), _id(value)] = value

    def of(self, kind: type[T]) -> list[T]:
        """Return the known values of a kind, oldest first."""
        return [value for value in self.values.values() if type(value) is kind]

    def pending(self) -> tuple[Approval, ...]:
        """Return approvals that wait for an answer."""
        return tuple(each for each in self.of(Approval) if each.state is ApprovalState.PENDING)

    def head(self) -> Session:
        """Return the session with what it waits for."""
        pending = self.pending()
        waking = (out for out in self.out.values() if out.calls_back and not out.is_forgotten)
        awaited = None if self.session.is_final else next(waking, None)
        return replace(
            self.session,
            awaited_approval=pending[0].approval_id if pending else None,
            awaited_child=None if awaited is None else Child(awaited.session_id, awaited.run_id),
        )

    def view(self, **named: Any) -> View:
        """Return the view for a decision."""
        return View(self.head(), self.pending(), work=self._work(), **named)

    def _work(self) -> OpenWork:
        if not self.values and not self.out:
            return OpenWork()
        runs = tuple(run for run in self.of(Run) if not run.is_settled)
        turns = {turn.state: turn for turn in self.of(Turn)}
        return OpenWork(
            runs=runs,
            queued=turns.get(TurnState.QUEUED),
            running=turns.get(TurnState.RUNNING),
            items=tuple(item for item in self.of(Item) if item.state in OPEN_ITEMS),
            children=self._counted(runs),
            joined=self._counted(runs, Join.ALL),
        )

    def _counted(self, runs: Iterable[Run], join: Join | None = None) -> dict[str, int]:
        counts: dict[str, int] = {}
        mine = {run.run_id for run in runs}
        for out in self.out.values():
            if out.calls_back and out.parent_run_id in mine and join in (None, out.join):
                counts[out.parent_run_id or ""] = counts.get(out.parent_run_id or "", 0) + 1
        return counts

    def take(self, change: Change) -> None:
        """Apply a change to this copy of the session."""
        self.is_touched = True
        self.session = change.session
        self.entries += change.entries
        self.records += change.records
        values: list[Value] = [*change.approvals, *change.runs, *change.turns, *change.items]
        for value in values:
            self._put(value)
        stopped = {run.run_id for run in change.runs if run.state is RunState.STOPPED}
        for out in list(self.out.values()):
            if out.parent_run_id in stopped and not out.is_forgotten:
                self.put_out(replace(out, is_forgotten=True))

    def _put(self, value: Value) -> None:
        key = type(value), _id(value)
        known = self.values.get(key)
        if known is not None and key not in self.now:
            self.was[key] = known
        if isinstance(value, Item) and known is not None and not value.body and isinstance(known, Item):
            value = replace(value, body=known.body)  # the body never changes, and a decision does not see it
        self.now[key] = self.values[key] = value

    def put_out(self, out: Out) -> None:
        """Add a run to wait for."""
        self._note_out()
        self.out[out.run_id] = out

    def drop_out(self, run_id: str) -> None:
        """Stop waiting for a run."""
        if run_id in self.out:
            self._note_out()
            del self.out[run_id]

    def _note_out(self) -> None:
        self.is_touched = True
        if self.out_was is None:
            self.out_was = dict(self.out)


def _id(value: Value) -> str:
    if isinstance(value, Run):
        return value.run_id
    if isinstance(value, Turn):
        return value.turn_id
    return value.item_id if isinstance(value, Item) else value.approval_id


class Backend(Protocol):
    """The operations that each store implements."""

    async def load_session(self, owner: str, session_id: str) -> Loaded | None:
        """Return the session with exactly this id, and all its open work; None if there is none."""

    async def settled_run(self, owner: str, run_id: str) -> Run | None:
        """Return a run if it has ended."""

    async def commit(self, unit: Unit) -> None:
        """Write a unit completely or not at all. Raises Stale if something that was loaded has changed."""


class Unit:
    """All changes of one commit."""

    def __init__(self, backend: Backend, owner: str) -> None:
        self.backend, self.owner = backend, owner
        self.sessions: dict[str, Loaded] = {}
        self.once: Once | None = None
        self.room: tuple[str, int] | None = None  # a root session, and the limit of open sessions below it
        self.memory: list[RecordWrite] = []  # of the owner, in order
        self.memory_revision: str | None = None  # at which a decision read it; None: there was no memory
        self.tombstones: dict[str, Tombstone] = {}  # of deleted sessions, leaves first
        self.guards: list[Any] = []  # further checks of the backend
        self.writes: list[Any] = []  # further writes of the backend

    def add(self, loaded: Loaded) -> Loaded:
        """Add a session to the unit."""
        self.sessions[loaded.session_id] = loaded
        return loaded

    async def session(self, session_id: str) -> Loaded | None:
        """Return a session with the changes of the unit so far."""
        if session_id in self.sessions:
            return None if session_id in self.tombstones else self.sessions[session_id]
        found = await self.backend.load_session(self.owner, session_id)
        return None if found is None else self.add(found)

    # Changing -----------------------------------------------------------------------------------

    async def save(self, loaded: Loaded, change: Change) -> Change:
        """Apply a whole change; return it with the outcome of its callbacks."""
        self.once = change.once or self.once
        if change == Change(session=loaded.head(), once=change.once):
            return change
        fates = {callback.child_run_id: await self._fate(callback) for callback in change.callbacks}
        runs = tuple(replace(run, callback=fates.get(run.run_id, run.callback)) for run in change.runs)
        told = replace(change, runs=runs)
        opened = {run.run_id for run in loaded.of(Run) if not run.is_settled}
        loaded.take(told)
        self.memory += told.memory
        for run in runs:
            await self._note_out(run, was_open=run.run_id in opened)
        for callback in change.callbacks:
            if fates[callback.child_run_id] == DELIVERED:
                await self._deliver(callback)
        return told

    async def _note_out(self, run: Run, *, was_open: bool) -> None:
        """Let the session that requested a run wait for it, or stop waiting."""
        if run.parent_session_id is None or run.mode is Mode.ASYNC_POLL or run.is_settled != was_open:
            return
        try:
            parent = await self.session(run.parent_session_id)
        except SessionCorrupt:
            return
        if parent is None:
            return
        if run.is_settled:
            parent.drop_out(run.run_id)
            return
        asking = await self._asking(parent, run.parent_run_id)
        stopped = asking is not None and asking.state is RunState.STOPPED
        parent.put_out(Out(run.run_id, run.session_id, run.parent_run_id, run.mode, run.join, stopped))

    async def _asking(self, parent: Loaded, run_id: str | None) -> Run | None:
        """Return the parent's run that requested this one, if it has ended."""
        if run_id is None:
            return None
        known = parent.values.get((Run, run_id))
        if isinstance(known, Run):
            return known if known.is_settled else None
        return await self.backend.settled_run(self.owner, run_id)

    # Callbacks ----------------------------------------------------------------------------------

    async def _fate(self, callback: Callback) -> str:
        """Return the outcome of a callback. A damaged parent does not keep a child from ending."""
        try:
            parent = await self.session(callback.parent_session_id)
        except SessionCorrupt:
            return PARENT_CORRUPT
        return fate_with(None if parent is None else parent.session)

    async def _deliver(self, callback: Callback) -> None:
        parent = await self.session(callback.parent_session_id)
        assert parent is not None
        view = parent.view(run=await self._asking(parent, callback.run_id))
        await self.save(parent, deliver(view, callback, callback.stamp))

    # Deleting -----------------------------------------------------------------------------------

    async def delete(self, trees: list[tuple[list[Loaded], str]], stamp: Stamp) -> list[Tombstone]:
        """Delete trees (parents before children), each for a reason; tell parents that stay how open runs ended."""
        for tree, reason in trees:
            for loaded in reversed(tree):
                tombstone = tombstone_for(loaded.head(), tree[0].session_id, stamp, reason)
                self.tombstones[loaded.session_id] = tombstone
        gone = [loaded for tree, _ in trees for loaded in reversed(tree)]
        runs = [run for loaded in gone for run in loaded.of(Run) if not run.is_settled]
        callbacks = {each.child_run_id: each for each in callbacks_of_deleted(runs, set(self.tombstones), stamp)}
        for run in runs:
            await self._note_out(replace(run, state=RunState.STOPPED), was_open=True)
            if (callback := callbacks.get(run.run_id)) and await self._fate(callback) == DELIVERED:
                await self._deliver(callback)
        return list(self.tombstones.values())


# Stories ----------------------------------------------------------------------------------------


async def told_again(story: Callable[[], Awaitable[T]], wait: Callable[[int, Stale], Awaitable[None]]) -> T:
    """Return the result of a story, repeated while others commit first; `wait` gets the number of attempts."""
    tries = 0
    while True:
        try:
            return await story()
        except Stale as error:
            tries += 1
            await wait(tries, error)


async def change_session(unit: Unit, loaded: Loaded, decide: Callable[[View], Change], **named: Any) -> Change:
    """Run a decision, and commit its change with all consequences."""
    change = await unit.save(loaded, decide(loaded.view(**named)))
    if loaded.is_touched or unit.once is not None:
        await unit.backend.commit(unit)
    return change


async def add_session(unit: Unit, change: Change, guard: Any = None) -> Session:
    """Commit a new session."""
    loaded = unit.add(Loaded(change.session, guard, is_new=True))
    await unit.save(loaded, change)
    await unit.backend.commit(unit)
    return loaded.head()


async def claim_turn(unit: Unit, loaded: Loaded, wish: Claim, stamp: Stamp) -> Claimed | None:
    """Give a session's queued turn to a launcher if the rule allows it now. Items have no bodies."""
    change = await change_session(unit, loaded, lambda view: claim(view, wish, stamp))
    if not (change.turns and change.turns[0].state is TurnState.RUNNING):
        return None
    turn = change.turns[0]
    given = tuple(item for item in loaded.of(Item) if item.turn_id == turn.turn_id and item.state == "given")
    return Claimed(unit.owner, loaded.head(), turn, given, change.runs)


def asker_view(run: Run | None, loaded: Loaded | None) -> AskerView:
    """Return the asker in its current state: its run, and the live turn of its session."""
    running = None if loaded is None else next((t for t in loaded.of(Turn) if t.state is TurnState.RUNNING), None)
    return AskerView(run, running)
