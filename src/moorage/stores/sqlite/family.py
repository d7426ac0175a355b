"""Families: ancestors, trees, and deletion with everything that hangs on it."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from moorage.core.errors import SessionCorrupt
from moorage.core.family import Deletion, Member, Tombstone, TombstoneQuery
from moorage.core.query import MAX_POSITION, Page, make_cursor, read_cursor
from moorage.core.session import Session, Stamp
from moorage.ports import DeletionDecision, SweepDecision
from moorage.stores.rows import (
    HEAD_OF_S,
    TOMBSTONE,
    Row,
    instant_or_none,
    json_text,
    micros,
    micros_or_none,
    session_of,
    stone_of,
    tombstone_of,
)
from moorage.stores.sql import lookup
from moorage.stores.sqlite import heads
from moorage.stores.sqlite.connection import BrokenText, Connection
from moorage.stores.sqlite.driven import Driven, drive

_ANCESTORS = f"""
WITH RECURSIVE line (pk, step) AS (
    SELECT parent, 1 FROM sessions WHERE pk = ?
    UNION ALL SELECT s.parent, step + 1 FROM line JOIN sessions s ON s.pk = line.pk WHERE s.parent IS NOT NULL
)
SELECT {HEAD_OF_S} FROM line JOIN sessions s ON s.pk = line.pk ORDER BY step
"""
_TREE = """
WITH RECURSIVE tree (pk) AS (SELECT ?1 UNION ALL SELECT s.pk FROM tree JOIN sessions s ON s.parent = tree.pk)
"""
_TREE_HEADS = f"{_TREE} SELECT {HEAD_OF_S} FROM tree JOIN sessions s ON s.pk = tree.pk ORDER BY s.depth, s.pk LIMIT ?2"
# Leaves first, so that no row is deleted before those that hang on it.
_TREE_MEMBERS = (
    f"{_TREE} SELECT s.pk, s.id, s.depth, s.live_turn IS NOT NULL FROM tree JOIN sessions s ON s.pk = tree.pk "
    "ORDER BY s.depth DESC, s.pk DESC"
)


def ancestors(db: Connection, owner: str, ref: str) -> list[Session]:
    """Parent first, root last."""
    pk = heads.key_of(db, owner, ref)[0]
    return [session_of(row, db.opener) for row in db.all(_ANCESTORS, (pk,))]


def tree(db: Connection, owner: str, ref: str, limit: int) -> list[Session]:
    """The session and its descendants, parents before children."""
    pk = heads.key_of(db, owner, ref)[0]
    return [session_of(row, db.opener) for row in db.all(_TREE_HEADS, (pk, limit))]


def count_children(db: Connection, owner: str, ref: str) -> int:
    """How many children, not grandchildren."""
    row = db.one("SELECT count(*) FROM sessions WHERE parent = ?", (heads.key_of(db, owner, ref)[0],))
    return int(row[0]) if row else 0


# Deleting ---------------------------------------------------------------------------------------


def delete_tree(
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
    pk, root_id = heads.key_of(db, owner, ref)[:2]
    drive(lookup.check_version(Driven(db), owner, pk, expected))
    members = db.all(_TREE_MEMBERS, (pk,))
    decide([Member(row[1], row[2], bool(row[3])) for row in members])
    counts = _counts(db, [row[0] for row in members])
    if not dry_run:
        _delete(db, owner, [Doomed(row[0], root_id, reason) for row in members], stamp)
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


_COUNTS = """
SELECT count(*), coalesce(sum(e.kind IN ('message', 'system')), 0), coalesce(sum(e.kind = 'checkpoint'), 0),
    (SELECT count(*) FROM json_each(?1) doomed CROSS JOIN runs r ON r.session = doomed.value)
FROM json_each(?1) doomed CROSS JOIN entries e ON e.segment = doomed.value
"""


def _counts(db: Connection, pks: list[int]) -> Row:
    """How many entries, messages, checkpoints and runs these sessions have."""
    row = db.one(_COUNTS, (json_text(pks),))
    assert row is not None
    return row


class Doomed(NamedTuple):
    """A session that is about to go."""

    pk: int
    root_id: str  # of the tree it goes with
    reason: str


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


def _delete(db: Connection, owner: str, doomed: list[Doomed], stamp: Stamp) -> None:
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


# Sweeping ---------------------------------------------------------------------------------------

# In the order of the rows, from where the last step ended: so a whole sweep reads each row once. Left to itself, SQLite
# takes an index by owner and sorts all of the owner's sessions anew at every step.
_STALE = "sessions NOT INDEXED WHERE owner = ?1 AND pk > ?4 AND (last_activity_at < ?2 OR expires_at <= ?3)"
# No idle session qualifies without a time: then only those with a TTL are looked at, through their index.
_PAST_TTL = "sessions WHERE owner = ?1 AND pk > ?4 AND expires_at IS NOT NULL AND expires_at <= ?3 AND ?2 IS NULL"


def candidates(db: Connection, owner: str, before: int | None, at: int, position: int, limit: int) -> list[int]:
    """Keys of sessions past their TTL or idle since `before`, in order of creation: parents before children."""
    sql = f"SELECT pk FROM {_PAST_TTL if before is None else _STALE} ORDER BY pk LIMIT ?5"
    return [row[0] for row in db.all(sql, (owner, before, at, position, limit))]


_NEXT_EXPIRY = """
SELECT min(at) FROM (
    SELECT min(expires_at) AS at FROM sessions WHERE owner = ?1 AND expires_at IS NOT NULL
    UNION ALL
    SELECT min(expires_at) FROM approvals WHERE owner = ?1 AND state = 'pending' AND expires_at IS NOT NULL
)
"""


def next_expiry(db: Connection, owner: str) -> datetime | None:
    """When the next TTL or pending approval ends, or ended."""
    row = db.one(_NEXT_EXPIRY, (owner,))
    return None if row is None else instant_or_none(row[0])


def sweep(
    db: Connection, owner: str, pks: list[int], decide: SweepDecision, stamp: Stamp, dry_run: bool
) -> list[Tombstone]:
    """Delete the trees of these that may go, all at once; what went."""
    doomed: dict[int, Tombstone] = {}
    for pk in pks:
        if pk not in doomed:
            doomed |= _condemned(db, pk, decide, stamp)
    if doomed and not dry_run:
        _delete(db, owner, [Doomed(pk, stone.root_of_deletion, stone.reason) for pk, stone in doomed.items()], stamp)
    return list(doomed.values())


def _condemned(db: Connection, pk: int, decide: SweepDecision, stamp: Stamp) -> dict[int, Tombstone]:
    """The tombstones of a tree that may go, by key, leaves first; none if it must stay."""
    try:
        rows = db.all(_TREE_HEADS, (pk, -1))
        sessions = [session_of(row, db.opener) for row in rows]
    except (SessionCorrupt, BrokenText):  # nobody can say whether it may go, so it stays, and the others are looked at
        return {}
    reason = decide(sessions) if sessions else None  # none: it went meanwhile
    if reason is None:
        return {}
    root_id = sessions[0].session_id
    pairs = zip(rows, sessions, strict=True)
    return {row[-1]: stone_of(session, root_id, stamp, reason) for row, session in reversed(list(pairs))}


_TOMBSTONES = f"""
SELECT {TOMBSTONE} FROM tombstones
WHERE owner = ?1 AND n < ?2 AND (?3 IS NULL OR reason = ?3) AND (?4 IS NULL OR deleted_at >= ?4)
ORDER BY n DESC LIMIT ?5
"""


def tombstones(db: Connection, owner: str, limit: int, cursor: str | None, query: TombstoneQuery) -> Page[Tombstone]:
    """What was deleted, newest first."""
    mark = query.fingerprint()
    below = MAX_POSITION if cursor is None else read_cursor(cursor, mark)
    rows = db.all(_TOMBSTONES, (owner, below, query.reason, micros_or_none(query.since), limit + 1))
    items = [tombstone_of(row[1:]) for row in rows[:limit]]
    return Page(items, make_cursor(rows[limit - 1][0], mark) if len(rows) > limit else None)
