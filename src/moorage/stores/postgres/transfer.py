"""Bringing whole sessions in, and looking whether what is stored is whole."""

from __future__ import annotations

from moorage.core.bundle import Bundle, as_restored
from moorage.core.errors import IdTaken, MoorageError, ParentNotFound
from moorage.stores.postgres import writes
from moorage.stores.postgres.connection import Connection
from moorage.stores.postgres.migrate import edited_migrations
from moorage.stores.session_rows import session_of
from moorage.stores.sql import lookup
from moorage.stores.sql.lookup import HEAD

_FAMILY = "SELECT pk, coalesce(root, pk) FROM moor.sessions WHERE owner = ? AND id = ?"


async def restore(db: Connection, owner: str, bundle: Bundle) -> bool:
    """Insert a session as it was; False if it is there already."""
    new = as_restored(bundle.session, owner)
    if await db.one(_FAMILY, (owner, new.session_id)):
        return False
    await lookup.check_not_spent(db, owner, new.session_id)
    row = await db.one("SELECT nextval('moor.sessions_pk_seq')")  # its context may be sealed as its own
    assert row is not None
    written = writes.made(db, new, family=await _family(db, owner, new.parent_session_id)) | {"pk": row[0]}
    if bundle.entries:
        written |= writes.entries(db, bundle.entries)
    written["context"] = {"put": writes.context_items(db, row[0], bundle.context)}
    if bundle.approvals:
        written["approvals"] = writes.approvals(db, bundle.approvals)
    try:
        await writes.commit(db, owner, [writes.with_pins(written)])
    except IdTaken as error:
        if error.facts.get("spent"):
            await lookup.check_not_spent(db, owner, new.session_id)
        raise
    return True


async def _family(db: Connection, owner: str, parent_id: str | None) -> tuple[int | None, int | None]:
    if parent_id is None:
        return None, None
    row = await db.one(_FAMILY, (owner, parent_id))
    if row is None:
        raise ParentNotFound(parent_id)
    return row[0], row[1]


# Looking after it -------------------------------------------------------------------------------

# What hangs on a session; the database keeps it so, unless somebody has switched that off.
_DANGLING = (
    "SELECT count(*) FROM moor.{table} t WHERE NOT EXISTS "
    "(SELECT 1 FROM moor.sessions s WHERE s.owner = t.owner AND s.pk = t.session)"
)
_HANGING = ("context", "approvals", "runs", "turns", "inbox", "lineage")


async def check(db: Connection) -> list[str]:
    """Return what is wrong, in words."""
    from moorage.stores.sql.check import contradictions  # who looks at everything has the time

    problems = [f"migration {name} was edited after it was applied" for name in await edited_migrations(db)]
    for table in _HANGING:
        [(count,)] = await db.all(_DANGLING.format(table=table))
        if count:
            problems.append(f"{count} rows of {table} refer to a missing row of sessions")
    problems += await contradictions(db)
    return problems + await _unreadable(db) + await _unreadable_work(db) + await _unopened(db)


_OWNER = HEAD.split(", ").index("owner")
CHECK_CHUNK = 1000  # heads read at a time


async def _unreadable(db: Connection) -> list[str]:
    problems, place = list[str](), ("", 0)
    sql = f"SELECT {HEAD} FROM moor.sessions WHERE (owner, pk) > (?, ?) ORDER BY owner, pk LIMIT {CHECK_CHUNK}"
    while rows := await db.all(sql, place):
        for row in rows:
            try:
                session_of(row, db.opener)
            except MoorageError as error:
                problems.append(error.message)
        place = (rows[-1][_OWNER], rows[-1][-1])
    return problems


async def _unreadable_work(db: Connection) -> list[str]:
    from moorage.stores.postgres import work  # only stores that a launcher had to do with need it

    return await work.unreadable(db)


async def _unopened(db: Connection) -> list[str]:
    from moorage.stores.postgres import sealed  # who looks at everything has the time

    return await sealed.unreadable(db)
