"""Approvals, runs, turns and inboxes: their lists, taking a turn, and callbacks.

For each requested state, a list walks an index that ends in the order of creation.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from moorage.core.approval import PENDING, Approval, ApprovalQuery
from moorage.core.errors import ApprovalNotFound, ItemNotFound, RunNotFound, SessionCorrupt, TurnNotFound
from moorage.core.fact import Backlog
from moorage.core.inbox import Item, ItemState, inbox_fingerprint
from moorage.core.query import MAX_POSITION, Page, make_cursor, read_cursor
from moorage.core.run import SETTLED, Run, RunQuery, RunState
from moorage.core.session import Callback, Change, Stamp
from moorage.core.turn import Turn, TurnState
from moorage.core.work import DELIVERED, Claim, callbacks_of_deleted, claim, deliver, fate_with
from moorage.ports import Claimed, LauncherTurn
from moorage.stores import Stale
from moorage.stores.rows import ITEM, OPEN, Row, approval_of, micros, readable
from moorage.stores.sql import changes
from moorage.stores.sql.db import Commit, Db, Query
from moorage.stores.sql.lookup import OF_SESSION, existing, key_of, may_be_ref, pk_of
from moorage.stores.sql.views import Seen, load_parent
from moorage.stores.work_rows import PARENT_CORRUPT, item_of, run_of, turn_of

# Approvals --------------------------------------------------------------------------------------

_APPROVALS = (
    "SELECT body, id, (SELECT s.id FROM moor.sessions s WHERE s.owner = t.owner AND s.pk = t.session) "
    "FROM moor.approvals t"
)


async def approvals(db: Db, owner: str, query: ApprovalQuery = PENDING) -> list[Approval]:
    where, values, index, order = ["owner = ?"], list[Any]((owner,)), "", "n"
    if query.session_id is not None:
        index = "INDEXED BY approvals_by_session"
        where.append("session = ?")
        values.append(await pk_of(db, owner, query.session_id))
    if query.due_at is not None:
        where.append("state = 'pending' AND expires_at IS NOT NULL AND expires_at <= ?")
        values.append(micros(query.due_at))
        order = "expires_at"
    elif query.pending_only:
        where.append("state = 'pending'")
        if query.session_id is None:  # the condition of PostgreSQL's index
            where.append("(state = 'pending') IS TRUE")
    sql = f"{_APPROVALS} {index} WHERE {' AND '.join(where)} ORDER BY {order} LIMIT ?"
    return [approval_of(row, db.opener) for row in await db.all(sql, (*values, query.limit))]


async def approval(db: Db, owner: str, approval_id: str) -> Approval:
    sql = f"{_APPROVALS} WHERE owner = ? AND id = ?"
    return approval_of(await existing(db, sql, (owner, approval_id), ApprovalNotFound), db.opener)


_OF_MANY = Query("approvals_of_many")


async def approvals_of(
    db: Db, owner: str, session_ids: list[str], *, pending_only: bool = True, limit: int = 100
) -> list[list[Approval]]:
    ids = db.listed([each for each in session_ids if may_be_ref(each)])
    found: dict[str, list[Approval]] = {}
    damaged: set[str] = set()
    for row in await db.all(_OF_MANY(db), (owner, ids, pending_only, limit)):
        try:
            found.setdefault(row[-1], []).append(approval_of(row, db.opener))
        except SessionCorrupt:  # a damaged session must not hide others
            damaged.add(row[-1])
    return [[] if each in damaged else found.get(each, []) for each in session_ids]


# Runs -------------------------------------------------------------------------------------------

_RUN = f"SELECT t.body, t.id, s.id FROM moor.runs t {OF_SESSION} WHERE t.owner = ?"

_DUE_RUNS = (
    f"SELECT t.body, t.id, s.id FROM moor.runs t INDEXED BY runs_untaken {OF_SESSION} "
    "WHERE t.owner = ? AND t.expires_at IS NOT NULL AND t.expires_at <= ? ORDER BY t.expires_at LIMIT ?"
)


async def run(db: Db, owner: str, run_id: str) -> Run:
    return run_of(db, await existing(db, f"{_RUN} AND t.id = ?", (owner, run_id), RunNotFound))


async def run_by_key(db: Db, owner: str, key: str) -> Run | None:
    row = await db.one(f"{_RUN} AND t.key = ?", (owner, key))
    return None if row is None else run_of(db, row)


async def runs(db: Db, owner: str, query: RunQuery) -> Page[Run]:
    if query.due_at is not None:
        rows = await db.all(_DUE_RUNS, (owner, micros(query.due_at), query.limit))
        return Page(readable(rows, lambda row: run_of(db, row)), None)
    mark = query.fingerprint()
    below = MAX_POSITION if query.cursor is None else read_cursor(query.cursor, mark)
    rows = await _runs(db, owner, query, below)
    page = rows[: query.limit]
    found = readable(page, lambda row: run_of(db, (*row[:2], "")))
    return Page(found, make_cursor(page[-1][-1], mark) if len(rows) > query.limit else None)


async def _runs(db: Db, owner: str, query: RunQuery, below: int) -> list[Row]:
    states = [
        f"state = '{state}'"
        for state in RunState
        if query.state in (None, state.value) and not (query.open_only and state in SETTLED)
    ]
    filters: dict[str, Any] = {"owner = ?": owner, "n < ?": below}
    given = {"agent = ?": query.agent, "parent = ?": query.parent_session_id}
    filters |= {condition: value for condition, value in given.items() if value is not None}
    index = "runs_by_state"  # of few runs if they are open, even of all owners together
    is_open = query.open_only or query.state in (RunState.QUEUED, RunState.RUNNING)
    if query.session_id is not None:
        index, filters["session = ?"] = "runs_by_session", await pk_of(db, owner, query.session_id)
    elif query.parent_session_id is not None or (query.agent is not None and not is_open):
        index = "runs_by_agent" if query.parent_session_id is None else "runs_by_parent"
        states = [f"({' OR '.join(states)})"] if states else []
    select = f"SELECT body, id, n FROM moor.runs INDEXED BY {index}"
    return await _walked(db, select, filters, states, "DESC", query.limit + 1)


async def _walked(db: Db, select: str, filters: dict[str, Any], states: list[str], order: str, limit: int) -> list[Row]:
    """Return the rows that match the filters and one of the states: a short walk per state, merged."""
    if not states:
        return []
    ending = f"ORDER BY n {order} LIMIT {limit}"
    walks = [f"SELECT * FROM ({select} WHERE {' AND '.join([*filters, state])} {ending}) walk" for state in states]
    return await db.all(f"{' UNION ALL '.join(walks)} {ending}", [*filters.values()] * len(walks))


# The inbox --------------------------------------------------------------------------------------

_WITH_IDS = (
    f"SELECT {ITEM}, body, (SELECT s.id FROM moor.sessions s WHERE s.owner = i.owner AND s.pk = i.session), n "
    "FROM moor.inbox i"
)
# Few inbox items are not consumed. A query uses their partial indexes if it repeats the index conditions; the index
# over all sessions has a different condition in PostgreSQL.
_OPEN = "state <> 'consumed'"
_OPEN_ANYWHERE = f"{_OPEN} AND ({_OPEN}) IS TRUE"


async def inbox(
    db: Db, owner: str, *, ref: str | None = None, states: tuple[str, ...], limit: int, cursor: str | None = None
) -> Page[Item]:
    key = None if ref is None else await key_of(db, owner, ref)
    mark = inbox_fingerprint(None if key is None else key.session_id, states)
    above = 0 if cursor is None else read_cursor(cursor, mark)
    filters: dict[str, Any] = {"n > ?": above, **({} if key is None else {"session = ?": key.pk})}
    if key is None or db.is_postgres:  # SQLite might walk the index of an owner's items instead of the one by session
        filters["owner = ?"] = owner
    is_open = f" AND {_OPEN_ANYWHERE if key is None else _OPEN}"
    known = [state for state in ItemState if state.value in states]
    conditions = [f"state = '{state}'{'' if state is ItemState.CONSUMED else is_open}" for state in known]
    rows = await _walked(db, _WITH_IDS, filters, conditions, "ASC", limit + 1)
    items = readable(rows[:limit], lambda row: item_of(db, row[:10], row[10]))
    return Page(items, make_cursor(rows[limit - 1][-1], mark) if len(rows) > limit else None)


async def item(db: Db, owner: str, item_id: str) -> Item:
    sql = f"{_WITH_IDS} INDEXED BY inbox_by_state WHERE owner = ? AND {_OPEN_ANYWHERE} AND id = ? LIMIT 1"
    row = await existing(db, sql, (owner, item_id), ItemNotFound)
    return item_of(db, row[:10], row[10])


# Turns ------------------------------------------------------------------------------------------

_SILENT = (
    f"SELECT s.owner, s.id FROM moor.turns t {OF_SESSION} "
    "WHERE t.state = 'running' AND t.due_at <= ? ORDER BY t.due_at LIMIT ?"
)
_UNTAKEN = (
    f"SELECT s.owner, s.id FROM moor.runs t {OF_SESSION} "
    "WHERE t.expires_at IS NOT NULL AND t.expires_at <= ? ORDER BY t.expires_at LIMIT ?"
)


async def overdue(db: Db, at: datetime, limit: int) -> list[tuple[str, str]]:
    found = [(row[0], row[1]) for sql in (_SILENT, _UNTAKEN) for row in await db.all(sql, (micros(at), limit))]
    return list(dict.fromkeys(found))[:limit]


_OF_LAUNCHER = Query("launcher_turns", of_session=OF_SESSION)


async def turns_of(db: Db, launcher_id: str) -> list[LauncherTurn]:
    rows = await db.all(_OF_LAUNCHER(db), (launcher_id,))
    return readable(rows, lambda row: LauncherTurn(row[0], turn_of(db, row[2:]), bool(row[1])))


_TURN = f"SELECT t.body, t.id, s.id FROM moor.turns t {OF_SESSION}"


async def find_turn(db: Db, owner: str, turn_id: str) -> Turn:
    row = await existing(db, f"{_TURN} WHERE t.owner = ? AND t.id = ?", (owner, turn_id), TurnNotFound)
    return turn_of(db, row)


_QUEUED = "SELECT count(*), min(n) FROM moor.turns WHERE state = 'queued'"
_RUNNING = "SELECT count(*) FROM moor.turns WHERE state = 'running'"
_ITEMS = (
    "SELECT count(*) FILTER (WHERE state <> 'dead_letter' AND kind = 'callback'), "
    "count(*) FILTER (WHERE state = 'dead_letter') FROM moor.inbox INDEXED BY inbox_by_state "
    "WHERE state <> 'consumed' AND (state <> 'consumed') IS TRUE"
)


async def backlog(db: Db) -> Backlog:
    """Count the waiting work of all owners. This reads only waiting work."""
    [(queued, first)], [(running,)], [(callbacks, dead_letters)] = [
        await db.all(sql) for sql in (_QUEUED, _RUNNING, _ITEMS)
    ]
    row = None if first is None else await db.one(f"{_TURN} WHERE t.state = 'queued' AND t.n = ?", (first,))
    oldest = None if row is None else turn_of(db, tuple(row)).queued_at
    return Backlog(
        queued=queued, running=running, oldest_queued_at=oldest, callbacks=callbacks, dead_letters=dead_letters
    )


class WantedTurns(msgspec.Struct, frozen=True):
    """The turns that a launcher can take: of these owners and agents, and of one family if it has a root."""

    launcher_id: str
    owners: tuple[str, ...]
    agents: tuple[str, ...]
    root: str | None = None


async def take(db: Db, seen: Seen, wish: Claim, stamp: Stamp) -> Claimed | None:
    """Give a session's queued turn to a launcher, unless the rule postpones it because the session is held."""
    owner = seen.view.session.owner
    change = await changes.save(db, owner, seen, claim(seen.view, wish, stamp))
    if not (change.turns and change.turns[0].state is TurnState.RUNNING):
        return None
    return Claimed(owner, change.session, change.turns[0], change.items, change.runs)


# Callbacks --------------------------------------------------------------------------------------


async def save_with_callbacks(db: Db, owner: str, seen: Seen, change: Change) -> Change:
    """Commit a change that settles runs, with its effect on the requesting sessions; return their outcome.

    Each parent's own change is decided on the parent's current state, in which the child's run is settled already.
    """
    settled = [callback.child_run_id for callback in change.callbacks]
    found = [await _fate(db, owner, callback, settled) for callback in change.callbacks]
    fates = {callback.child_run_id: fate for callback, (fate, _) in zip(change.callbacks, found, strict=True)}
    runs = tuple(replace(run, callback=fates.get(run.run_id, run.callback)) for run in change.runs)
    change = replace(change, runs=runs)
    parents = [(callback, parent) for callback, (_, parent) in zip(change.callbacks, found, strict=True) if parent]
    own = changes.written_of(seen, change)
    if len({seen.pk, *(parent.pk for _, parent in parents)}) == 1 + len(parents):
        told = [changes.written_of(parent, _delivery(parent, callback)) for callback, parent in parents]
        await db.commit_changes(Commit(owner, [own, *told], change.once))
        return change
    if not db.is_locking:  # a parent may get several, or be the session itself: decide each on its new state
        raise Stale("several callbacks to one parent")
    await db.commit_changes(Commit(owner, [own], change.once))
    for callback, _ in parents:
        parent = await load_parent(db, owner, callback, [])
        assert parent is not None
        await changes.save(db, owner, parent, _delivery(parent, callback))
    return change


async def _fate(db: Db, owner: str, callback: Callback, settled: list[str]) -> tuple[str, Seen | None]:
    """Return the outcome of a callback, and its parent. A damaged parent does not keep a child from ending."""
    try:
        parent = await load_parent(db, owner, callback, settled)
    except SessionCorrupt:
        return PARENT_CORRUPT, None
    fate = fate_with(None if parent is None else parent.view.session)
    return fate, parent if fate == DELIVERED else None


def _delivery(parent: Seen, callback: Callback) -> Change:
    change = deliver(parent.view, callback, callback.stamp)
    assert not change.callbacks, "a callback settles no run"
    return change


_CALLING = (
    f"SELECT t.session, t.n, t.body, t.id, s.id FROM moor.runs t INDEXED BY runs_by_session {OF_SESSION} "
    f"WHERE t.owner = ? AND t.session IN LIST(?::bigint) AND t.{OPEN} AND t.mode = 'async_callback' "
    "AND t.parent IS NOT NULL"
)
_IDS = "SELECT id FROM moor.sessions WHERE owner = ? AND pk IN LIST(?::bigint)"


async def call_back_for(db: Db, owner: str, pks: list[int], stamp: Stamp) -> None:
    """Notify parents outside a tree that is about to be deleted of the end of their runs."""
    rows = await db.all(_CALLING, (owner, db.listed(pks)))
    if not rows:
        return
    ids = await db.all(_IDS, (owner, db.listed(pks)))
    places = {pk: place for place, pk in enumerate(pks)}
    runs = [run_of(db, row[2:]) for row in sorted(rows, key=lambda row: (places[row[0]], row[1]))]
    for callback in callbacks_of_deleted(runs, {row[0] for row in ids}, stamp):
        stopped = "UPDATE moor.runs SET state = 'stopped' WHERE owner = ? AND id = ?"  # no longer under way
        await db.run(stopped, (owner, callback.child_run_id))
        _, parent = await _fate(db, owner, callback, [])
        if parent is not None:
            await changes.save(db, owner, parent, _delivery(parent, callback))
