"""Approvals."""

from __future__ import annotations

from asyncio import gather
from functools import partial

from moorage.core.approval import PENDING, Approval, ApprovalQuery
from moorage.core.errors import ApprovalNotFound, SessionCorrupt
from moorage.stores.redis import heads
from moorage.stores.redis.base import Base
from moorage.stores.redis.lists import page_of, rows_of, walk
from moorage.stores.redis.values import APPROVALS
from moorage.stores.rows import micros


class RedisApprovals(Base):
    """Stores the approvals of sessions."""

    async def approval(self, owner: str, approval_id: str) -> Approval:
        return await heads.one(self.db, owner, APPROVALS, approval_id, ApprovalNotFound)

    async def approvals(self, owner: str, query: ApprovalQuery = PENDING) -> list[Approval]:
        keys = self.db.keys(owner)
        if query.due_at is not None:
            due = await self.db.one("ZRANGEBYSCORE", keys.list("asked_until"), "-inf", micros(query.due_at))
            found = await rows_of(self.db, keys, APPROVALS, [id_.decode() for id_ in due])
            return [one for one in found if one is not None and query.admits(one)][: query.limit]
        key = keys.list("pending" if query.pending_only else "approvals")
        if query.session_id is not None:
            key = keys.list("approvals_of", query.session_id)
        places = walk(self.db, key, None, min(query.limit + 1, 500), newest_first=False)
        read = partial(rows_of, self.db, keys, APPROVALS)
        return (await page_of(places, read, query.admits, query.limit, str)).items

    async def approvals_of(
        self, owner: str, session_ids: list[str], *, pending_only: bool = True, limit: int = 100
    ) -> list[list[Approval]]:
        async def one(session_id: str) -> list[Approval]:
            try:
                query = ApprovalQuery(session_id=session_id, pending_only=pending_only, limit=limit)
                return await self.approvals(owner, query)
            except SessionCorrupt:
                return []

        return list(await gather(*map(one, session_ids)))
