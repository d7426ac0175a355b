"""Families: ancestors, trees, and the decisions about their deletion. Each store's `deletion` carries them out."""

from __future__ import annotations

from moorage.core.errors import SessionCorrupt, StoreCorrupt, VersionConflict
from moorage.core.family import EVERY_TOMBSTONE, Deletion, Member, Tombstone, TombstoneQuery
from moorage.core.query import MAX_POSITION, Page, make_cursor, read_cursor
from moorage.core.session import Session, Stamp
from moorage.ports import DeletionDecision, SweepDecision
from moorage.stores import Stale
from moorage.stores.rows import RARE, TOMBSTONE, micros_or_none, tombstone_for, tombstone_of
from moorage.stores.session_rows import session_of
from moorage.stores.sql.db import Db, Query, Target
from moorage.stores.sql.lookup import HEAD_OF_S, key_of, may_be_ref

_ANCESTORS = Query("ancestors", head=HEAD_OF_S)
_TREE_HEADS = Query("tree", columns=HEAD_OF_S, ending="ORDER BY s.depth, s.pk LIMIT ?3")
# In the lock order of all statements, so that there are no deadlocks.
_LOCK_TREE = Query("tree", columns="s.pk", ending="ORDER BY s.pk FOR UPDATE OF s")
_TREE_TO_DELETE = Query("tree_to_delete", rare=RARE)
# SQLite keeps no revisions: its decisions are written in the same transaction.
_TREE_TO_SWEEP = {
    is_postgres: Query("tree", columns=f"{revision}, {HEAD_OF_S}", ending="ORDER BY s.depth, s.pk")
    for is_postgres, revision in ((True, "s.revision"), (False, "0"))
}


async def ancestors(db: Db, owner: str, ref: str) -> list[Session]:
    pk = (await key_of(db, owner, ref)).pk
    return [session_of(row, db.opener) for row in await db.all(_ANCESTORS(db), (owner, pk))]


async def tree(db: Db, owner: str, ref: str, limit: int) -> list[Session]:
    pk = (await key_of(db, owner, ref)).pk
    return [session_of(row, db.opener) for row in await db.all(_TREE_HEADS(db), (owner, pk, limit))]


async def count_children(db: Db, owner: str, ref: str) -> int:
    pk = (await key_of(db, owner, ref)).pk
    sql = "SELECT count(*) FROM moor.sessions INDEXED BY sessions_by_parent WHERE owner = ? AND parent = ?"
    [(count,)] = await db.all(sql, (owner, pk))
    return int(count)


# Deleting ---------------------------------------------------------------------------------------


async def delete_tree(
    db: Db, owner: str, ref: str, decide: DeletionDecision, stamp: Stamp, *, dry_run: bool, expected: int | None = None
) -> Deletion:
    if not dry_run and db.lock():
        await _lock(db, owner, (await key_of(db, owner, ref)).pk)
    rows = await db.all(_TREE_TO_DELETE(db), (owner, ref)) if may_be_ref(ref) else []
    if not rows:
        rows = await db.all(_TREE_TO_DELETE(db), (owner, (await key_of(db, owner, ref)).session_id))
    if not rows:
        raise Stale(ref)
    pks, ids, depths, running, versions, revisions, *amounts = zip(*rows, strict=True)  # leaves first, the root last
    if expected is not None and versions[-1] != expected:
        raise VersionConflict(ids[-1], expected, versions[-1])
    reason = decide([Member(*each) for each in zip(ids, depths, map(bool, running), strict=True)])
    if not dry_run:
        targets = [Target(pk, ids[-1], reason, revision) for pk, revision in zip(pks, revisions, strict=True)]
        await db.delete_sessions(owner, targets, stamp)
    entries, messages, checkpoints, runs = map(sum, amounts)
    return Deletion(
        session_id=ids[-1], deleted_sessions=len(ids), cascaded_children=len(ids) - 1, entries=entries,
        messages=messages, checkpoints=checkpoints, runs=runs, session_ids=list(ids), dry_run=dry_run,
    )  # fmt: skip


async def _lock(db: Db, owner: str, pk: int) -> None:
    """Lock a whole tree: wait for a child that is being created; the next round reads it."""
    known = -1
    while known < (known := len(await db.all(_LOCK_TREE(db), (owner, pk)))):
        pass


# Sweeping ---------------------------------------------------------------------------------------

# In the order of the rows, from where the last step ended, so that a whole sweep reads each row once. SQLite's own
# choice would be an index by owner, and a sort of all of the owner's sessions at every step.
_STALE = "moor.sessions NOT INDEXED WHERE owner = ?1 AND pk > ?3 AND (last_activity_at < ?5 OR expires_at <= ?2)"
# Without a time no idle session qualifies: then only those with a TTL are read, through their index.
_PAST_TTL = "moor.sessions WHERE owner = ?1 AND pk > ?3 AND expires_at IS NOT NULL AND expires_at <= ?2"


async def candidates(db: Db, owner: str, before: int | None, at: int, position: int, limit: int) -> list[int]:
    """Return keys of sessions past their TTL or idle since `before`, in order of creation: parents before children."""
    sql = f"SELECT pk FROM {_PAST_TTL if before is None else _STALE} ORDER BY pk LIMIT ?4"
    values = (owner, at, position, limit) if before is None else (owner, at, position, limit, before)
    return [row[0] for row in await db.all(sql, values)]


async def sweep(
    db: Db, owner: str, pks: list[int], decide: SweepDecision, stamp: Stamp, *, dry_run: bool
) -> list[Tombstone]:
    """Delete the removable trees of these, all at once; return what was or would be deleted."""
    tombstones: dict[int, tuple[Tombstone, int]] = {}
    for pk in pks:
        if pk not in tombstones:
            if not dry_run and db.lock():
                await _lock(db, owner, pk)
            tombstones |= await _removable(db, owner, pk, decide, stamp)
    if tombstones and not dry_run:
        targets = [
            Target(pk, tombstone.root_of_deletion, tombstone.reason, at) for pk, (tombstone, at) in tombstones.items()
        ]
        await db.delete_sessions(owner, targets, stamp)
    return [tombstone for tombstone, _ in tombstones.values()]


async def _removable(
    db: Db, owner: str, pk: int, decide: SweepDecision, stamp: Stamp
) -> dict[int, tuple[Tombstone, int]]:
    """Return the tombstones and revisions of a removable tree, by key, leaves first; none if it must stay."""
    try:
        rows = await db.all(_TREE_TO_SWEEP[db.is_postgres](db), (owner, pk))
        sessions = [session_of(row[1:], db.opener) for row in rows]
    except (SessionCorrupt, StoreCorrupt):  # unreadable, so it stays; continue with the others
        return {}
    reason = decide(sessions) if sessions else None  # none: it was deleted meanwhile
    if reason is None:
        return {}
    root_id = sessions[0].session_id
    pairs = zip(rows, sessions, strict=True)
    return {row[-1]: (tombstone_for(session, root_id, stamp, reason), row[0]) for row, session in reversed(list(pairs))}


_TOMBSTONES = Query("tombstones", columns=TOMBSTONE)


async def tombstones(
    db: Db, owner: str, limit: int, cursor: str | None = None, query: TombstoneQuery = EVERY_TOMBSTONE
) -> Page[Tombstone]:
    mark = query.fingerprint()
    below = MAX_POSITION if cursor is None else read_cursor(cursor, mark)
    rows = await db.all(_TOMBSTONES(db), (owner, below, query.reason, micros_or_none(query.since), limit + 1))
    items = [tombstone_of(row[1:]) for row in rows[:limit]]
    return Page(items, make_cursor(rows[limit - 1][0], mark) if len(rows) > limit else None)
