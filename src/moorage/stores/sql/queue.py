"""The queue: the turns that a launcher wants, and how one is taken. Finding one is in `queue` of each dialect."""

from __future__ import annotations

import msgspec

from moorage.core.session import Stamp
from moorage.core.turn import TurnState
from moorage.core.work import Claim, claim
from moorage.ports import Claimed
from moorage.stores.sql.changes import save
from moorage.stores.sql.db import Db
from moorage.stores.sql.views import Seen


class WantedTurns(msgspec.Struct, frozen=True):
    """The turns that a launcher can take: of these owners and agents, and of one family if it has a root."""

    launcher_id: str
    owners: tuple[str, ...]
    agents: tuple[str, ...]
    root: str | None = None


async def take(db: Db, seen: Seen, wish: Claim, stamp: Stamp) -> Claimed | None:
    """Give a session's queued turn to a launcher, unless the rule postpones it because the session is held."""
    owner = seen.view.session.owner
    change = await save(db, owner, seen, claim(seen.view, wish, stamp))
    if not (change.turns and change.turns[0].state is TurnState.RUNNING):
        return None
    return Claimed(owner, change.session, change.turns[0], change.items, change.runs)
