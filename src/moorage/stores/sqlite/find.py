"""Lists: filters to SQL. Every list walks an index that ends in the creation key, newest or oldest first.

Without a filter that has an index of its own, the lists of all states are merged: six short
walks cost less than one more index that every creation would have to write. Only where few
sessions were created in the time asked for, those are looked at instead, and sorted.

In the order of their newest entries no index has them: every append would have to move its session in it. The
feed has that order already. It is walked, and a row of it counts if nothing has come to its session since.
"""

from __future__ import annotations

from typing import Any

from moorage.core.query import Page, SessionQuery
from moorage.core.session import Session, State
from moorage.stores.rows import json_text, micros
from moorage.stores.session_rows import HEAD_WITH_PK, TIMES, sessions_of, states_of, status_conditions
from moorage.stores.sqlite.connection import Connection
from moorage.stores.sqlite.cursors import feed_base, feed_end_id

# (filter, column, index), the most selective first
_INDEXES = (
    ("project_dir", "project_dir", "sessions_by_project"),
    ("agent", "agent", "sessions_by_agent"),
)
_STATUS = status_conditions(yes=" = 1")
_STATUS_INDEXES = {"running": "sessions_running", "queued": "sessions_queued", "run_failed": "sessions_run_failed"}
# Two indexes know who waits: for an approval, and for a child.
_WAITING = """pk IN (
    SELECT pk FROM sessions INDEXED BY sessions_waiting WHERE owner = ? AND pending_approvals > 0 UNION
    SELECT s.pk FROM runs r INDEXED BY runs_calling_back CROSS JOIN sessions s ON s.owner = r.owner AND s.id = r.parent
    WHERE r.owner = ? AND r.state IN ('queued', 'running') AND r.mode = 'async_callback'
)"""
BY_KEY = ""  # no index: a condition names the keys
NARROW = 2000  # sessions of a time that are sorted rather than walked past
WALK = 20_000  # rows of the feed that a page may cost: one with few sessions, or none, may have others behind it


def find(db: Connection, owner: str, query: SessionQuery) -> Page[Session]:
    """One page of sessions."""
    where = _Where(query)
    _add_family(db, owner, query, where)
    if query.status == "waiting":
        where.add(_WAITING, owner, owner)
        where.index = where.index or BY_KEY
    if query.by_update:
        return _find_by_update(db, owner, query, where)
    if where.index is None and query.task is None and _is_narrow(db, owner, query):
        where.index = "sessions_by_time"
    rows = db.all(*_statement(owner, query, where))
    more = len(rows) > query.limit
    return Page(
        sessions_of(rows[: query.limit], db.opener), query.cursor_at(rows[query.limit - 1][-1]) if more else None
    )


# Whatever else is said of the sessions comes after `last = last_entry`: whether this row is their newest.
_BY_UPDATE = """
SELECT {head}, place FROM (
    SELECT id AS place, subject, last FROM feed WHERE id > ? AND id < ? ORDER BY id {order} LIMIT {walk}
) CROSS JOIN sessions ON pk = subject
WHERE last = last_entry AND {conditions} ORDER BY place {order} LIMIT {limit}
"""
_WALKED = "SELECT id FROM feed WHERE id > ? AND id < ? ORDER BY id {order} LIMIT 1 OFFSET {last}"


def _find_by_update(db: Connection, owner: str, query: SessionQuery, where: _Where) -> Page[Session]:
    """One page along the feed; where the walk has ended before the page was full, its cursor is there."""
    if (number := db.owner_no(owner)) is None:
        return Page([])
    order, base = "DESC" if query.newest_first else "ASC", feed_base(number)
    after, before = _between(query, base, feed_end_id(number))
    where.add_states(states_of(query))
    if query.task is not None:
        where.add("task = ?", query.task)
    conditions = " AND ".join(["owner = ?", *where.conditions])
    sql = _BY_UPDATE.format(head=HEAD_WITH_PK, order=order, walk=WALK, conditions=conditions, limit=query.limit + 1)
    rows = db.all(sql, (after, before, owner, *where.values))
    is_full = len(rows) > query.limit
    walked = None if is_full else db.one(_WALKED.format(order=order, last=WALK - 1), (after, before))
    end = rows[query.limit - 1] if is_full else walked
    heads = [row[:-1] for row in rows[: query.limit]]
    return Page(sessions_of(heads, db.opener), None if end is None else query.cursor_at(end[-1] - base))


def _between(query: SessionQuery, base: int, end: int) -> tuple[int, int]:
    """The part of the feed that is still to be walked: ids after the first and before the second."""
    if (position := query.position()) is None:
        return base, end
    return (base, base + position) if query.newest_first else (base + position, end)


class _Where:
    """Conditions with their values."""

    def __init__(self, query: SessionQuery) -> None:
        self.index: str | None = None
        self.is_family = False
        self.conditions: list[str] = []
        self.values: list[Any] = []
        for name, column, index in _INDEXES:
            if (value := getattr(query, name)) is not None:
                self.add(f"{column} = ?", value)
                self.index = self.index or index
        self._add_plain(query)

    def add(self, condition: str, *values: Any) -> None:
        self.conditions.append(condition)
        self.values.extend(values)

    def add_states(self, states: list[str]) -> None:
        """Only these; none at all, if there are none."""
        if len(states) < len(State):
            self.add(f"state IN ({', '.join(repr(state) for state in states)})" if states else "0")

    def _add_plain(self, query: SessionQuery) -> None:
        if (position := query.position()) is not None and not query.by_update:
            self.add("pk < ?" if query.newest_first else "pk > ?", position)
        if query.resume_ready is not None:
            self.add(f"resume_ready = {int(query.resume_ready)}")
            if query.resume_ready:  # those are few, and asked for before every delegation
                self.index = "sessions_ready_by_folder" if query.project_dir is not None else "sessions_ready"
        if query.status in _STATUS_INDEXES:
            self.index = self.index or _STATUS_INDEXES[query.status]
        if query.phase is not None:
            self.add("phase = ?", query.phase)
        if query.interface is not None:
            self.add("interface = ?", query.interface)
        if query.status is not None:
            self.add(_STATUS.get(query.status, f"state = '{query.status}'"))
        for name, condition in TIMES:
            if (at := getattr(query, name)) is not None:
                self.add(condition, micros(at))
        if query.name_prefix:
            self.add("name >= ? AND name < ?", query.name_prefix, query.name_prefix + "\x7f")
            self.index = self.index or "sessions_by_name"
        if query.metadata_key is not None:
            self._add_metadata(query)

    def _add_metadata(self, query: SessionQuery) -> None:
        path = f"$.{json_text(query.metadata_key)}"
        if query.metadata_value is None:
            self.add("json_type(metadata, ?) IS NOT NULL", path)
        else:
            self.add("metadata -> ? = json(?)", path, json_text(query.metadata_value))


_OF_ROOT = (
    "pk IN (SELECT pk FROM sessions WHERE root = ? UNION ALL SELECT pk FROM sessions WHERE pk = ? AND root IS NULL)"
)
_FAMILY = (("parent", "parent = ?", "sessions_by_parent"), ("root", _OF_ROOT, BY_KEY))


def _add_family(db: Connection, owner: str, query: SessionQuery, where: _Where) -> None:
    for name, condition, index in _FAMILY:
        if (session_id := getattr(query, name)) is None:
            continue
        row = db.one("SELECT pk FROM sessions WHERE owner = ? AND id = ?", (owner, session_id))
        where.add(condition, *[row[0] if row else -1] * condition.count("?"))
        where.is_family = True
        where.index = index  # a family is small: the other filters look at its members only


def _is_narrow(db: Connection, owner: str, query: SessionQuery) -> bool:
    """Whether a time of creation is asked for that few sessions have."""
    times = [(condition, at) for name, condition in TIMES[:2] if (at := getattr(query, name)) is not None]
    if not times:
        return False
    where = " AND ".join(["owner = ?", *(condition for condition, _ in times)])
    some = f"SELECT 1 FROM sessions INDEXED BY sessions_by_time WHERE {where} LIMIT {NARROW + 1}"
    row = db.one(f"SELECT count(*) FROM ({some})", (owner, *(micros(at) for _, at in times)))
    return row is not None and row[0] <= NARROW


def _statement(owner: str, query: SessionQuery, where: _Where) -> tuple[str, list[Any]]:
    order = f"ORDER BY pk {'DESC' if query.newest_first else 'ASC'} LIMIT {query.limit + 1}"
    states = states_of(query)
    if not states:
        return f"SELECT {HEAD_WITH_PK} FROM sessions WHERE 0", []
    if where.index is None and query.task is None:
        return _merged(owner, states, where, order)
    where.add_states(states)
    if query.task is not None and not where.is_family and not query.resume_ready:
        return _of_task(owner, query.task, where, order)
    if query.task is not None:
        where.add("task = ?", query.task)
        where.index = where.index if where.is_family else "sessions_ready_by_task"
    return _one(owner, where, f"INDEXED BY {where.index}" if where.index else "NOT INDEXED", order)


def _one(owner: str, where: _Where, index: str, order: str) -> tuple[str, list[Any]]:
    conditions = " AND ".join(["owner = ?", *where.conditions])
    return f"SELECT {HEAD_WITH_PK} FROM sessions {index} WHERE {conditions} {order}", [owner, *where.values]


_TASK_SOURCES = (
    "sessions_by_task WHERE owner = ? AND task = ? AND task <> id",
    "sessions_by_id WHERE owner = ? AND id = ? AND task = id",
)


def _of_task(owner: str, task: str, where: _Where, order: str) -> tuple[str, list[Any]]:
    """Sessions that were given this task, and the one it was made for."""
    parts = []
    for source in _TASK_SOURCES:
        conditions = " AND ".join([source, *where.conditions])
        parts.append(f"SELECT * FROM (SELECT {HEAD_WITH_PK} FROM sessions INDEXED BY {conditions} {order})")
    return f"{' UNION ALL '.join(parts)} {order}", [owner, task, *where.values] * 2


def _merged(owner: str, states: list[str], where: _Where, order: str) -> tuple[str, list[Any]]:
    parts, values = [], []
    for state in states:
        conditions = " AND ".join(["owner = ?", "state = ?", *where.conditions])
        table = "sessions INDEXED BY sessions_by_state"
        parts.append(f"SELECT * FROM (SELECT {HEAD_WITH_PK} FROM {table} WHERE {conditions} {order})")
        values += [owner, state, *where.values]
    return f"{' UNION ALL '.join(parts)} {order}", values
