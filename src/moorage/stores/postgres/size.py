"""How much room the tables take."""

from __future__ import annotations

from moorage.core.fact import Size
from moorage.stores.postgres.connection import Connection

_SIZE = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint, (SELECT count(*) FROM moor.sessions)
FROM pg_class c WHERE c.relnamespace = to_regnamespace(?) AND c.relkind = 'r'
"""


async def size(db: Connection) -> Size:
    """The tables of the schema with their indexes; what is free in them is theirs to use again, and counts."""
    row = await db.one(_SIZE, (db.prefix[:-1],))
    assert row is not None
    return Size(bytes=row[0], used_bytes=row[0], sessions=row[1])
