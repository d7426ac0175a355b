"""Lists: filters to SQL. Lists walk in the order of keys, newest or oldest first.

PostgreSQL's planner chooses the index; conditions in the words of its partial indexes make it use those. For SQLite the
statement names the index. Without a filter that has its own index, it merges the lists of all states: six short walks
cost less than one more index that every creation would have to write. If few sessions were created in the requested
time, only those are read and sorted.

No index has the order of newest entries: every append would have to move its session in it. The feed has that order
already. It is walked, and a row counts if its session has no newer entry.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moorage.core.query import Page, SessionQuery
from moorage.core.session import Session, State
from moorage.stores.rows import json_text, micros
from moorage.stores.session_rows import TIMES, sessions_of, states_of, status_conditions
from moorage.stores.sql.db import FEED_ROOM, Db, Query
from moorage.stores.sql.lookup import HEAD, HEAD_OF_S, pk_of

NARROW = 2000  # sessions of a time span that are sorted; with more of them, the list is walked
WALK = 20_000  # rows of the feed read for one page; a page with few or no sessions may have others behind it

# Filters that compare the column of the same name, and an index of SQLite, the most selective first.
_EQUAL = {
    "project_dir": "INDEXED BY sessions_by_project",
    "agent": "INDEXED BY sessions_by_agent",
    "phase": None,
    "interface": None,
}
_BY_KEY = "NOT INDEXED"  # a condition names the keys
# By whether it is PostgreSQL: the form of a condition in partial indexes, and how a condition names keys.
_YES = {False: " = 1", True: ""}
_AMONG = {False: "pk IN ({})", True: "pk = ANY(ARRAY({}))"}
_STATUS = {is_postgres: status_conditions("moor.", yes) for is_postgres, yes in _YES.items()}
_STATUS_INDEXES = {
    "running": "INDEXED BY sessions_running",
    "queued": "INDEXED BY sessions_queued",
    "run_failed": "INDEXED BY sessions_run_failed",
}
_LABELLED = {
    False: "pk IN (SELECT session FROM moor.labels WHERE owner = ? AND label = ?)",
    True: "labels <> '[]' AND labels::jsonb @> ?::text::jsonb",
}
_WAITING = Query("waiting_sessions")  # waiting for an approval, or for a child
# On PostgreSQL an index on heads would cost every turn a dozen index entries, twice; few turns wait.
_OF_TURNS = "SELECT session FROM moor.turns t WHERE t.owner = ? AND t.state = '{}'"


async def find(db: Db, owner: str, queries: Iterable[SessionQuery]) -> list[Page[Session]]:
    return [await _find(db, owner, query) for query in queries]


async def _find(db: Db, owner: str, query: SessionQuery) -> Page[Session]:
    where = _Where(db, owner, query)
    await _add_family(db, owner, query, where)
    if query.by_update:
        return await _find_by_update(db, owner, query, where)
    if not db.is_postgres and where.index is None and query.task is None and await _is_narrow(db, owner, query):
        where.index = "INDEXED BY sessions_by_time"
    rows = await db.all(*_statement(db, query, where))
    cursor = query.cursor_at(rows[query.limit - 1][-1]) if len(rows) > query.limit else None
    return Page(sessions_of(rows[: query.limit], db.opener), cursor)


_BY_UPDATE = Query("sessions_by_update", head=HEAD, head_of_s=HEAD_OF_S)
_WALKED = {  # by whether it is PostgreSQL, whose owners have separate ids
    False: "SELECT id FROM moor.feed WHERE id > ?2 AND id < ?3 ORDER BY id {} LIMIT 1 OFFSET {}",
    True: "SELECT id FROM moor.feed WHERE owner = ?1 AND id > ?2 AND id < ?3 ORDER BY id {} LIMIT 1 OFFSET {}",
}


async def _find_by_update(db: Db, owner: str, query: SessionQuery, where: _Where) -> Page[Session]:
    """Return one page along the feed; if the walk ends before the page is full, the cursor is where it ended."""
    if (base := await db.feed_start(owner)) is None:
        return Page([])
    where.add_states(states_of(query))
    if query.task is not None:
        where.add("task = ?", query.task)
    order, position = "DESC" if query.newest_first else "ASC", query.position()
    after = 0 if position is None or query.newest_first else position
    before = FEED_ROOM if position is None or not query.newest_first else position
    feed = (owner, base + after, base + before)
    sql = _BY_UPDATE(db).format(order=order, walk=WALK, conditions=where.text(), limit=query.limit + 1)
    rows = await db.all(sql, (*feed, *where.values))
    is_full = len(rows) > query.limit
    walked = None if is_full else await db.one(_WALKED[db.is_postgres].format(order, WALK - 1), feed)
    end = rows[query.limit - 1] if is_full else walked
    heads = [row[:-1] for row in rows[: query.limit]]
    return Page(sessions_of(heads, db.opener), None if end is None else query.cursor_at(end[-1] - base))


class _Where:
    """Conditions with their values, and the index for SQLite."""

    def __init__(self, db: Db, owner: str, query: SessionQuery) -> None:
        self.index: str | None = None
        self.is_family = False
        self.conditions, self.values = ["owner = ?"], list[Any]((owner,))
        if (position := query.position()) is not None and not query.by_update:
            self.add("pk < ?" if query.newest_first else "pk > ?", position)
        if query.label is not None:
            values = [json_text([query.label])] if db.is_postgres else [owner, query.label]
            self.add(_LABELLED[db.is_postgres], *values)
            self.index = _BY_KEY
        for name, index in _EQUAL.items():
            if (value := getattr(query, name)) is not None:
                self.add(f"{name} = ?", value)
                self.index = self.index or index
        for name, condition in TIMES:
            if (at := getattr(query, name)) is not None:
                self.add(condition, micros(at))
        if query.resume_ready is not None:
            yes = f"resume_ready{_YES[db.is_postgres]}"
            self.add(yes if query.resume_ready else f"NOT {yes}")
        if query.resume_ready:  # those are few, and every delegation asks for them
            by_folder = query.project_dir is not None
            self.index = "INDEXED BY sessions_ready_by_folder" if by_folder else "INDEXED BY sessions_ready"
        if query.status is not None:
            self._add_status(db, owner, query.status)
        if query.name_prefix:
            self.add("name >= ? AND name < ?", query.name_prefix, query.name_prefix + "\x7f")
            self.index = self.index or "INDEXED BY sessions_by_name"
        if query.metadata_key is not None:
            self._add_metadata(db, query)

    def add(self, condition: str, *values: Any) -> None:
        self.conditions.append(condition)
        self.values.extend(values)

    def add_states(self, states: list[str]) -> None:
        """Add a condition for these states; no session matches an empty list."""
        if len(states) == 1:
            self.add(f"state = '{states[0]}'")
        elif len(states) < len(State):
            self.add(f"state IN ({', '.join(repr(state) for state in states)})" if states else "false")

    def text(self, *more: str) -> str:
        return " AND ".join([*self.conditions, *more])

    def _add_status(self, db: Db, owner: str, status: str) -> None:
        known = _STATUS[db.is_postgres].get(status)
        if known is None:
            self.add("state = ?", status)
            return
        self.add(known)
        if status == "waiting":
            self.add(_AMONG[db.is_postgres].format(_WAITING(db)), owner, owner)
            self.index = self.index or _BY_KEY
        elif db.is_postgres and status in ("running", "queued"):
            self.add(_AMONG[True].format(_OF_TURNS.format(status)), owner)
        self.index = self.index or _STATUS_INDEXES.get(status)

    def _add_metadata(self, db: Db, query: SessionQuery) -> None:
        key = query.metadata_key if db.is_postgres else f"$.{json_text(query.metadata_key)}"
        if query.metadata_value is None:
            self.add("metadata::json -> ? IS NOT NULL" if db.is_postgres else "json_type(metadata, ?) IS NOT NULL", key)
        else:
            same = "(metadata::json -> ?)::text = ?" if db.is_postgres else "metadata -> ? = json(?)"
            self.add(same, key, json_text(query.metadata_value))


# By whether it is PostgreSQL. With the second form, SQLite would walk one index for both conditions.
_OF_ROOT = {
    False: "pk IN (SELECT pk FROM moor.sessions WHERE root = ? UNION ALL "
    "SELECT pk FROM moor.sessions WHERE pk = ? AND root IS NULL)",
    True: "(root = ? OR pk = ? AND root IS NULL)",
}


async def _add_family(db: Db, owner: str, query: SessionQuery, where: _Where) -> None:
    if query.parent is not None:
        where.add("parent = ?", await pk_of(db, owner, query.parent))
    if query.root is not None:
        where.add(_OF_ROOT[db.is_postgres], *[await pk_of(db, owner, query.root)] * 2)
    where.is_family = query.parent is not None or query.root is not None
    if where.is_family:  # a family is small: the other filters check its members only
        where.index = "INDEXED BY sessions_by_parent" if query.root is None else _BY_KEY


async def _is_narrow(db: Db, owner: str, query: SessionQuery) -> bool:
    """Return whether the requested time of creation matches only few sessions."""
    times = [(condition, at) for name, condition in TIMES[:2] if (at := getattr(query, name)) is not None]
    if not times:
        return False
    where = " AND ".join(["owner = ?", *(condition for condition, _ in times)])
    some = f"SELECT 1 FROM moor.sessions INDEXED BY sessions_by_time WHERE {where} LIMIT {NARROW + 1}"
    row = await db.one(f"SELECT count(*) FROM ({some})", (owner, *(micros(at) for _, at in times)))
    return row is not None and row[0] <= NARROW


WalkColumns = tuple[str, str, str]  # an index, an additional condition, and its value


def _statement(db: Db, query: SessionQuery, where: _Where) -> tuple[str, list[Any]]:
    """Return a statement with its values: one walk, or a union of short ones for SQLite."""
    order = f"ORDER BY pk {'DESC' if query.newest_first else 'ASC'} LIMIT {query.limit + 1}"
    walks, states = list[WalkColumns](), states_of(query)
    if not db.is_postgres and where.index is None and query.task is None and states:
        walks = [("INDEXED BY sessions_by_state", "state = ?", state) for state in states]
    else:
        where.add_states(states)
    if query.task is not None:
        walks = _of_task(db, query.task, query, where)
    if not walks:
        return f"SELECT {HEAD} FROM moor.sessions {where.index or ''} WHERE {where.text()} {order}", where.values
    parts = [f"SELECT {HEAD} FROM moor.sessions {index} WHERE {where.text(more)} {order}" for index, more, _ in walks]
    values = [value for *_, own in walks for value in (*where.values, own)]
    return f"{' UNION ALL '.join(f'SELECT * FROM ({part})' for part in parts)} {order}", values


def _of_task(db: Db, task: str, query: SessionQuery, where: _Where) -> list[WalkColumns]:
    """Return two walks for SQLite: sessions that were given this task, and the one created for it."""
    if not (db.is_postgres or where.is_family or query.resume_ready):
        return [
            ("INDEXED BY sessions_by_task", "task = ? AND task <> id", task),
            ("INDEXED BY sessions_by_id", "id = ? AND task = id", task),
        ]
    where.add("task = ?", task)
    if not where.is_family:
        where.index = "INDEXED BY sessions_ready_by_task"
    return []


_OWNERS = Query("owners")


async def owners(db: Db) -> list[str]:
    return [row[0] for row in await db.all(_OWNERS(db))]
