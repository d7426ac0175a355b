"""The queue: which launcher gets which turn, and what time does to those that nobody reports of."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from moorage.core.document import DocumentKind
from moorage.core.errors import SessionCorrupt
from moorage.core.session import Stamp
from moorage.core.turn import TurnState
from moorage.core.work import Claim, claim
from moorage.ports import Claimed
from moorage.stores.rows import json_text, micros
from moorage.stores.session_rows import HEAD_WITH_PK, session_of
from moorage.stores.sql import documents, lookup
from moorage.stores.sqlite import heads
from moorage.stores.sqlite.connection import BrokenText, Connection
from moorage.stores.sqlite.driven import Driven, drive
from moorage.stores.sqlite.work import view_with_whole_items

MOST_LOOKED_AT = 50  # queued turns that nobody can take now, in one transaction


class Wanted(msgspec.Struct, frozen=True):
    """Whose turns a launcher can take: of these owners and agents, and of one family if it has a root."""

    launcher_id: str
    owners: tuple[str, ...]
    agents: tuple[str, ...]
    root: str | None = None


# The oldest of each owner and agent, found through an index each; those that had to wait for a time apart.
_NEXT = """
WITH wanted (owner, agent) AS (SELECT o.value, a.value FROM json_each(?1) o CROSS JOIN json_each(?2) a)
SELECT min(first) FROM (
    SELECT (
        SELECT n FROM turns WHERE owner = wanted.owner AND agent = wanted.agent AND n > ?3
            AND state = 'queued' AND not_before IS NULL ORDER BY n LIMIT 1
    ) AS first FROM wanted
    UNION ALL
    SELECT (
        SELECT min(n) FROM turns WHERE owner = wanted.owner AND agent = wanted.agent AND n > ?3
            AND state = 'queued' AND not_before IS NOT NULL AND not_before <= ?4
    ) FROM wanted
)
"""
# Families are small: all that is queued in one is looked at.
_NEXT_OF_FAMILY = """
SELECT min(t.n) FROM sessions s CROSS JOIN turns t ON t.root = s.pk
WHERE s.owner IN (SELECT value FROM json_each(?1)) AND s.id = ?5 AND t.n > ?3 AND t.state = 'queued'
    AND t.agent IN (SELECT value FROM json_each(?2)) AND (t.not_before IS NULL OR t.not_before <= ?4)
"""


def next_due(db: Connection, wanted: Wanted, at: int, after: int = 0) -> int | None:
    """The key of the oldest queued turn that is due and wanted, behind another."""
    if drive(documents.find(Driven(db), DocumentKind.DRAINED_LAUNCHER, wanted.launcher_id)) is not None:
        return None
    bindings = (json_text(wanted.owners), json_text(wanted.agents), after, at)
    if wanted.root is None:
        row = db.one(_NEXT, bindings)
    else:
        row = db.one(_NEXT_OF_FAMILY, (*bindings, wanted.root)) if lookup.may_be_ref(wanted.root) else None
    return None if row is None else row[0]


def claim_next(db: Connection, wanted: Wanted, wish: Claim, stamp: Stamp, after: int) -> Claimed | int | None:
    """Give the oldest turn behind `after` that can be taken to a launcher; where to go on looking, if it is late.

    Some cannot be taken, though they are due: somebody drives their session, or it does not
    read back whole. The first kind is put off by its rule, the second is passed by.
    """
    for _ in range(MOST_LOOKED_AT):
        found = next_due(db, wanted, micros(stamp.at), after)
        if found is None:
            return None
        with suppress(SessionCorrupt, BrokenText):
            if (claimed := _claim(db, found, wish, stamp)) is not None:
                return claimed
        after = found
    return after


def _claim(db: Connection, n: int, wish: Claim, stamp: Stamp) -> Claimed | None:
    row = db.one(f"SELECT {HEAD_WITH_PK} FROM sessions WHERE pk = (SELECT session FROM turns WHERE n = ?)", (n,))
    assert row is not None
    pk, session = row[-1], session_of(row, db.opener)
    view = view_with_whole_items(db, session.owner, pk, session)
    change = heads.save(db, session.owner, pk, view, claim(view, wish, stamp))
    if not (change.turns and change.turns[0].state is TurnState.RUNNING):
        return None
    return Claimed(session.owner, change.session, change.turns[0], change.items, change.runs)
