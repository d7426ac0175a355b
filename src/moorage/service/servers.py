"""Servers: several may share a store, and an agent survives the absence of all of them.

Launchers renew their leases through a server, so they cannot renew while none runs. The first server that returns
extends all leases by the time that a launcher may be silent, before any lease is judged.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from moorage.core import work
from moorage.core.document import DocumentKind
from moorage.core.errors import NotFound, SessionCorrupt
from moorage.ports import Documents, Store
from moorage.service.deps import Deps
from moorage.service.documents import Collection
from moorage.service.inline import together

SILENT_AFTER = timedelta(seconds=10)  # then no server is running
BEAT_EVERY = timedelta(seconds=4)  # one missed heartbeat still leaves time for another
KEPT_FOR = timedelta(hours=1)  # how long a heartbeat is stored; an older one is useless
AT_ONCE = 64  # leases that are extended side by side: as many as SQLite commits together
_NEVER = datetime.max.replace(tzinfo=UTC)  # by then every lease has ended
_EVERY = 1 << 31  # more than all running turns

_BEATS = Collection(DocumentKind.SERVER, datetime)


async def arrive(deps: Deps, server_id: str) -> int:
    """Record that a server starts; return how many turns got more time because no server ran before.

    Call it before anything is claimed or expired. The leases are extended first and the heartbeat is stored second:
    if the server dies in between, the next one repeats both. Two servers that start together both extend: harmless.
    """
    beats, now = await heartbeats(deps.store), deps.clock.now()
    helped = 0 if count_live(beats, now) else await extend_leases(deps.store, deps.clock.now)
    await note_beat(deps.store, server_id, now)
    return helped


async def extend_leases(store: Store, now: Callable[[], datetime]) -> int:
    """Extend the lease and the hold of every running turn of all owners from now on; return how many turns changed.

    While there was no server, no launcher could renew, and after a step of the clock every lease is of another time.
    The clock is read for each commit: this process may be stopped among them, while the clock steps again.
    """

    async def extend(owner: str, session_id: str) -> int:
        with suppress(NotFound, SessionCorrupt):  # deleted meanwhile, or damaged: the others count
            return len((await store.apply(owner, session_id, lambda view: work.extended(view, now()))).turns)
        return 0

    places, changed = await store.overdue(_NEVER, _EVERY), 0
    for start in range(0, len(places), AT_ONCE):
        changed += sum(await together(extend(*place) for place in places[start : start + AT_ONCE]))
    return changed


async def note_beat(store: Documents, server_id: str, at: datetime) -> None:
    """Store the heartbeat of a server."""
    await _BEATS.put(store, server_id, lambda _: at, expires_at=at + KEPT_FOR)


async def heartbeats(store: Documents) -> list[datetime]:
    """Return the time of the latest heartbeat of each server, including dead ones."""
    return await _BEATS.all(store)


def count_live(beats: list[datetime], at: datetime) -> int:
    """Return how many of these servers live. A heartbeat in the future does not count: the clock was set back."""
    return sum(abs(at - beat) <= SILENT_AFTER for beat in beats)


async def living(deps: Deps) -> int:
    """Return how many servers live, including this one."""
    return max(1, count_live(await heartbeats(deps.store), deps.clock.now()))
