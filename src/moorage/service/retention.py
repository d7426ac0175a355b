"""Retention: old sessions are deleted, tree by tree, and leave tombstones.

The policy sets the age limit by state, unless a caller names a number of hours. The store finds sessions past the
shortest limit; each member of a tree is judged by its own limit.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import asdict

from moorage.core.brief import brief
from moorage.core.errors import InvalidField, NotFound, SessionCorrupt
from moorage.core.family import Tombstone
from moorage.core.policy import NOT_BY_AGE, Limit, ResumePolicy, Retention, why_removable
from moorage.core.session import OPEN_STATES, Phase, Session, Stamp, State
from moorage.ports import SweepPart
from moorage.service.approvals import expire_approvals
from moorage.service.deps import LOOK_AGAIN, Caller, Deps, Settings, stamp_of
from moorage.service.inline import together

STEP = 50
RUNS_AT_ONCE = 100  # the next check expires the others
EXPIRED = "expired"
BY_TTL = Limit(None, "ttl")
States = tuple[str, ...] | list[str] | None


class Removal(Tombstone, frozen=True, kw_only=True):
    """A session that was or would be deleted, and the limit it exceeded."""

    last_activity_at: datetime
    limit_seconds: float | None  # how long it was to be kept; None if a TTL ended: its own, or its root's
    limit_from: str  # the setting of the limit; `hours` if the caller set it, `ttl` if a TTL ended


@brief("removed", "dry_run")
class Cleanup(Struct, frozen=True, kw_only=True):
    """The result of a cleanup or of its dry run."""

    removed: int
    session_ids: list[str]
    sessions: list[Removal]
    dry_run: bool = False


async def cleanup(
    deps: Deps,
    caller: Caller,
    *,
    hours: object = None,
    states: States = None,
    dry_run: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Cleanup:
    """Delete sessions without activity for as long as the policy says, or for so many hours, and those past their TTL.

    A tree is deleted only if every member may be: none runs, is held or has an open approval.
    """
    gone, retention = list[Removal](), retention_of(deps.settings, hours, states)
    async for some in cleanup_steps(deps, caller, retention, dry_run=dry_run):
        gone += some
        if progress is not None:
            progress(len(gone))
    return Cleanup(removed=len(gone), session_ids=[each.session_id for each in gone], sessions=gone, dry_run=dry_run)


async def cleanup_steps(
    deps: Deps, caller: Caller, retention: Retention, *, dry_run: bool = False
) -> AsyncGenerator[list[Removal], None]:
    """Clean up by these limits. Each step reports its deletions: a caller that stops in between knows what is gone."""
    stamp = stamp_of(deps, caller)
    before = retention.before(stamp.at)
    await expire_approvals(deps, caller)  # as before every call: an expired approval no longer keeps its session in use
    known: set[str] = set()
    position: int | None = 0
    while position is not None:
        judge = _Judge(retention, stamp.at)
        part = SweepPart(before=before, position=position, limit=STEP)
        step = await deps.store.sweep(caller.owner, judge, stamp, part, dry_run=dry_run)
        yield [judge.removal(tombstone) for tombstone in step.gone if tombstone.session_id not in known]
        if dry_run:
            known.update(tombstone.session_id for tombstone in step.gone)  # children are found again after their parent
        position = step.next


def retention_of(
    settings: Settings, hours: object = None, states: States = None, *, by_itself: bool = False
) -> Retention:
    """Return the limits of the policy, or a limit of these hours if they are given.

    A server that cleans up `by_itself`, without a request of a person, keeps open sessions in every state that the
    policy does not name: a default must not delete suspended work.
    """
    policy = settings.retention
    by_hours = None if hours is None else Limit(_check_hours(hours), "hours")
    kept: dict[str, Limit] = {state.value: NOT_BY_AGE for state in OPEN_STATES} if by_itself else {}
    by_state = kept | {state: Limit(age, f"retention.ages.{state}") for state, age in policy.ages.items()}
    return Retention(
        limit=by_hours or Limit(policy.age, "retention.age"),
        limits={} if by_hours else by_state,
        states=_check_states(states),
        waiting=_waiting_limit(settings.resume),
    )


def _waiting_limit(policy: ResumePolicy) -> Limit:
    """Return how long work that waits for a person stays fresh: nothing younger is deleted."""
    if Phase.APPROVAL in policy.idle_limits:
        return Limit(policy.idle_limits[Phase.APPROVAL], "resume.idle_limits.approval")
    return Limit(policy.idle_limit, "resume.idle_limit")


def _check_hours(hours: object) -> timedelta:
    if isinstance(hours, bool) or not isinstance(hours, (int, float)) or not 0 <= hours <= 24 * 3650:
        raise InvalidField("hours", f"is {hours!r}; give a number from 0")
    return timedelta(hours=hours)


def _check_states(states: States) -> frozenset[str] | None:
    if states is None:
        return None
    unknown = [str(state) for state in states if state not in tuple(State)]
    if unknown:
        raise InvalidField("states", f"has {', '.join(unknown)}; use some of {', '.join(State)}")
    return frozenset(states)


def _is_past_ttl(session: Session, at: datetime) -> bool:
    return session.expires_at is not None and session.expires_at <= at


class _Judge:
    """Decides about whole trees and remembers those that may be deleted; of repeated answers the last counts."""

    def __init__(self, retention: Retention, at: datetime) -> None:
        self._retention, self._at = retention, at
        self._let_go: dict[str, Session] = {}

    def __call__(self, members: list[Session]) -> str | None:
        reason = self._reason(members)
        if reason is not None:
            self._let_go.update((member.session_id, member) for member in members)
        return reason

    def _reason(self, members: list[Session]) -> str | None:
        """Return the reason to delete a tree. An expired session is deleted with its tree, unless one is in use."""
        if _is_past_ttl(members[0], self._at):
            return None if any(member.is_in_use(self._at) for member in members) else EXPIRED
        reasons = [why_removable(member, self._retention, self._at) for member in members]
        return None if None in reasons else reasons[0]

    def removal(self, tombstone: Tombstone) -> Removal:
        """Return a deleted session with the limit it exceeded."""
        session = self._let_go[tombstone.session_id]
        by_ttl = tombstone.reason == EXPIRED or _is_past_ttl(session, self._at)
        limit = BY_TTL if by_ttl else self._retention.limit_on(session)
        return Removal(
            **asdict(tombstone),
            last_activity_at=session.last_activity_at,
            limit_seconds=None if limit.age is None else limit.age.total_seconds(),
            limit_from=limit.setting,
        )


async def expire_due(deps: Deps, caller: Caller) -> None:
    """Delete sessions past their TTL, close approvals and expire untaken runs past their deadline, if a check is due.

    Every door calls this before anything else, so deadlines apply without a running server. It costs one comparison
    unless a check is due.
    """
    if not deps.may_be_due():
        return
    now = deps.clock.now()
    due = await deps.store.next_expiry(caller.owner)
    if due is not None and due <= now:
        await _sweep_expired(deps, caller)
        await expire_approvals(deps, caller)
        await _expire_runs(deps, caller)
        due = await deps.store.next_expiry(caller.owner)
    deps.look_again_at = now + LOOK_AGAIN
    if due is not None and due > now:  # sessions in use stay when due: the end of their use calls `expect_end` too
        deps.expect_end(due)


async def _expire_runs(deps: Deps, caller: Caller) -> None:
    """Expire runs that no launcher took in time. A damaged or just deleted session does not block others."""
    from moorage.core import work  # needed only where agents are asked
    from moorage.core.run import RunQuery

    stamp = Stamp(deps.clock.now(), "moorage", caller.interface)
    due = await deps.store.runs(caller.owner, RunQuery(due_at=stamp.at, limit=RUNS_AT_ONCE))

    async def expire(session_id: str) -> None:
        with suppress(SessionCorrupt, NotFound):
            await deps.store.apply(caller.owner, session_id, lambda view: work.untaken(view, stamp))

    await together(expire(session_id) for session_id in {run.session_id: None for run in due.items})


async def _sweep_expired(deps: Deps, caller: Caller) -> None:
    stamp = stamp_of(deps, caller)
    position: int | None = 0
    while position is not None:
        part = SweepPart(position=position, limit=STEP)
        position = (await deps.store.sweep(caller.owner, _Judge(Retention(), stamp.at), stamp, part)).next
