"""Lists of runs and of what waits. For each state asked for they walk an index that ends in the order of creation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moorage.core.errors import ItemNotFound, RunNotFound, SessionCorrupt
from moorage.core.inbox import Item, ItemState, inbox_fingerprint
from moorage.core.query import MAX_POSITION, Page, make_cursor, read_cursor
from moorage.core.run import SETTLED, Run, RunQuery, RunState
from moorage.stores.postgres import heads
from moorage.stores.postgres.connection import Connection
from moorage.stores.rows import Row
from moorage.stores.work_rows import ITEM, item_of, run_of

_ONE = """
SELECT r.body, r.id, s.id FROM moor.runs r JOIN moor.sessions s ON s.owner = r.owner AND s.pk = r.session
WHERE r.owner = ?
"""


async def run(db: Connection, owner: str, run_id: str) -> Run:
    """One run by its id."""
    row = await db.one(f"{_ONE} AND r.id = ?", (owner, run_id)) if heads.may_be_ref(run_id) else None
    if row is None:
        raise RunNotFound(run_id)
    return run_of(db, row)


async def run_by_key(db: Connection, owner: str, key: str) -> Run | None:
    """The run that was asked for with an idempotency key."""
    row = await db.one(f"{_ONE} AND r.key = ?", (owner, key))
    return None if row is None else run_of(db, row)


async def runs(db: Connection, owner: str, query: RunQuery) -> Page[Run]:
    """One page of runs, newest first."""
    mark = query.fingerprint()
    below = MAX_POSITION if query.cursor is None else read_cursor(query.cursor, mark)
    rows = await _runs(db, owner, query, below)
    page = rows[: query.limit]
    found = [run for row in page if (run := _run_or_none(db, row)) is not None]
    return Page(found, make_cursor(page[-1][-1], mark) if len(rows) > query.limit else None)


def _run_or_none(db: Connection, row: Row) -> Run | None:
    """One that does not read back whole must not hide the others; `check` names it."""
    try:
        return run_of(db, (*row[:2], ""))
    except SessionCorrupt:
        return None


async def _runs(db: Connection, owner: str, query: RunQuery, below: int) -> list[Row]:
    states = [
        state.value
        for state in RunState
        if query.state in (None, state.value) and not (query.open_only and state in SETTLED)
    ]
    filters: dict[str, Any] = {"owner = ?": owner, "n < ?": below}
    if query.agent is not None:
        filters["agent = ?"] = query.agent
    if query.parent_session_id is not None:
        filters["parent = ?"] = query.parent_session_id
    if query.session_id is not None:
        filters["session = (SELECT pk FROM moor.sessions s WHERE s.owner = r.owner AND s.id = ?)"] = query.session_id
    return await _walked(db, "SELECT body, id, n FROM moor.runs r", filters, states, "DESC", query.limit + 1)


async def _walked(
    db: Connection, select: str, filters: dict[str, Any], states: list[str], order: str, limit: int
) -> list[Row]:
    """What fits the filters and one of the states."""
    if not states:
        return []
    where = [*filters, *([] if len(states) == len(RunState) else [_of_states(states)])]
    return await db.all(f"{select} WHERE {' AND '.join(where)} ORDER BY n {order} LIMIT {limit}", [*filters.values()])


def _of_states(states: Sequence[str]) -> str:
    return f"state = '{states[0]}'" if len(states) == 1 else f"state IN ({', '.join(map(repr, states))})"


# The inbox --------------------------------------------------------------------------------------


async def inbox(
    db: Connection, owner: str, ref: str | None, states: tuple[str, ...], limit: int, cursor: str | None
) -> Page[Item]:
    """Items in these states, oldest first."""
    key = None if ref is None else await heads.key_of(db, owner, ref)
    session_id = None if key is None else key.session_id
    mark = inbox_fingerprint(session_id, states)
    above = 0 if cursor is None else read_cursor(cursor, mark)
    filters = {"owner = ?": owner, "n > ?": above, **({} if key is None else {"session = ?": key.pk})}
    rows = await _items(db, filters, states, limit + 1)
    items = [item for row in rows[:limit] if (item := _item_or_none(db, row)) is not None]
    return Page(items, make_cursor(rows[limit - 1][-1], mark) if len(rows) > limit else None)


_WITH_IDS = f"""
SELECT {ITEM}, body, (SELECT s.id FROM moor.sessions s WHERE s.owner = i.owner AND s.pk = i.session), n
FROM moor.inbox i
"""


async def _items(db: Connection, filters: dict[str, Any], states: tuple[str, ...], limit: int) -> list[Row]:
    known = [state.value for state in ItemState if state.value in states]
    if not known:
        return []
    where = [*filters, _of_states(known)]
    if ItemState.CONSUMED.value not in known:  # in the words of the indexes: little of all that ever was in an inbox
        where.append("state <> 'consumed'" if "session = ?" in filters else "(state <> 'consumed') IS TRUE")
    return await db.all(f"{_WITH_IDS} WHERE {' AND '.join(where)} ORDER BY n LIMIT {limit}", [*filters.values()])


async def item(db: Connection, owner: str, item_id: str) -> Item:
    """One item that is not consumed, by its id."""
    sql = f"{_WITH_IDS} WHERE owner = ? AND (state <> 'consumed') IS TRUE AND id = ? LIMIT 1"
    row = await db.one(sql, (owner, item_id)) if heads.may_be_ref(item_id) else None
    if row is None:
        raise ItemNotFound(item_id)
    return item_of(db, row[:10], row[10])


def _item_or_none(db: Connection, row: Row) -> Item | None:
    try:
        return item_of(db, row[:10], row[10])
    except SessionCorrupt:
        return None
