"""Families: ancestors, trees, and what decides about their deletion. Each store's `deletion` carries it out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from moorage.core.errors import SessionCorrupt, StoreCorrupt
from moorage.core.family import Deletion, Member, Tombstone, TombstoneQuery
from moorage.core.query import MAX_POSITION, Page, make_cursor, read_cursor
from moorage.core.session import Session, Stamp
from moorage.ports import DeletionDecision, SweepDecision
from moorage.stores.rows import TOMBSTONE, Row, micros_or_none, stone_of, tombstone_of
from moorage.stores.session_rows import session_of
from moorage.stores.sql.db import Db
from moorage.stores.sql.lookup import HEAD_OF_S, check_version, key_of
from moorage.stores.sql.query import Query

_ANCESTORS = Query("ancestors", head=HEAD_OF_S)
_TREE_HEADS = Query("tree", columns=HEAD_OF_S, ending="ORDER BY s.depth, s.pk LIMIT ?3")
# In the order in which every statement locks, so that nobody waits in a circle.
_LOCK_TREE = Query("tree", columns="s.pk", ending="ORDER BY s.pk FOR UPDATE OF s")
# Leaves first, so that no row is deleted before those that hang on it.
_TREE_MEMBERS = Query(
    "tree", columns="s.pk, s.id, s.depth, s.live_turn IS NOT NULL", ending="ORDER BY s.depth DESC, s.pk DESC"
)
_WHOLE = 1 << 62  # as many as there are


async def ancestors(db: Db, owner: str, ref: str) -> list[Session]:
    """Return parent first, root last."""
    pk = (await key_of(db, owner, ref)).pk
    return [session_of(row, db.opener) for row in await db.all(_ANCESTORS(db), (owner, pk))]


async def tree(db: Db, owner: str, ref: str, limit: int) -> list[Session]:
    """Return the session and its descendants, parents before children."""
    pk = (await key_of(db, owner, ref)).pk
    return [session_of(row, db.opener) for row in await db.all(_TREE_HEADS(db), (owner, pk, limit))]


async def count_children(db: Db, owner: str, ref: str) -> int:
    """Count children, not grandchildren."""
    pk = (await key_of(db, owner, ref)).pk
    row = await db.one(
        "SELECT count(*) FROM moor.sessions INDEXED BY sessions_by_parent WHERE owner = ? AND parent = ?", (owner, pk)
    )
    return int(row[0]) if row else 0


# Deleting ---------------------------------------------------------------------------------------


class Doomed(NamedTuple):
    """A session that is about to go."""

    pk: int
    root_id: str  # of the tree it goes with
    reason: str


Delete = Callable[[Any, str, list[Doomed], Stamp], Awaitable[None]]


async def delete_tree(
    db: Db,
    owner: str,
    ref: str,
    decide: DeletionDecision,
    stamp: Stamp,
    reason: str,
    delete: Delete | None,
    expected: int | None = None,
) -> Deletion:
    """Delete a tree unless the decision refuses; without `delete`, say what would go."""
    pk, root_id, *_ = await key_of(db, owner, ref)
    if delete is not None:
        await _lock(db, owner, pk)
    await check_version(db, owner, pk, expected)
    members = await db.all(_TREE_MEMBERS(db), (owner, pk))
    decide([Member(row[1], row[2], bool(row[3])) for row in members])
    counts = await _counts(db, owner, [row[0] for row in members])
    if delete is not None:
        await delete(db, owner, [Doomed(row[0], root_id, reason) for row in members], stamp)
    return Deletion(
        session_id=root_id,
        deleted_sessions=len(members),
        cascaded_children=len(members) - 1,
        entries=counts[0],
        messages=counts[1],
        checkpoints=counts[2],
        runs=counts[3],
        session_ids=[row[1] for row in members],
        dry_run=delete is None,
    )


async def _lock(db: Db, owner: str, pk: int) -> None:
    """Lock a whole tree: a child that comes to be meanwhile is waited for, and looked at in the next round."""
    known = -1
    while db.is_postgres and known < (known := len(await db.all(_LOCK_TREE(db), (owner, pk)))):
        pass


_COUNTS = Query("count_doomed")


async def _counts(db: Db, owner: str, pks: list[int]) -> Row:
    """Count the entries, messages, checkpoints and runs of these sessions."""
    row = await db.one(_COUNTS(db), (owner, db.listed(pks)))
    assert row is not None
    return row


# Sweeping ---------------------------------------------------------------------------------------

# In the order of the rows, from where the last step ended: so a whole sweep reads each row once. Left to itself, SQLite
# takes an index by owner and sorts all of the owner's sessions anew at every step.
_STALE = "moor.sessions NOT INDEXED WHERE owner = ?1 AND pk > ?3 AND (last_activity_at < ?5 OR expires_at <= ?2)"
# No idle session qualifies without a time: then only those with a TTL are looked at, through their index.
_PAST_TTL = "moor.sessions WHERE owner = ?1 AND pk > ?3 AND expires_at IS NOT NULL AND expires_at <= ?2"


async def candidates(db: Db, owner: str, before: int | None, at: int, position: int, limit: int) -> list[int]:
    """Return keys of sessions past their TTL or idle since `before`, in order of creation: parents before children."""
    sql = f"SELECT pk FROM {_PAST_TTL if before is None else _STALE} ORDER BY pk LIMIT ?4"
    values = (owner, at, position, limit) if before is None else (owner, at, position, limit, before)
    return [row[0] for row in await db.all(sql, values)]


async def sweep(
    db: Db, owner: str, pks: list[int], decide: SweepDecision, stamp: Stamp, delete: Delete | None
) -> list[Tombstone]:
    """Delete the trees of these that may go, all at once; return what went, or without `delete` what would."""
    doomed: dict[int, Tombstone] = {}
    for pk in pks:
        if pk not in doomed:
            if delete is not None:
                await _lock(db, owner, pk)
            doomed |= await _condemned(db, owner, pk, decide, stamp)
    if doomed and delete is not None:
        gone = [Doomed(pk, stone.root_of_deletion, stone.reason) for pk, stone in doomed.items()]
        await delete(db, owner, gone, stamp)
    return list(doomed.values())


async def _condemned(db: Db, owner: str, pk: int, decide: SweepDecision, stamp: Stamp) -> dict[int, Tombstone]:
    """Return the tombstones of a tree that may go, by key, leaves first; none if it must stay."""
    try:
        rows = await db.all(_TREE_HEADS(db), (owner, pk, _WHOLE))
        sessions = [session_of(row, db.opener) for row in rows]
    except (SessionCorrupt, StoreCorrupt):  # nobody can say whether it may go: it stays, and the others are looked at
        return {}
    reason = decide(sessions) if sessions else None  # none: it went meanwhile
    if reason is None:
        return {}
    root_id = sessions[0].session_id
    pairs = zip(rows, sessions, strict=True)
    return {row[-1]: stone_of(session, root_id, stamp, reason) for row, session in reversed(list(pairs))}


_TOMBSTONES = Query("tombstones", columns=TOMBSTONE)


async def tombstones(db: Db, owner: str, limit: int, cursor: str | None, query: TombstoneQuery) -> Page[Tombstone]:
    """Return what was deleted, newest first."""
    mark = query.fingerprint()
    below = MAX_POSITION if cursor is None else read_cursor(cursor, mark)
    rows = await db.all(_TOMBSTONES(db), (owner, below, query.reason, micros_or_none(query.since), limit + 1))
    items = [tombstone_of(row[1:]) for row in rows[:limit]]
    return Page(items, make_cursor(rows[limit - 1][0], mark) if len(rows) > limit else None)
