"""Servers: several may share a store, and the absence of all of them must cost no agent its life.

Launchers renew their leases through a server. While there is none they cannot, however well they do; so the
first server that comes back gives them all as much time as they have to miss it, before anybody looks who is late.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from moorage.core.document import DocumentKind
from moorage.core.turn import LOST_AFTER
from moorage.ports import Documents
from moorage.service.deps import Deps
from moorage.service.documents import Collection

SILENT_AFTER = timedelta(seconds=10)  # then nobody serves
BEAT_EVERY = timedelta(seconds=4)  # one that is missed still leaves time for another
KEPT_FOR = timedelta(hours=1)  # a heartbeat; an older one tells nobody anything

_BEATS = Collection(DocumentKind.SERVER, datetime)


async def arrive(deps: Deps, server_id: str, lost_after: timedelta = LOST_AFTER) -> int:
    """A server begins to serve; how many turns got more time because nobody did before.

    Call it before anything is claimed or expired. Turns are helped first and the beat comes second: a server
    that dies in between leaves it to the next one. Of two that come together both help, which is harmless.
    """
    beats, now = await heartbeats(deps.store), deps.clock.now()
    helped = 0 if count_live(beats, now) else await deps.store.extend_leases(now, lost_after)
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


async def beat(deps: Deps, server_id: str, lost_after: timedelta = LOST_AFTER) -> int:
    """A server still serves; call it every few seconds. How many turns got more time: it may have been frozen."""
    return await arrive(deps, server_id, lost_after)
