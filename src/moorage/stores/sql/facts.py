"""The facts that analytics are made of, read without whole heads; loaded only when somebody counts.

Whether a session had errors is asked of the log: the head's count begins anew with every
turn that went well.
"""

from __future__ import annotations

from typing import Any

from moorage.core.delegation import Span
from moorage.core.fact import CallbackCounts, Fate, SessionFact
from moorage.core.query import Page
from moorage.stores.fact_rows import STATES, callbacks_of, facts_of
from moorage.stores.places import Place, by_time, cursor_at, start
from moorage.stores.rows import RARE, Row, micros
from moorage.stores.sql.db import Db
from moorage.stores.sql.query import Query

_FACTS = Query("facts", rare=RARE)
_TASK_SOURCES = (
    "sessions_by_task WHERE owner = ? AND task = ? AND task <> id",
    "sessions_by_id WHERE owner = ? AND id = ? AND task = id",
)


async def facts(db: Db, owner: str, span: Span, limit: int, cursor: str | None) -> Page[SessionFact]:
    """Return facts of the sessions created in a span: along their times or, where that is shorter, along their keys."""
    mark = span.fingerprint("facts")
    place = start(span, cursor, mark)
    rows = await db.all(*_statement(_FACTS(db), owner, span, place, limit + 1))
    more = len(rows) > limit
    found = facts_of(rows[:limit], await _callbacks(db, owner, rows[:limit]))
    return Page(found, cursor_at((rows[limit - 1][0], rows[limit - 1][1]), mark) if more else None)


def _statement(select: str, owner: str, span: Span, place: Place, limit: int) -> tuple[str, list[Any]]:
    if span.task is not None:
        return _of_task(select, owner, span, place, limit)
    if span.agent is not None and span.after is None and span.before is None:
        sql = f"{select} INDEXED BY sessions_by_agent WHERE owner = ? AND agent = ? AND pk > ? ORDER BY pk LIMIT ?"
        return sql, [owner, span.agent, place[1], limit]
    conditions, values = by_time(span, "created_at", "pk", place)
    where = " AND ".join(["owner = ?", *conditions])
    sql = f"{select} INDEXED BY sessions_by_time WHERE {where} ORDER BY created_at, pk LIMIT ?"
    return sql, [owner, *values, limit]


def _of_task(select: str, owner: str, span: Span, place: Place, limit: int) -> tuple[str, list[Any]]:
    """Those that were given this task, and the one it was made for: a task has few sessions, whenever they began."""
    wanted = (
        ("pk > ?", place[1]),
        ("agent = ?", span.agent),
        ("created_at >= ?", None if span.after is None else micros(span.after)),
        ("created_at < ?", None if span.before is None else micros(span.before)),
    )
    given = [(condition, value) for condition, value in wanted if value is not None]
    order = f"ORDER BY pk LIMIT {limit}"
    parts = []
    for source in _TASK_SOURCES:
        conditions = " AND ".join([source, *(condition for condition, _ in given)])
        parts.append(f"SELECT * FROM ({select} INDEXED BY {conditions} {order}) part")
    return f"{' UNION ALL '.join(parts)} {order}", [owner, span.task, *(value for _, value in given)] * 2


_CALLBACKS = Query("count_callbacks")


async def _callbacks(db: Db, owner: str, rows: list[Row]) -> dict[int, CallbackCounts]:
    """Return where the callbacks to these sessions are, by their keys, in one statement for all of them."""
    keys = db.listed([row[1] for row in rows])
    return callbacks_of(await db.all(_CALLBACKS(db), (owner, keys)))


_FATES = Query("fates")


async def fates(db: Db, owner: str, session_ids: list[str]) -> list[Fate]:
    """Return what became of these, in one statement; nothing of those that never were."""
    rows = await db.all(_FATES(db), (owner, db.listed(session_ids)))
    return [Fate(id_, STATES[state], bool(gone)) for id_, state, gone in rows if state in STATES]
