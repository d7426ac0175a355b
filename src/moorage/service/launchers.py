"""Launchers: listing and draining them.

A launcher registers itself in one document, with a flag for draining. A drained launcher has a second document, which
the store's `claim` checks, so draining takes effect as soon as it is stored. A launcher has a new id after every
start, so draining ends with the process it was meant for.
"""

from __future__ import annotations

from msgspec.structs import replace

from moorage.core.document import DocumentKind
from moorage.core.errors import AmbiguousReference, LauncherNotFound
from moorage.core.ids import check_is_text
from moorage.core.turn import FORGOTTEN_AFTER, Launcher
from moorage.ports import Documents, Store
from moorage.service.deps import Caller, Deps
from moorage.service.documents import Collection

SHORTEST_PREFIX = 4
PURGED_AT_ONCE = 100

_LAUNCHERS = Collection(DocumentKind.LAUNCHER, Launcher)
_DRAINED = Collection(DocumentKind.DRAINED_LAUNCHER, str)  # the launcher's id


async def save_launcher(store: Store, launcher: Launcher) -> Launcher:
    """Store a launcher's description of itself; return it with `drain`, which only the store sets.

    A new launcher makes the store purge expired documents, such as launchers that were silent for a week.
    """
    is_new = False

    def told(known: Launcher | None) -> Launcher:
        nonlocal is_new
        is_new = known is None
        return replace(launcher, drain=known is not None and known.drain)

    launcher_id, ends = launcher.launcher_id, launcher.seen_at + FORGOTTEN_AFTER
    kept = await _LAUNCHERS.put(store, launcher_id, told, expires_at=ends)
    assert kept is not None
    if kept.drain:
        await _DRAINED.put(store, launcher_id, lambda known: known, expires_at=ends)
    if is_new:
        await store.purge(launcher.seen_at, PURGED_AT_ONCE)
    return kept


async def all_launchers(store: Documents) -> list[Launcher]:
    """Return the launchers of all owners, newest first."""
    found = await _LAUNCHERS.all(store)
    return sorted(found, key=lambda each: (each.registered_at, each.launcher_id), reverse=True)


async def set_drain(store: Documents, launcher_id: str, drain: bool) -> Launcher:
    """Let a launcher claim no more turns, or let it claim again. Raises LauncherNotFound."""
    launcher = await _LAUNCHERS.get(store, launcher_id)
    if launcher is None:
        raise LauncherNotFound(launcher_id)
    ends = launcher.seen_at + FORGOTTEN_AFTER  # every heartbeat extends it
    await _DRAINED.put(store, launcher_id, lambda _: launcher_id if drain else None, expires_at=ends)
    told = await _LAUNCHERS.put(
        store, launcher_id, lambda known: replace(known or launcher, drain=drain), expires_at=ends
    )
    assert told is not None
    return told


async def list_launchers(deps: Deps, caller: Caller) -> list[Launcher]:
    """Return the launchers that work for the caller, newest first, except those that ended normally."""
    every = await all_launchers(deps.store)
    return [each for each in every if each.works_for(caller.owner) and not each.has_left]


async def drain_launcher(deps: Deps, caller: Caller, ref: str, *, drain: bool) -> Launcher:
    """Drain a launcher, so that it takes no more turns, or undo that; by its id, a prefix of it, or its name.

    Raises:
        LauncherNotFound: no launcher matches, or it works for other owners.
        AmbiguousReference: several match.
    """
    check_is_text(ref, "launcher_id")
    found = _one_of(await list_launchers(deps, caller), ref)
    kept = await set_drain(deps.store, found.launcher_id, drain)
    does = "takes no more turns" if drain else "takes turns again"
    import logging  # five milliseconds that other commands do not pay

    says = kept.name, kept.launcher_id, does, caller.by or caller.owner
    logging.getLogger(__name__).info("launcher %s (%s) %s, says %s", *says)
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
        raise AmbiguousReference(ref, [each.launcher_id for each in fitting], noun="launcher")
    return fitting[0]
