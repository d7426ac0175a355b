"""Launchers, as whoever watches them sees them: which there are, and that one takes no more turns.

A wish to drain is kept in the store, beside what the launcher tells of itself, and it is the store that
gives it nothing any more: it holds from the moment it is kept, whether the launcher has heard of it or not.
A launcher has another id after every start, so a wish ends with the start it was meant for.
"""

from __future__ import annotations

import logging

from moorage.core.errors import AmbiguousReference, LauncherNotFound
from moorage.core.turn import Launcher
from moorage.service.deps import Caller, Deps

log = logging.getLogger(__name__)

SHORTEST_PREFIX = 4


async def list_launchers(deps: Deps, caller: Caller) -> list[Launcher]:
    """Those that work for the caller, newest first; not those that have ended in good order."""
    every = await deps.store.launchers()
    return [each for each in every if each.works_for(caller.owner) and not each.has_left]


async def drain_launcher(deps: Deps, caller: Caller, ref: str, *, drain: bool) -> Launcher:
    """Have a launcher take no more turns, or take them again; by its id, the beginning of it, or its name.

    Raises:
        LauncherNotFound: there is none, or it works for others.
        AmbiguousReference: several fit.
    """
    found = _one_of(await list_launchers(deps, caller), ref)
    kept = await deps.store.drain_launcher(found.launcher_id, drain)
    does = "takes no more turns" if drain else "takes turns again"
    log.info("launcher %s (%s) %s, says %s", kept.name, kept.launcher_id, does, caller.by or caller.owner)
    return kept


def _one_of(launchers: list[Launcher], ref: str) -> Launcher:
    exact = [each for each in launchers if each.launcher_id == ref]
    long_enough = len(ref) >= SHORTEST_PREFIX
    fitting = exact or [
        each for each in launchers if each.name == ref or (long_enough and each.launcher_id.startswith(ref))
    ]
    if not fitting:
        raise LauncherNotFound(ref)
    if len(fitting) > 1:
        raise AmbiguousReference(ref, [each.launcher_id for each in fitting])
    return fitting[0]
