"""Servers: which live, and what their absence must not cost. Each function runs inside a transaction."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from moorage.core.errors import SessionCorrupt
from moorage.core.turn import AHEAD
from moorage.stores.rows import instant_or_none, json_text, kept, micros
from moorage.stores.sqlite.connection import Connection
from moorage.stores.work_rows import due_at, turn_of


def owners(db: Connection) -> list[str]:
    """Owners that have sessions."""
    sql = "SELECT name FROM owners o WHERE EXISTS (SELECT 1 FROM sessions WHERE owner = o.name) ORDER BY no"
    return [row[0] for row in db.all(sql)]


def last_beat(db: Connection) -> datetime | None:
    """When a server last lived."""
    row = db.one("SELECT max(beat_at) FROM servers")
    return None if row is None else instant_or_none(row[0])


def count(db: Connection, since: int) -> int:
    """How many have lived since then."""
    row = db.one("SELECT count(*) FROM servers WHERE beat_at >= ?", (since,))
    return int(row[0]) if row else 0


def beat(db: Connection, server_id: str, at: datetime) -> datetime | None:
    """Remember that a server lives; when one last did so before."""
    before = last_beat(db)
    db.execute("DELETE FROM servers WHERE beat_at > ?", (micros(at + AHEAD),))
    sql = "INSERT INTO servers (id, beat_at) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET beat_at = excluded.beat_at"
    db.execute(sql, (server_id, micros(at)))
    return before


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
            sql = "UPDATE sessions SET hold_until = ?1 WHERE pk = ?2 AND live_turn IS NOT NULL AND hold_until < ?1"
            db.execute(sql, (micros(until), pk))
    return helped
