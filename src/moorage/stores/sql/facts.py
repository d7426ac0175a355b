"""The facts for analytics, read without whole heads. This module is loaded only for analytics.

The log shows whether a session had errors: the count in the head restarts with every completed turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from moorage.core.fact import CallbackCounts, Fate, SessionFact, callback_counts, tokens_in
from moorage.core.inbox import ItemState
from moorage.core.policy import Span
from moorage.core.query import Page
from moorage.core.session import State
from moorage.stores.rows import RARE, Row, SortPlace, cursor_at, micros, micros_or_none, start
from moorage.stores.sql.counts import by_time
from moorage.stores.sql.db import Db, Query

_STATES = {state.value: state for state in State}
_ITEM_STATES = frozenset(state.value for state in ItemState)
_FIRST, _LAST = micros(datetime(1, 1, 1, tzinfo=UTC)), micros(datetime(9999, 12, 31, tzinfo=UTC))
_NO_TOKENS = (None, None)
_from_timestamp = datetime.fromtimestamp

_FACTS, _CALLBACKS = Query("facts", rare=RARE), Query("count_callbacks")
_TASK_SOURCES = (
    "sessions_by_task WHERE owner = ? AND task = ? AND task <> id",
    "sessions_by_id WHERE owner = ? AND id = ? AND task = id",
)


async def facts(db: Db, owner: str, span: Span, limit: int, cursor: str | None = None) -> Page[SessionFact]:
    """Return facts of the sessions created in a span, in order of time or, if that is faster, of keys."""
    mark = span.fingerprint("facts")
    place = start(span, cursor, mark)
    rows = await db.all(*_statement(_FACTS(db), owner, span, place, limit + 1))
    more = len(rows) > limit
    keys = db.listed([row[1] for row in rows[:limit]])
    callbacks = _callbacks_of(await db.all(_CALLBACKS(db), (owner, keys)))  # one statement for all of them
    found = _facts_of(rows[:limit], callbacks)
    return Page(found, cursor_at((rows[limit - 1][0], rows[limit - 1][1]), mark) if more else None)


def _statement(select: str, owner: str, span: Span, place: SortPlace, limit: int) -> tuple[str, list[Any]]:
    if span.task_id is not None:
        return _of_task(select, owner, span, place, limit)
    if span.agent is not None and span.created_after is None and span.created_before is None:
        sql = f"{select} INDEXED BY sessions_by_agent WHERE owner = ? AND agent = ? AND pk > ? ORDER BY pk LIMIT ?"
        return sql, [owner, span.agent, place[1], limit]
    where, values = by_time(owner, span, "created_at", "pk", place)
    return f"{select} INDEXED BY sessions_by_time WHERE {where} ORDER BY created_at, pk LIMIT ?", [*values, limit]


def _of_task(select: str, owner: str, span: Span, place: SortPlace, limit: int) -> tuple[str, list[Any]]:
    """Return a statement for the sessions with this task, and the one created for it: a task has few sessions."""
    filters = {
        "pk > ?": place[1],
        "agent = ?": span.agent,
        "created_at >= ?": micros_or_none(span.created_after),
        "created_at < ?": micros_or_none(span.created_before),
    }
    given = {condition: value for condition, value in filters.items() if value is not None}
    order = f"ORDER BY pk LIMIT {limit}"
    walks = [f"{select} INDEXED BY {' AND '.join([source, *given])} {order}" for source in _TASK_SOURCES]
    sql = " UNION ALL ".join(f"SELECT * FROM ({walk}) part" for walk in walks)
    return f"{sql} {order}", [owner, span.task_id, *given.values()] * 2


_FATES = Query("fates")


async def fates(db: Db, owner: str, session_ids: list[str]) -> list[Fate]:
    rows = await db.all(_FATES(db), (owner, db.listed(session_ids)))
    return [Fate(id_, _STATES[state], bool(gone)) for id_, state, gone in rows if state in _STATES]


def _callbacks_of(rows: Iterable[Row]) -> dict[int, CallbackCounts]:
    """Return the counts of callbacks by session key, from (key, state of items, count)."""
    states: dict[int, list[tuple[str, int]]] = {}
    for session, state, count in rows:
        if state in _ITEM_STATES:
            states.setdefault(session, []).append((state, count))
    return {session: callback_counts(counts) for session, counts in states.items()}


def _facts_of(rows: list[Row], callbacks: dict[int, CallbackCounts]) -> list[SessionFact]:
    """Return facts, in one loop; skip damaged rows, which `get` and `check` name."""
    facts = []
    for created_at, pk, id_, agent, task, state, duration, has_errors, metadata in rows:
        if state not in _STATES or not _FIRST <= created_at <= _LAST:
            continue
        read, written = _NO_TOKENS if metadata is None else tokens_in(metadata)
        at, counts, failed = _from_timestamp(created_at / 1e6, UTC), callbacks.get(pk), has_errors == 1
        facts.append(SessionFact(id_, agent, task, at, _STATES[state], duration, failed, read, written, counts))
    return facts
