"""Deleting sessions with everything that hangs on them."""

from __future__ import annotations

from moorage.core.session import Stamp
from moorage.stores.postgres.connection import Connection
from moorage.stores.rows import Row, micros
from moorage.stores.sql.family import Doomed

_BURY = """
WITH buried AS (
    INSERT INTO moor.tombstones (owner, id, name, agent, task, state, root_of_deletion, deleted_at, deleted_by, reason)
    SELECT s.owner, s.id, s.name, s.agent, s.task, s.state, d.root_id, ?5, ?6, d.reason
    FROM unnest(?2::bigint[], ?3::text[], ?4::text[]) WITH ORDINALITY d (pk, root_id, reason, place)
    JOIN moor.sessions s ON s.owner = ?1 AND s.pk = d.pk ORDER BY d.place
    RETURNING n
)
INSERT INTO moor.arrivals (owner, subject, root, last, count) SELECT ?1, n, 0, 0, 1 FROM buried ORDER BY n
"""
# Segments that may have lost their last reader: those of the sessions that went, and those they shared as forks.
_SHARED = "SELECT DISTINCT segment_root, segment FROM moor.lineage WHERE owner = ? AND session = ANY(?::bigint[])"
_OWN = "SELECT coalesce(root, pk), pk FROM moor.sessions WHERE owner = ? AND pk = ANY(?::bigint[])"
_KEPT = """
SELECT gone.root, gone.segment, coalesce((
    SELECT max(upto) FROM moor.lineage WHERE owner = ?1 AND segment = gone.segment
), 0)
FROM unnest(?2::bigint[], ?3::bigint[]) gone (root, segment)
WHERE NOT EXISTS (SELECT 1 FROM moor.sessions WHERE owner = ?1 AND pk = gone.segment)
"""


async def delete(db: Connection, owner: str, doomed: list[Doomed], stamp: Stamp) -> None:
    """Delete sessions, leaves first, leaving a tombstone and an event for each."""
    pks = [each.pk for each in doomed]
    await _call_back(db, owner, pks, stamp)
    await _wait_for_sharers(db, owner, pks)
    segments = {(row[0], row[1]) for sql in (_OWN, _SHARED) for row in await db.all(sql, (owner, pks))}
    columns = [list(each) for each in zip(*doomed, strict=True)]
    await db.run(_BURY, (owner, *columns, micros(stamp.at), stamp.by))
    await db.many("DELETE FROM moor.sessions WHERE owner = ? AND pk = ?", [(owner, pk) for pk in pks])
    roots, own = (list(each) for each in zip(*segments, strict=True))
    await _trim(db, owner, await db.all(_KEPT, (owner, roots, own)))


_ARE_SHARED = """
SELECT 1 FROM moor.lineage WHERE owner = ?1 AND (session = ANY(?2::bigint[]) OR segment = ANY(?2::bigint[])) LIMIT 1
"""


async def _wait_for_sharers(db: Connection, owner: str, pks: list[int]) -> None:
    """Those who delete what is shared go one by one: two at once would each leave the entries to the other."""
    if await db.one(_ARE_SHARED, (owner, pks)):
        await db.all("SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", (f"{db.prefix} shared by {owner}",))


_HAVE_RUNS = "SELECT 1 FROM moor.runs WHERE owner = ? AND session = ANY(?::bigint[]) LIMIT 1"


async def _call_back(db: Connection, owner: str, pks: list[int], stamp: Stamp) -> None:
    """Whoever asked for something that will not be done any more hears of it first."""
    if await db.one(_HAVE_RUNS, (owner, pks)):
        from moorage.stores.postgres import work  # only sessions that a launcher had to do with need it

        await work.call_back_for(db, owner, pks, stamp)


async def _trim(db: Connection, owner: str, kept: list[Row]) -> None:
    """Delete the entries of segments whose session is gone, but for what forks still need: (root, segment, upto)."""
    places = [(owner, *row) for row in kept]
    for table in ("entries", "search"):
        sql = f"DELETE FROM moor.{table} WHERE owner = ? AND root = ? AND segment = ? AND number > ?"
        await db.many(sql, places)
