"""Work: a session's runs, turns and inbox, loaded for a decision and written back with its change.

A callback is part of the change that settles its run: the parent's own change is decided on the
parent as it then is, and committed in the same statement, which is refused if either of the two
has changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from moorage.core.approval import Approval
from moorage.core.errors import MoorageError, SessionCorrupt
from moorage.core.inbox import Item
from moorage.core.run import Join, Run, RunState
from moorage.core.session import Asker, AskerView, Callback, Change, Stamp, View, Work
from moorage.core.turn import Turn, TurnState
from moorage.core.work import DELIVERED, callbacks_of_deleted, deliver, fate_with
from moorage.stores import SEALED
from moorage.stores.postgres import heads, writes
from moorage.stores.postgres.connection import Connection
from moorage.stores.postgres.writes import Guard, Written
from moorage.stores.rows import Row, approval_of, json_text, kept, micros, micros_or_none
from moorage.stores.session_rows import session_of
from moorage.stores.sql import lookup
from moorage.stores.sql.db import Stale
from moorage.stores.sql.lookup import HEAD_OF_S
from moorage.stores.work_rows import ITEM, OPEN, PARENT_CORRUPT, due_at, item_of, run_of, turn_of


class Seen(NamedTuple):
    """What a decision is made on, and the place it was read from."""

    pk: int
    revision: int
    view: View


# Loading ----------------------------------------------------------------------------------------

_OPEN_ITEMS = "state IN ('held', 'waiting', 'given') AND state <> 'consumed'"
_OURS = "owner = s.owner AND session = s.pk"
_BUSY = f"(s.launched OR EXISTS (SELECT 1 FROM moor.inbox WHERE {_OURS} AND {_OPEN_ITEMS}))"
_ITEMS = f"SELECT n, json_build_array({ITEM}) AS row FROM moor.inbox WHERE {_OURS} AND {_OPEN_ITEMS}"
_WHOLE_ITEMS = f"SELECT n, json_build_array({ITEM}, body) AS row FROM moor.inbox WHERE {_OURS} AND {_OPEN_ITEMS}"
# Of an inbox that may be long, what the delivery of a callback to run ?4 has to know: whether something waits and, once
# none of the callbacks that belong together is on its way any more, those that were held back.
_TO_DELIVER = f"""
SELECT * FROM (
    SELECT n, json_build_array({ITEM}) AS row FROM moor.inbox
    WHERE {_OURS} AND state = 'waiting' AND state <> 'consumed' LIMIT 1
) one
UNION ALL
SELECT n, json_build_array({ITEM}) FROM moor.inbox
WHERE {_OURS} AND state = 'held' AND state <> 'consumed' AND run = ?4 AND NOT EXISTS (
    SELECT 1 FROM moor.runs c WHERE c.owner = s.owner AND c.parent_run = ?4 AND c.is_joined AND c.{OPEN}
        AND c.mode = 'async_callback' AND c.id <> ALL(?3::text[])
)
"""


def _view_sql(items: str, settled: str = "") -> str:
    """One statement, so that all of it is of one instant."""
    return f"""
    SELECT s.revision, {HEAD_OF_S},
        CASE WHEN s.pending_approvals > 0 THEN (
            SELECT json_agg(json_build_array(body, id) ORDER BY n) FROM moor.approvals
            WHERE {_OURS} AND state = 'pending'
        ) END,
        CASE WHEN {_BUSY} THEN (
            SELECT json_agg(json_build_array(body, id) ORDER BY n) FROM moor.runs WHERE {_OURS} AND {OPEN}
        ) END,
        CASE WHEN {_BUSY} THEN (
            SELECT json_agg(json_build_array(body, id)) FROM moor.turns WHERE {_OURS} AND {OPEN}
        ) END,
        CASE WHEN {_BUSY} THEN (SELECT json_agg(row ORDER BY n) FROM ({items}) i) END,
        CASE WHEN {_BUSY} THEN (
            SELECT json_agg(json_build_array(mine.id, below.children, below.joined)) FROM moor.runs mine
            CROSS JOIN LATERAL (
                SELECT count(*) AS children, count(*) FILTER (WHERE c.is_joined) AS joined FROM moor.runs c
                WHERE c.owner = s.owner AND c.parent_run = mine.id AND c.{OPEN} AND c.mode = 'async_callback' {settled}
            ) below
            WHERE mine.owner = s.owner AND mine.session = s.pk AND mine.{OPEN} AND below.children > 0
        ) END
    """


_FROM = "FROM moor.sessions s WHERE s.owner = ?1 AND s.id = ?2"
_VIEW = f"{_view_sql(_ITEMS)} {_FROM}"
WHOLE_VIEW = _view_sql(_WHOLE_ITEMS)
_OVER = f"(SELECT json_build_array(body, id) FROM moor.runs WHERE owner = s.owner AND id = ?4 AND NOT {OPEN})"
_PARENT_VIEW = f"{_view_sql(_TO_DELIVER, 'AND c.id <> ALL(?3::text[])')}, {_OVER} {_FROM}"
_decode = msgspec.json.Decoder(list[Any]).decode


async def load_view(db: Connection, owner: str, ref: str) -> Seen:
    """A session with what is going on in it."""
    if db.is_locking:  # first the lock, then the look: what was read before the lock was had may be old
        ref = (await heads.load(db, owner, ref)).session.session_id
    row = await db.one(_VIEW, (owner, ref)) if lookup.may_be_ref(ref) else None
    if row is None:
        row = await db.one(_VIEW, (owner, (await lookup.key_of(db, owner, ref)).session_id))
        if row is None:
            raise Stale(ref)
    return seen_of(db, row)


def seen_of(db: Connection, row: Row) -> Seen:
    """A session from the columns of a view; SessionCorrupt if they make none."""
    *head, pending, runs, turns, items, children = row
    session = session_of(tuple(head[1:]), db.opener)
    session_id = session.session_id
    work = Work()
    if runs or turns or items:
        work = _work(db, session_id, *(_decode(each) if each else [] for each in (runs, turns, items, children)))
    found = tuple(_pending(db, session_id, each) for each in _decode(pending)) if pending else ()
    return Seen(head[-1], head[0], View(session, found, work=work))


def _pending(db: Connection, session_id: str, row: Row) -> Approval:
    try:
        return approval_of(row, db.opener)
    except ValueError as error:
        raise SessionCorrupt(session_id, f"approval {row[1]}: {error}") from error


def _work(
    db: Connection, session_id: str, runs: list[Row], turns: list[Row], items: list[Row], children: list[Row]
) -> Work:
    live = {(turn := turn_of(db, (*row, session_id))).state: turn for row in turns}
    return Work(
        runs=tuple(run_of(db, (*row, session_id)) for row in runs),
        queued=live.get(TurnState.QUEUED),
        running=live.get(TurnState.RUNNING),
        items=tuple(item_of(db, row, session_id) for row in items),
        children={run_id: count for run_id, count, _ in children},
        joined={run_id: joined for run_id, _, joined in children if joined},
    )


_ASKER = f"""
SELECT s.pk, s.revision, s.id, (SELECT json_build_array(body, id) FROM moor.runs r WHERE r.owner = ?1 AND r.id = ?2),
    (SELECT json_build_array(body, id) FROM moor.turns WHERE {_OURS} AND state = 'running')
FROM moor.sessions s WHERE s.owner = ?1 AND s.pk = coalesce(
    (SELECT session FROM moor.runs r WHERE r.owner = ?1 AND r.id = ?2),
    (SELECT pk FROM moor.sessions named WHERE named.owner = ?1 AND named.id = ?3), ?4::bigint
)
"""


async def asker_of(db: Connection, owner: str, asker: Asker, pk: int | None) -> tuple[AskerView, Guard | None]:
    """Who asks for something new, and what must not change before that is committed.

    `pk` is the session whose turn it is if nothing else is named.
    """
    names = [
        name if name is not None and lookup.may_be_ref(name) else None for name in (asker.run_id, asker.session_id)
    ]
    row = await db.one(_ASKER, (owner, *names, pk))
    if row is not None and db.is_locking:  # first the lock, then the look
        await db.all("SELECT FROM moor.sessions WHERE owner = ? AND pk = ? FOR SHARE", (owner, row[0]))
        row = await db.one(_ASKER, (owner, *names, pk))
    if row is None:
        return AskerView(), None
    key, revision, session_id, run, turn = row
    return AskerView(
        None if run is None else run_of(db, (*_decode(run), session_id)),
        None if turn is None else turn_of(db, (*_decode(turn), session_id)),
    ), (key, revision)


# Writing ----------------------------------------------------------------------------------------


async def save(db: Connection, owner: str, seen: Seen, change: Change, guard: Guard | None = None) -> Change:
    """Write a whole change; the change with what became of its callbacks."""
    if change.callbacks:
        return await _save_with_callbacks(db, owner, seen, change)
    if change != Change(session=seen.view.session):
        guard = None if guard is not None and guard[0] == seen.pk else guard  # its own revision is compared in any case
        await writes.commit(db, owner, [_written(db, seen, change)], change.once, guard=guard)
    return change


def _written(db: Connection, seen: Seen, change: Change) -> Written:
    return writes.changed(db, seen.pk, seen.revision, seen.view, change)


def written(db: Connection, view: View, change: Change) -> dict[str, list[dict[str, Any]]]:
    """The runs, turns and items of a change. What the decision has seen is known, everything else is new."""
    known_runs = {run.run_id for run in view.work.runs}
    known_turns = {turn.turn_id for turn in (view.work.queued, view.work.running, view.turn) if turn is not None}
    seen_items = (*view.work.items, *view.dead_letters, *([] if view.item is None else [view.item]))
    known_items = {item.item_id for item in seen_items}
    parts = {
        "runs": [_run(db, run, run.run_id in known_runs) for run in change.runs],
        "turns": [_turn(db, turn, turn.turn_id in known_turns) for turn in change.turns],
        "items": [_item(db, item, item.item_id in known_items) for item in change.items],
    }
    return {name: rows for name, rows in parts.items() if rows}


def _run(db: Connection, run: Run, known: bool) -> dict[str, Any]:
    untaken = run.state is RunState.QUEUED and not run.turns
    return {
        "known": known, "id": run.run_id, "agent": run.agent_name, "state": run.state.value, "mode": run.mode.value,
        "is_joined": run.join is Join.ALL, "parent": run.parent_session_id, "parent_run": run.parent_run_id,
        "key": run.idempotency_key, "expires_at": micros_or_none(run.expires_at) if untaken else None,
        "body": kept(db.sealer, json_text(run), "run", run.run_id),
    }  # fmt: skip


def _turn(db: Connection, turn: Turn, known: bool) -> dict[str, Any]:
    return {
        "known": known, "id": turn.turn_id, "agent": turn.agent_name, "state": turn.state.value,
        "launcher": turn.launcher_id, "not_before": micros_or_none(turn.not_before), "due_at": due_at(turn),
        "body": kept(db.sealer, json_text(turn), "turn", turn.turn_id),
    }  # fmt: skip


def _item(db: Connection, item: Item, known: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "known": known, "id": item.item_id, "state": item.state.value, "given": item.given, "turn": item.turn_id,
        "run": item.run_id,
    }  # fmt: skip
    if known:
        return row
    return row | {
        "kind": item.kind.value, "entry": item.entry, "is_joined": item.join is Join.ALL,
        "created_at": micros(item.created_at),
        "body": kept(db.sealer, json_text(item.body), "item", f"{item.session_id} {item.item_id}"),
    }  # fmt: skip


# Callbacks --------------------------------------------------------------------------------------


async def _save_with_callbacks(db: Connection, owner: str, seen: Seen, change: Change) -> Change:
    settled = [callback.child_run_id for callback in change.callbacks]
    looked = [(callback, *await _fate(db, owner, callback, settled)) for callback in change.callbacks]
    fates = {callback.child_run_id: fate for callback, fate, _ in looked}
    change = replace(
        change, runs=tuple(replace(run, callback=fates.get(run.run_id, run.callback)) for run in change.runs)
    )
    parents = [(callback, parent) for callback, _, parent in looked if parent is not None]
    if len({seen.pk, *(parent.pk for _, parent in parents)}) == 1 + len(parents):
        delivered = [_written(db, parent, _delivery(parent, callback)) for callback, parent in parents]
        await writes.commit(db, owner, [_written(db, seen, change), *delivered], change.once)
        return change
    if not db.is_locking:  # one hears of several, or of itself: each time as it is then, within a transaction
        raise Stale("several callbacks to one parent")
    await writes.commit(db, owner, [_written(db, seen, change)], change.once)
    for callback, _ in parents:
        await _deliver(db, owner, callback)
    return change


async def _fate(db: Connection, owner: str, callback: Callback, settled: list[str]) -> tuple[str, Seen | None]:
    """What becomes of a callback, and the parent that hears of it. A damaged one keeps no child from ending."""
    try:
        parent = await _parent(db, owner, callback, settled)
    except SessionCorrupt:
        return PARENT_CORRUPT, None
    fate = fate_with(None if parent is None else parent.view.session)
    return fate, parent if fate == DELIVERED else None


async def _parent(db: Connection, owner: str, callback: Callback, settled: list[str]) -> Seen | None:
    """A parent without most of its inbox: a thousand children that end together must not read each other's results."""
    parent_id = callback.parent_session_id
    if db.is_locking and await heads.by_id(db, owner, parent_id) is None:
        return None
    row = await db.one(_PARENT_VIEW, (owner, parent_id, settled, callback.run_id))
    if row is None:
        return None
    seen, over = seen_of(db, row[:-1]), row[-1]
    return seen if over is None else seen._replace(view=replace(seen.view, run=run_of(db, (*_decode(over), parent_id))))


def _delivery(parent: Seen, callback: Callback) -> Change:
    """Into the parent's inbox, as the parent is now: the child's run counts as settled already."""
    change = deliver(parent.view, callback, callback.stamp)
    assert not change.callbacks, "a callback settles no run"
    return change


async def _deliver(db: Connection, owner: str, callback: Callback) -> None:
    parent = await _parent(db, owner, callback, [])
    assert parent is not None
    await save(db, owner, parent, _delivery(parent, callback))


_CALLING = f"""
SELECT r.body, r.id, s.id FROM unnest(?2::bigint[]) WITH ORDINALITY doomed (pk, place)
JOIN moor.runs r ON r.owner = ?1 AND r.session = doomed.pk
JOIN moor.sessions s ON s.owner = r.owner AND s.pk = r.session
WHERE r.{OPEN} AND r.mode = 'async_callback' AND r.parent IS NOT NULL ORDER BY doomed.place, r.n
"""
_IDS = "SELECT id FROM moor.sessions WHERE owner = ? AND pk = ANY(?::bigint[])"


async def call_back_for(db: Connection, owner: str, pks: list[int], stamp: Stamp) -> None:
    """Tell parents outside a tree that is about to be deleted what became of what they had asked for."""
    rows = await db.all(_CALLING, (owner, pks))
    if not rows:
        return
    ids = {row[0] for row in await db.all(_IDS, (owner, pks))}
    for callback in callbacks_of_deleted([run_of(db, row) for row in rows], ids, stamp):
        sql = "UPDATE moor.runs SET state = 'stopped' WHERE owner = ? AND id = ?"  # so it is no longer on its way
        await db.run(sql, (owner, callback.child_run_id))
        fate, parent = await _fate(db, owner, callback, [])
        if parent is not None and fate == DELIVERED:
            await save(db, owner, parent, _delivery(parent, callback))


# Looking after it -------------------------------------------------------------------------------


async def unreadable(db: Connection) -> list[str]:
    """Which runs, turns and items do not read back whole, in words."""
    problems = []
    for table, columns, read in _READERS:
        sql = f"SELECT t.n, t.state, {columns}, s.id FROM moor.{table} t JOIN moor.sessions s USING (owner)"
        for row in await db.all(f"{sql} WHERE s.pk = t.session ORDER BY t.n"):
            try:
                value = read(db, row[2:])
                if value.state.value != row[1] and row[2].startswith(SEALED):  # of plain ones a statement can say so
                    problems.append(f"row {row[0]} of {table} is {row[1]} in a list, and says otherwise itself")
            except MoorageError as error:
                problems.append(f"row {row[0]} of {table}: {error.message}")
    return problems


def _read_item(db: Connection, row: Row) -> Item:
    return item_of(db, row[:-1], row[-1])


_READERS: tuple[tuple[str, str, Callable[[Connection, Row], Run | Turn | Item]], ...] = (
    ("runs", "t.body, t.id", run_of),
    ("turns", "t.body, t.id", turn_of),
    ("inbox", ", ".join(f"t.{column}" for column in [*ITEM.split(", "), "body"]), _read_item),
)
