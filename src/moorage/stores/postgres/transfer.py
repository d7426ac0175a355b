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

_GAPS = """
SELECT s.id, s.last_entry - s.shared_upto, count(e.number)
FROM moor.sessions s LEFT JOIN moor.entries e
    ON e.owner = s.owner AND e.root = coalesce(s.root, s.pk) AND e.segment = s.pk
GROUP BY s.owner, s.pk HAVING count(e.number) <> s.last_entry - s.shared_upto
    OR coalesce(min(e.number), s.shared_upto + 1) <> s.shared_upto + 1
    OR coalesce(max(e.number), s.last_entry) <> s.last_entry
"""
# What hangs on a session; the database keeps it so, unless somebody has switched that off.
_DANGLING = (
    "SELECT count(*) FROM moor.{table} t WHERE NOT EXISTS "
    "(SELECT 1 FROM moor.sessions s WHERE s.owner = t.owner AND s.pk = t.session)"
)
_HANGING = ("context", "approvals", "runs", "turns", "inbox", "lineage")


async def check(db: Connection) -> list[str]:
    """What is wrong, in words."""
    problems = [f"migration {name} was edited after it was applied" for name in await edited_migrations(db)]
    for table in _HANGING:
        [(count,)] = await db.all(_DANGLING.format(table=table))
        if count:
            problems.append(f"{count} rows of {table} refer to a missing row of sessions")
    problems += [
        f"session {session_id} should have {expected} entries of its own, numbered without gaps, and has {found}"
        for session_id, expected, found in await db.all(_GAPS)
    ]
    problems += [
        f"entry {number} of session {session_id} is not JSON" for session_id, number in await db.all(_NOT_JSON)
    ]
    problems += [text.format(*row) for text, sql in _CONTRADICTIONS.items() for row in await db.all(sql)]
    return problems + await _unreadable(db) + await _unreadable_work(db) + await _unopened(db)


_NOT_JSON = """
SELECT coalesce(s.id, e.segment::text), e.number FROM moor.entries e
LEFT JOIN moor.sessions s ON s.owner = e.owner AND s.pk = e.segment
WHERE e.data IS NOT NULL AND left(e.data, 1) <> '~' AND NOT moor.is_json(e.data) LIMIT 20
"""
_OF_SESSION = "JOIN moor.sessions s ON s.owner = t.owner AND s.pk = t.session"
_RUNNING = "(SELECT id FROM moor.turns t WHERE t.owner = s.owner AND t.session = s.pk AND t.state = 'running')"
_SAYS = "CASE WHEN moor.is_json(t.body) THEN t.body::json ->> '{}' END"
# What is said twice, so that it is found quickly, must be said alike; and what is over must be over.
_CONTRADICTIONS = {
    "session {} says its live turn is {}, and {} is": (
        f"SELECT s.id, coalesce(s.live_turn, 'none'), coalesce({_RUNNING}, 'none') FROM moor.sessions s "
        f"WHERE s.live_turn IS DISTINCT FROM {_RUNNING} LIMIT 20"
    ),
    "session {} says wrongly whether something waits for a turn of it": (
        "SELECT s.id FROM moor.sessions s WHERE s.waits <> (s.launched AND EXISTS (SELECT 1 FROM moor.inbox t "
        "WHERE t.owner = s.owner AND t.session = s.pk AND t.state = 'waiting' AND t.state <> 'consumed')) LIMIT 20"
    ),
    "turn {} has an epoch that its session has not reached": (
        f"SELECT t.id FROM moor.turns t {_OF_SESSION} WHERE ({_SAYS.format('epoch')})::bigint > s.epoch LIMIT 20"
    ),
    "run {} is {} in a list, and says otherwise itself": (
        f"SELECT t.id, t.state FROM moor.runs t WHERE t.state <> {_SAYS.format('state')} LIMIT 20"
    ),
    "turn {} is {} in a list, and says otherwise itself": (
        f"SELECT t.id, t.state FROM moor.turns t WHERE t.state <> {_SAYS.format('state')} LIMIT 20"
    ),
    "run {} is open in session {}, which is closed": (
        f"SELECT t.id, s.id FROM moor.runs t {_OF_SESSION} "
        "WHERE t.state IN ('queued', 'running') AND s.finalized_at IS NOT NULL LIMIT 20"
    ),
    "item {} of session {} is given to a turn that does not run": (
        f"SELECT t.id, s.id FROM moor.inbox t {_OF_SESSION} "
        "WHERE t.state = 'given' AND t.turn IS DISTINCT FROM s.live_turn LIMIT 20"
    ),
}
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
