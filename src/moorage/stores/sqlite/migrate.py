"""Migrations: numbered SQL files, forward only, each applied once, safe under concurrent starts.

An applied file is never edited; its checksum is stored in the database, so
that an edit is noticed. A database from a newer Moorage is refused.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from moorage.core.errors import StoreTooNew
from moorage.stores.sqlite.connection import APPLICATION_ID, SqliteConnection, check_ours, translating

if TYPE_CHECKING:
    from moorage.stores.sql.query import Migration

LATEST = 2  # the newest migration in this release; a test compares it with the folder

_LEDGER = """
CREATE TABLE IF NOT EXISTS migrations (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum INTEGER NOT NULL, applied_at INTEGER NOT NULL
) STRICT
"""


def migrations() -> list[Migration]:
    """Return all migrations of this release, in order."""
    from moorage.stores.sql.query import read_migrations  # hooks rarely create a store

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
