"""The methods of a store that are the same for SQLite and PostgreSQL: each says which job runs, and how."""

from __future__ import annotations

from datetime import datetime

from moorage.core.delegation import Delegation, Span
from moorage.core.query import Page
from moorage.ports import DocumentDecision
from moorage.stores import sql
from moorage.stores.rows import micros
from moorage.stores.sql.db import Job, T

TYPE_CHECKING = False
if TYPE_CHECKING:
    from moorage.core.document import Document
    from moorage.core.once import Once


class SqlStore:
    """What both stores do alike. Each of them says how a job runs."""

    async def _read(self, job: Job[T]) -> T:
        """Run a job that makes one read."""
        raise NotImplementedError

    async def _snapshot(self, job: Job[T]) -> T:
        """Run a job whose reads are all of one instant."""
        raise NotImplementedError

    async def _write(self, job: Job[T]) -> T:
        """Run a job that writes with one statement, the last one. It may run again."""
        raise NotImplementedError

    async def _transact(self, job: Job[T]) -> T:
        """Run a job that writes with several statements, all or none."""
        raise NotImplementedError

    # Sessions -----------------------------------------------------------------------------------

    async def once(self, owner: str, operation: str, key: str, at: datetime) -> Once | None:
        return await self._read(lambda db: sql.once.find(db, owner, operation, key, micros(at)))

    async def purge(self, at: datetime, limit: int) -> int:
        return await self._transact(lambda db: sql.once.purge(db, micros(at), limit))

    # Documents ----------------------------------------------------------------------------------

    async def document(self, kind: str, key: str) -> Document | None:
        return await self._read(lambda db: sql.documents.find(db, kind, key))

    async def documents(self, kind: str, *, after: str = "", limit: int = 1000) -> list[Document]:
        return await self._read(lambda db: sql.documents.some(db, kind, after, limit))

    async def put_document(self, kind: str, key: str, decide: DocumentDecision) -> Document | None:
        return await self._write(lambda db: sql.documents.put(db, kind, key, decide))

    # What is counted ----------------------------------------------------------------------------

    async def record_delegation(self, owner: str, delegation: Delegation) -> bool:
        return await self._write(lambda db: sql.counts.record_delegation(db, owner, delegation))

    async def delegations(self, owner: str, span: Span, limit: int, cursor: str | None = None) -> Page[Delegation]:
        return await self._read(lambda db: sql.counts.delegations(db, owner, span, limit, cursor))
