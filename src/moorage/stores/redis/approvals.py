"""Approvals."""

from __future__ import annotations

from asyncio import gather
from datetime import datetime

from moorage.core.approval import Approval
from moorage.core.errors import ApprovalNotFound, NotFound, SessionCorrupt
from moorage.stores.redis import heads
from moorage.stores.redis.base import Base
from moorage.stores.redis.lists import page_of, rows_of, walk
from moorage.stores.redis.values import APPROVALS
from moorage.stores.rows import micros


class RedisApprovals(Base):
    """Stores the approvals of sessions."""

    async def approval(self, owner: str, approval_id: str) -> Approval:
        found = await heads.row(self.db, owner, "approvals", APPROVALS, approval_id)
        if found is None:
            raise ApprovalNotFound(approval_id)
        return found[1]  # type: ignore[no-any-return]

    async def approvals(
        self, owner: str, *, ref: str | None = None, pending_only: bool = True, limit: int = 100
    ) -> list[Approval]:
        keys = self.db.keys(owner)
        key = keys.list("pending" if pending_only else "approvals")
        if ref is not None:
            key = keys.list("approvals_of", await heads.id_of(self.db, owner, ref))
        places = walk(self.db, key, None, min(limit + 1, 500), newest_first=False)
        page = await page_of(
            places,
            lambda ids: rows_of(self.db, keys("approvals"), APPROVALS, ids),
            lambda one: one.state == "pending" or not pending_only,
            limit,
            0,
        )
        return page.items

    async def approvals_of(
        self, owner: str, session_ids: list[str], *, pending_only: bool = True, limit: int = 100
    ) -> list[list[Approval]]:
        async def one(session_id: str) -> list[Approval]:
            try:
                return await self.approvals(owner, ref=session_id, pending_only=pending_only, limit=limit)
            except (NotFound, SessionCorrupt):
                return []

        return list(await gather(*map(one, session_ids)))

    async def due_approvals(self, owner: str, at: datetime, limit: int = 100) -> list[Approval]:
        keys = self.db.keys(owner)
        ids = await self.db.one("ZRANGEBYSCORE", keys.list("asked_until"), "-inf", micros(at), "LIMIT", 0, limit)
        found = await rows_of(self.db, keys("approvals"), APPROVALS, [id_.decode() for id_ in ids])
        return [approval for approval in found if approval is not None]
