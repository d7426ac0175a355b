"""The SQLite store: one file, several processes, nothing acknowledged ever lost.

The methods say what is read or written; the modules beside this one say how. `open`
gives a store whose coroutines never suspend; `serve` one whose jobs run on threads and
whose writes are committed in groups.
"""

from __future__ import annotations

import os
from datetime import datetime
from functools import partial

from moorage.core.approval import Approval
from moorage.core.context import ContextChange
from moorage.core.entry import Entry, Message
from moorage.core.event import Event, Hit, search_words
from moorage.core.query import Page, SessionQuery
from moorage.core.session import Asker, Change, Session, Stamp
from moorage.ports import (
    BirthDecision,
    Capability,
    CommitWatcher,
    ContextDecision,
    Decision,
    ForkDecision,
    Tail,
)
from moorage.stores.rows import micros
from moorage.stores.sql import db as sql_db
from moorage.stores.sql.store import SqlStore
from moorage.stores.sqlite import context, find, heads, log
from moorage.stores.sqlite.access import Access, Inline, Job, T
from moorage.stores.sqlite.connection import Connection
from moorage.stores.sqlite.driven import Driven, driven
from moorage.stores.sqlite.migrate import migrate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from moorage.core.bundle import Bundle
    from moorage.core.fact import Size
    from moorage.core.record import Record
    from moorage.core.work import Claim
    from moorage.ports import Claimed
    from moorage.stores.sealing import Sealer
    from moorage.stores.sql.family import Doomed
    from moorage.stores.sqlite.queue import Wanted


class SqliteStore(SqlStore):
    """Keeps sessions in one SQLite file."""

    capabilities = frozenset({Capability.SEARCH, Capability.PUSH})

    def __init__(self, access: Access, *, is_sealed: bool = False) -> None:
        self._access = access
        if is_sealed:
            self.capabilities = frozenset({Capability.PUSH})
        self._read_now = access.read_now if isinstance(access, Inline) else None
        self._queued: Wanted | None = None  # of whose turns one was given out last, so that there may be more

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], patience: float | None = None, sealer: Sealer | None = None
    ) -> SqliteStore:
        """The file for scripts, commands and hooks: everything runs inline. `patience` is for all waits together."""
        db = prepared(path, patience, sealer)
        return cls(Inline(db), is_sealed=db.sealer is not None)

    @classmethod
    def serve(cls, path: str | os.PathLike[str], sealer: Sealer | None = None) -> SqliteStore:
        """The file for an event loop: writes in groups, reads on threads."""
        from moorage.stores.sqlite.threads import Threaded

        db = prepared(path, sealer=sealer)
        return cls(Threaded(db), is_sealed=db.sealer is not None)

    async def _read(self, job: sql_db.Job[T]) -> T:
        return await self._access.read(driven(job))

    async def _snapshot(self, job: sql_db.Job[T]) -> T:
        return await self._see(driven(job))

    async def _write(self, job: sql_db.Job[T]) -> T:
        return await self._access.write(driven(job))

    _transact = _write

    async def _delete(self, db: Driven, owner: str, doomed: list[Doomed], stamp: Stamp) -> None:
        from moorage.stores.sqlite import deletion  # few who open a store delete something

        deletion.delete(db.connection, owner, doomed, stamp)

    # Sessions -----------------------------------------------------------------------------------

    async def create(
        self, owner: str, decide: BirthDecision, *, parent: str | None = None, asker: Asker | None = None
    ) -> Session:
        return await self._access.write(lambda db: heads.create(db, owner, decide, parent, asker))

    async def fork(
        self, owner: str, ref: str, at: int | None, decide: ForkDecision, *, expected: int | None = None
    ) -> Session:
        return await self._access.write(lambda db: heads.fork(db, owner, ref, at, decide, expected))

    async def get(self, owner: str, ref: str) -> Session:
        def job(db: Connection) -> Session:
            return heads.load(db, owner, ref)[1]

        return self._read_now(job) if self._read_now is not None else await self._access.read(job)

    async def find(self, owner: str, query: SessionQuery) -> Page[Session]:
        return await self._access.read(lambda db: find.find(db, owner, query))

    async def apply(
        self,
        owner: str,
        ref: str,
        decide: Decision,
        *,
        expected: int | None = None,
        approval: str | None = None,
        turn: str | None = None,
        item: str | None = None,
        run: str | None = None,
        asker: Asker | None = None,
    ) -> Change:
        return await self._access.write(
            lambda db: heads.apply(db, owner, ref, decide, expected, approval, turn, item, run, asker)
        )

    # The log ------------------------------------------------------------------------------------

    async def append(
        self,
        owner: str,
        ref: str,
        messages: list[Message],
        stamp: Stamp,
        *,
        token: str | None = None,
        expected: int | None = None,
    ) -> list[Entry]:
        weight = sum([message.size for message in messages])
        return await self._access.write(lambda db: log.append(db, owner, ref, messages, stamp, token, expected), weight)

    async def feed(self, owner: str, after: int, limit: int) -> list[Event]:
        return await self._see(lambda db: log.feed(db, owner, after, limit))

    async def feed_end(self, owner: str) -> int:
        return await self._access.read(lambda db: log.feed_end(db, owner))

    # Of many sessions at once --------------------------------------------------------------------

    async def find_many(self, owner: str, queries: list[SessionQuery]) -> list[Page[Session]]:
        from moorage.stores.sqlite import many

        return await self._see(lambda db: many.find_many(db, owner, queries))

    async def tails(
        self, owner: str, session_ids: list[str], limit: int, pins: int = 100, *, before: int | None = None
    ) -> list[Tail]:
        from moorage.stores.sqlite import many

        return await self._see(lambda db: many.tails(db, owner, session_ids, limit, pins, before))

    async def approvals_of(
        self, owner: str, session_ids: list[str], *, pending_only: bool = True, limit: int = 100
    ) -> list[list[Approval]]:
        from moorage.stores.sqlite import many

        return await self._see(lambda db: many.approvals_of(db, owner, session_ids, pending_only, limit))

    # Context and approvals ----------------------------------------------------------------------

    async def write_context(
        self,
        owner: str,
        ref: str,
        decide: ContextDecision,
        at: datetime,
        key: str | None = None,
        *,
        expected: int | None = None,
    ) -> ContextChange:
        return await self._access.write(lambda db: context.write(db, owner, ref, decide, micros(at), key, expected))

    # Runs, turns, inboxes -----------------------------------------------------------------------

    async def claim(
        self,
        owners: tuple[str, ...],
        agents: tuple[str, ...],
        wish: Claim,
        stamp: Stamp,
        *,
        full: tuple[str, ...] = (),
        root: str | None = None,
    ) -> Claimed | None:
        """Looked for without the write lock, unless there was something just now: to look costs little."""
        from moorage.stores.sqlite import queue

        wanted = queue.Wanted(wish.launcher_id, owners, tuple(agent for agent in agents if agent not in full), root)
        found: Claimed | int | None = 0
        while isinstance(found, int):  # the place to go on looking from
            look = partial(queue.next_due, wanted=wanted, at=micros(stamp.at), after=found)
            take = partial(queue.claim_next, wanted=wanted, wish=wish, stamp=stamp, after=found)
            is_likely = found == 0 and self._queued == wanted
            found = await self._access.write(take) if is_likely or await self._access.read(look) is not None else None
        self._queued = None if found is None else wanted
        return found

    # What is counted ----------------------------------------------------------------------------

    async def size(self) -> Size | None:
        from moorage.stores.sqlite.size import size

        return await self._see(size)

    def on_commit(self, watcher: CommitWatcher) -> None:
        self._access.on_commit(watcher)

    def hurry(self) -> None:
        """A file is there or not: nobody waits for it to come back."""

    # Search, transfer, care ---------------------------------------------------------------------

    async def search(self, owner: str, text: str, limit: int) -> list[Hit]:
        from moorage.stores.sqlite import sealed, search  # who searches has the time

        await self._access.read(sealed.check_searchable)
        upto = await self._access.read(
            lambda db: log.feed_end(db, owner)
        )  # later writes must not keep us from answering
        while await self._access.read(lambda db: search.is_behind(db, owner, upto)):
            await self._access.write(lambda db: search.catch_up(db, owner))
        return await self._see(lambda db: search.search(db, owner, search_words(text), limit))

    async def restore(self, owner: str, bundle: Bundle) -> bool:
        from moorage.stores.sqlite import transfer

        return await self._access.write(lambda db: transfer.restore(db, owner, bundle))

    async def load(self, records: list[Record], mark: str | None) -> None:
        from moorage.stores.sqlite import records as taking_in

        await self._access.write(lambda db: taking_in.load(db, records, mark))

    async def check(self) -> list[str]:
        from moorage.stores.sqlite import transfer

        return await self._see(transfer.check)

    def pulse(self) -> int:
        return self._access.pulse()

    async def wait(self, seen: int, timeout: float) -> int:
        return await self._access.wait(seen, timeout)

    async def close(self) -> None:
        await self._access.close()

    async def _see(self, job: Job[T]) -> T:
        def at_one_instant(db: Connection) -> T:
            with db.snapshot():
                return job(db)

        return await self._access.read(at_one_instant)


def prepared(path: str | os.PathLike[str], patience: float | None = None, sealer: Sealer | None = None) -> Connection:
    """A connection to the file, which is created, brought to the newest schema or marked as sealed if need be."""
    db = Connection(os.fspath(path), patience, sealer)
    try:
        migrate(db)
        if sealer is not None:
            from moorage.stores.sqlite import sealed

            sealed.prepare(db)
    except BaseException:
        db.close()
        raise
    return db
