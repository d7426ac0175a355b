"""The facts that analytics are made of, read without whole heads; loaded only when somebody counts.

Whether a session had errors is asked of the log: the head's count begins anew with every
turn that went well.
"""

from __future__ import annotations

import os
from typing import Any

from moorage.core.delegation import Span
from moorage.core.fact import CallbackCounts, Fate, SessionFact, Size
from moorage.core.query import Page
from moorage.stores.fact_rows import STATES, callbacks_of, facts_of
from moorage.stores.places import Place, by_time, cursor_at, start
from moorage.stores.rows import RARE, Row, json_text, micros
from moorage.stores.sqlite.connection import Connection

_FACTS = (
    f"created_at, pk, id, agent, task, state, duration_seconds, EXISTS (SELECT 1 FROM entries WHERE segment = s.pk AND "
    f"kind = 'error' AND {RARE}), CASE WHEN instr(metadata, '\"usage\"') THEN metadata END"
)
_TASK_SOURCES = (
    "sessions_by_task WHERE owner = ? AND task = ? AND task <> id",
    "sessions_by_id WHERE owner = ? AND id = ? AND task = id",
)


def facts(db: Connection, owner: str, span: Span, limit: int, cursor: str | None) -> Page[SessionFact]:
    """Facts of the sessions created in a span: along their times or, where that is shorter, along their keys."""
    mark = span.fingerprint("facts")
    place = start(span, cursor, mark)
    rows = db.all(*_statement(owner, span, place, limit + 1))
    more = len(rows) > limit
    return Page(
        facts_of(rows[:limit], _callbacks(db, rows[:limit])), cursor_at(rows[limit - 1][:2], mark) if more else None
    )


def _statement(owner: str, span: Span, place: Place, limit: int) -> tuple[str, list[Any]]:
    if span.task is not None:
        return _of_task(owner, span, place, limit)
    if span.agent is not None and span.after is None and span.before is None:
        sql = f"SELECT {_FACTS} FROM sessions s INDEXED BY sessions_by_agent"
        return f"{sql} WHERE owner = ? AND agent = ? AND pk > ? ORDER BY pk LIMIT ?", [
            owner, span.agent, place[1], limit,
        ]  # fmt: skip
    conditions, values = by_time(span, "created_at", "pk", place)
    where = " AND ".join(["owner = ?", *conditions])
    sql = f"SELECT {_FACTS} FROM sessions s INDEXED BY sessions_by_time WHERE {where} ORDER BY created_at, pk LIMIT ?"
    return sql, [owner, *values, limit]


def _of_task(owner: str, span: Span, place: Place, limit: int) -> tuple[str, list[Any]]:
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
        parts.append(f"SELECT * FROM (SELECT {_FACTS} FROM sessions s INDEXED BY {conditions} {order})")
    return f"{' UNION ALL '.join(parts)} {order}", [owner, span.task, *(value for _, value in given)] * 2


# An item's id says what it is, so the index by it finds the callbacks of a session.
_CALLBACKS = """
SELECT i.session, i.state, count(*) FROM json_each(?) wanted CROSS JOIN inbox i INDEXED BY inbox_by_id
    ON i.session = wanted.value AND i.id >= 'callback:' AND i.id < 'callback;'
GROUP BY i.session, i.state
"""


def _callbacks(db: Connection, rows: list[Row]) -> dict[int, CallbackCounts]:
    """Where the callbacks to these sessions are, by their keys, in one statement for all of them."""
    return callbacks_of(db.all(_CALLBACKS, (json_text([row[1] for row in rows]),)))


# What became of some, and what all take ---------------------------------------------------------

_FATES = """
SELECT id, state, 0 FROM sessions WHERE owner = ?1 AND id IN (SELECT value FROM json_each(?2))
UNION ALL
SELECT id, state, 1 FROM tombstones WHERE owner = ?1 AND id IN (SELECT value FROM json_each(?2))
"""


def fates(db: Connection, owner: str, session_ids: list[str]) -> list[Fate]:
    """What became of these, in one statement; nothing of those that never were."""
    rows = db.all(_FATES, (owner, json_text(session_ids)))
    return [Fate(id_, STATES[state], bool(gone)) for id_, state, gone in rows if state in STATES]


def size(db: Connection) -> Size:
    """The file and its log of writes; pages that are free again count as not used."""
    pages, free, page_size = (int(db.raw.pragma(name)) for name in ("page_count", "freelist_count", "page_size"))
    row = db.one("SELECT count(*) FROM sessions")
    assert row is not None
    return Size(
        bytes=_bytes_of(db.raw.filename) + _bytes_of(db.raw.filename_wal),
        used_bytes=(pages - free) * page_size,
        sessions=row[0],
    )


def _bytes_of(path: str) -> int:
    """How long a file is, without opening it; one that is not there takes nothing."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
