"""The methods of a store that are the same for SQLite and PostgreSQL: each says which job runs, and how."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from moorage.core.approval import Approval
from moorage.core.context import ContextItem
from moorage.core.delegation import Delegation, Span
from moorage.core.entry import Entry
from moorage.core.family import EVERY_TOMBSTONE, Deletion, Tombstone, TombstoneQuery
from moorage.core.query import Page
from moorage.core.session import Session, Stamp
from moorage.ports import DeletionDecision, DocumentDecision, Sweep, SweepDecision, Tail
from moorage.stores import sql
from moorage.stores.rows import micros, micros_or_none
from moorage.stores.sql.db import Job, T

TYPE_CHECKING = False
if TYPE_CHECKING:
    from moorage.core.document import Document
    from moorage.core.fact import Backlog, Fate, SessionFact
    from moorage.core.inbox import Item
    from moorage.core.once import Once
    from moorage.core.record import Record
    from moorage.core.run import Run, RunQuery
    from moorage.core.turn import Turn
    from moorage.stores.sql.family import Doomed


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

    async def _delete(self, db: Any, owner: str, doomed: list[Doomed], stamp: Stamp) -> None:
        """Delete sessions, leaves first, leaving a tombstone and an event for each."""
        raise NotImplementedError

    # Sessions -----------------------------------------------------------------------------------

    async def once(self, owner: str, operation: str, key: str, at: datetime) -> Once | None:
        return await self._read(lambda db: sql.once.find(db, owner, operation, key, micros(at)))

    async def purge(self, at: datetime, limit: int) -> int:
        return await self._transact(lambda db: sql.once.purge(db, micros(at), limit))

    async def match(self, owner: str, prefix: str, limit: int) -> list[str]:
        return await self._read(lambda db: sql.lookup.match(db, owner, prefix, limit))

    # The log ------------------------------------------------------------------------------------

    async def log(
        self,
        owner: str,
        ref: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int = 100,
        kinds: tuple[str, ...] | None = None,
        newest_first: bool = False,
    ) -> list[Entry]:
        return await self._snapshot(
            lambda db: sql.history.log(db, owner, ref, after, before, limit, kinds, newest_first)
        )

    async def tail(self, owner: str, ref: str, limit: int, pins: int = 100, *, with_session: bool = False) -> Tail:
        return await self._read(lambda db: sql.history.tail(db, owner, ref, limit, pins, with_session))

    # Of many sessions at once --------------------------------------------------------------------

    async def get_many(self, owner: str, session_ids: list[str]) -> list[Session | None]:
        return await self._read(lambda db: sql.many.get_many(db, owner, session_ids))

    # Families -----------------------------------------------------------------------------------

    async def ancestors(self, owner: str, ref: str) -> list[Session]:
        return await self._snapshot(lambda db: sql.family.ancestors(db, owner, ref))

    async def tree(self, owner: str, ref: str, limit: int) -> list[Session]:
        return await self._snapshot(lambda db: sql.family.tree(db, owner, ref, limit))

    async def count_children(self, owner: str, ref: str) -> int:
        return await self._snapshot(lambda db: sql.family.count_children(db, owner, ref))

    async def delete_tree(
        self,
        owner: str,
        ref: str,
        decide: DeletionDecision,
        stamp: Stamp,
        *,
        reason: str,
        dry_run: bool = False,
        expected: int | None = None,
    ) -> Deletion:
        delete = None if dry_run else self._delete
        run = self._snapshot if dry_run else self._transact
        return await run(lambda db: sql.family.delete_tree(db, owner, ref, decide, stamp, reason, delete, expected))

    async def sweep(
        self,
        owner: str,
        decide: SweepDecision,
        stamp: Stamp,
        *,
        before: datetime | None,
        position: int = 0,
        limit: int = 50,
        dry_run: bool = False,
    ) -> Sweep:
        """Look for candidates without locks; decide with them, on what is there then."""
        idle_since, at = micros_or_none(before), micros(stamp.at)
        found = await self._read(lambda db: sql.family.candidates(db, owner, idle_since, at, position, limit))
        if not found:
            return Sweep([], None)
        delete = None if dry_run else self._delete
        run = self._snapshot if dry_run else self._transact
        gone = await run(lambda db: sql.family.sweep(db, owner, found, decide, stamp, delete))
        return Sweep(gone, found[-1] if len(found) == limit else None)

    async def next_expiry(self, owner: str) -> datetime | None:
        return await self._read(lambda db: sql.lookup.next_expiry(db, owner))

    async def tombstones(
        self, owner: str, limit: int, cursor: str | None = None, query: TombstoneQuery = EVERY_TOMBSTONE
    ) -> Page[Tombstone]:
        return await self._read(lambda db: sql.family.tombstones(db, owner, limit, cursor, query))

    # Context and approvals ----------------------------------------------------------------------

    async def context(self, owner: str, ref: str, at: datetime, key: str | None = None) -> dict[str, ContextItem]:
        return await self._snapshot(lambda db: sql.context.items_of(db, owner, ref, micros(at), key))

    async def approval(self, owner: str, approval_id: str) -> Approval:
        return await self._read(lambda db: sql.approvals.approval(db, owner, approval_id))

    async def approvals(
        self, owner: str, *, ref: str | None = None, pending_only: bool = True, limit: int = 100
    ) -> list[Approval]:
        return await self._snapshot(lambda db: sql.approvals.approvals(db, owner, ref, pending_only, limit))

    async def due_approvals(self, owner: str, at: datetime, limit: int = 100) -> list[Approval]:
        return await self._read(lambda db: sql.approvals.due_approvals(db, owner, micros(at), limit))

    # Runs, turns, inboxes -----------------------------------------------------------------------

    async def run(self, owner: str, run_id: str) -> Run:
        return await self._read(lambda db: sql.runs.run(db, owner, run_id))

    async def run_by_key(self, owner: str, key: str) -> Run | None:
        return await self._read(lambda db: sql.runs.run_by_key(db, owner, key))

    async def runs(self, owner: str, query: RunQuery) -> Page[Run]:
        return await self._snapshot(lambda db: sql.runs.runs(db, owner, query))

    async def inbox(
        self, owner: str, *, ref: str | None = None, states: tuple[str, ...], limit: int, cursor: str | None = None
    ) -> Page[Item]:
        return await self._snapshot(lambda db: sql.runs.inbox(db, owner, ref, states, limit, cursor))

    async def item(self, owner: str, item_id: str) -> Item:
        return await self._read(lambda db: sql.runs.item(db, owner, item_id))

    async def find_turn(self, owner: str, turn_id: str) -> Turn:
        return await self._read(lambda db: sql.turns.find_turn(db, owner, turn_id))

    async def overdue(self, at: datetime, limit: int) -> list[tuple[str, str]]:
        return await self._snapshot(lambda db: sql.turns.overdue(db, micros(at), limit))

    async def waiting_turns(self, launcher_id: str) -> list[str]:
        return await self._read(lambda db: sql.turns.waiting_turns(db, launcher_id))

    async def unstarted_turns(self, launcher_id: str) -> list[tuple[str, Turn]]:
        return await self._read(lambda db: sql.turns.unstarted_turns(db, launcher_id))

    # Servers ------------------------------------------------------------------------------------

    async def owners(self) -> list[str]:
        return await self._read(lambda db: sql.turns.owners(db))

    async def extend_leases(self, at: datetime, by: timedelta) -> int:
        return await self._transact(lambda db: sql.turns.extend_leases(db, at, at + by))

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

    async def facts(self, owner: str, span: Span, limit: int, cursor: str | None = None) -> Page[SessionFact]:
        return await self._read(lambda db: sql.facts.facts(db, owner, span, limit, cursor))

    async def fates(self, owner: str, session_ids: list[str]) -> list[Fate]:
        return await self._read(lambda db: sql.facts.fates(db, owner, session_ids))

    async def backlog(self) -> Backlog:
        return await self._snapshot(lambda db: sql.turns.backlog(db))

    # Transfer -----------------------------------------------------------------------------------

    async def dump(self, kind: str, limit: int, cursor: str | None = None) -> Page[Record]:
        return await self._read(lambda db: sql.dump.dump(db, kind, limit, cursor))

    async def load_mark(self) -> str | None:
        return await self._read(lambda db: sql.dump.mark(db))
