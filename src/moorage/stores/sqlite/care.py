"""Size and integrity checks of an SQLite file, and sealing all bodies in it."""

from __future__ import annotations

from typing import Any

import apsw
from msgspec.structs import asdict

from moorage.core.fact import Size, Totals
from moorage.core.inline import drive
from moorage.stores import sql
from moorage.stores.sql import sealed
from moorage.stores.sql.db import SqlJob
from moorage.stores.sqlite.connection import Driven, SqliteConnection, bytes_of, translating
from moorage.stores.sqlite.store import migrations

# Tables of an older orchestrator are kept unchanged, with all their references.
_DANGLING = (
    'SELECT "table", rowid, parent FROM pragma_foreign_key_check '
    r"""WHERE "table" NOT LIKE 'legacy\_%' ESCAPE '\'"""
)


async def check(db: Driven) -> list[str]:
    problems = [f"integrity: {row[0]}" for row in await db.all("PRAGMA integrity_check(20)") if row[0] != "ok"]
    for table, row, target in await db.all(_DANGLING):
        problems.append(f"{table} row {row} refers to a missing row of {target}")
    return problems + await sql.check.check(db, migrations())


async def totals(db: Driven) -> Totals:
    """Return the waiting work, and the size of the file and its WAL; free pages count as unused."""
    raw = db.connection.raw
    pages, free, page_size = (int(raw.pragma(name)) for name in ("page_count", "freelist_count", "page_size"))
    [(sessions,)] = await db.all("SELECT count(*) FROM sessions")
    in_all = sum(bytes_of(name) for name in (raw.filename, raw.filename_wal)) or pages * page_size  # if in memory
    size = Size(bytes=in_all, used_bytes=(pages - free) * page_size, sessions=sessions)
    return Totals(await sql.work.backlog(db), size)


class FileRewritten(sealed.Rewritten, frozen=True, kw_only=True):
    """The counts of a rewrite of a file."""

    plain_tables: list[str]  # of an older orchestrator: they are kept unchanged
    is_compact: bool  # whether plain text is gone from the file's free pages, too


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
        older = [row[0] for row in db.all(_OLDER)]
        try:
            db.execute("VACUUM")
            busy = db.raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]
        except apsw.BusyError:  # other processes prevent it
            busy = 1
        return FileRewritten(**done, plain_tables=older, is_compact=not busy)
