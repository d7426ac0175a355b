"""One session at work, without any store: what its rules decide is kept here, and every move is checked."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from moorage.core import work
from moorage.core.approval import Approval, ApprovalState
from moorage.core.entry import Entry
from moorage.core.inbox import ITEM_MOVES, OPEN_ITEMS, Item, ItemState
from moorage.core.run import RUN_MOVES, Run, RunState
from moorage.core.session import SESSION_MOVES, Change, OpenWork, Session, State, View
from moorage.core.turn import TURN_MOVES, Retry, Turn, TurnState
from moorage.core.work import TurnEnd
from moorage.testing.builders import NOON, a_stamp
from moorage.testing.work import a_claim, a_run, asking
from tests.core.heads import a_head


class Case:
    """A session, what was asked of it, and what is told of its children."""

    def __init__(self, head: Session | None = None) -> None:
        self.head = head or a_head(State.ACTIVE)
        self.runs: dict[str, Run] = {}
        self.turns: dict[str, Turn] = {}
        self.items: dict[str, Item] = {}
        self.approvals: dict[str, Approval] = {}
        self.entries: list[Entry] = []
        self.children: dict[str, int] = {}
        self.joined: dict[str, int] = {}
        self.callbacks: list[Any] = []
        self.at = NOON

    # Loads of a store

    def view(self, turn: str | None = None, item: str | None = None) -> View:
        return View(
            self.head,
            tuple(one for one in self.approvals.values() if one.state is ApprovalState.PENDING),
            None,
            OpenWork(
                runs=tuple(run for run in self.runs.values() if not run.is_settled),
                queued=self._turn(TurnState.QUEUED),
                running=self._turn(TurnState.RUNNING),
                items=tuple(one for one in self.items.values() if one.state in OPEN_ITEMS),
                children=self.children,
                joined=self.joined,
            ),
            None if turn is None else self.turns[turn],
            None if item is None else self.items[item],
        )

    def _turn(self, state: TurnState) -> Turn | None:
        found = [turn for turn in self.turns.values() if turn.state is state]
        assert len(found) <= 1, f"{len(found)} turns are {state}"
        return found[0] if found else None

    # Writes of a store

    def keep(self, change: Change) -> Change:
        """Keep a change; every move of it must be one of the tables'."""
        assert change.session.state is self.head.state or change.session.state in SESSION_MOVES[self.head.state]
        numbers = [entry.number for entry in change.entries]
        assert numbers == list(range(self.head.last_entry + 1, change.session.last_entry + 1))
        assert change.session.epoch >= self.head.epoch
        self._check_moves(change)
        self.head = change.session
        self.runs |= {run.run_id: run for run in change.runs}
        self.turns |= {turn.turn_id: turn for turn in change.turns}
        self.items |= {item.item_id: item for item in change.items}
        self.approvals |= {approval.approval_id: approval for approval in change.approvals}
        self.entries += change.entries
        self.callbacks += change.callbacks
        return change

    def _check_moves(self, change: Change) -> None:
        for run in change.runs:
            before = self.runs.get(run.run_id)
            assert before is None or run.state is before.state or run.state in RUN_MOVES[before.state]
        for turn in change.turns:
            earlier = self.turns.get(turn.turn_id)
            assert earlier is None or turn.state is earlier.state or turn.state in TURN_MOVES[earlier.state]
        for item in change.items:
            was = self.items.get(item.item_id)
            assert was is None or item.state is was.state or item.state in ITEM_MOVES[was.state]

    # Events

    def ask(self, run: Run | str = "run-1", **how: Any) -> Change:
        wanted = a_run(run) if isinstance(run, str) else run
        return self.keep(asking(wanted, "go", self.at, **how)(self.view()))

    def claim(self, retry: Retry = Retry.RESUME) -> Turn | None:
        """The turn that a launcher gets, if the rule gives it one."""
        change = self.keep(work.claim(self.view(), a_claim(retry=retry), a_stamp(self.at)))
        return next((turn for turn in change.turns if turn.state is TurnState.RUNNING), None)

    def start(self, turn: Turn) -> Change:
        return self.keep(work.started(self.view(), turn.turn_id, turn.epoch, a_stamp(self.at)))

    def renew(self, turn: Turn) -> Change:
        return self.keep(work.renewed(self.view(), turn.turn_id, turn.epoch, a_stamp(self.at)))

    def finish(self, turn: Turn, outcome: str = "completed", **end: Any) -> Change:
        ended = TurnEnd(outcome=TurnState(outcome), **end)
        view = self.view(turn=turn.turn_id)
        return self.keep(work.finished(view, turn.turn_id, turn.epoch, ended, a_stamp(self.at)))

    def release(self, turn: Turn) -> Change:
        return self.keep(work.released(self.view(), turn.turn_id, turn.epoch, a_stamp(self.at)))

    def carry(self, outcome: str = "completed", **end: Any) -> Change:
        turn = self.claim()
        assert turn is not None
        self.start(turn)
        return self.finish(turn, outcome, **end)

    def expire(self, at: datetime) -> Change:
        self.at = at
        return self.keep(work.expired(self.view(), a_stamp(at)))

    def stop(self, run_id: str | None = None) -> Change:
        return self.keep(work.stop(self.view(), run_id, a_stamp(self.at)))

    def hear_of(self, run: Run) -> Change:
        """A child's run has settled, and calls back."""
        callback = work._callback(replace(run, state=RunState.COMPLETED), a_stamp(self.at))
        asker = self.runs.get(callback.run_id or "")
        view = replace(self.view(), run=asker if asker is not None and asker.is_settled else None)
        return self.keep(work.deliver(view, callback, a_stamp(self.at)))

    def ask_person(self, name: str = "a-1", *, waits: bool = False) -> Change:
        approval = Approval(approval_id=name, session_id="s-1", question="May I?", asked_at=self.at, waits=waits)
        return self.keep(self.head.ask(approval, a_stamp(self.at)))

    def answer(self, name: str = "a-1") -> Change:
        settled = self.approvals[name].decided("approve", by="ann", at=self.at)
        change = self.head.settle(settled, a_stamp(self.at))
        return self.keep(work.decided(self.view(), change, settled, a_stamp(self.at)))

    def after(self, change: Change) -> Change:
        return self.keep(work.after(self.view(), change, a_stamp(self.at)))

    # State

    def states(self) -> tuple[list[str], list[str], list[str]]:
        """Of runs, turns and items, oldest first."""
        return (
            [run.state.value for run in self.runs.values()],
            [turn.state.value for turn in self.turns.values()],
            [item.state.value for item in self.items.values()],
        )

    def is_at_rest(self) -> bool:
        """Whether no work is left."""
        return (
            all(run.is_settled for run in self.runs.values())
            and all(item.state in (ItemState.CONSUMED, ItemState.DEAD_LETTER) for item in self.items.values())
            and self._turn(TurnState.QUEUED) is None
            and self._turn(TurnState.RUNNING) is None
        )
