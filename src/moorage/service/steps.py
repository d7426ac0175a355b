"""Steps of the clock: NTP, a machine that slept, a database whose clock is set. They must cost no turn.

A lease is an instant of the clock. When the clock steps, a launcher that renewed a second ago looks silent for
as long as the step. So nobody judges a lease before comparing the clock with a monotonic one. Where the two ran
apart, all leases are extended first, as after a pause without a server.

A process that has just begun has nothing to compare with. It takes what the last launcher of this boot has noted
(`Launcher.zero_at`). If there is none, a living server vouches for the clock; else the leases are extended, too.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from moorage.service.deps import Deps
from moorage.service.launchers import all_launchers
from moorage.service.servers import count_live, heartbeats

STEP = timedelta(seconds=5)  # the clock and the monotonic one may run apart by less between two looks


async def trusted_now(deps: Deps, lost_after: timedelta, *, is_extended: bool = False) -> datetime:
    """Return the time by which leases may be judged; after a step of the clock they are extended first.

    With `is_extended` they were extended before: where nobody can tell of a step, that is done once.
    """
    if deps.zero_at is None:
        before = await _noted(deps)
        beats = await heartbeats(deps.store) if before is None else []
    else:
        before, beats = deps.zero_at, []
    now = deps.clock.now()  # after the first answer of the store, whose clock it may be
    zero_at = now - timedelta(seconds=deps.clock.monotonic())
    is_steady = before is not None and abs(zero_at - before) <= STEP
    is_served = count_live(beats, now) > 0
    if not (is_steady or is_served or (before is None and is_extended)):
        await deps.store.extend_leases(now, lost_after)
    deps.zero_at = zero_at
    return now


async def _noted(deps: Deps) -> datetime | None:
    """When the monotonic clock of this boot was at zero, by what its last launcher has noted."""
    noted = [
        (each.seen_at - each.zero_at, each.zero_at)
        for each in await all_launchers(deps.store)
        if each.zero_at is not None and each.boot == deps.clock.boot
    ]
    return max(noted)[1] if noted else None  # the last by the monotonic clock
