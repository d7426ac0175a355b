"""The history checker: after any faults, the stored data must be one possible history.

Call it for a whole owner when nothing runs any more. It reads only the public port, so it works on every store.
"""

from __future__ import annotations

from collections import Counter

from moorage.core.entry import Entry
from moorage.core.inbox import ItemState
from moorage.core.query import LogQuery, SessionQuery
from moorage.core.run import Run, RunQuery
from moorage.core.session import Session
from moorage.ports import Store

OPEN = (ItemState.HELD.value, ItemState.WAITING.value, ItemState.GIVEN.value)
PAGE = 500


async def problems_in(store: Store, owner: str, acknowledged: list[str]) -> list[str]:
    """Return impossible histories; empty if there are none. `acknowledged` are runs whose request was answered."""
    runs = {run.run_id: run for run in await _all_runs(store, owner)}
    sessions = {session.session_id: session for session in await _all_sessions(store, owner)}
    found = [f"run {run_id} was acknowledged and is gone" for run_id in acknowledged if run_id not in runs]
    found += [f"run {run.run_id} never settled" for run in runs.values() if not run.is_settled]
    waiting = (await store.inbox(owner, states=OPEN, limit=PAGE)).items
    found += [f"item {item.item_id} of {item.session_id} still is {item.state.value}" for item in waiting]
    settlements: Counter[str] = Counter()
    callbacks: Counter[str] = Counter()
    for session in sessions.values():
        log = await _whole_log(store, owner, session)
        found += _problems_of(session, log)
        settlements.update(str((entry.data or {})["run_id"]) for entry in log if entry.kind == "run_settled")
        callbacks.update(str((entry.data or {})["run_id"]) for entry in log if entry.kind == "callback")
    found += [f"run {run_id} settled {times} times" for run_id, times in settlements.items() if times != 1]
    found += [f"run {run_id} called back {times} times" for run_id, times in callbacks.items() if times != 1]
    found += [
        f"run {run.run_id} has not called back"
        for run in runs.values()
        if run.is_settled and run.calls_back and run.parent_session_id in sessions and not callbacks[run.run_id]
    ]
    return found + await store.check()


def _problems_of(session: Session, log: list[Entry]) -> list[str]:
    """Check that numbers have no gaps, turns do not overlap and end once, and epochs only grow."""
    name, found = session.session_id, []
    if [entry.number for entry in log] != list(range(1, session.last_entry + 1)):
        found.append(f"session {name} has gaps or doubles in its log")
    if session.live_turn is not None:
        found.append(f"session {name} still has a live turn")
    running: str | None = None
    over: set[str] = set()
    epoch = 0
    for entry in log:
        data = entry.data or {}
        if entry.kind == "turn_started":
            if running not in (None, data["turn_id"]):  # the same turn again was released by its launcher
                found.append(f"session {name} started {data['turn_id']} while {running} was running")
            if data["epoch"] <= epoch:
                found.append(f"session {name} went back from epoch {epoch} to {data['epoch']}")
            running, epoch = data["turn_id"], data["epoch"]
        elif entry.kind == "turn_ended" and "turn_id" in data:
            running = None
            if data["turn_id"] in over:
                found.append(f"session {name} ended {data['turn_id']} twice")
            over.add(data["turn_id"])
    return found


async def _all_runs(store: Store, owner: str) -> list[Run]:
    query, found = RunQuery(limit=PAGE), []
    while True:
        page = await store.runs(owner, query)
        found += page.items
        if page.next is None:
            return found
        query = RunQuery(limit=PAGE, cursor=page.next)


async def _all_sessions(store: Store, owner: str) -> list[Session]:
    query, found = SessionQuery(limit=PAGE), []
    while True:
        [page] = await store.find(owner, query)
        found += page.items
        if page.next is None:
            return found
        query = SessionQuery(limit=PAGE, cursor=page.next)


async def _whole_log(store: Store, owner: str, session: Session) -> list[Entry]:
    log: list[Entry] = []
    while len(log) < session.last_entry:
        page = await store.log(owner, session.session_id, LogQuery(after=log[-1].number if log else 0, limit=PAGE))
        if not page:
            break
        log += page
    return log
