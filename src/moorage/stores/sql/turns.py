"""Reads of turns, and of overdue ones. Claims are in each store's `queue`."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from moorage.core.errors import SessionCorrupt, TurnNotFound
from moorage.core.fact import Backlog
from moorage.core.turn import Turn
from moorage.ports import LauncherTurn
from moorage.stores.rows import micros
from moorage.stores.sql.db import Db
from moorage.stores.sql.lookup import OF_SESSION, existing
from moorage.stores.sql.query import Query
from moorage.stores.work_rows import turn_of

_SILENT = (
    f"SELECT s.owner, s.id FROM moor.turns t {OF_SESSION} "
    "WHERE t.state = 'running' AND t.due_at <= ? ORDER BY t.due_at LIMIT ?"
)
_UNTAKEN = (
    f"SELECT s.owner, s.id FROM moor.runs t {OF_SESSION} "
    "WHERE t.expires_at IS NOT NULL AND t.expires_at <= ? ORDER BY t.expires_at LIMIT ?"
)


async def overdue(db: Db, at: datetime, limit: int) -> list[tuple[str, str]]:
    """Return sessions with a turn whose launcher was silent for too long, or a run that was not taken in time."""
    found = [(row[0], row[1]) for sql in (_SILENT, _UNTAKEN) for row in await db.all(sql, (micros(at), limit))]
    return list(dict.fromkeys(found))[:limit]


_OF_LAUNCHER = Query("launcher_turns", of_session=OF_SESSION)


async def turns_of(db: Db, launcher_id: str) -> list[LauncherTurn]:
    """Return the live turns of a launcher, without damaged ones."""
    found = []
    for owner, is_waiting, *columns in await db.all(_OF_LAUNCHER(db), (launcher_id,)):
        with suppress(SessionCorrupt):
            found.append(LauncherTurn(owner, turn_of(db, columns), bool(is_waiting)))
    return found


_ONE = f"SELECT t.body, t.id, s.id FROM moor.turns t {OF_SESSION}"


async def find_turn(db: Db, owner: str, turn_id: str) -> Turn:
    """Return one turn by its id."""
    sql = f"{_ONE} WHERE t.owner = ? AND t.id = ?"
    return turn_of(db, await existing(db, sql, (owner, turn_id), TurnNotFound))


_QUEUED = "SELECT count(*), min(n) FROM moor.turns WHERE state = 'queued'"
_RUNNING = "SELECT count(*) FROM moor.turns WHERE state = 'running'"
_ITEMS = (
    "SELECT count(*) FILTER (WHERE state <> 'dead_letter' AND kind = 'callback'), "
    "count(*) FILTER (WHERE state = 'dead_letter') FROM moor.inbox INDEXED BY inbox_by_state "
    "WHERE state <> 'consumed' AND (state <> 'consumed') IS TRUE"
)


async def backlog(db: Db) -> Backlog:
    """Count the waiting work of all owners. This reads only waiting work."""
    [(queued, first)], [(running,)], [(callbacks, dead_letters)] = [
        await db.all(sql) for sql in (_QUEUED, _RUNNING, _ITEMS)
    ]
    row = None if first is None else await db.one(f"{_ONE} WHERE t.state = 'queued' AND t.n = ?", (first,))
    oldest = None if row is None else turn_of(db, tuple(row)).queued_at
    return Backlog(
        queued=queued, running=running, oldest_queued_at=oldest, callbacks=callbacks, dead_letters=dead_letters
    )


# Queries of servers ----------------------------------------------------------------------------

_OWNERS = Query("owners")


async def owners(db: Db) -> list[str]:
    """Return owners that have sessions."""
    return [row[0] for row in await db.all(_OWNERS(db))]
