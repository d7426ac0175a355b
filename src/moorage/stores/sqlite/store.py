"""The SQLite store: one file, several processes, and no acknowledged change is lost.

`stores/sql/store.py` says which job each method runs. `open` returns a store whose coroutines never suspend. `serve`
returns one that runs jobs on threads and commits writes in groups; `in_memory` one without a file.

Migrations are numbered SQL files, forward only, each applied once, safe under concurrent starts. An applied file is
never edited; its checksum is stored in the database, so that an edit is noticed. A database from a newer Moorage is
refused.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from moorage import ports
from moorage.core.entry import Entry, Message
from moorage.core.errors import StoreTooNew
from moorage.core.inline import drive
from moorage.core.session import Stamp
from moorage.ports import CommitWatcher
from moorage.stores.sql.store import SNAPSHOT, SqlStore, job
from moorage.stores.sqlite import writes
from moorage.stores.sqlite.access import InlineAccess, SqliteAccess
from moorage.stores.sqlite.connection import APPLICATION_ID, SqliteConnection, check_ours, translating

if TYPE_CHECKING:
    from moorage.core.work import Claim
    from moorage.ports import Claimed
    from moorage.stores.sealing import Sealer
    from moorage.stores.sql.db import Migration
    from moorage.stores.sql.work import WantedTurns

LATEST = 2  # the newest migration in this release; a test compares it with the folder

_LEDGER = """
CREATE TABLE IF NOT EXISTS migrations (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum INTEGER NOT NULL, applied_at INTEGER NOT NULL
) STRICT
"""


class SqliteStore(SqlStore):
    """Stores sessions in one SQLite database."""

    _access: SqliteAccess

    def __init__(self, access: SqliteAccess, *, is_sealed: bool = False) -> None:
        super().__init__(is_sealed=is_sealed)
        self._access = access

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], patience: float | None = None, sealer: Sealer | None = None
    ) -> SqliteStore:
        """Open the file for scripts, commands and hooks; jobs run inline. `patience` limits all waits together."""
        db = prepared(path, patience, sealer)
        return cls(InlineAccess(db), is_sealed=db.sealer is not None)

    @classmethod
    def serve(cls, path: str | os.PathLike[str], sealer: Sealer | None = None) -> SqliteStore:
        """Open the file for an event loop: writes in groups, reads on threads."""
        from moorage.stores.sqlite.threads import Threaded

        db = prepared(path, sealer=sealer)
        return cls(Threaded(db), is_sealed=db.sealer is not None)

    @classmethod
    def in_memory(cls, url: str = "memory://") -> SqliteStore:
        """Create a database without a file, for any number of threads and event loops of this process."""
        from moorage.stores.sqlite.memory import MemoryAccess, MemoryConnection

        db = MemoryConnection(url)
        migrate(db)
        return cls(MemoryAccess(db))

    async def _is_due(self, wanted: WantedTurns, at: int, after: int) -> bool:
        from moorage.stores.sqlite import queue

        return await self._access.read(lambda db: queue.next_due(db, wanted, at, after)) is not None

    async def _claim(self, wanted: WantedTurns, wish: Claim, stamp: Stamp, after: int) -> Claimed | int | None:
        from moorage.stores.sqlite import queue

        return await self._access.write(lambda db: queue.claim_next(db, wanted, wish, stamp, after))

    def _search(self) -> Any:
        from moorage.stores.sqlite import search

        return search

    async def append(self, owner: str, ref: str, messages: list[Message], stamp: Stamp, **options: Any) -> list[Entry]:
        weight = sum([message.size for message in messages])
        # Under load the garbage collector counts every object: a lambda would make nine of them for its variables.
        todo = partial(writes.append, owner, ref, messages, stamp, options.get("token"), options.get("expected"))
        return await self._access.write(todo, weight)

    totals = job(ports.Counting.totals, lambda: _care().totals, SNAPSHOT)
    check = job(ports.Store.check, lambda: _care().check, SNAPSHOT)

    def on_commit(self, watcher: CommitWatcher) -> None:
        self._access.on_commit(watcher)

    def hurry(self) -> None:
        """Do nothing: a file exists or not, so no call waits for it to return."""

    def pulse(self) -> int:
        return self._access.pulse()

    async def wait(self, seen: int, timeout: float) -> int:
        return await self._access.wait(seen, timeout)

    async def close(self) -> None:
        await self._access.close()


def _care() -> Any:
    from moorage.stores.sqlite import care

    return care


def prepared(
    path: str | os.PathLike[str], patience: float | None = None, sealer: Sealer | None = None
) -> SqliteConnection:
    """Return a connection to the file; create it, migrate it or mark it as sealed if needed."""
    db = SqliteConnection(os.fspath(path), patience, sealer)
    try:
        migrate(db)
        if sealer is not None:
            from moorage.stores.sql import sealed

            if not drive(sealed.is_marked(db.driven, sealer)):
                with translating(db.path), db.transaction():
                    drive(sealed.mark(db.driven, sealer))
    except BaseException:
        db.close()
        raise
    return db


# Migrations -------------------------------------------------------------------------------------


def migrations() -> list[Migration]:
    """Return all migrations of this release, in order."""
    from moorage.stores.sql.db import read_migrations  # hooks rarely create a store

    return read_migrations(__file__)


def schema_version(db: SqliteConnection) -> int:
    """Return the newest migration applied; 0 for an empty file."""
    row = db.one("PRAGMA user_version")
    return int(row[0]) if row else 0


def migrate(db: SqliteConnection) -> list[int]:
    """Bring the file to the newest schema; return the numbers of the migrations applied.

    Raises StoreTooNew, or ForeignDatabase for a database that is not ours.
    """
    with translating(db.path):
        check_ours(db.raw, db.path)
        found = schema_version(db)
        if found > LATEST:
            raise StoreTooNew(db.path, found, LATEST)
        if found == LATEST:
            return []
        with db.transaction():  # the first process migrates; the others find it done
            return apply_missing(db)


def apply_missing(db: SqliteConnection) -> list[int]:
    """Apply the missing migrations within the current transaction; return their numbers."""
    done = schema_version(db)
    if done == 0:
        check_ours(db.raw, db.path)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(_LEDGER)
    missing = [migration for migration in migrations() if done < migration.number]
    for migration in missing:
        db.execute(migration.sql).fetchall()
        db.execute(
            "INSERT INTO migrations VALUES (?, ?, ?, ?)",
            (migration.number, migration.name, migration.checksum, int(time.time() * 1e6)),
        )
        db.execute(f"PRAGMA user_version = {migration.number}")
    return [migration.number for migration in missing]
