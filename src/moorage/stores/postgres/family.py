"""Families: ancestors, trees, and deletion with everything that hangs on it."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from moorage.core.errors import SessionCorrupt, VersionConflict
from moorage.core.family import Deletion, Member, Tombstone, TombstoneQuery
from moorage.core.query import MAX_POSITION, Page, make_cursor, read_cursor
from moorage.core.session import Session, Stamp
from moorage.ports import DeletionDecision, SweepDecision
from moorage.stores.postgres.connection import Connection
from moorage.stores.rows import (
    TOMBSTONE,
    Row,
    instant_or_none,
    micros,
    micros_or_none,
    session_of,
    stone_of,
    tombstone_of,
)
from moorage.stores.sql import lookup
from moorage.stores.sql.lookup import HEAD_OF_S

_ANCESTORS = f"""
WITH RECURSIVE line (pk, step) AS (
    SELECT parent, 1 FROM moor.sessions WHERE owner = ?1 AND pk = ?2
    UNION ALL
    SELECT s.parent, step + 1 FROM line JOIN moor.sessions s ON s.owner = ?1 AND s.pk = line.pk
    WHERE s.parent IS NOT NULL
)
SELECT {HEAD_OF_S} FROM line JOIN moor.sessions s ON s.owner = ?1 AND s.pk = line.pk ORDER BY step
"""
_TREE = """
WITH RECURSIVE tree (pk) AS (
    SELECT ?2::bigint UNION ALL SELECT s.pk FROM tree JOIN moor.sessions s ON s.owner = ?1 AND s.parent = tree.pk
)
"""
_IN_TREE = "FROM tree JOIN moor.sessions s ON s.owner = ?1 AND s.pk = tree.pk"
_TREE_HEADS = f"{_TREE} SELECT {HEAD_OF_S} {_IN_TREE} ORDER BY s.depth, s.pk LIMIT ?3"
# In the order in which every statement locks, so that nobody waits in a circle.
_LOCK_TREE = f"{_TREE} SELECT s.pk {_IN_TREE} ORDER BY s.pk FOR UPDATE OF s"
# Leaves first, so that no row is deleted before those that hang on it.
_TREE_MEMBERS = (
    f"{_TREE} SELECT s.pk, s.id, s.depth, s.live_turn IS NOT NULL {_IN_TREE} ORDER BY s.depth DESC, s.pk DESC"
)


async def ancestors(db: Connection, owner: str, ref: str) -> list[Session]:
    """Parent first, root last."""
    pk = (await lookup.key_of(db, owner, ref)).pk
    return [session_of(row, db.opener) for row in await db.all(_ANCESTORS, (owner, pk))]


async def tree(db: Connection, owner: str, ref: str, limit: int) -> list[Session]:
    """The session and its descendants, parents before children."""
    pk = (await lookup.key_of(db, owner, ref)).pk
    return [session_of(row, db.opener) for row in await db.all(_TREE_HEADS, (owner, pk, limit))]


async def count_children(db: Connection, owner: str, ref: str) -> int:
    """How many children, not grandchildren."""
    pk = (await lookup.key_of(db, owner, ref)).pk
    row = await db.one("SELECT count(*) FROM moor.sessions WHERE owner = ? AND parent = ?", (owner, pk))
    return int(row[0]) if row else 0


# Deleting ---------------------------------------------------------------------------------------


async def delete_tree(
    db: Connection,
    owner: str,
    ref: str,
    decide: DeletionDecision,
    stamp: Stamp,
    reason: str,
    dry_run: bool,
    expected: int | None = None,
) -> Deletion:
    """Delete a tree unless the decision refuses."""
    pk, root_id = (await lookup.key_of(db, owner, ref))[:2]
    if not dry_run:
        await _lock(db, owner, pk)
    if expected is not None:
        row = await db.one("SELECT version FROM moor.sessions WHERE owner = ? AND pk = ?", (owner, pk))
        if row is not None and row[0] != expected:
            raise VersionConflict(root_id, expected, row[0])
    members = await db.all(_TREE_MEMBERS, (owner, pk))
    decide([Member(row[1], row[2], bool(row[3])) for row in members])
    counts = await _counts(db, owner, [row[0] for row in members])
    if not dry_run:
        await _delete(db, owner, [Doomed(row[0], root_id, reason) for row in members], stamp)
    return Deletion(
        session_id=root_id,
        deleted_sessions=len(members),
        cascaded_children=len(members) - 1,
        entries=counts[0],
        messages=counts[1],
        checkpoints=counts[2],
        runs=counts[3],
        session_ids=[row[1] for row in members],
        dry_run=dry_run,
    )


async def _lock(db: Connection, owner: str, pk: int) -> None:
    """Lock a whole tree: a child that comes to be meanwhile is waited for, and looked at in the next round."""
    known = -1
    while known < (known := len(await db.all(_LOCK_TREE, (owner, pk)))):
        pass


_COUNTS = """
SELECT count(*), count(*) FILTER (WHERE e.kind IN ('message', 'system')), count(*) FILTER (WHERE e.kind = 'checkpoint'),
    (SELECT count(*) FROM moor.runs r WHERE r.owner = ?1 AND r.session = ANY(?2::bigint[]))
FROM moor.sessions s JOIN moor.entries e ON e.owner = s.owner AND e.root = coalesce(s.root, s.pk) AND e.segment = s.pk
WHERE s.owner = ?1 AND s.pk = ANY(?2::bigint[])
"""


async def _counts(db: Connection, owner: str, pks: list[int]) -> Row:
    """How many entries, messages, checkpoints and runs these sessions have."""
    row = await db.one(_COUNTS, (owner, pks))
    assert row is not None
    return row


class Doomed(NamedTuple):
    """A session that is about to go."""

    pk: int
    root_id: str  # of the tree it goes with
    reason: str


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


async def _delete(db: Connection, owner: str, doomed: list[Doomed], stamp: Stamp) -> None:
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


# Sweeping ---------------------------------------------------------------------------------------

# In the order of the rows, from where the last step ended: so a whole sweep reads each row once.
_STALE = "owner = ?1 AND pk > ?3 AND (last_activity_at < ?5 OR expires_at <= ?2)"
# No idle session qualifies without a time: then only those with a TTL are looked at, through their index.
_PAST_TTL = "owner = ?1 AND pk > ?3 AND expires_at IS NOT NULL AND expires_at <= ?2"


async def candidates(db: Connection, owner: str, before: int | None, at: int, position: int, limit: int) -> list[int]:
    """Keys of sessions past their TTL or idle since `before`, in order of creation: parents before children."""
    sql = f"SELECT pk FROM moor.sessions WHERE {_PAST_TTL if before is None else _STALE} ORDER BY pk LIMIT ?4"
    values = (owner, at, position, limit) if before is None else (owner, at, position, limit, before)
    return [row[0] for row in await db.all(sql, values)]


_NEXT_EXPIRY = """
SELECT min(at) FROM (
    SELECT min(expires_at) AS at FROM moor.sessions WHERE owner = ?1 AND expires_at IS NOT NULL
    UNION ALL
    SELECT min(expires_at) FROM moor.approvals WHERE owner = ?1 AND state = 'pending' AND expires_at IS NOT NULL
) ends
"""


async def next_expiry(db: Connection, owner: str) -> datetime | None:
    """When the next TTL or pending approval ends, or ended."""
    row = await db.one(_NEXT_EXPIRY, (owner,))
    return None if row is None else instant_or_none(row[0])


async def sweep(
    db: Connection, owner: str, pks: list[int], decide: SweepDecision, stamp: Stamp, dry_run: bool
) -> list[Tombstone]:
    """Delete the trees of these that may go, all at once; what went."""
    doomed: dict[int, Tombstone] = {}
    for pk in pks:
        if pk not in doomed:
            doomed |= await _condemned(db, owner, pk, decide, stamp, dry_run)
    if doomed and not dry_run:
        gone = [Doomed(pk, stone.root_of_deletion, stone.reason) for pk, stone in doomed.items()]
        await _delete(db, owner, gone, stamp)
    return list(doomed.values())


async def _condemned(
    db: Connection, owner: str, pk: int, decide: SweepDecision, stamp: Stamp, dry_run: bool
) -> dict[int, Tombstone]:
    """The tombstones of a tree that may go, by key, leaves first; none if it must stay."""
    if not dry_run:
        await _lock(db, owner, pk)
    try:
        rows = await db.all(_TREE_HEADS, (owner, pk, None))
        sessions = [session_of(row, db.opener) for row in rows]
    except SessionCorrupt:  # nobody can say whether it may go, so it stays, and the others are looked at
        return {}
    reason = decide(sessions) if sessions else None  # none: it went meanwhile
    if reason is None:
        return {}
    root_id = sessions[0].session_id
    pairs = zip(rows, sessions, strict=True)
    return {row[-1]: stone_of(session, root_id, stamp, reason) for row, session in reversed(list(pairs))}


_TOMBSTONES = f"""
SELECT {TOMBSTONE} FROM moor.tombstones
WHERE owner = ?1 AND n < ?2 AND (?3::text IS NULL OR reason = ?3) AND (?4::bigint IS NULL OR deleted_at >= ?4)
ORDER BY n DESC LIMIT ?5
"""


async def tombstones(
    db: Connection, owner: str, limit: int, cursor: str | None, query: TombstoneQuery
) -> Page[Tombstone]:
    """What was deleted, newest first."""
    mark = query.fingerprint()
    below = MAX_POSITION if cursor is None else read_cursor(cursor, mark)
    rows = await db.all(_TOMBSTONES, (owner, below, query.reason, micros_or_none(query.since), limit + 1))
    items = [tombstone_of(row[1:]) for row in rows[:limit]]
    return Page(items, make_cursor(rows[limit - 1][0], mark) if len(rows) > limit else None)
