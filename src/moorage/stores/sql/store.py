"""The methods that SQLite and PostgreSQL stores share: each names its job and how to run it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol

from moorage import ports
from moorage.core.entry import Event, Hit, search_words
from moorage.core.family import Deletion
from moorage.core.query import Page, SessionQuery
from moorage.core.session import Session, Stamp
from moorage.ports import Capability, DeletionDecision, Sweep, SweepDecision, SweepPart
from moorage.stores import sql
from moorage.stores.rows import micros, micros_or_none
from moorage.stores.sql.db import SqlJob, T

if TYPE_CHECKING:
    from datetime import datetime

    from moorage.core.record import Record, RecordName, RecordQuery
    from moorage.core.work import Claim
    from moorage.ports import Claimed
    from moorage.stores.sql.work import WantedTurns

SHORT_LIST = 101  # records of a list that is read quickly: a page of a hundred, and one that shows that there are more

P = ParamSpec("P")
Coro = Coroutine[Any, Any, T]

# How a job runs: methods of `SqlAccess`.
GLANCE, READ, SNAPSHOT, WRITE, TRANSACT = "glance", "read", "snapshot", "write", "transact"


class SqlAccess(Protocol):
    """Access to a database: how jobs run."""

    async def read(self, job: SqlJob[T]) -> T:
        """Run a job that makes one read."""

    async def glance(self, job: SqlJob[T]) -> T:
        """Run a job that reads a few rows by their keys."""

    async def snapshot(self, job: SqlJob[T]) -> T:
        """Run a job whose reads all see one instant."""

    async def write(self, job: SqlJob[T]) -> T:
        """Run a job that writes with one statement, its last. It may run again."""

    async def transact(self, job: SqlJob[T]) -> T:
        """Run a job that writes with several statements, all or none of them."""


def job(
    method: Callable[Concatenate[Any, P], Coro[T]], find: Callable[[], Callable[Concatenate[Any, P], Coro[T]]], how: str
) -> Callable[Concatenate[Any, P], Coro[T]]:
    """Return a port's method that runs a job. `find` loads the job at its first call, so that hooks start fast."""

    async def run(self: Any, /, *args: P.args, **options: P.kwargs) -> T:
        todo = find()
        result: T = await getattr(self._access, how)(lambda db: todo(db, *args, **options))
        return result

    run.__name__, run.__doc__ = method.__name__, method.__doc__
    return run


class SqlStore(ABC):
    """The common part of both SQL stores."""

    capabilities = frozenset({Capability.SEARCH, Capability.PUSH})
    _access: SqlAccess

    def __init__(self, *, is_sealed: bool) -> None:
        if is_sealed:  # an index would contain the words in plain text
            self.capabilities = frozenset({Capability.PUSH})
        self._queued: WantedTurns | None = None  # owners and agents of the last turn given out: more may be queued

    @abstractmethod
    async def _is_due(self, wanted: WantedTurns, at: int, after: int) -> bool:
        """Return whether a wanted turn is due behind `after`."""

    @abstractmethod
    async def _claim(self, wanted: WantedTurns, wish: Claim, stamp: Stamp, after: int) -> Claimed | int | None:
        """Give the oldest turn behind `after` to a launcher; if it cannot be taken, return where to continue."""

    @abstractmethod
    def _search(self) -> Any:
        """Return the module with the jobs of search: `is_behind`, `catch_up` and `search`."""

    async def _number(self, owner: str) -> None:  # noqa: B027  a dialect may leave it as it is
        """Assign cursors to events that have none. Where writers take turns, every event has one already."""

    # Sessions -----------------------------------------------------------------------------------

    create = job(ports.Sessions.create, lambda: sql.changes.create, WRITE)
    fork = job(ports.Sessions.fork, lambda: sql.changes.fork, WRITE)
    apply = job(ports.Sessions.apply, lambda: sql.changes.apply, WRITE)
    once = job(ports.Sessions.once, lambda: sql.documents.find_once, GLANCE)
    get = job(ports.Sessions.get, lambda: sql.lookup.get, GLANCE)
    get_many = job(ports.Sessions.get_many, lambda: sql.lookup.get_many, READ)
    match = job(ports.Sessions.match, lambda: sql.lookup.match, READ)
    owners = job(ports.Sessions.owners, lambda: sql.find.owners, READ)

    async def find(self, owner: str, *queries: SessionQuery) -> list[Page[Session]]:
        if any(query.by_update for query in queries):
            await self._number(owner)
        run = self._access.read if len(queries) == 1 else self._access.snapshot
        return await run(lambda db: sql.find.find(db, owner, queries))

    # Families -----------------------------------------------------------------------------------

    ancestors = job(ports.Families.ancestors, lambda: sql.family.ancestors, SNAPSHOT)
    tree = job(ports.Families.tree, lambda: sql.family.tree, SNAPSHOT)
    count_children = job(ports.Families.count_children, lambda: sql.family.count_children, SNAPSHOT)
    next_expiry = job(ports.Families.next_expiry, lambda: sql.lookup.next_expiry, GLANCE)
    tombstones = job(ports.Families.tombstones, lambda: sql.family.tombstones, READ)

    async def delete_tree(
        self, owner: str, ref: str, decide: DeletionDecision, stamp: Stamp, *, dry_run: bool = False, **options: Any
    ) -> Deletion:
        run = self._access.snapshot if dry_run else self._access.write
        return await run(lambda db: sql.family.delete_tree(db, owner, ref, decide, stamp, dry_run=dry_run, **options))

    async def sweep(
        self, owner: str, decide: SweepDecision, stamp: Stamp, part: SweepPart, *, dry_run: bool = False
    ) -> Sweep:
        """Find candidates first; then decide on their current state."""
        idle_since, at = micros_or_none(part.before), micros(stamp.at)
        found = await self._access.read(
            lambda db: sql.family.candidates(db, owner, idle_since, at, part.position, part.limit)
        )
        if not found:
            return Sweep([], None)
        run = self._access.snapshot if dry_run else self._access.write
        gone = await run(lambda db: sql.family.sweep(db, owner, found, decide, stamp, dry_run=dry_run))
        return Sweep(gone, found[-1] if len(found) == part.limit else None)

    # The log ------------------------------------------------------------------------------------

    append = job(ports.Log.append, lambda: sql.changes.append, WRITE)
    log = job(ports.Log.log, lambda: sql.history.log, SNAPSHOT)
    tail = job(ports.Log.tail, lambda: sql.history.tail, GLANCE)
    tails = job(ports.Log.tails, lambda: sql.history.tails, SNAPSHOT)

    async def feed(self, owner: str, after: int, limit: int) -> list[Event]:
        await self._number(owner)
        return await self._access.snapshot(lambda db: sql.feed.feed(db, owner, after, limit))

    async def feed_end(self, owner: str) -> int:
        await self._number(owner)
        return await self._access.read(lambda db: db.feed_end(owner))

    async def search(self, owner: str, text: str, limit: int) -> list[Hit]:
        jobs = self._search()
        await self._access.read(sql.sealed.check_searchable)
        upto = await self.feed_end(owner)  # later writes must not delay the answer
        while await self._access.read(lambda db: jobs.is_behind(db, owner, upto)):
            await self._access.transact(lambda db: jobs.catch_up(db, owner))
        return await self._access.snapshot(lambda db: jobs.search(db, owner, search_words(text), limit))

    # Approvals, records -------------------------------------------------------------------------

    approval = job(ports.Approvals.approval, lambda: sql.work.approval, GLANCE)
    approvals = job(ports.Approvals.approvals, lambda: sql.work.approvals, SNAPSHOT)
    approvals_of = job(ports.Approvals.approvals_of, lambda: sql.work.approvals_of, READ)
    records = job(ports.RecordStore.records, lambda: sql.records.records, GLANCE)
    write_memory = job(ports.RecordStore.write_memory, lambda: sql.records.write_memory, WRITE)

    async def records_of(
        self, owner: str, session_ids: list[str], name: RecordName, at: datetime
    ) -> list[Record | None]:
        run = self._access.glance if len(session_ids) < SHORT_LIST else self._access.read
        return await run(lambda db: sql.records.records_of(db, owner, session_ids, name, at))

    async def list_records(self, owner: str, ref: str | None, query: RecordQuery, at: datetime) -> list[Record]:
        run = self._access.glance if query.limit <= SHORT_LIST else self._access.read
        return await run(lambda db: sql.records.list_records(db, owner, ref, query, at))

    # Runs, turns, inboxes -----------------------------------------------------------------------

    run = job(ports.Work.run, lambda: sql.work.run, GLANCE)
    run_by_key = job(ports.Work.run_by_key, lambda: sql.work.run_by_key, GLANCE)
    runs = job(ports.Work.runs, lambda: sql.work.runs, SNAPSHOT)
    inbox = job(ports.Work.inbox, lambda: sql.work.inbox, SNAPSHOT)
    item = job(ports.Work.item, lambda: sql.work.item, GLANCE)
    find_turn = job(ports.Work.find_turn, lambda: sql.work.find_turn, GLANCE)
    overdue = job(ports.Work.overdue, lambda: sql.work.overdue, SNAPSHOT)
    turns_of = job(ports.Work.turns_of, lambda: sql.work.turns_of, READ)

    async def claim(
        self, owners: tuple[str, ...], agents: tuple[str, ...], wish: Claim, stamp: Stamp, *, root: str | None = None
    ) -> Claimed | None:
        """Check without a lock unless a turn was found just now: the check is cheap."""
        wanted = sql.work.WantedTurns(wish.launcher_id, owners, agents, root)
        found: Claimed | int | None = 0
        while isinstance(found, int):  # where to continue the search
            is_likely = found == 0 and self._queued == wanted
            is_there = is_likely or await self._is_due(wanted, micros(stamp.at), found)
            found = await self._claim(wanted, wish, stamp, found) if is_there else None
        self._queued = None if found is None else wanted
        return found

    # Documents, counting, transfer --------------------------------------------------------------

    document = job(ports.Documents.document, lambda: sql.documents.find, GLANCE)
    documents = job(ports.Documents.documents, lambda: sql.documents.some, GLANCE)
    put_document = job(ports.Documents.put_document, lambda: sql.documents.put, WRITE)
    purge = job(ports.Documents.purge, lambda: sql.documents.purge, TRANSACT)
    record_delegation = job(ports.Counting.record_delegation, lambda: sql.counts.record_delegation, WRITE)
    delegations = job(ports.Counting.delegations, lambda: sql.counts.delegations, READ)
    facts = job(ports.Counting.facts, lambda: sql.facts.facts, READ)
    fates = job(ports.Counting.fates, lambda: sql.facts.fates, READ)
    restore = job(ports.Transfer.restore, lambda: sql.changes.restore, WRITE)
    dump = job(ports.Transfer.dump, lambda: sql.transfer.dump, READ)
    load = job(ports.Transfer.load, lambda: sql.transfer.load, TRANSACT)
