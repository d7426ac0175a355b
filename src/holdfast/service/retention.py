"""Retention: what is old enough goes, tree by tree, and leaves a trace."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from holdfast.core.errors import InvalidField
from holdfast.core.family import Tombstone
from holdfast.core.policy import Retention, why_removable
from holdfast.core.session import Phase, Session, State
from holdfast.ports import SweepDecision
from holdfast.service.approvals import expire_approvals
from holdfast.service.deps import Caller, Deps, stamp_of

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
STEP = 50


class Cleanup(Struct, frozen=True, kw_only=True):
    """What a cleanup took, or would take."""

    removed: int
    session_ids: list[str]
    sessions: list[Tombstone]
    dry_run: bool = False


async def cleanup(
    deps: Deps,
    caller: Caller,
    *,
    hours: object = None,
    states: tuple[str, ...] | list[str] | None = None,
    dry_run: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Cleanup:
    """Delete sessions untouched for that long, and those past their TTL.

    A tree goes only when every member may: none that runs, is held or has an open approval.
    """
    stamp = stamp_of(deps, caller)
    retention = Retention(
        before=stamp.at - _age(deps, hours), states=_check_states(states), waiting_since=stamp.at - _waiting_limit(deps)
    )
    decide = _whole_trees(retention, stamp.at)
    gone: list[Tombstone] = []
    known: set[str] = set()
    position: int | None = 0
    while position is not None:
        step = await deps.store.sweep(
            caller.owner, decide, stamp, before=retention.before, position=position, limit=STEP, dry_run=dry_run
        )
        gone += [stone for stone in step.gone if stone.session_id not in known]
        known.update(stone.session_id for stone in step.gone)  # a dry run meets children again after their parent
        position = step.next
        if progress is not None:
            progress(len(gone))
    return Cleanup(removed=len(gone), session_ids=[stone.session_id for stone in gone], sessions=gone, dry_run=dry_run)


def _waiting_limit(deps: Deps) -> timedelta:
    """How long work that waits for a person stays fresh: nothing younger is thrown away."""
    return deps.settings.resume.idle_limits.get(Phase.APPROVAL, deps.settings.resume.idle_limit)


def _age(deps: Deps, hours: object) -> timedelta:
    if hours is None:
        return deps.settings.retention
    if isinstance(hours, bool) or not isinstance(hours, (int, float)) or not 0 <= hours <= 24 * 3650:
        raise InvalidField("hours", f"is {hours!r}; give a number from 0")
    return timedelta(hours=hours)


def _check_states(states: tuple[str, ...] | list[str] | None) -> frozenset[str] | None:
    if states is None:
        return None
    unknown = [str(state) for state in states if state not in tuple(State)]
    if unknown:
        raise InvalidField("states", f"has {', '.join(unknown)}; use some of {', '.join(State)}")
    return frozenset(states)


def _whole_trees(retention: Retention, at: datetime) -> SweepDecision:
    def decide(members: list[Session]) -> str | None:
        if members[0].expires_at is not None and members[0].expires_at <= at:
            # An expired session takes its tree along, unless something in it is in use.
            everything = Retention(before=at + timedelta(microseconds=1))
            return "expired" if all(why_removable(member, everything, at) for member in members) else None
        reasons = [why_removable(member, retention, at) for member in members]
        return None if None in reasons else reasons[0]

    return decide


LOOK_AGAIN = timedelta(seconds=1)  # another process may have set a TTL meanwhile


async def expire_due(deps: Deps, caller: Caller) -> None:
    """Delete what is past its TTL and close approvals whose time has run out, if it is time to look.

    Every door calls this before it does anything else, so that nothing has to be running
    for time to pass; it costs a comparison unless something is due.
    """
    now = deps.clock.now()
    if now < deps.look_again_at:
        return
    due = await deps.store.next_expiry(caller.owner)
    if due is not None and due <= now:
        await _sweep_expired(deps, caller)
        await expire_approvals(deps, caller)
        due = await deps.store.next_expiry(caller.owner)
    deps.look_again_at = now + LOOK_AGAIN
    if due is not None and due > now:  # what is in use stays though it is due: who ends its use calls `expect_end` too
        deps.expect_end(due)


async def _sweep_expired(deps: Deps, caller: Caller) -> None:
    stamp = stamp_of(deps, caller)
    decide = _whole_trees(Retention(before=_LONG_AGO), stamp.at)
    position: int | None = 0
    while position is not None:
        step = await deps.store.sweep(caller.owner, decide, stamp, before=None, position=position, limit=STEP)
        position = step.next
