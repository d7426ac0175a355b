"""Servers: several may share a store, and an agent survives the absence of all of them.

Launchers renew their leases through a server, so they cannot while there is none. The first server that comes back
extends all leases by the time a launcher may be silent, before any lease is judged.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from moorage.core.document import DocumentKind
from moorage.ports import Documents
from moorage.service.deps import Deps
from moorage.service.documents import Collection

SILENT_AFTER = timedelta(seconds=10)  # then no server is running
BEAT_EVERY = timedelta(seconds=4)  # one that is missed still leaves time for another
KEPT_FOR = timedelta(hours=1)  # a heartbeat; an older one is of no use

_BEATS = Collection(DocumentKind.SERVER, datetime)


async def arrive(deps: Deps, server_id: str) -> int:
    """Note that a server begins to serve; return how many turns got more time because none did before.

    Call it before anything is claimed or expired. Turns are helped first and the beat comes second: a server
    that dies in between leaves it to the next one. Of two that come together both help, which is harmless.
    """
    beats, now = await heartbeats(deps.store), deps.clock.now()
    helped = 0 if count_live(beats, now) else await deps.store.extend_leases(now)
    await note_beat(deps.store, server_id, now)
    return helped


async def note_beat(store: Documents, server_id: str, at: datetime) -> None:
    """Store the heartbeat of a server."""
    await _BEATS.put(store, server_id, lambda _: at, expires_at=at + KEPT_FOR)


async def heartbeats(store: Documents) -> list[datetime]:
    """Return the time of the last heartbeat of each server, dead ones too."""
    return await _BEATS.all(store)


def count_live(beats: list[datetime], at: datetime) -> int:
    """Return how many of these servers live. A heartbeat in the future does not count: the clock was set back."""
    return sum(abs(at - beat) <= SILENT_AFTER for beat in beats)


async def living(deps: Deps) -> int:
    """Return how many servers live, this one among them."""
    return max(1, count_live(await heartbeats(deps.store), deps.clock.now()))
