"""The Redis or Valkey store: every role has its own module beside this one; `base` is their common base."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moorage.core.entry import Hit
from moorage.core.errors import Unsupported
from moorage.ports import Capability
from moorage.stores.redis.approvals import RedisApprovals
from moorage.stores.redis.checking import problems_of
from moorage.stores.redis.counting import RedisCounting
from moorage.stores.redis.families import RedisFamilies
from moorage.stores.redis.lists import parts, walk
from moorage.stores.redis.log import RedisLog
from moorage.stores.redis.transfer import RedisTransfer
from moorage.stores.redis.work import RedisWork

if TYPE_CHECKING:
    pass

PART = 100  # sessions checked at once
NO_SEARCH = (
    "a Redis store has no full-text search; keep the sessions in SQLite or PostgreSQL to search them "
    "(`moorage migrate --from redis://… --to sqlite:///FILE` makes a copy)"
)


class RedisStore(RedisWork, RedisFamilies, RedisLog, RedisApprovals, RedisCounting, RedisTransfer):
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
                problems += await problems_of(self.db, owner, [session_id for _, session_id in part])
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
