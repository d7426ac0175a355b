"""Deleting sessions with all their data. Each function runs inside a transaction."""

from __future__ import annotations

from moorage.core.session import Stamp
from moorage.stores import sql
from moorage.stores.rows import Row, json_text, micros
from moorage.stores.sql.db import Target
from moorage.stores.sqlite import writes
from moorage.stores.sqlite.connection import SqliteConnection
from moorage.stores.sqlite.driven import Driven

_HAVE_RUNS = "SELECT 1 FROM json_each(?) target CROSS JOIN runs r ON r.session = target.value LIMIT 1"

_LEAVE_TOMBSTONES = """
INSERT INTO tombstones (owner, id, name, agent, task, state, root_of_deletion, deleted_at, deleted_by, reason)
SELECT s.owner, s.id, s.name, s.agent, s.task, s.state, target.value ->> 1, ?2, ?3, target.value ->> 2
FROM json_each(?1) target CROSS JOIN sessions s ON s.pk = target.value ->> 0 ORDER BY target.key
"""
_ANNOUNCE = "INSERT INTO feed (id, subject, last, count) SELECT ?1 + n - ?2, n, 0, 1 FROM tombstones WHERE n > ?2"
# Segments that may have lost their last reader: those of the deleted sessions, and those they shared as forks.
_SHARED = "SELECT DISTINCT segment FROM lineage WHERE session IN (SELECT value FROM json_each(?))"
_KEPT = """
SELECT gone.value, coalesce((SELECT max(upto) FROM lineage WHERE segment = gone.value), 0)
FROM json_each(?) gone WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE pk = gone.value)
"""


async def delete(jobs: Driven, owner: str, targets: list[Target], stamp: Stamp) -> None:
    """Delete sessions, leaves first; write a tombstone and an event for each."""
    db, pks = jobs.connection, [each.pk for each in targets]
    if db.one(_HAVE_RUNS, (json_text(pks),)):
        await sql.callbacks.call_back_for(jobs, owner, pks, stamp)  # their work will not be done any more
    segments = {*pks, *(row[0] for row in db.all(_SHARED, (json_text(pks),)))}
    newest_tombstone = _newest(db, "SELECT max(n) FROM tombstones")
    db.execute(_LEAVE_TOMBSTONES, (json_text(targets), micros(stamp.at), stamp.by))
    end = writes.feed_end(db, owner)
    db.execute(_ANNOUNCE, (end, newest_tombstone))
    db.feed_ends[owner] = end + len(targets)
    db.executemany("DELETE FROM records WHERE owner = ? AND session = ?", [(owner, pk) for pk in pks])
    db.executemany("DELETE FROM sessions WHERE pk = ?", [(pk,) for pk in pks])
    db.execute("UPDATE spent_keys SET pk = max(pk, ?)", (max(pks),))
    _trim(db, owner, db.all(_KEPT, (json_text(sorted(segments)),)))


def _trim(db: SqliteConnection, owner: str, kept: list[Row]) -> None:
    """Delete the entries of segments whose session was deleted, except those that forks need: (segment, upto)."""
    newest = _newest(db, "SELECT max(id) FROM entries")
    indexed = db.one("SELECT entry FROM search_marks WHERE owner = ?", (db.owner_no(owner),))
    if indexed is not None:
        db.executemany(
            "INSERT INTO search_purges SELECT id FROM entries WHERE segment = ? AND number > ? AND id <= ?",
            [(segment, upto, indexed[0]) for segment, upto in kept],
        )
    db.executemany("DELETE FROM entries WHERE segment = ? AND number > ?", kept)
    # An empty row in segment 0 keeps SQLite from reusing the newest id.
    if _newest(db, "SELECT max(id) FROM entries") < newest:
        db.execute("INSERT INTO entries (id, segment, number, kind, at) VALUES (?1, 0, ?1, 'deleted', 0)", (newest,))
    db.execute("DELETE FROM entries WHERE segment = 0 AND number < ?", (newest,))


def _newest(db: SqliteConnection, sql: str) -> int:
    row = db.one(sql)
    return (row and row[0]) or 0
