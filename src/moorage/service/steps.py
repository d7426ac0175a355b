"""Steps of the clock, by NTP, sleep of the machine, or a database server's clock. They must not cost a turn.

A lease ends at an instant of the clock. When the clock steps, a launcher that renewed a second ago looks silent for
as long as the step. So no lease is judged before the clock is compared with a monotonic one. If the two ran apart,
all leases are extended first, as after a pause without a server. Then no lease is judged for a while: a process may
have read the clock before the step, and write a lease after the extension.

A new process has nothing to compare with. It takes the value stored by the last launcher of this boot
(`Launcher.zero_at`). If there is none, a living server vouches for the clock; otherwise the leases are extended, too.

A launcher that claims turns applies the deadlines of all sessions. If no launcher runs, a caller that reads a session
or acts on it does the same for that session (`settle`): no background process is required.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from moorage.core.errors import NotFound
from moorage.core.session import Change, Session, Stamp, View
from moorage.core.turn import Launcher
from moorage.core.work import LAUNCHER, expired
from moorage.ports import Decision
from moorage.service.deps import Deps
from moorage.service.launchers import all_launchers, save_launcher
from moorage.service.presence import GoneLaunchers, is_gone
from moorage.service.servers import count_live, extend_leases, heartbeats


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
    gone = GoneLaunchers()

    def decide(view: View) -> Change:
        turn, now = view.work.running, deps.watch.look()
        if turn is not None and turn.launcher_id not in gone and not deps.watch.is_settled:
            return Change(session=view.session)
        return expired(view, Stamp(now, "moorage", "launcher"), living=deps.launchers, gone=gone)

    return decide


async def settle(deps: Deps, head: Session) -> Change | None:
    """End the live turn of a session if that is due; return the change, or None.

    The head alone shows whether a check is needed: a turn is live, and its lease has expired or its launcher is gone.
    So nothing else is read if nothing is due.
    """
    clock, is_over = deps.watch.clock, _is_launcher_gone(deps, head)
    if head.live_turn is None or not (is_over or head.unresponsive_since(clock.now())):
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


def _is_launcher_gone(deps: Deps, head: Session) -> bool:
    if head.live_turn is None or head.hold is None:
        return False
    launcher_id = head.hold.holder.removeprefix(LAUNCHER)
    return launcher_id not in deps.launchers and is_gone(launcher_id)
