"""The queue: due turns, expired leases, and the turns of launchers.

Turns wait in a list for each agent of each owner. One shared set, which is a hint, holds the owners with queued turns:
so a launcher for thousands of owners need not check all of them each time. Every few seconds it checks all of them
nevertheless.
"""

from __future__ import annotations

import time
from asyncio import gather
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from moorage.core.errors import MoorageError
from moorage.core.run import Mode
from moorage.core.turn import Turn
from moorage.stores.redis import heads
from moorage.stores.redis.db import Op, RedisDb, scored
from moorage.stores.redis.values import RUNS, TURNS
from moorage.stores.rows import micros

MANY = 16  # with at most this many owners, all are checked each time
LOOK_AT_ALL_EVERY = 5.0  # seconds
CHOICE = 16  # turns of one agent that are considered, so that concurrent launchers find different ones


class Ready:
    """The owners that may have turns for a launcher, according to the hint."""

    def __init__(self, db: RedisDb) -> None:
        self._db, self._key = db, db.shared("ready")
        self._looked_at = 0.0  # when all owners were checked last
        self.in_hand: set[tuple[str, str]] = set()  # sessions whose turns this process is about to take

    @contextmanager
    def taking(self, owner: str, session_id: str) -> Iterator[None]:
        """Keep other claims of this process away from a session during the block."""
        self.in_hand.add((owner, session_id))
        try:
            yield
        finally:
            self.in_hand.discard((owner, session_id))

    async def among(self, owners: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of these owners that may have turns."""
        now = time.monotonic()
        if len(owners) <= MANY:
            return owners
        if now - self._looked_at > LOOK_AT_ALL_EVERY:
            self._looked_at = now
            await self._repair(owners)
            return owners
        noted = await self._db.one("SMISMEMBER", self._key, *owners)
        return tuple(owner for owner, is_noted in zip(owners, noted, strict=True) if is_noted)

    async def note(self, owner: str) -> None:
        """Record that an owner has a queued turn. The turn is committed already: losing the hint is no error."""
        with suppress(MoorageError):
            await self._db.one("SADD", self._key, owner)

    async def _repair(self, owners: tuple[str, ...]) -> None:
        """Remove owners without queued turns from the hint; the next check finds an owner that gets a turn just now."""
        noted = await self._db.one("SMISMEMBER", self._key, *owners)
        known = [owner for owner, is_noted in zip(owners, noted, strict=True) if is_noted]
        counts = await gather(*(self._db.one("ZCARD", self._db.keys(owner).list("queued")) for owner in known))
        if idle := [owner for owner, count in zip(known, counts, strict=True) if not count]:
            await self._db.one("SREM", self._key, *idle)


async def due(
    db: RedisDb, owners: tuple[str, ...], agents: tuple[str, ...], at: int, root: str | None
) -> list[tuple[int, str, str]]:
    """Return number, owner and session of due queued turns, oldest first."""
    found = await gather(*(_due_of(db, owner, agents, at, root) for owner in owners))
    return sorted(each for of_owner in found for each in of_owner)


async def _due_of(
    db: RedisDb, owner: str, agents: tuple[str, ...], at: int, root: str | None
) -> list[tuple[int, str, str]]:
    keys = db.keys(owner)
    if root is not None:
        ids = await db.one("ZRANGE", keys.list("queue_of", root), 0, -1)
    else:
        ops: list[Op] = [("ZRANGE", keys.list("queue", agent), 0, CHOICE - 1) for agent in agents]
        ops += [("ZRANGEBYSCORE", keys.list("later", agent), "-inf", at, "LIMIT", 0, 500) for agent in agents]
        ids = [id_ for each in await db.read(ops) for id_ in each]
    turns = await turns_of(db, owner, [id_.decode() for id_ in ids])
    wanted = [(number, turn) for number, turn in turns if turn.agent_name in agents and turn.state == "queued"]
    return [
        (number, owner, turn.session_id)
        for number, turn in wanted
        if turn.not_before is None or micros(turn.not_before) <= at
    ]


async def turns_of(db: RedisDb, owner: str, ids: list[str]) -> list[tuple[int, Turn]]:
    """Return turns by id, each with its number, oldest first."""
    if not ids:
        return []
    rows = await db.one("HMGET", db.keys(owner)("turns"), *ids)
    return sorted(
        (TURNS.value(db, id_, row) for id_, row in zip(ids, rows, strict=True) if row is not None),
        key=lambda each: each[0],
    )


async def overdue(db: RedisDb, owners: list[str], at: int, limit: int) -> list[tuple[str, str]]:
    """Return sessions with an expired lease, then those with a run that was not taken in time; each once."""
    silent, untaken = list[tuple[int, str, str]](), list[tuple[int, str, str]]()
    for owner, (leases, runs) in zip(owners, await gather(*(_ended(db, o, at, limit) for o in owners)), strict=True):
        turns = {turn.turn_id: turn for _, turn in await turns_of(db, owner, [id_ for _, id_ in leases])}
        silent += [(end, owner, turns[id_].session_id) for end, id_ in leases if id_ in turns]
        for end, id_ in runs:
            if (run := await heads.row(db, owner, RUNS, id_)) is not None:
                untaken.append((end, owner, run[1].session_id))
    ordered = [(owner, session_id) for _, owner, session_id in (*sorted(silent), *sorted(untaken))]
    return list(dict.fromkeys(ordered))[:limit]


async def _ended(db: RedisDb, owner: str, at: int, limit: int) -> list[list[tuple[int, str]]]:
    keys = db.keys(owner)
    names = ("leases", "untaken")
    found = await db.read(
        [("ZRANGEBYSCORE", keys.list(name), "-inf", at, "WITHSCORES", "LIMIT", 0, limit) for name in names]
    )
    return [scored(each) for each in found]


async def of_launcher(db: RedisDb, owners: list[str], launcher_id: str) -> list[tuple[int, str, Turn]]:
    """Return number, owner and turn of a launcher's turns, oldest first."""

    async def of_owner(owner: str) -> list[tuple[int, str, Turn]]:
        ids = await db.one("ZRANGE", db.keys(owner).list("launcher", launcher_id), 0, -1)
        return [(number, owner, turn) for number, turn in await turns_of(db, owner, [id_.decode() for id_ in ids])]

    found = [each for one in await gather(*(of_owner(owner) for owner in owners)) for each in one]
    return sorted(found, key=lambda each: each[0])


async def awaits_child(db: RedisDb, owner: str, session_id: str) -> bool:
    """Return whether a session waits for a child that it called synchronously."""
    found = heads.loaded(db, session_id, await db.read(heads.head_ops(db.keys(owner), session_id)))
    return found is not None and any(out.mode is Mode.SYNC for out in found.out.values())
