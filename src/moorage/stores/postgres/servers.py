"""What servers need: whom they serve, and that their absence costs no turn."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from moorage.core.errors import SessionCorrupt
from moorage.stores.postgres.connection import Connection
from moorage.stores.rows import json_text, kept, micros
from moorage.stores.work_rows import due_at, turn_of

# From one owner to the next: however many sessions each has, that many steps.
_OWNERS = """
WITH RECURSIVE each (owner) AS (
    (SELECT owner FROM moor.sessions ORDER BY owner LIMIT 1)
    UNION ALL
    SELECT (SELECT s.owner FROM moor.sessions s WHERE s.owner > each.owner ORDER BY s.owner LIMIT 1)
    FROM each WHERE each.owner IS NOT NULL
)
SELECT owner FROM each WHERE owner IS NOT NULL
"""


async def owners(db: Connection) -> list[str]:
    """Owners that have sessions."""
    return [row[0] for row in await db.all(_OWNERS)]


# First the locks, in the order in which every statement takes them, then the look: what was read before may be old.
_LOCK = """
SELECT 1 FROM moor.sessions s WHERE EXISTS (
    SELECT 1 FROM moor.turns t WHERE t.owner = s.owner AND t.session = s.pk AND t.state = 'running'
) ORDER BY s.owner, s.pk FOR NO KEY UPDATE OF s
"""
_RUNNING = """
SELECT t.owner, t.n, t.session, t.body, t.id, s.id FROM moor.turns t
JOIN moor.sessions s ON s.owner = t.owner AND s.pk = t.session WHERE t.state = 'running'
"""
_EXTEND = "UPDATE moor.turns SET due_at = ?, body = ? WHERE owner = ? AND n = ?"
_HOLD = """
UPDATE moor.sessions SET hold_until = CASE WHEN live_turn IS NULL THEN hold_until ELSE ?1 END,
    revision = revision + 1
WHERE owner = ?2 AND pk = ?3
"""


async def extend_leases(db: Connection, at: datetime, until: datetime) -> int:
    """Let every running turn have until then; how many it helped. One that does not read back whole is passed by."""
    helped = 0
    await db.all(_LOCK)
    for owner, n, pk, *columns in await db.all(_RUNNING):
        with suppress(SessionCorrupt):
            turn = turn_of(db, columns)
            if (extended := turn.extended(at, until)) != turn:
                body = kept(db.sealer, json_text(extended), "turn", turn.turn_id)
                await db.run(_EXTEND, (due_at(extended), body, owner, n))
                helped += 1
            await db.run(_HOLD, (micros(extended.lease_until or until), owner, pk))
    return helped
