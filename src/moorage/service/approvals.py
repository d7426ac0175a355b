"""Approvals: ask a person, decide, expire."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from moorage.core.approval import Approval, ApprovalQuery, ApprovalState, hash_of_plan
from moorage.core.codec import check_json, check_list, encode
from moorage.core.duration import check_ttl
from moorage.core.errors import ApprovalClosed, ApprovalNotFound, InvalidField, NotFound, SessionCorrupt, TooLarge
from moorage.core.ids import check_label, looks_like_ref
from moorage.core.query import check_limit
from moorage.core.session import MAX_CHECKPOINT_BYTES, Change, Needs, Stamp, View, check_said, check_text
from moorage.service.deps import Caller, Deps, done_once, id_of, once_key, stamp_of

if TYPE_CHECKING:
    from moorage.core.session import Session
    from moorage.core.turn import Turn
    from moorage.ports import Decision

MAX_OPTIONS = 20
MAX_GIVEN_ITEMS = 1000  # items of a turn that are searched for an answer


async def request_approval(
    deps: Deps,
    caller: Caller,
    ref: str,
    question: str,
    *,
    plan: Any = None,
    options: Iterable[str] = (),
    expires_in: object = None,
    waits: bool = False,
    idempotency_key: str | None = None,
    approval_id: str | None = None,
    turn: Turn | None = None,
) -> Approval:
    """Ask a person a question; the session waits in phase `approval`, and so does a live turn if it can.

    A repeated request with the same `approval_id` returns the same approval. A turn whose run was cut off and that asks
    the same again gets the earlier answer.
    """
    if approval_id is not None:
        with suppress(ApprovalNotFound):
            return await deps.store.approval(caller.owner, approval_id)
    lifetime, stamp, options = check_ttl(expires_in, "expires_in"), stamp_of(deps, caller), _check_options(options)
    once = once_key("request_approval", idempotency_key, [ref, question, plan, options, expires_in])
    session = await deps.store.get(caller.owner, ref)
    approval = Approval(
        approval_id=approval_id or deps.new_id(),
        session_id=session.session_id,
        question=check_said("question", question, "say what to decide"),
        plan=_check_plan(plan),
        plan_hash=hash_of_plan(plan),
        options=options,
        asked_at=stamp.at,
        asked_by=caller.by,
        expires_at=None if lifetime is None else stamp.at + lifetime,
        waits=waits,
    )

    def decide(view: View) -> Change:
        token = None if turn is None else view.session.token_of(turn)
        caller.check_hold(view.session, token, stamp.at)
        change = view.ask(approval, stamp, token=token)
        return change if once is None else once.on(change, approval.approval_id, stamp.at)

    def replay(view: View) -> Change:
        from moorage.core import work  # needed only to start agents

        token = None if turn is None else view.session.token_of(turn)
        change = work.replayed(view, approval.approval_id, stamp, waits=waits, token=token)
        if once is None or not change.turns or view.approval is None:
            return change
        return once.on(change, view.approval.approval_id, stamp.at)

    async def act() -> Approval:
        if (answered := await _replayed(deps, caller, session, approval, replay)) is not None:
            return answered
        change = await deps.store.apply(caller.owner, session.session_id, decide)
        deps.expect_end(approval.expires_at)
        return change.approvals[0]

    return await done_once(deps, caller, once, act, lambda kept: get_approval(deps, caller, kept))


async def _replayed(
    deps: Deps, caller: Caller, session: Session, wanted: Approval, replay: Decision
) -> Approval | None:
    """Return the answer that the run of a live turn got to the same question before it was cut off, or None."""
    if session.live_turn is None:
        return None
    turn = await deps.store.find_turn(caller.owner, session.live_turn)
    if (known := turn.heard.get(wanted.approval_id)) is not None:  # asked again: the first reply may have been lost
        return await deps.store.approval(caller.owner, known)
    if not turn.cut_off:
        return None
    given = await deps.store.inbox(caller.owner, ref=session.session_id, states=("given",), limit=MAX_GIVEN_ITEMS)
    for item in given.items:
        if item.kind != "decision":
            continue
        earlier = await deps.store.approval(caller.owner, item.body["approval_id"])
        if earlier.is_same_question(wanted):
            needs = Needs(approval=earlier.approval_id)
            if (await deps.store.apply(caller.owner, session.session_id, replay, needs=needs)).turns:
                return earlier
    return None


def _check_plan(plan: Any) -> Any:
    check_json(plan, "plan")
    size = len(encode(plan))
    if size > MAX_CHECKPOINT_BYTES:
        raise TooLarge("plan", size, MAX_CHECKPOINT_BYTES)
    return plan


def _check_options(options: object) -> tuple[str, ...]:
    known = check_list(options, "options")
    if len(known) > MAX_OPTIONS:
        raise InvalidField("options", f"must be a list of at most {MAX_OPTIONS} texts")
    named = tuple(check_label("options", option) for option in known)
    if len(set(named)) < len(named):
        raise InvalidField("options", "has one twice; a person could not tell them apart")
    return named


async def list_approvals(
    deps: Deps, caller: Caller, ref: str | None = None, *, pending_only: bool = True, limit: int = 100
) -> list[Approval]:
    """Return approvals, oldest first."""
    limit, session_id = check_limit(limit), await id_of(deps, caller, ref)
    query = ApprovalQuery(session_id=session_id, pending_only=pending_only, limit=limit)
    return await deps.store.approvals(caller.owner, query)


async def approvals_of(
    deps: Deps, caller: Caller, session_ids: list[str], *, pending_only: bool, limit: int
) -> list[list[Approval]]:
    """Return the approvals of each session, in one read of the store."""
    return await deps.store.approvals_of(caller.owner, session_ids, pending_only=pending_only, limit=limit)


async def get_approval(deps: Deps, caller: Caller, approval_id: str) -> Approval:
    """Return one approval."""
    approval = await deps.store.approval(caller.owner, _check_id(approval_id))
    return await _expired(deps, caller, approval) if approval.is_due(deps.clock.now()) else approval


async def decide_approval(
    deps: Deps,
    caller: Caller,
    approval_id: str,
    decision: str,
    *,
    note: str | None = None,
    by: str | None = None,
    plan_hash: str | None = None,
) -> Approval:
    """Decide an approval: approve, reject, choose an option, or withdraw the question. This wakes the session.

    Raises AlreadyDecided if the approval has another answer, ApprovalClosed if it
    expired or was withdrawn.
    """
    text = None if note is None else check_text("note", note)
    who = caller.named(by)
    stamp = stamp_of(deps, caller)
    asked = await deps.store.approval(caller.owner, _check_id(approval_id))
    if asked.is_due(stamp.at):
        raise ApprovalClosed(approval_id, (await _expired(deps, caller, asked)).state.value)

    def decide(view: View) -> Change:
        assert view.approval is not None
        decided = view.approval.decided(decision, by=who, at=stamp.at, note=text, plan_hash=plan_hash)
        return Change(session=view.session) if decided == view.approval else _settled(view, decided, stamp)

    change = await deps.store.apply(caller.owner, asked.session_id, decide, needs=Needs(approval=approval_id))
    deps.expect_end(change.session.expires_at)
    return change.approvals[0] if change.approvals else await deps.store.approval(caller.owner, approval_id)


def _settled(view: View, approval: Approval, stamp: Stamp) -> Change:
    """Return the end of an approval; if runs were ever requested of the session, put the answer into its inbox."""
    change = view.session.settle(approval, stamp)
    if not change.session.launched:
        return change
    from moorage.core import work  # needed only to start agents

    return work.decided(view, change, approval, stamp)


def _check_id(approval_id: str) -> str:
    if not looks_like_ref(approval_id):
        raise ApprovalNotFound(approval_id)
    return approval_id


async def expire_approvals(deps: Deps, caller: Caller) -> None:
    """Close approvals that were not answered in time. A damaged or just deleted session does not block others."""
    for approval in await deps.store.approvals(caller.owner, ApprovalQuery(due_at=deps.clock.now())):
        with suppress(SessionCorrupt, NotFound):
            await _expired(deps, caller, approval)


async def _expired(deps: Deps, caller: Caller, approval: Approval) -> Approval:
    stamp = stamp_of(deps, caller)

    def decide(view: View) -> Change:
        assert view.approval is not None
        if view.approval.state is not ApprovalState.PENDING:  # a concurrent caller was faster
            return Change(session=view.session)
        return _settled(view, view.approval.expired(stamp.at), stamp)

    await deps.store.apply(caller.owner, approval.session_id, decide, needs=Needs(approval=approval.approval_id))
    return await deps.store.approval(caller.owner, approval.approval_id)
