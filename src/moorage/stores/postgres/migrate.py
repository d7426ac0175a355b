"""The schema: migrations, size and integrity checks.

Migrations are numbered SQL files, forward only, each applied once, safe under concurrent starts. An applied
file is never edited; its checksum is stored in the database, so that an edit is noticed. The first process does the
work under an advisory lock of the schema; the others wait and find it done.

Servers are upgraded one by one, so a release has to work on the schema of the next. A migration that only adds
(expands) names on its first line the oldest schema that a release must know: `-- needs 1`. One that removes what
an older release uses (contracts) has no such line, and from then on older releases are refused.
"""

from __future__ import annotations

import time

from moorage.core.errors import StoreTooNew, StoreUnavailable
from moorage.core.fact import Size, Totals
from moorage.stores import sql
from moorage.stores.postgres.connection import PostgresConnection
from moorage.stores.sql.db import Migration, read_migrations

LATEST = 2  # the newest migration in this release; a test compares it with the folder

LONGEST = 3600.0  # seconds that a migration may take, here or on another server: indexing a large store takes long
_NO_HURRY = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0"

_LEDGER = """
CREATE TABLE IF NOT EXISTS moor.migrations (
    number bigint PRIMARY KEY, name text NOT NULL, checksum bigint NOT NULL, applied_at bigint NOT NULL,
    needs bigint
)
"""


def migrations() -> list[Migration]:
    """Return all migrations of this release, in order."""
    return read_migrations(__file__)


# `to_regclass` would look into the connection's cache, which does not yet have what another process has just committed.
_TABLES = "SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace AND n.nspname = (parse_ident(?))[1]"
_HAS_LEDGER = f"{_TABLES} WHERE relname = 'migrations'"
_STRANGER = f"{_TABLES} WHERE relkind IN ('r', 'p', 'v') LIMIT 1"


async def schema_version(db: PostgresConnection) -> int:
    """Return the newest migration applied; 0 if there is none, or no such schema."""
    if await db.one(_HAS_LEDGER, (db.prefix[:-1],)) is None:
        return 0
    [(number,)] = await db.all("SELECT coalesce(max(number), 0) FROM moor.migrations")
    return int(number)


async def migrate(db: PostgresConnection) -> list[int]:
    """Bring the schema to the newest version; return the numbers of the migrations applied. Raises StoreTooNew."""
    found = await schema_version(db)
    if found > LATEST:  # a newer release may have removed something that this one uses
        [(needs,)] = await db.all("SELECT max(coalesce(needs, number)) FROM moor.migrations")
        if needs > LATEST:
            raise StoreTooNew(db.path, found, LATEST)
    if found >= LATEST:
        return []
    async with db.transaction():
        # The lock belongs to the database, so connections under another name or through a pooler wait for it too.
        lock = f"SELECT pg_advisory_xact_lock(hashtextextended('moorage {db.prefix}', 0))"
        await db.script(f"{_NO_HURRY}; {lock}", LONGEST)
        return await _apply_missing(db)


async def _apply_missing(db: PostgresConnection) -> list[int]:
    done = await schema_version(db)
    if done == 0:
        schema = db.prefix[:-1]
        if row := await db.one(_STRANGER, (schema,)):  # tables but no migrations of ours: they are another program's
            raise StoreUnavailable(
                f"the schema {schema} of {db.path} has a table {row[0]!r} of another program; "
                "choose another one with ?schema=",
                store=db.path,
            )
        await db.script(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        await db.script(_LEDGER)
    missing = [migration for migration in migrations() if done < migration.number]
    for migration in missing:
        await db.script(migration.sql, LONGEST)
        await db.run(
            "INSERT INTO moor.migrations (number, name, checksum, applied_at, needs) VALUES (?, ?, ?, ?, ?)",
            (migration.number, migration.name, migration.checksum, int(time.time() * 1e6), migration.needs),
        )
    return [migration.number for migration in missing]


# Tables that refer to a session. The database enforces it unless its triggers are disabled.
_HANGING = ("approvals", "runs", "turns", "inbox", "lineage")
_DANGLING = (
    "SELECT count(*) FROM moor.{} t WHERE NOT EXISTS "
    "(SELECT 1 FROM moor.sessions s WHERE s.owner = t.owner AND s.pk = t.session)"
)


async def check(db: PostgresConnection) -> list[str]:
    problems = []
    for table in _HANGING:
        [(count,)] = await db.all(_DANGLING.format(table))
        if count:
            problems.append(f"{count} rows of {table} refer to a missing row of sessions")
    return problems + await sql.check.check(db, migrations())


_SIZE = (
    "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint, (SELECT count(*) FROM moor.sessions) "
    "FROM pg_class c WHERE c.relnamespace = to_regnamespace(?) AND c.relkind = 'r'"
)


async def totals(db: PostgresConnection) -> Totals:
    """Return the waiting work, and the size of the tables with their indexes.

    Free space inside the tables is reusable, and counts.
    """
    [(in_all, sessions)] = await db.all(_SIZE, (db.prefix[:-1],))
    return Totals(await sql.work.backlog(db), Size(bytes=in_all, used_bytes=in_all, sessions=sessions))
