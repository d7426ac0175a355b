"""Size and integrity checks of a PostgreSQL store."""

from __future__ import annotations

from moorage.core.fact import Size, Totals
from moorage.stores import sql
from moorage.stores.postgres.connection import PostgresConnection
from moorage.stores.postgres.migrate import migrations

# Tables that refer to a session. The database enforces it unless its triggers are disabled.
_HANGING = ("approvals", "runs", "turns", "inbox", "lineage")
_DANGLING = (
    "SELECT count(*) FROM moor.{} t WHERE NOT EXISTS "
    "(SELECT 1 FROM moor.sessions s WHERE s.owner = t.owner AND s.pk = t.session)"
)


async def check(db: PostgresConnection) -> list[str]:
    """Return the problems found, as text."""
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
    return Totals(await sql.turns.backlog(db), Size(bytes=in_all, used_bytes=in_all, sessions=sessions))
