"""Servers: several may share a store, and the absence of all of them must cost no agent its life.

Launchers renew their leases through a server. While there is none they cannot, however well they do; so the
first server that comes back gives them all as much time as they have to miss it, before anybody looks who is late.
"""

from __future__ import annotations

from datetime import timedelta

from moorage.core.turn import LOST_AFTER
from moorage.service.deps import Deps

SILENT_AFTER = timedelta(seconds=10)  # then nobody serves
BEAT_EVERY = timedelta(seconds=4)  # one that is missed still leaves time for another


async def arrive(deps: Deps, server_id: str, lost_after: timedelta = LOST_AFTER) -> int:
    """A server begins to serve; how many turns got more time because nobody did before.

    Call it before anything is claimed or expired. Turns are helped first and the beat comes second: a server
    that dies in between leaves it to the next one. Of two that come together both help, which is harmless.
    """
    last, now = await deps.store.last_beat(), deps.clock.now()
    helped = 0
    if last is None or abs(now - last) > SILENT_AFTER:  # one in the future: the clock was set back
        helped = await deps.store.extend_leases(now, lost_after)
    await deps.store.beat(server_id, now)
    return helped


async def living(deps: Deps) -> int:
    """How many servers there are, this one among them."""
    return max(1, await deps.store.count_servers(deps.clock.now() - SILENT_AFTER))


async def beat(deps: Deps, server_id: str, lost_after: timedelta = LOST_AFTER) -> int:
    """A server still serves; call it every few seconds. How many turns got more time: it may have been frozen."""
    return await arrive(deps, server_id, lost_after)
