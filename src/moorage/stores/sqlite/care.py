"""Size and integrity checks of an SQLite file."""

from __future__ import annotations

import os

from moorage.core.fact import Size, Totals
from moorage.stores import sql
from moorage.stores.sqlite.driven import Driven
from moorage.stores.sqlite.migrate import migrations

# Tables of an older orchestrator are kept unchanged, with all their references.
_DANGLING = (
    'SELECT "table", rowid, parent FROM pragma_foreign_key_check '
    r"""WHERE "table" NOT LIKE 'legacy\_%' ESCAPE '\'"""
)


async def check(db: Driven) -> list[str]:
    """Return the problems found, as text."""
    problems = [f"integrity: {row[0]}" for row in await db.all("PRAGMA integrity_check(20)") if row[0] != "ok"]
    for table, row, target in await db.all(_DANGLING):
        problems.append(f"{table} row {row} refers to a missing row of {target}")
    return problems + await sql.check.check(db, migrations())


async def totals(db: Driven) -> Totals:
    """Return the waiting work, and the size of the file and its WAL; free pages count as unused."""
    raw = db.connection.raw
    pages, free, page_size = (int(raw.pragma(name)) for name in ("page_count", "freelist_count", "page_size"))
    [(sessions,)] = await db.all("SELECT count(*) FROM sessions")
    in_all = sum(_bytes_of(name) for name in (raw.filename, raw.filename_wal)) or pages * page_size  # if in memory
    size = Size(bytes=in_all, used_bytes=(pages - free) * page_size, sessions=sessions)
    return Totals(await sql.turns.backlog(db), size)


def _bytes_of(path: str) -> int:
    """Return the size of a file without opening it; 0 if it does not exist."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
