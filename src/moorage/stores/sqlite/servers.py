"""What servers need: whom they serve, and that their absence costs no turn. Each function runs inside a transaction."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from moorage.core.errors import SessionCorrupt
from moorage.stores.rows import json_text, kept, micros
from moorage.stores.sqlite.connection import Connection
from moorage.stores.work_rows import due_at, turn_of


def owners(db: Connection) -> list[str]:
    """Owners that have sessions."""
    sql = "SELECT name FROM owners o WHERE EXISTS (SELECT 1 FROM sessions WHERE owner = o.name) ORDER BY no"
    return [row[0] for row in db.all(sql)]


_RUNNING = """
SELECT t.n, t.session, t.body, t.id, s.id FROM turns t CROSS JOIN sessions s ON s.pk = t.session
WHERE t.state = 'running'
"""


def extend_leases(db: Connection, at: datetime, until: datetime) -> int:
    """Let every running turn have until then; how many it helped. One that does not read back whole is passed by."""
    helped = 0
    for n, pk, *columns in db.all(_RUNNING):
        with suppress(SessionCorrupt):
            turn = turn_of(db, columns)
            if (extended := turn.extended(at, until)) != turn:
                body = kept(db.sealer, json_text(extended), "turn", turn.turn_id)
                db.execute("UPDATE turns SET due_at = ?, body = ? WHERE n = ?", (due_at(extended), body, n))
                helped += 1
            sql = "UPDATE sessions SET hold_until = ?1 WHERE pk = ?2 AND live_turn IS NOT NULL AND hold_until <> ?1"
            db.execute(sql, (micros(extended.lease_until or until), pk))
    return helped
