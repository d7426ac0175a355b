"""Status as callers see it: the hold without its token, and why a request has not started.

`core.status` decides. The launchers are read once for an answer, however many sessions it has, and only if
one of them needs them.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from moorage.core.errors import NotFound
from moorage.core.session import Session
from moorage.core.status import Because, why_not_started
from moorage.service.deps import Deps, shown

if TYPE_CHECKING:
    from moorage.core.turn import Launcher

AT_ONCE = 20  # live turns that one answer may end


async def told(deps: Deps, sessions: Iterable[Session]) -> list[Session]:
    """Return the sessions as their readers see them, with `because`, after applying deadlines."""
    heads = await without_due(deps, list(sessions))
    found = zip(heads, await reasons(deps, heads), strict=True)
    return [shown(head if because is None else replace(head, because=because)) for head, because in found]


async def told_one(deps: Deps, session: Session) -> Session:
    """Return one session, the same way."""
    return (await told(deps, [session]))[0]


async def without_due(deps: Deps, heads: list[Session]) -> list[Session]:
    """End the live turns of these sessions that are due; return the current sessions."""
    if all(head.live_turn is None for head in heads):
        return heads
    from moorage.service.leases import settle  # needed only where agents are at work

    now, left = [], AT_ONCE
    for head in heads:
        change = await settle(deps, head) if left else None
        left -= change is not None
        now.append(head if change is None else change.session)
    return now


async def reasons(deps: Deps, heads: list[Session]) -> list[Because | None]:
    """Return why the requests of each session wait; with the time at which an unresponsive turn is given up."""
    launchers = await _launchers(deps) if any(head.waits and head.live_turn is None for head in heads) else []
    now = deps.clock.now()
    found = [why_not_started(head, launchers, now) for head in heads]
    silent = [(place, each) for place, each in enumerate(found) if each is not None and each.is_silence]
    for place, because in silent[:AT_ONCE]:
        with suppress(NotFound):  # the turn has just ended
            turn = await deps.store.find_turn(heads[place].owner, heads[place].live_turn or "")
            found[place] = replace(because, until=turn.lost_at)
    return found


async def _launchers(deps: Deps) -> list[Launcher]:
    """Return the launchers, except those that this machine knows to be gone.

    A launcher of this process is here, whatever a stepped clock says about its last heartbeat.
    """
    from moorage.service.launchers import all_launchers  # hooks do not load it
    from moorage.service.presence import is_gone

    every, ours, now = await all_launchers(deps.store), deps.launchers, deps.clock.now()
    here = [replace(each, seen_at=now) for each in every if each.launcher_id in ours]
    return here + [each for each in every if each.launcher_id not in ours and not is_gone(each.launcher_id)]
