"""Reads of many sessions, one after the other."""

from __future__ import annotations

from datetime import datetime

from moorage.core.approval import Approval, ApprovalQuery
from moorage.core.entry import Kind
from moorage.core.errors import NotFound, SessionCorrupt
from moorage.core.query import LogQuery
from moorage.core.record import Record, RecordName
from moorage.core.session import Session
from moorage.ports import Store, Tail

MISSING = (NotFound, SessionCorrupt)


class OneByOne:
    """A mixin for stores: it calls their own reads, one after the other."""

    async def get_many(self: Store, owner: str, session_ids: list[str]) -> list[Session | None]:
        """Return the sessions with these ids."""
        found: list[Session | None] = []
        for session_id in session_ids:
            try:
                session = await self.get(owner, session_id)
            except MISSING:
                found.append(None)
            else:
                found.append(session if session.session_id == session_id else None)
        return found

    async def tails(
        self: Store, owner: str, session_ids: list[str], limit: int, pins: int = 100, *, before: int | None = None
    ) -> list[Tail]:
        """Return the result of `tail` for each id."""
        found = []
        for session_id in session_ids:
            try:
                if before is None:
                    found.append(await self.tail(owner, session_id, limit, pins))
                else:
                    said = (Kind.MESSAGE.value,)
                    messages = await self.log(
                        owner, session_id, LogQuery(before=before, limit=limit, kinds=said, newest_first=True)
                    )
                    found.append(Tail([], messages))
            except MISSING:
                found.append(Tail([], []))
        return found

    async def approvals_of(
        self: Store, owner: str, session_ids: list[str], *, pending_only: bool = True, limit: int = 100
    ) -> list[list[Approval]]:
        """Return the result of `approvals` for each id."""
        found = []
        for session_id in session_ids:
            try:
                query = ApprovalQuery(session_id=session_id, pending_only=pending_only, limit=limit)
                found.append(await self.approvals(owner, query))
            except SessionCorrupt:
                found.append([])
        return found

    async def records_of(
        self: Store, owner: str, session_ids: list[str], name: RecordName, at: datetime
    ) -> list[Record | None]:
        """Return a record of each session."""
        found: list[Record | None] = []
        for session in await self.get_many(owner, session_ids):
            records = [None] if session is None else await self.records(owner, session.session_id, [name], at)
            found += records
        return found
