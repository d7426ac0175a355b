"""Families: ancestors, trees, deletion. A deletion is one commit; the bytes of logs go afterwards, in steps."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from datetime import datetime

from msgspec.json import Decoder

from moorage.core.entry import Kind
from moorage.core.errors import MoorageError, SessionCorrupt
from moorage.core.family import EVERY_TOMBSTONE, Deletion, Member, Tombstone, TombstoneQuery
from moorage.core.inbox import Item
from moorage.core.query import MAX_POSITION, Page, make_cursor, read_cursor
from moorage.core.run import Run
from moorage.core.session import Session, Stamp
from moorage.ports import DeletionDecision, Sweep, SweepDecision, SweepPart
from moorage.stores.redis import heads
from moorage.stores.redis.base import Base
from moorage.stores.redis.db import CommitGuard, Op, RedisDb, pairs, scored
from moorage.stores.redis.heads import add_row
from moorage.stores.redis.keys import Keys
from moorage.stores.redis.lists import page_of, parts, walk
from moorage.stores.redis.log import LAST
from moorage.stores.redis.values import ITEMS
from moorage.stores.redis.writes import ROWS, stale
from moorage.stores.rows import instant, micros
from moorage.stores.seam import Loaded, Unit

STEP = 500  # entries deleted in one step
_read_mark = Decoder(list[tuple[int, str, int]]).decode


class RedisFamilies(Base):
    """Parents and children of sessions, and their deletion."""

    async def ancestors(self, owner: str, ref: str) -> list[Session]:
        session, found = await heads.head(self.db, owner, ref), list[Session]()
        while session.parent_session_id is not None:
            session = await heads.head(self.db, owner, session.parent_session_id)
            found.append(session)
        return found

    async def tree(self, owner: str, ref: str, limit: int) -> list[Session]:
        session_id = await heads.id_of(self.db, owner, ref)
        found = await heads.many(self.db, owner, await _tree_ids(self.db, owner, session_id, limit), strict=True)
        return [session for session in found if session is not None]

    async def count_children(self, owner: str, ref: str) -> int:
        session_id = await heads.id_of(self.db, owner, ref)
        return int(await self.db.one("ZCARD", self.db.keys(owner).list("children", session_id)))

    async def delete_tree(
        self,
        owner: str,
        ref: str,
        decide: DeletionDecision,
        stamp: Stamp,
        *,
        dry_run: bool = False,
        expected: int | None = None,
    ) -> Deletion:
        async def story() -> Deletion:
            session_id = await heads.id_of(self.db, owner, ref)
            tree = await load_tree(self.db, owner, session_id)
            tree.sessions[0].session.check_version(expected)
            reason = decide(tree.members())
            if not dry_run:
                unit = Unit(self, owner)
                tree.join(unit)
                await unit.delete([(tree.sessions, reason)], stamp)
                await self.commit(unit)
            return tree.deletion(dry_run=dry_run)

        deletion = await self.told(owner, story)
        if not dry_run:
            await _purge(self.db, owner)
        return deletion

    async def sweep(
        self, owner: str, decide: SweepDecision, stamp: Stamp, part: SweepPart, *, dry_run: bool = False
    ) -> Sweep:
        due = await _candidates(self.db, owner, part.before, stamp.at, part.position, part.limit)

        async def story() -> list[Tombstone]:
            unit, trees, seen = Unit(self, owner), list[tuple[list[Loaded], str]](), set[str]()
            for _, session_id in due:
                if session_id not in seen:
                    tree = await self._condemned(owner, session_id, decide)
                    if tree is not None:
                        seen.update(each.session_id for each in tree[0].sessions)
                        tree[0].join(unit)
                        trees.append((tree[0].sessions, tree[1]))
            gone = await unit.delete(trees, stamp)
            if gone and not dry_run:
                await self.commit(unit)
            return gone

        gone = await self.told(owner, story)
        if not dry_run:
            await _purge(self.db, owner)
        return Sweep(gone, due[-1][0] if len(due) == part.limit else None)

    async def _condemned(self, owner: str, session_id: str, decide: SweepDecision) -> tuple[Tree, str] | None:
        """Return a tree that may be deleted, and the reason. A tree that cannot be read completely stays."""
        try:
            tree = await load_tree(self.db, owner, session_id)
        except SessionCorrupt:
            return None
        reason = decide([each.head() for each in tree.sessions])
        return None if reason is None else (tree, reason)

    async def next_expiry(self, owner: str) -> datetime | None:
        keys = self.db.keys(owner)
        lists = keys.list("ends"), keys.list("asked_until"), keys.list("untaken")
        found = await self.db.read(*(("ZRANGE", key, 0, 0, "WITHSCORES") for key in lists))
        ends = [place for each in found for place in scored(each)]
        return instant(min(ends)[0]) if ends else None

    async def tombstones(
        self, owner: str, limit: int, cursor: str | None = None, query: TombstoneQuery = EVERY_TOMBSTONE
    ) -> Page[Tombstone]:
        keys, mark = self.db.keys(owner), query.fingerprint()
        below = MAX_POSITION if cursor is None else read_cursor(cursor, mark)
        places = walk(self.db, keys.list("dead"), below, min(limit + 1, 500), newest_first=True)

        async def read(ids: list[str]) -> list[Tombstone | None]:
            found = await self.db.one("HMGET", keys("dead"), *ids)
            return [None if one is None else heads.read_tombstone(one) for one in found]

        return await page_of(places, read, query.admits, limit, lambda at: make_cursor(at, mark))


async def _tree_ids(db: RedisDb, owner: str, session_id: str, limit: int) -> list[str]:
    """Return a session and its descendants, generation by generation, each in order of creation."""
    keys, found, generation = db.keys(owner), [session_id], [session_id]
    while generation and len(found) < limit:
        children = await db.read(*(("ZRANGE", keys.list("children", id_), 0, -1, "WITHSCORES") for id_ in generation))
        generation = [id_ for _, id_ in sorted(place for each in children for place in scored(each))]
        found += generation
    return found[:limit]


# Deleting ---------------------------------------------------------------------------------------


class Tree:
    """A tree that may be deleted: its sessions with all their rows, parents first."""

    def __init__(
        self, sessions: list[Loaded], guards: list[CommitGuard], counts: list[tuple[int, int, int, int]]
    ) -> None:
        self.sessions, self.guards, self.counts = sessions, guards, counts

    def members(self) -> list[Member]:
        """Return the members that a decision has to know, leaves first."""
        return [Member(s.session_id, s.session.depth, s.session.live_turn is not None) for s in reversed(self.sessions)]

    def deletion(self, *, dry_run: bool) -> Deletion:
        """Return what a deletion of the tree deletes."""
        entries, messages, checkpoints, runs = (sum(each) for each in zip(*self.counts, strict=True))
        return Deletion(
            session_id=self.sessions[0].session_id,
            deleted_sessions=len(self.sessions),
            cascaded_children=len(self.sessions) - 1,
            messages=messages,
            entries=entries,
            runs=runs,
            checkpoints=checkpoints,
            session_ids=[each.session_id for each in reversed(self.sessions)],
            dry_run=dry_run,
        )

    def join(self, unit: Unit) -> None:
        """Add guards to a unit: no session of the tree may change or get another child."""
        unit.guards += self.guards
        for each in self.sessions:
            unit.add(each)


async def load_tree(db: RedisDb, owner: str, session_id: str) -> Tree:
    """Load a tree with all its rows."""
    sessions, counts = list[Loaded](), list[tuple[int, int, int, int]]()
    keys = db.keys(owner)
    for id_ in await _tree_ids(db, owner, session_id, 1 << 30):
        found = await heads.load(db, owner, id_)
        if found is None:
            raise stale(id_)(None)
        entries, others, systems, checkpoints = await db.read(*_counts(keys, id_))
        runs = await _load_rows(db, keys, found)
        sessions.append(found)
        counts.append((entries, entries - others + systems, checkpoints, runs))
    return Tree(sessions, _guards(keys, sessions), counts)


def _guards(keys: Keys, sessions: list[Loaded]) -> list[CommitGuard]:
    """Guard that no session of a tree got another child since the tree was walked."""
    known = Counter(each.session.parent_session_id for each in sessions[1:])
    ids = [each.session_id for each in sessions]
    lists = {id_: keys.list("children", id_) for id_ in ids}
    return [CommitGuard("ZCARD", lists[id_], None, str(known[id_]), stale(f"children of {id_}")) for id_ in ids]


def _counts(keys: Keys, id_: str) -> list[Op]:
    index = keys.of("e", id_)
    return [
        ("XLEN", keys.of("l", id_)),
        ("ZCARD", index),
        ("ZLEXCOUNT", index, "[system:", "(system;"),
        ("ZLEXCOUNT", index, f"[{Kind.CHECKPOINT}:", f"({Kind.CHECKPOINT};"),
    ]


async def _load_rows(db: RedisDb, keys: Keys, found: Loaded) -> int:
    """Load all rows of a session, settled or not; return the number of its runs."""
    id_, runs = found.session_id, 0
    for kind, (rows, _, _) in ROWS.items():
        ids = await db.one("ZRANGE", keys.list(f"{rows.where}_of", id_), 0, -1)
        texts = await db.one("HMGET", keys(rows.where), *ids) if ids else []
        for name, text in zip(ids, texts, strict=True):
            if text is not None:
                add_row(found, kind, name.decode(), rows.value(db, name.decode(), text, id_))
        runs = len(ids) if kind is Run else runs
    for name, row in pairs(await db.one("HGETALL", keys.of("i", id_))):
        add_row(found, Item, name, ITEMS.value(db, name, row, id_))
    return runs


# Purging ----------------------------------------------------------------------------------------


async def _purge(db: RedisDb, owner: str) -> None:
    """Delete the logs of deleted sessions, except parts that forks read. A mark records what is left to do.

    The deletion is committed: if this fails, the next one continues.
    """
    keys = db.keys(owner)
    with suppress(MoorageError):
        for session_id, mark in pairs(await db.one("HGETALL", keys("purge"))):
            for _, log, _ in _read_mark(mark):
                await _purge_log(db, keys, log, reader=session_id)
            await db.write(("HDEL", keys("purge"), session_id))


async def _purge_log(db: RedisDb, keys: Keys, log: str, reader: str) -> None:
    is_own = log == reader
    if not is_own:
        await db.write(("ZREM", keys.list("readers", log), reader))
    last_reader = ("ZREVRANGE", keys.list("readers", log), 0, 0, "WITHSCORES")
    writer, readers = await db.read(("EXISTS", keys.of("h", log)), last_reader)
    if writer:
        return
    if is_own:
        await _forget_events(db, keys, log)
    await _trim(db, keys, log, int(float(readers[1])) if readers else 0)


async def _forget_events(db: RedisDb, keys: Keys, log: str) -> None:
    """Delete the events of a session from the feed, except its deletion."""
    after = 0
    while items := await db.one("XRANGE", keys.of("l", log), f"{after + 1}-0", "+", "COUNT", STEP):
        await db.write(("XDEL", keys("feed"), *(f"{fields[3].decode()}-0" for _, fields in items)))
        after = int(items[-1][0].partition(b"-")[0])
    told = keys.list("told", log)  # feed places of entries that came from another store
    while found := await db.one("ZRANGE", told, 0, STEP - 1):
        cursors = [cursor.decode() for cursor in found]
        await db.write(("XDEL", keys("feed"), *(f"{cursor}-0" for cursor in cursors)), ("ZREM", told, *cursors))


async def _trim(db: RedisDb, keys: Keys, log: str, upto: int) -> None:
    """Delete the entries of a log after a number; with 0, the whole log."""
    stream, index = keys.of("l", log), keys.of("e", log)
    if upto == 0:
        await db.write(("UNLINK", stream), ("UNLINK", index), ("ZREM", keys.list("segments"), log))
        return
    labels = [name.decode() for name in await db.one("ZRANGE", index, 0, -1)]
    await db.write(*(("ZREM", index, name) for name in labels if int(name.rpartition(":")[2]) > upto))
    while items := await db.one("XRANGE", stream, f"{upto + 1}-0", f"{LAST}-0", "COUNT", STEP):
        await db.write(("XDEL", stream, *(id_.decode() for id_, _ in items)))


# Sweeping ---------------------------------------------------------------------------------------


async def _candidates(
    db: RedisDb, owner: str, before: datetime | None, at: datetime, position: int, limit: int
) -> list[tuple[int, str]]:
    """Return sessions past their TTL or idle since `before`, by serial number."""
    keys, found = db.keys(owner), list[tuple[int, str]]()
    if before is None:
        ids = [id_.decode() for id_ in await db.one("ZRANGEBYSCORE", keys.list("ends"), "-inf", micros(at))]
        scores = await db.one("ZMSCORE", keys.list("sessions"), *ids) if ids else []
        ended = sorted((int(float(s)), id_) for s, id_ in zip(scores, ids, strict=True) if s is not None)
        return [each for each in ended if each[0] > position][:limit]
    async for part in parts(walk(db, keys.list("sessions"), position, STEP, newest_first=False), STEP):
        found += await _stale_of(db, keys, part, micros(before), micros(at))
        if len(found) >= limit:
            break
    return found[:limit]


async def _stale_of(
    db: RedisDb, keys: Keys, part: list[tuple[int, str]], before: int, at: int
) -> list[tuple[int, str]]:
    ids = [id_ for _, id_ in part]
    idle, ends = await db.read(("ZMSCORE", keys.list("idle"), *ids), ("ZMSCORE", keys.list("ends"), *ids))
    return [place for place, active, end in zip(part, idle, ends, strict=True) if _is_due(active, end, before, at)]


def _is_due(active: bytes | None, end: bytes | None, before: int, at: int) -> bool:
    return (active is not None and int(float(active)) < before) or (end is not None and int(float(end)) <= at)
