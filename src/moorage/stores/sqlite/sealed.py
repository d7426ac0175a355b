"""Sealing a file: do the work of `stores/sql/sealed.py`, and remove all plain text from the file."""

from __future__ import annotations

from typing import Any

import apsw
from msgspec.structs import asdict

from moorage.core.inline import drive
from moorage.stores.sql import sealed
from moorage.stores.sql.db import SqlJob
from moorage.stores.sqlite.connection import SqliteConnection, translating


class FileRewritten(sealed.Rewritten, frozen=True, kw_only=True):
    """The counts of a rewrite of a file."""

    plain_tables: list[str]  # of an older orchestrator: they are kept unchanged
    is_compact: bool  # whether plain text is gone from the file's free pages, too


def prepare(db: SqliteConnection) -> None:
    """Mark a file that is opened with keys, once. Raises EncryptionKeyWrong for a key with another fingerprint."""
    if not drive(sealed.is_marked(db.driven)):
        with translating(db.path), db.transaction():
            drive(sealed.mark(db.driven))


_OLDER = r"SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'legacy\_%' ESCAPE '\' ORDER BY name"


def rewrite(db: SqliteConnection, progress: sealed.SealProgress | None = None) -> FileRewritten:
    """Seal every body with the first key, and remove plain text.

    Raises EncryptionKeyMissing if something is sealed with a key that is not given.
    """

    async def transact(job: SqlJob[Any]) -> Any:
        with db.transaction():
            return await job(db.driven)

    with translating(db.path):
        db.raw.pragma("secure_delete", True)  # pragmas are set by this call
        done = asdict(drive(sealed.rewrite(transact, progress)))
        return FileRewritten(**done, plain_tables=[row[0] for row in db.all(_OLDER)], is_compact=_compact(db))


def _compact(db: SqliteConnection) -> bool:
    """Rewrite the file without its free pages; return False if other processes prevented that."""
    try:
        db.execute("VACUUM")
        busy = db.raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]
    except apsw.BusyError:
        return False
    return not busy
