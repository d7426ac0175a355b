"""The queue: which launcher gets which turn, and which turns are overdue.

A claim reads the oldest turn and takes it with the statement that commits. That statement is refused if a concurrent
claim won. Claims of one process do not collide: they search one after another, and each skips the turns that the
others are taking. Against other processes, a claim locks the turn and its session while it reads them, and skips
those that others have locked.
"""

from __future__ import annotations

import asyncio

from moorage.core.document import DocumentKind
from moorage.core.errors import SessionCorrupt
from moorage.core.session import Stamp
from moorage.core.work import Claim
from moorage.ports import Claimed
from moorage.stores.postgres.connection import PostgresConnection
from moorage.stores.rows import micros
from moorage.stores.sql import lookup
from moorage.stores.sql.db import Query
from moorage.stores.sql.views import WHOLE_VIEW, seen_of
from moorage.stores.sql.work import WantedTurns, take

SIDE_BY_SIDE = 32  # claims that can lock a turn concurrently before one of them finds none

_MAY_CLAIM = f"NOT EXISTS (SELECT FROM moor.documents WHERE kind = '{DocumentKind.DRAINED_LAUNCHER}' AND key = ?6)"
_DUE, _DUE_IN_FAMILY = (Query(name, may_claim=_MAY_CLAIM) for name in ("next_turn", "next_turn_of_family"))
# Lock the turn with its session, which every change locks first, so that two lockers never wait for each other. A turn
# that is locked now is announced again by the commit that holds the lock.
_SKIP_LOCKED = "FOR NO KEY UPDATE OF t, s SKIP LOCKED"
_AS_IT_IS = "OFFSET 0"  # makes the planner look up each turn separately
_TAKE = {
    locks: Query("take_turn", view=WHOLE_VIEW[True].replace("SELECT ", "SELECT taken.n, ", 1), lock=lock)
    for locks, lock in ((False, _AS_IT_IS), (True, _SKIP_LOCKED))
}


def _due(db: PostgresConnection, wanted: WantedTurns, root: int) -> str:
    """Return the statement that finds due turns; `root` is the number of the value that names a family."""
    return _DUE(db) if wanted.root is None else _DUE_IN_FAMILY(db).format(root=root)


class Hands:
    """Turns that this process is about to take; and whether other processes won recently."""

    LOCKED_FOR = 50  # claims that lock after one that lost to another process

    def __init__(self) -> None:
        self.turns: set[int] = set()
        self.looking = asyncio.Lock()
        self.to_lock = 0  # claims that must lock at once

    def note(self, *, has_collided: bool) -> None:
        """Record whether a claim collided."""
        self.to_lock = self.LOCKED_FOR if has_collided else max(0, self.to_lock - 1)


def _values(wanted: WantedTurns, at: int, after: int, choice: int, *rest: object) -> tuple[object, ...]:
    root = [] if wanted.root is None else [wanted.root]
    return (wanted.owners, wanted.agents, after, at, choice, wanted.launcher_id, *rest, *root)


async def is_due(db: PostgresConnection, wanted: WantedTurns, at: int, after: int) -> bool:
    """Return whether a wanted turn is due behind `after`."""
    if wanted.root is not None and not lookup.may_be_ref(wanted.root):
        return False
    return await db.one(_due(db, wanted, 7), _values(wanted, at, after, 1)) is not None


async def claim_next(
    db: PostgresConnection, wanted: WantedTurns, wish: Claim, stamp: Stamp, after: int, hands: Hands
) -> Claimed | int | None:
    """Give the oldest available turn after `after` to a launcher; otherwise return where to continue.

    Some due turns cannot be taken: their session is held, or cannot be read. The rule of claims postpones
    the first kind; the second is skipped.
    """
    sql = _TAKE[db.is_locking](db).format(due=_due(db, wanted, 8))
    async with hands.looking:  # otherwise two claims would find the same turn
        choice = SIDE_BY_SIDE if db.is_locking else len(hands.turns) + 1
        row = await db.one(sql, _values(wanted, micros(stamp.at), after, choice, list(hands.turns)))
        if row is None:
            return None
        hands.turns.add(row[0])
    try:
        return await take(db, seen_of(db, row[1:]), wish, stamp) or int(row[0])
    except SessionCorrupt:
        return int(row[0])
    finally:
        hands.turns.discard(row[0])
