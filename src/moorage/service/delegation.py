"""Delegation: check whether earlier work can be resumed before an agent gets new work. Every check is counted."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from moorage.core.brief import brief
from moorage.core.errors import InvalidField, NotFound, SessionCorrupt
from moorage.core.ids import MAX_KEY, check_label, check_session_id
from moorage.core.policy import Delegation, Span, Verdict, verdict_on, verdict_without
from moorage.core.query import Page, SessionQuery, check_limit
from moorage.core.session import Phase, Session
from moorage.service.deps import Caller, Deps, once_key, shown

NEWEST = 20  # sessions checked in one place


class WorkPlace(Struct, frozen=True, kw_only=True):
    """Where to look for earlier work: the same task, the same host, or the same folder."""

    agent: str | None = None
    task_id: str | None = None
    host: str | None = None  # the id of the delegating session
    project_dir: str | None = None


async def should_resume(
    deps: Deps, caller: Caller, ref: str | None = None, *, place: WorkPlace | None = None, holder: str | None = None
) -> Verdict:
    """Return whether this work may be resumed.

    Without a ref, look for the newest fitting session of that agent and task, then of that
    agent under that host, then of that agent and folder. If none fits, the verdict is on the newest.
    """
    who = caller.held_as(holder)
    if ref is None:
        return await _verdict_on_newest(deps, caller, place or WorkPlace(), who)
    try:
        session = await deps.store.get(caller.owner, ref)
    except (NotFound, SessionCorrupt) as error:
        return verdict_without(error, ref)
    return verdict_on(session, deps.settings.resume, deps.clock.now(), who)


async def _verdict_on_newest(deps: Deps, caller: Caller, place: WorkPlace, holder: str) -> Verdict:
    newest: Verdict | None = None
    where = {"task": place.task_id, "parent": place.host, "project_dir": place.project_dir}
    places: list[dict[str, Any]] = [{name: value} for name, value in where.items() if value is not None]
    for filters in places or ([{}] if place.agent is not None else []):
        ready = {"agent": place.agent, "active_only": True, "resume_ready": True, **filters}
        for wanted in (
            ready,
            {**ready, "phase": Phase.APPROVAL.value},  # these stay fresh for days: newer ones may have become stale
            filters or {"agent": place.agent},  # of any agent and state: searching further would read the whole store
        ):
            [page] = await deps.store.find(caller.owner, SessionQuery(limit=NEWEST, **wanted))
            fitting = [each for each in page.items if _fits(each, place)]
            verdicts = [verdict_on(each, deps.settings.resume, deps.clock.now(), holder) for each in fitting]
            if resumable := next((verdict for verdict in verdicts if verdict.decision), None):
                return resumable
        if newest is None and verdicts:
            newest = verdicts[0]  # if none fits, the newest explains why
    return verdict_without(None, None) if newest is None else newest


def _fits(session: Session, place: WorkPlace) -> bool:
    """Return whether it is open work of this agent, and not for another task.

    A task id that is the session's own, or its family's, was generated.
    """
    is_of_task = place.task_id in (None, session.task_id)
    is_of_any = session.task_id in (session.session_id, session.root_session_id)
    return not session.is_final and place.agent in (None, session.agent_name) and (is_of_task or is_of_any)


async def resumable_sessions(deps: Deps, caller: Caller, *, agent: str | None = None, limit: int = 20) -> list[Session]:
    """Return resumable sessions, newest first: suspended sessions, and idle ones whose phase allows it."""
    check_limit(limit)
    suspended = SessionQuery(agent=agent, state="suspended", limit=limit)
    ready = SessionQuery(agent=agent, state="active", resume_ready=True, limit=limit)
    pages = await deps.store.find(caller.owner, suspended, ready)
    found = [session for page in pages for session in page]
    now = deps.clock.now()
    holds = ((session, session.hold) for session in found)
    free = [session for session, hold in holds if hold is None or not hold.lives(now) or hold.holder == caller.holder]
    return [shown(session) for session in sorted(free, key=lambda each: each.created_at, reverse=True)[:limit]]


async def list_delegations(
    deps: Deps, caller: Caller, *, limit: int = 100, cursor: str | None = None, **span: Any
) -> Page[Delegation]:
    """Return a page of the delegations in a span, given by the fields of `Span`; oldest first."""
    return await deps.store.delegations(caller.owner, Span(**span), check_limit(limit), cursor)


@brief("verdict", "session", "created")
class Delegated(Struct, frozen=True, kw_only=True):
    """The outcome of a delegation: the verdict, its record, and the session to continue."""

    verdict: Verdict
    delegation: Delegation
    session: Session | None = None  # resumed, or created because none could be resumed
    created: bool = False


class DelegationQuestion(Struct, frozen=True, kw_only=True):
    """The question before delegating: which work, where to look for it, and what to do if there is none."""

    place: WorkPlace
    session_id: str | None = None  # the session in question, if known
    holder: str | None = None  # the holder that would resume it
    delegation_id: str | None = None  # a delegation reported twice is counted once, and creates one session
    create: bool = False  # create a session if none can be resumed,
    parent: str | None = None  # under this one, or else under the place's host,
    new_id: str | None = None  # with this id,
    purpose: str | None = None
    metadata: dict[str, Any] | None = None


async def delegate(deps: Deps, caller: Caller, question: DelegationQuestion) -> Delegated:
    """Check whether earlier work may be resumed, and record the check."""
    decided = await decide(deps, caller, question)
    await deps.store.record_delegation(caller.owner, decided.delegation)
    return decided


async def decide(deps: Deps, caller: Caller, question: DelegationQuestion) -> Delegated:
    """Return what `delegate` returns, without recording it."""
    place = question.place
    check_place(question.session_id, place)
    if question.new_id:
        check_session_id(question.new_id)
    verdict = await should_resume(deps, caller, question.session_id, place=place, holder=question.holder)
    session = await deps.store.get(caller.owner, str(verdict.session_id)) if verdict.decision else None
    created = session is None and question.create
    if created:
        session = await _opened(deps, caller, question)
    judged = session.session_id if session is not None else verdict.session_id
    return Delegated(
        verdict=verdict,
        delegation=_recorded(deps, question, verdict, judged),
        session=None if session is None else shown(session),
        created=created,
    )


def check_place(session_id: object, place: WorkPlace) -> None:
    """Raise InvalidField unless the place names something to find sessions by."""
    for name in ("agent", "task_id", "host", "project_dir"):
        if (value := getattr(place, name)) is not None:
            check_label("agent_name" if name == "agent" else name, value, 4096)
    if session_id is not None:  # the delegation is recorded with it, even if there is no such session
        check_label("agent_id", session_id, 4096)
    if session_id is None and place.agent is None:
        raise InvalidField("agent_name", "is missing, and so is agent_id; say which agent is to work")


async def _opened(deps: Deps, caller: Caller, question: DelegationQuestion) -> Session:
    from moorage.service.sessions import SessionRequest, create_session  # most calls create nothing

    place = question.place
    request = SessionRequest(
        agent=place.agent,
        purpose=question.purpose,
        metadata=question.metadata,
        task_id=place.task_id,
        session_id=question.new_id or None,
        project_dir=place.project_dir,
    )
    parent = place.host if question.parent is None else question.parent
    once = once_key("delegate", question.delegation_id, [request, parent])
    return await create_session(deps, caller, request, parent=parent, once=once)


def _recorded(deps: Deps, question: DelegationQuestion, verdict: Verdict, session_id: str | None) -> Delegation:
    place, known = question.place, question.delegation_id
    return Delegation(
        delegation_id=deps.new_id() if known is None else check_label("delegation_id", known, MAX_KEY),
        at=deps.clock.now(),
        resumed=verdict.decision,
        reason=verdict.reason,
        agent_name=place.agent,
        task_id=place.task_id,
        project_dir=place.project_dir,
        session_id=session_id,
        host_session_id=place.host,
    )
