"""The Redis or Valkey store: every role has its own module beside this one; `base` is their common base."""

from __future__ import annotations

from typing import Any

from moorage.core.entry import Hit
from moorage.core.errors import MoorageError, Unsupported
from moorage.ports import Capability
from moorage.stores.redis import heads
from moorage.stores.redis.counting import RedisCounting
from moorage.stores.redis.db import Op, RedisDb
from moorage.stores.redis.families import RedisFamilies
from moorage.stores.redis.lists import parts, walk
from moorage.stores.redis.log import RedisLog, parts_of
from moorage.stores.redis.server_facts import summary
from moorage.stores.redis.transfer import RedisTransfer
from moorage.stores.redis.work import RedisWork

PART = 100  # sessions checked at once
OPS = 5  # reads for each of them
NO_SEARCH = (
    "a Redis store has no full-text search; keep the sessions in SQLite or PostgreSQL to search them "
    "(`moorage migrate --from redis://… --to sqlite:///FILE` makes a copy)"
)


class RedisStore(RedisWork, RedisFamilies, RedisLog, RedisCounting, RedisTransfer):
    """Stores sessions on a Redis or Valkey server, or on a cluster."""

    capabilities = frozenset({Capability.PUSH})

    def pulse(self) -> int:
        return self.bus.pulse()

    async def wait(self, seen: int, timeout: float) -> int:
        return await self.bus.wait(seen, timeout)

    async def search(self, owner: str, text: str, limit: int) -> list[Hit]:
        raise Unsupported(NO_SEARCH)

    async def check(self) -> list[str]:
        """Read all sessions, and compare each log with its head."""
        problems = await self.risks()
        for owner in await self.known_owners():
            sessions = self.db.keys(owner).list("sessions")
            async for part in parts(walk(self.db, sessions, None, PART, newest_first=False), PART):
                problems += await _problems_of(self.db, owner, [session_id for _, session_id in part])
        return problems

    async def risks(self) -> list[str]:
        """Return how a server may delete stored data by itself, as text; an empty list if none does."""
        found = [facts.risk() for facts in await self.db.facts()]
        return list(dict.fromkeys(risk for risk in found if risk is not None))

    def hurry(self) -> None:
        self.db.servers.hurry()

    async def close(self) -> None:
        await self.bus.close()
        await self.db.close()


async def look(url: str) -> tuple[dict[str, Any], list[str]]:
    """Return the servers' facts, and what a crash or a failover can lose, as text."""
    db = RedisDb(url)
    try:
        return summary(await db.facts(), db.options.durability)
    finally:
        await db.close()


async def _problems_of(db: RedisDb, owner: str, session_ids: list[str]) -> list[str]:
    """Return the problems of some sessions, as text."""
    keys, ops = db.keys(owner), list[Op]()
    for id_ in session_ids:
        log = keys.of("l", id_)
        ops += [*heads.view_ops(keys, id_), ("XLEN", log), ("XREVRANGE", log, "+", "-", "COUNT", 1)]
    answers, problems = await db.read(*ops), list[str]()
    for place, id_ in enumerate(session_ids):
        if (why := _problem(db, id_, answers[OPS * place : OPS * (place + 1)])) is not None:
            problems.append(f"{id_} of {owner}: {why}")
    return problems


def _problem(db: RedisDb, session_id: str, answers: list[Any]) -> str | None:
    *view, count, newest = answers
    try:
        loaded = heads.loaded(db, session_id, view)
    except MoorageError as error:
        return error.message
    if loaded is None:
        return "it is listed, and gone: something else deleted it, or the server evicted it"
    first, last = parts_of(loaded)[-1].first, loaded.session.last_entry
    ends_at = int(newest[0][0].partition(b"-")[0]) if newest else first - 1
    if (count, ends_at) != (last - first + 1, last):
        return f"its log has {count} entries up to {ends_at}, and should have {last - first + 1} up to {last}"
    return None
