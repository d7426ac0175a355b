"""Leases: when they may be judged, and when they are extended.

Neither a step of the clock nor the absence of all servers may cost a turn.

Launchers renew their leases through a server, so they cannot renew while none runs. The first server that returns
extends all leases by the time that a launcher may be silent, before any lease is judged.

A lease ends at an instant of the clock. When the clock steps (by NTP, sleep of the machine, or a database server's
clock), a launcher that renewed a second ago looks silent for as long as the step. So no lease is judged before the
clock is compared with a monotonic one. If the two ran apart, all leases are extended first, as after a pause without a
server. Then no lease is judged for a while: a process may have read the clock before the step, and write a lease after
the extension.

A new process has nothing to compare with. It takes the value stored by the last launcher of this boot
(`Launcher.zero_at`). If there is none, a living server vouches for the clock; otherwise the leases are extended, too.

A launcher that claims turns, and every server, applies the deadlines of all sessions. Without them, a caller that reads
a session or acts on it does the same for that session (`settle`): no background process is required.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from moorage.core import work
from moorage.core.document import DocumentKind
from moorage.core.errors import NotFound, SessionCorrupt
from moorage.core.session import Change, Session, Stamp, View
from moorage.core.turn import Launcher
from moorage.ports import Decision, Documents, Store
from moorage.service.deps import Deps
from moorage.service.documents import Collection
from moorage.service.inline import together
from moorage.service.launchers import all_launchers, save_launcher
from moorage.service.presence import is_gone

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


# Steps of the clock ------------------------------------------------------------------------------


async def trusted_now(deps: Deps, *, is_extended: bool = False) -> datetime:
    """Return the time by which leases may be judged; after a step of the clock, extend them first.

    With `is_extended` they were extended before: where a step cannot be detected, that is done once.
    """
    watch = deps.watch
    if watch.zero_at is None:
        await _begin(deps, is_extended=is_extended)
    while True:
        now, steps = watch.look(), watch.steps
        if watch.extended >= steps:
            return now
        await extend_leases(deps.store, watch.look)
        watch.extended = max(watch.extended, steps)


async def _begin(deps: Deps, *, is_extended: bool) -> None:
    """Find the first value to compare the clock with; without one, the clock may have stepped."""
    before = await _noted(deps)
    beats = await heartbeats(deps.store) if before is None else []
    watch = deps.watch
    if watch.zero_at is not None:  # a concurrent task was faster
        return
    now = watch.clock.now()  # after the first answer of the store, which may provide the clock
    watch.zero_at = before or now - timedelta(seconds=watch.clock.monotonic())
    watch.steps += not (before or is_extended or count_live(beats, now))


async def _noted(deps: Deps) -> datetime | None:
    """Return the time when the monotonic clock of this boot was zero, as stored by its last launcher."""
    noted = [
        (each.seen_at - each.zero_at, each.zero_at)
        for each in await all_launchers(deps.store)
        if each.zero_at is not None and each.boot == deps.watch.clock.boot
    ]
    return max(noted)[1] if noted else None  # the latest by the monotonic clock


async def note_launcher(deps: Deps, launcher: Launcher) -> Launcher:
    """Store a launcher's description of itself, with the clock values of this process; see `save_launcher`."""
    now, watch = await trusted_now(deps), deps.watch
    return await save_launcher(deps.store, replace(launcher, seen_at=now, boot=watch.clock.boot, zero_at=watch.zero_at))


def judgement(deps: Deps) -> Decision:
    """Return the decision that applies deadlines; while the clock is not settled, only proof ends a turn.

    It reads the clock itself: this process may be stopped before it decides, while the clock steps.
    """

    def decide(view: View) -> Change:
        turn, now = view.work.running, deps.watch.look()
        launcher_id = None if turn is None else turn.launcher_id
        gone = [launcher_id] if launcher_id is not None and is_gone(launcher_id) else []
        if turn is not None and not gone and not deps.watch.is_settled:
            return Change(session=view.session)
        return work.expired(view, Stamp(now, "moorage", "launcher"), living=deps.launchers, gone=gone)

    return decide


async def settle(deps: Deps, head: Session) -> Change | None:
    """End the live turn of a session if that is due; return the change, or None.

    The head alone shows whether a check is needed: a turn is live, and its lease has expired or its launcher is gone.
    So nothing else is read if nothing is due.
    """
    if head.live_turn is None:
        return None
    clock, launcher_id = deps.watch.clock, None if head.hold is None else head.hold.holder.removeprefix(work.LAUNCHER)
    is_over = launcher_id is not None and launcher_id not in deps.launchers and is_gone(launcher_id)
    if not (is_over or head.unresponsive_since(clock.now())):
        return None
    try:
        turn = await deps.store.find_turn(head.owner, head.live_turn)
        is_due = turn.is_unresponsive(clock.now()) and (turn.started_at is None or turn.is_lost(clock.now()))
        if not (is_over or is_due):
            return None
        if not is_over:
            await trusted_now(deps, is_extended=turn.is_extended)
        change = await deps.store.apply(head.owner, head.session_id, judgement(deps))
    except NotFound:
        return None
    return change if change.turns else None
