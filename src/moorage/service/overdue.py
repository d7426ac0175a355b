"""What is due ends with the next call: nobody has to be running for it.

A launcher that claims turns ends what has run out of time, of all sessions. Where none is running, whoever looks at a
session or acts on it does the same for that session. The head alone tells whether there is anything to look at: a
turn is live, and its lease has run out or its launcher is gone. So nothing is read besides where nothing is due.
"""

from __future__ import annotations

from functools import partial

from moorage.core.errors import NotFound
from moorage.core.session import Change, Session, Stamp
from moorage.core.turn import Turn
from moorage.core.work import LAUNCHER, expired
from moorage.service.deps import Deps
from moorage.service.presence import Gone, is_gone
from moorage.service.steps import trusted_now


async def settled(deps: Deps, head: Session) -> Session:
    """Return the session once its live turn has ended, if that is due; else as it is."""
    change = await settle(deps, head)
    return head if change is None else change.session


async def settle(deps: Deps, head: Session) -> Change | None:
    """End the live turn of a session if that is due; what that changed, None if nothing."""
    is_over = _is_launcher_gone(deps, head)
    if head.live_turn is None or not (is_over or head.unresponsive_since(deps.clock.now())):
        return None
    try:
        turn = await deps.store.find_turn(head.owner, head.live_turn)
        if not (is_over or _is_due(turn, deps)):
            return None
        now = deps.clock.now() if is_over else await trusted_now(deps, turn.lost_after, is_extended=turn.is_extended)
        judge = partial(expired, stamp=Stamp(now, "moorage", "launcher"), living=deps.launchers, gone=Gone())
        change = await deps.store.apply(head.owner, head.session_id, judge)
    except NotFound:
        return None
    return change if change.turns else None


def _is_launcher_gone(deps: Deps, head: Session) -> bool:
    if head.live_turn is None or head.hold is None:
        return False
    launcher_id = head.hold.holder.removeprefix(LAUNCHER)
    return launcher_id not in deps.launchers and is_gone(launcher_id)


def _is_due(turn: Turn, deps: Deps) -> bool:
    now = deps.clock.now()
    return turn.is_unresponsive(now) and (turn.started_at is None or turn.is_lost(now))
