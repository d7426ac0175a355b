"""Lists of runs and of what waits. For each state asked for they walk an index that ends in the order of creation."""

from __future__ import annotations

from typing import Any

from moorage.core.errors import ItemNotFound, RunNotFound, SessionCorrupt
from moorage.core.inbox import Item, ItemState, inbox_fingerprint
from moorage.core.query import MAX_POSITION, Page, make_cursor, read_cursor
from moorage.core.run import SETTLED, Run, RunQuery, RunState
from moorage.stores.rows import Row
from moorage.stores.sqlite import heads
from moorage.stores.sqlite.connection import Connection
from moorage.stores.work_rows import ITEM, item_of, run_of

_ONE = "SELECT r.body, r.id, s.id FROM runs r CROSS JOIN sessions s ON s.pk = r.session WHERE r.owner = ?"


def run(db: Connection, owner: str, run_id: str) -> Run:
    """One run by its id."""
    row = db.one(f"{_ONE} AND r.id = ?", (owner, run_id)) if heads.may_be_ref(run_id) else None
    if row is None:
        raise RunNotFound(run_id)
    return run_of(db, row)


def run_by_key(db: Connection, owner: str, key: str) -> Run | None:
    """The run that was asked for with an idempotency key."""
    row = db.one(f"{_ONE} AND r.key = ?", (owner, key))
    return None if row is None else run_of(db, row)


def runs(db: Connection, owner: str, query: RunQuery) -> Page[Run]:
    """One page of runs, newest first."""
    mark = query.fingerprint()
    below = MAX_POSITION if query.cursor is None else read_cursor(query.cursor, mark)
    rows = _runs(db, owner, query, below)
    page = rows[: query.limit]
    found = [run for row in page if (run := _run_or_none(db, row)) is not None]
    return Page(found, make_cursor(page[-1][-1], mark) if len(rows) > query.limit else None)


def _run_or_none(db: Connection, row: Row) -> Run | None:
    """One that does not read back whole must not hide the others; `check` names it."""
    try:
        return run_of(db, (*row[:2], ""))
    except SessionCorrupt:
        return None


def _runs(db: Connection, owner: str, query: RunQuery, below: int) -> list[Row]:
    states = [
        f"state = '{state}'"
        for state in RunState
        if query.state in (None, state.value) and not (query.open_only and state in SETTLED)
    ]
    filters: dict[str, Any] = {"n < ?": below}
    if query.agent is not None:
        filters["agent = ?"] = query.agent
    if query.parent_session_id is not None:
        filters["parent = ?"] = query.parent_session_id
    if query.session_id is not None:
        index, filters["session = ?"] = "runs_by_session", _key(db, owner, query.session_id)
    else:
        index, filters["owner = ?"] = "runs_by_state", owner
        if by_other := _index_without_states(query):
            index, states = by_other, [f"({' OR '.join(states)})"] if states else []
    return _walked(db, f"SELECT body, id, n FROM runs INDEXED BY {index}", filters, states, "DESC", query.limit + 1)


def _index_without_states(query: RunQuery) -> str | None:
    """An index that finds fewer than that of the owner's runs by state does."""
    if query.parent_session_id is not None:
        return "runs_by_parent"
    is_open = query.open_only or query.state in (RunState.QUEUED, RunState.RUNNING)  # those are few, whoever's they are
    return None if query.agent is None or is_open else "runs_by_agent"


def _key(db: Connection, owner: str, session_id: str) -> int:
    row = db.one("SELECT pk FROM sessions WHERE owner = ? AND id = ?", (owner, session_id))
    return row[0] if row else -1


def _walked(
    db: Connection, select: str, filters: dict[str, Any], states: list[str], order: str, limit: int
) -> list[Row]:
    """What fits the filters and one of the states: a short walk for each of those, put together."""
    if not states:
        return []
    ending = f"ORDER BY n {order} LIMIT {limit}"
    walks = [f"SELECT * FROM ({select} WHERE {' AND '.join([*filters, state])} {ending})" for state in states]
    return db.all(f"{' UNION ALL '.join(walks)} {ending}", [*filters.values()] * len(walks))


# The inbox --------------------------------------------------------------------------------------


def inbox(
    db: Connection, owner: str, ref: str | None, states: tuple[str, ...], limit: int, cursor: str | None
) -> Page[Item]:
    """Items in these states, oldest first."""
    pk, session_id = (None, None) if ref is None else heads.key_of(db, owner, ref)[:2]
    mark = inbox_fingerprint(session_id, states)
    above = 0 if cursor is None else read_cursor(cursor, mark)
    filters = {"n > ?": above, **({"owner = ?": owner} if pk is None else {"session = ?": pk})}
    rows = _walked(db, f"SELECT {ITEM}, body, session, n FROM inbox", filters, _conditions(states), "ASC", limit + 1)
    items = [
        item
        for row in rows[:limit]
        if (item := _item_or_none(db, row, session_id or heads.id_of(db, row[10]))) is not None
    ]
    return Page(items, make_cursor(rows[limit - 1][-1], mark) if len(rows) > limit else None)


# Along what is not consumed: little of all that ever was in an inbox.
_ITEM_BY_ID = f"""
SELECT {ITEM}, body, session FROM inbox INDEXED BY inbox_by_state WHERE owner = ? AND state <> 'consumed' AND id = ?
"""


def item(db: Connection, owner: str, item_id: str) -> Item:
    """One item that is not consumed, by its id."""
    row = db.one(_ITEM_BY_ID, (owner, item_id)) if heads.may_be_ref(item_id) else None
    if row is None:
        raise ItemNotFound(item_id)
    return item_of(db, row[:10], heads.id_of(db, row[10]))


def _conditions(states: tuple[str, ...]) -> list[str]:
    """One for each state. SQLite uses the index of those not consumed only if it is told so in the same words."""
    known = [state for state in ItemState if state.value in states]
    plain = "state = 'consumed'"
    return [plain if state is ItemState.CONSUMED else f"state = '{state}' AND state <> 'consumed'" for state in known]


def _item_or_none(db: Connection, row: Row, session_id: str) -> Item | None:
    try:
        return item_of(db, row[:10], session_id)
    except SessionCorrupt:
        return None
