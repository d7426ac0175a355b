"""The facts that analytics are made of, read without whole heads; and what all of it takes.

Whether a session had errors is asked of the log: the head's count begins anew with every
turn that went well.
"""

from __future__ import annotations

from moorage.core.delegation import Span
from moorage.core.fact import CallbackCounts, Fate, SessionFact, Size
from moorage.core.query import Page
from moorage.stores.fact_rows import STATES, callbacks_of, facts_of
from moorage.stores.places import by_time, cursor_at, start
from moorage.stores.postgres.connection import Connection
from moorage.stores.rows import RARE, Row

_FACTS = f"""
SELECT created_at, pk, id, agent, task, state, duration_seconds, EXISTS (
    SELECT 1 FROM moor.entries e WHERE e.owner = s.owner AND e.root = coalesce(s.root, s.pk) AND e.segment = s.pk
        AND kind = 'error' AND {RARE}
), CASE WHEN position('"usage"' IN metadata) > 0 THEN metadata END
FROM moor.sessions s
"""


async def facts(db: Connection, owner: str, span: Span, limit: int, cursor: str | None) -> Page[SessionFact]:
    """Facts of the sessions created in a span, along their times."""
    mark = span.fingerprint("facts")
    conditions, values = by_time(span, "created_at", "pk", start(span, cursor, mark))
    where = " AND ".join(["owner = ?", *conditions])
    rows = await db.all(f"{_FACTS} WHERE {where} ORDER BY created_at, pk LIMIT ?", (owner, *values, limit + 1))
    more = len(rows) > limit
    found = facts_of(rows[:limit], await _callbacks(db, owner, rows[:limit]))
    return Page(found, cursor_at((rows[limit - 1][0], rows[limit - 1][1]), mark) if more else None)


# An item's id says what it is, so the index by it finds the callbacks of a session.
_CALLBACKS = """
SELECT session, state, count(*) FROM moor.inbox
WHERE owner = ? AND session = ANY(?::bigint[]) AND id >= 'callback:' AND id < 'callback;' GROUP BY session, state
"""


async def _callbacks(db: Connection, owner: str, rows: list[Row]) -> dict[int, CallbackCounts]:
    """Where the callbacks to these sessions are, by their keys, in one statement for all of them."""
    return callbacks_of(await db.all(_CALLBACKS, (owner, [row[1] for row in rows])))


_FATES = """
SELECT id, state, 0 FROM moor.sessions WHERE owner = ?1 AND id = ANY(?2::text[])
UNION ALL
SELECT id, state, 1 FROM moor.tombstones WHERE owner = ?1 AND id = ANY(?2::text[])
"""


async def fates(db: Connection, owner: str, session_ids: list[str]) -> list[Fate]:
    """What became of these, in one statement; nothing of those that never were."""
    rows = await db.all(_FATES, (owner, session_ids))
    return [Fate(id_, STATES[state], bool(gone)) for id_, state, gone in rows if state in STATES]


_SIZE = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint, (SELECT count(*) FROM moor.sessions)
FROM pg_class c WHERE c.relnamespace = to_regnamespace(?) AND c.relkind = 'r'
"""


async def size(db: Connection) -> Size:
    """The tables of the schema with their indexes; what is free in them is theirs to use again, and counts."""
    row = await db.one(_SIZE, (db.prefix[:-1],))
    assert row is not None
    return Size(bytes=row[0], used_bytes=row[0], sessions=row[1])
