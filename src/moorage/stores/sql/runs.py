"""Lists of runs and inbox items. For each requested state they walk an index that ends in the order of creation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from moorage.core.errors import ItemNotFound, RunNotFound, SessionCorrupt
from moorage.core.inbox import Item, ItemState, inbox_fingerprint
from moorage.core.query import MAX_POSITION, Page, make_cursor, read_cursor
from moorage.core.run import SETTLED, Run, RunQuery, RunState
from moorage.stores.rows import ITEM, Row
from moorage.stores.sql.db import Db, T
from moorage.stores.sql.lookup import OF_SESSION, existing, key_of, pk_of
from moorage.stores.work_rows import item_of, run_of

_ONE = f"SELECT t.body, t.id, s.id FROM moor.runs t {OF_SESSION} WHERE t.owner = ?"


async def run(db: Db, owner: str, run_id: str) -> Run:
    """Return one run by its id."""
    return run_of(db, await existing(db, f"{_ONE} AND t.id = ?", (owner, run_id), RunNotFound))


async def run_by_key(db: Db, owner: str, key: str) -> Run | None:
    """Return the run that was requested with an idempotency key."""
    row = await db.one(f"{_ONE} AND t.key = ?", (owner, key))
    return None if row is None else run_of(db, row)


async def runs(db: Db, owner: str, query: RunQuery) -> Page[Run]:
    """Return one page of runs, newest first."""
    mark = query.fingerprint()
    below = MAX_POSITION if query.cursor is None else read_cursor(query.cursor, mark)
    rows = await _runs(db, owner, query, below)
    page = rows[: query.limit]
    found = _whole(page, lambda row: run_of(db, (*row[:2], "")))
    return Page(found, make_cursor(page[-1][-1], mark) if len(rows) > query.limit else None)


def _whole(rows: list[Row], read: Callable[[Row], T]) -> list[T]:
    """Return the values that can be read. A damaged one must not hide the others; `check` names it."""
    found = []
    for row in rows:
        with suppress(SessionCorrupt):
            found.append(read(row))
    return found


async def _runs(db: Db, owner: str, query: RunQuery, below: int) -> list[Row]:
    states = [
        f"state = '{state}'"
        for state in RunState
        if query.state in (None, state.value) and not (query.open_only and state in SETTLED)
    ]
    filters: dict[str, Any] = {"owner = ?": owner, "n < ?": below}
    if query.agent is not None:
        filters["agent = ?"] = query.agent
    if query.parent_session_id is not None:
        filters["parent = ?"] = query.parent_session_id
    index = "runs_by_state"
    if query.session_id is not None:
        index, filters["session = ?"] = "runs_by_session", await pk_of(db, owner, query.session_id)
    elif by_other := _index_without_states(query):
        index, states = by_other, [f"({' OR '.join(states)})"] if states else []
    select = f"SELECT body, id, n FROM moor.runs INDEXED BY {index}"
    return await _walked(db, select, filters, states, "DESC", query.limit + 1)


def _index_without_states(query: RunQuery) -> str | None:
    """Return an index that is more selective than that of the owner's runs by state."""
    if query.parent_session_id is not None:
        return "runs_by_parent"
    is_open = query.open_only or query.state in (RunState.QUEUED, RunState.RUNNING)  # few, even of all owners together
    return None if query.agent is None or is_open else "runs_by_agent"


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
    """Return items in these states, oldest first."""
    key = None if ref is None else await key_of(db, owner, ref)
    mark = inbox_fingerprint(None if key is None else key.session_id, states)
    above = 0 if cursor is None else read_cursor(cursor, mark)
    filters: dict[str, Any] = {"n > ?": above, **({} if key is None else {"session = ?": key.pk})}
    if key is None or db.is_postgres:  # SQLite might walk the index of an owner's items instead of the one by session
        filters["owner = ?"] = owner
    conditions = _conditions(states, _OPEN_ANYWHERE if key is None else _OPEN)
    rows = await _walked(db, _WITH_IDS, filters, conditions, "ASC", limit + 1)
    items = _whole(rows[:limit], lambda row: item_of(db, row[:10], row[10]))
    return Page(items, make_cursor(rows[limit - 1][-1], mark) if len(rows) > limit else None)


def _conditions(states: tuple[str, ...], is_open: str) -> list[str]:
    known = [state for state in ItemState if state.value in states]
    return [f"state = '{state}'" + ("" if state is ItemState.CONSUMED else f" AND {is_open}") for state in known]


async def item(db: Db, owner: str, item_id: str) -> Item:
    """Return one item that is not consumed, by its id."""
    sql = f"{_WITH_IDS} INDEXED BY inbox_by_state WHERE owner = ? AND {_OPEN_ANYWHERE} AND id = ? LIMIT 1"
    row = await existing(db, sql, (owner, item_id), ItemNotFound)
    return item_of(db, row[:10], row[10])
