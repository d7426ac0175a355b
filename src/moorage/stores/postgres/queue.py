"""The queue: which launcher gets which turn, and what time does to those that nobody reports of.

A claim reads the oldest turn and takes it with the statement that commits, which is refused if
somebody else was faster. Those of one process do not get in each other's way: they look one after
another, and what one has in hand, the others pass by. Where other processes do, the turn and its
session are locked while they are read, and what others have locked is skipped.
"""

from __future__ import annotations

import asyncio

import msgspec

from moorage.core.document import DocumentKind
from moorage.core.errors import SessionCorrupt
from moorage.core.session import Stamp
from moorage.core.turn import TurnState
from moorage.core.work import Claim, claim
from moorage.ports import Claimed
from moorage.stores.postgres import work
from moorage.stores.postgres.connection import Connection
from moorage.stores.rows import Row, micros
from moorage.stores.sql import lookup

SIDE_BY_SIDE = 32  # claims that can have locked a turn at once before one of them goes away empty-handed


class Wanted(msgspec.Struct, frozen=True):
    """Whose turns a launcher can take: of these owners and agents, and of one family if it has a root."""

    launcher_id: str
    owners: tuple[str, ...]
    agents: tuple[str, ...]
    root: str | None = None


_MAY_CLAIM = f"NOT EXISTS (SELECT FROM moor.documents WHERE kind = '{DocumentKind.DRAINED_LAUNCHER}' AND key = ?6)"
# The oldest ?5 of each owner and agent, found through an index each; those that had to wait for a time apart
# (OFFSET 0: in order of `n` only once the index of times has found them, or all turns ever would be walked). Behind
# what others have in hand just now there must be more to choose from.
_DUE = f"""
SELECT w.owner, t.n FROM unnest(?1::text[]) w (owner) CROSS JOIN unnest(?2::text[]) a (agent) CROSS JOIN LATERAL (
    SELECT * FROM (
        SELECT n FROM moor.turns WHERE owner = w.owner AND agent = a.agent AND n > ?3
            AND state = 'queued' AND not_before IS NULL ORDER BY n LIMIT ?5
    ) now
    UNION ALL
    SELECT * FROM (
        SELECT n FROM (
            SELECT n FROM moor.turns WHERE owner = w.owner AND agent = a.agent AND n > ?3 AND state = 'queued'
                AND not_before IS NOT NULL AND not_before <= ?4 OFFSET 0
        ) due ORDER BY n LIMIT ?5
    ) later
) t WHERE {_MAY_CLAIM}
"""
# Families are small: all that is queued in one is looked at.
_DUE_IN_FAMILY = f"""
SELECT t.owner, t.n FROM moor.sessions s JOIN moor.turns t ON t.owner = s.owner AND t.root = s.pk
WHERE s.owner = ANY(?1::text[]) AND s.id = ?ROOT AND t.n > ?3 AND (t.state = 'queued') IS TRUE
    AND t.agent = ANY(?2::text[]) AND (t.not_before IS NULL OR t.not_before <= ?4) AND {_MAY_CLAIM}
ORDER BY t.n LIMIT ?5
"""


def _take_sql(due: str, lock: str) -> str:
    """Read the whole session of the oldest that nobody else is about to take."""
    return f"""
    WITH due AS MATERIALIZED (
        SELECT * FROM ({due}) each WHERE n <> ALL(?7::bigint[]) ORDER BY n
    ), taken AS (
        SELECT t.* FROM due CROSS JOIN LATERAL (
            SELECT t.owner, t.session, t.n, t.state FROM moor.turns t
            JOIN moor.sessions s ON s.owner = t.owner AND s.pk = t.session
            WHERE t.owner = due.owner AND t.n = due.n {lock}
        ) t
        WHERE t.state = 'queued' LIMIT 1
    )
    {work.WHOLE_VIEW.replace("SELECT s.revision", "SELECT taken.n, s.revision", 1)}
    FROM taken JOIN moor.sessions s ON s.owner = taken.owner AND s.pk = taken.session
    """


# With its session, which every change locks first: so nobody who has one of the two waits for the other. What keeps it
# from being taken now will be told when it is committed.
_SKIP_LOCKED = "FOR NO KEY UPDATE OF t, s SKIP LOCKED"
_AS_IT_IS = "OFFSET 0"  # keeps it one look for each
_TAKE = {  # by whether it is of one family, and whether it locks
    (is_family, locks): _take_sql(due, _SKIP_LOCKED if locks else _AS_IT_IS)
    for is_family, due in ((False, _DUE), (True, _DUE_IN_FAMILY.replace("?ROOT", "?8")))
    for locks in (False, True)
}


class Hands:
    """Turns that this process is about to take; and whether others lately were faster."""

    LOCKED_FOR = 50  # claims, after one that somebody else got ahead of

    def __init__(self) -> None:
        self.turns: set[int] = set()
        self.looking = asyncio.Lock()
        self._left = 0

    @property
    def must_lock(self) -> bool:
        """Whether to lock at once."""
        return self._left > 0

    def note(self, *, has_collided: bool) -> None:
        """Remember how a claim went."""
        self._left = self.LOCKED_FOR if has_collided else max(0, self._left - 1)


def _values(wanted: Wanted, at: int, after: int, choice: int, *rest: object) -> tuple[object, ...]:
    root = [] if wanted.root is None else [wanted.root]
    return (wanted.owners, wanted.agents, after, at, choice, wanted.launcher_id, *rest, *root)


async def is_due(db: Connection, wanted: Wanted, at: int, after: int) -> bool:
    """Whether there is a queued turn that is due and wanted, behind another."""
    if wanted.root is not None and not lookup.may_be_ref(wanted.root):
        return False
    sql = _DUE if wanted.root is None else _DUE_IN_FAMILY.replace("?ROOT", "?7")
    return await db.one(sql, _values(wanted, at, after, 1)) is not None


async def claim_next(
    db: Connection, wanted: Wanted, wish: Claim, stamp: Stamp, after: int, hands: Hands
) -> Claimed | int | None:
    """Give the oldest turn behind `after` that can be taken to a launcher; where to go on looking, if it cannot be.

    Some cannot be taken, though they are due: somebody drives their session, or it does not
    read back whole. The first kind is put off by its rule, the second is passed by.
    """
    row = await _next(db, wanted, micros(stamp.at), after, hands)
    if row is None:
        return None
    try:
        return await _claim(db, row, wish, stamp)
    finally:
        hands.turns.discard(row[0])


async def _next(db: Connection, wanted: Wanted, at: int, after: int, hands: Hands) -> Row | None:
    sql = _TAKE[wanted.root is not None, db.is_locking]
    async with hands.looking:  # else two would see the same one
        choice = SIDE_BY_SIDE if db.is_locking else len(hands.turns) + 1
        row = await db.one(sql, _values(wanted, at, after, choice, list(hands.turns)))
        if row is not None:
            hands.turns.add(row[0])
    return row


async def _claim(db: Connection, row: Row, wish: Claim, stamp: Stamp) -> Claimed | int:
    try:
        seen = work.seen_of(db, row[1:])
    except SessionCorrupt:
        return int(row[0])
    owner = seen.view.session.owner
    change = await work.save(db, owner, seen, claim(seen.view, wish, stamp))
    if not (change.turns and change.turns[0].state is TurnState.RUNNING):
        return int(row[0])
    return Claimed(owner, change.session, change.turns[0], change.items, change.runs)
