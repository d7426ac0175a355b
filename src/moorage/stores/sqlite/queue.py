"""The queue in SQLite: a claim takes the oldest turn under the write lock."""

from __future__ import annotations

from contextlib import suppress

from moorage.core.document import DocumentKind
from moorage.core.errors import SessionCorrupt
from moorage.core.session import Stamp
from moorage.core.work import Claim
from moorage.ports import Claimed
from moorage.stores.rows import micros
from moorage.stores.sql import documents, lookup
from moorage.stores.sql.db import Query
from moorage.stores.sql.views import WHOLE_VIEW, seen_of
from moorage.stores.sql.work import WantedTurns, take
from moorage.stores.sqlite.connection import BrokenText, Driven

MOST_LOOKED_AT = 50  # queued turns that cannot be taken now, per transaction
_NEXT, _NEXT_OF_FAMILY = Query("next_turn"), Query("next_turn_of_family")
_WHOLE = f"{WHOLE_VIEW[False]} FROM moor.sessions s WHERE s.pk = (SELECT session FROM moor.turns WHERE n = ?)"


async def next_due(db: Driven, wanted: WantedTurns, at: int, after: int = 0) -> int | None:
    """Return the key of the oldest wanted queued turn that is due, behind `after`."""
    if await documents.find(db, DocumentKind.DRAINED_LAUNCHER, wanted.launcher_id) is not None:
        return None
    values = (db.listed(wanted.owners), db.listed(wanted.agents), after, at)
    if wanted.root is None:
        row = await db.one(_NEXT(db), values)
    else:
        row = await db.one(_NEXT_OF_FAMILY(db), (*values, wanted.root)) if lookup.may_be_ref(wanted.root) else None
    return None if row is None else row[0]


async def claim_next(db: Driven, wanted: WantedTurns, wish: Claim, stamp: Stamp, after: int) -> Claimed | int | None:
    """Give the oldest available turn after `after` to a launcher; otherwise return where to continue.

    Some due turns cannot be taken: their session is held, or cannot be read. The rule of claims postpones
    the first kind; the second is skipped.
    """
    for _ in range(MOST_LOOKED_AT):
        found = await next_due(db, wanted, micros(stamp.at), after)
        if found is None:
            return None
        with suppress(SessionCorrupt, BrokenText):
            row = await db.one(_WHOLE, (found,))
            assert row is not None
            if (claimed := await take(db, seen_of(db, row), wish, stamp)) is not None:
                return claimed
        after = found
    return after
