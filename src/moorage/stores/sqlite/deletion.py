"""Deleting sessions with everything that hangs on them. Each function runs inside a transaction."""

from __future__ import annotations

from moorage.core.session import Stamp
from moorage.stores.rows import Row, json_text, micros
from moorage.stores.sql.family import Doomed
from moorage.stores.sqlite import heads
from moorage.stores.sqlite.connection import Connection

_BURY = """
INSERT INTO tombstones (owner, id, name, agent, task, state, root_of_deletion, deleted_at, deleted_by, reason)
SELECT s.owner, s.id, s.name, s.agent, s.task, s.state, doomed.value ->> 1, ?2, ?3, doomed.value ->> 2
FROM json_each(?1) doomed CROSS JOIN sessions s ON s.pk = doomed.value ->> 0 ORDER BY doomed.key
"""
_ANNOUNCE = "INSERT INTO feed (id, subject, last, count) SELECT ?1 + n - ?2, n, 0, 1 FROM tombstones WHERE n > ?2"
# Segments that may have lost their last reader: those of the sessions that went, and those they shared as forks.
_SHARED = "SELECT DISTINCT segment FROM lineage WHERE session IN (SELECT value FROM json_each(?))"
_KEPT = """
SELECT gone.value, coalesce((SELECT max(upto) FROM lineage WHERE segment = gone.value), 0)
FROM json_each(?) gone WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE pk = gone.value)
"""


def delete(db: Connection, owner: str, doomed: list[Doomed], stamp: Stamp) -> None:
    """Delete sessions, leaves first, leaving a tombstone and an event for each."""
    pks = [each.pk for each in doomed]
    _call_back(db, owner, pks, stamp)
    segments = {*pks, *(row[0] for row in db.all(_SHARED, (json_text(pks),)))}
    newest_stone = _newest(db, "SELECT max(n) FROM tombstones")
    db.execute(_BURY, (json_text(doomed), micros(stamp.at), stamp.by))
    end = heads.feed_end(db, owner)
    db.execute(_ANNOUNCE, (end, newest_stone))
    db.feed_ends[owner] = end + len(doomed)
    db.executemany("DELETE FROM sessions WHERE pk = ?", [(pk,) for pk in pks])
    db.execute("UPDATE spent_keys SET pk = max(pk, ?)", (max(pks),))
    _trim(db, owner, db.all(_KEPT, (json_text(sorted(segments)),)))


_HAVE_RUNS = "SELECT 1 FROM json_each(?) doomed CROSS JOIN runs r ON r.session = doomed.value LIMIT 1"


def _call_back(db: Connection, owner: str, pks: list[int], stamp: Stamp) -> None:
    """Whoever asked for something that will not be done any more hears of it first."""
    if db.one(_HAVE_RUNS, (json_text(pks),)):
        from moorage.stores.sqlite import work  # only sessions that a launcher had to do with need it

        work.call_back_for(db, owner, pks, stamp)


def _trim(db: Connection, owner: str, kept: list[Row]) -> None:
    """Delete the entries of segments whose session is gone, but for what forks still need: (segment, upto)."""
    newest_entry = _newest(db, "SELECT max(id) FROM entries")
    indexed = db.one("SELECT entry FROM search_marks WHERE owner = ?", (db.owner_no(owner),))
    if indexed is not None:
        db.executemany(
            "INSERT INTO search_purges SELECT id FROM entries WHERE segment = ? AND number > ? AND id <= ?",
            [(segment, upto, indexed[0]) for segment, upto in kept],
        )
    db.executemany("DELETE FROM entries WHERE segment = ? AND number > ?", kept)
    _hold_place(db, newest_entry)


def _newest(db: Connection, sql: str) -> int:
    row = db.one(sql)
    return (row and row[0]) or 0


def _hold_place(db: Connection, newest: int) -> None:
    """Keep SQLite from giving the newest entry's id out again, by an empty row in segment 0."""
    if _newest(db, "SELECT max(id) FROM entries") < newest:
        db.execute("INSERT INTO entries (id, segment, number, kind, at) VALUES (?1, 0, ?1, 'deleted', 0)", (newest,))
    db.execute("DELETE FROM entries WHERE segment = 0 AND number < ?", (newest,))
