"""Export a table of another program's PostgreSQL database to a file of rows for the import."""

from __future__ import annotations

from typing import IO

from moorage.core.errors import InvalidImport
from moorage.core.extras import provided_by

AT_ONCE = 500  # rows fetched at once
# Columns of any type are cast to text, and the time to a form for JSON.
_ROWS = """
SELECT row_to_json(r)::text FROM (
    SELECT session_id::text AS session_id, context::text AS context, updated_at FROM {table} ORDER BY 1
) r
"""


def write_rows(url: str, table: str, file: IO[bytes]) -> int:
    """Write the rows of a table (session_id, context, updated_at), all of one instant; return their number."""
    import asyncio

    return asyncio.run(_write(url, table, file))


async def _write(url: str, table: str, file: IO[bytes]) -> int:
    count = 0
    with provided_by("postgres", "PostgreSQL"):
        import asyncpg
    try:
        connection = await asyncpg.connect(url, statement_cache_size=0)
    except (OSError, ValueError, asyncpg.PostgresError) as error:
        raise InvalidImport(f"the database cannot be reached ({error})", file=table) from None
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            async for row in connection.cursor(_ROWS.format(table=_quoted(table)), prefetch=AT_ONCE):
                file.write(f"{row[0]}\n".encode())
                count += 1
    except asyncpg.PostgresError as error:
        raise InvalidImport(f"it cannot be read ({error})", file=table) from None
    finally:
        await connection.close()
    return count


def _quoted(table: str) -> str:
    """Return a quoted name; a dot separates the schema from the table.

    Without a dot it is a table of `public`: for a user with the name of our schema, PostgreSQL would find our own table
    first.
    """
    table = table if "." in table else f"public.{table}"
    return ".".join('"' + part.replace('"', '""') + '"' for part in table.split("."))
