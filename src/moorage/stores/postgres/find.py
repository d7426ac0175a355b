"""Lists: filters to SQL. Lists walk in the order of keys, newest or oldest first; which index that is, the planner
knows: the partial ones are told by conditions in the same words.

In the order of their newest entries no index has them: then hardly a change of a head could stay beside the one before
it. The feed has that order. It is walked, and a row of it counts if nothing has come to its session since."""

from __future__ import annotations

from typing import Any

from moorage.core.query import MAX_POSITION, Page, SessionQuery
from moorage.core.session import Session, State
from moorage.stores.postgres.connection import Connection
from moorage.stores.rows import json_text, micros
from moorage.stores.session_rows import TIMES, sessions_of, states_of, status_conditions
from moorage.stores.sql.lookup import HEAD, HEAD_OF_S

# Where the few sessions of a status are found. An index of heads would tell who is queued and who runs, and cost every
# turn a dozen index entries, twice: there are few such turns.
_PLACES = {
    "waiting": """
        SELECT pk FROM moor.sessions WHERE owner = ? AND pending_approvals > 0 UNION
        SELECT s.pk FROM moor.runs r JOIN moor.sessions s ON s.owner = r.owner AND s.id = r.parent
        WHERE r.owner = ? AND r.state IN ('queued', 'running') AND r.mode = 'async_callback'
    """,
    "running": "SELECT session FROM moor.turns t WHERE t.owner = ? AND t.state = 'running'",
    "queued": "SELECT session FROM moor.turns t WHERE t.owner = ? AND t.state = 'queued'",
}
_STATUS = {
    status: f"{condition} AND pk = ANY(ARRAY({_PLACES[status]}))" if status in _PLACES else condition
    for status, condition in status_conditions("moor.").items()
}
_EQUAL = ("project_dir", "agent", "task", "phase", "interface")


WALK = 20_000  # rows of the feed that a page may cost: one with few sessions, or none, may have others behind it


async def find(db: Connection, owner: str, query: SessionQuery) -> Page[Session]:
    """One page of sessions."""
    where = _Where(owner, query)
    await _add_family(db, owner, query, where)
    if query.by_update:
        return await _find_by_update(db, owner, query, where)
    order = f"ORDER BY pk {'DESC' if query.newest_first else 'ASC'} LIMIT {query.limit + 1}"
    sql = f"SELECT {HEAD} FROM moor.sessions WHERE {' AND '.join(where.conditions)} {order}"
    rows = await db.all(sql, where.values)
    more = len(rows) > query.limit
    return Page(
        sessions_of(rows[: query.limit], db.opener), query.cursor_at(rows[query.limit - 1][-1]) if more else None
    )


# A look for each row of the feed, in its order, until the page is full: no plan that reads all first is a good one.
_BY_UPDATE = """
SELECT {head}, place FROM (
    SELECT id AS place, subject, last FROM moor.feed WHERE owner = ? AND id > ? AND id < ? ORDER BY id {order}
    LIMIT {walk}
) f CROSS JOIN LATERAL (
    SELECT * FROM moor.sessions WHERE {conditions} AND pk = subject AND last_entry = last OFFSET 0
) s ORDER BY place {order} LIMIT {limit}
"""
_WALKED = "SELECT id FROM moor.feed WHERE owner = ? AND id > ? AND id < ? ORDER BY id {order} LIMIT 1 OFFSET {last}"


async def _find_by_update(db: Connection, owner: str, query: SessionQuery, where: _Where) -> Page[Session]:
    """One page along the feed; where the walk has ended before the page was full, its cursor is there."""
    order, position = "DESC" if query.newest_first else "ASC", query.position()
    after = position if position is not None and not query.newest_first else 0
    before = position if position is not None and query.newest_first else MAX_POSITION
    conditions = " AND ".join(where.conditions)
    sql = _BY_UPDATE.format(head=HEAD_OF_S, order=order, walk=WALK, conditions=conditions, limit=query.limit + 1)
    rows = await db.all(sql, (owner, after, before, *where.values))
    is_full = len(rows) > query.limit
    walked = None if is_full else await db.one(_WALKED.format(order=order, last=WALK - 1), (owner, after, before))
    end = rows[query.limit - 1] if is_full else walked
    heads = [row[:-1] for row in rows[: query.limit]]
    return Page(sessions_of(heads, db.opener), None if end is None else query.cursor_at(end[-1]))


class _Where:
    """Conditions with their values."""

    def __init__(self, owner: str, query: SessionQuery) -> None:
        self.conditions: list[str] = ["owner = ?"]
        self.values: list[Any] = [owner]
        if (position := query.position()) is not None and not query.by_update:
            self.add("pk < ?" if query.newest_first else "pk > ?", position)
        for name in _EQUAL:
            if (value := getattr(query, name)) is not None:
                self.add(f"{name} = ?", value)
        for name, condition in TIMES:
            if (at := getattr(query, name)) is not None:
                self.add(condition, micros(at))
        self._add_states(query)
        self._add_rest(query)

    def add(self, condition: str, *values: Any) -> None:
        self.conditions.append(condition)
        self.values.extend(values)

    def _add_states(self, query: SessionQuery) -> None:
        states = states_of(query)
        if len(states) == 1:
            self.add(f"state = '{states[0]}'")
        elif len(states) < len(State):
            self.add(f"state IN ({', '.join(repr(state) for state in states)})" if states else "false")
        if query.status is not None:
            self._add_status(query.status)

    def _add_status(self, status: str) -> None:
        if (known := _STATUS.get(status)) is None:
            self.add("state = ?", status)
        else:
            self.add(known, *self.values[:1] * known.count("?"))  # the owner

    def _add_rest(self, query: SessionQuery) -> None:
        if query.resume_ready is not None:
            self.add("resume_ready" if query.resume_ready else "NOT resume_ready")
        if query.name_prefix:
            self.add("name >= ? AND name < ?", query.name_prefix, query.name_prefix + "\x7f")
        if query.metadata_key is not None and query.metadata_value is None:
            self.add("metadata::json -> ? IS NOT NULL", query.metadata_key)
        elif query.metadata_key is not None:
            self.add("(metadata::json -> ?)::text = ?", query.metadata_key, json_text(query.metadata_value))


_OF_ROOT = "(root = ? OR pk = ? AND root IS NULL)"


async def _add_family(db: Connection, owner: str, query: SessionQuery, where: _Where) -> None:
    for name, condition in (("parent", "parent = ?"), ("root", _OF_ROOT)):
        if (session_id := getattr(query, name)) is None:
            continue
        row = await db.one("SELECT pk FROM moor.sessions WHERE owner = ? AND id = ?", (owner, session_id))
        pk = row[0] if row else -1
        where.add(condition, *[pk] * condition.count("?"))
