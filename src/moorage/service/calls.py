"""Calls: requests to an agent in a session, by a caller that waits for the answer; and calls of tools.

Each call of an agent is a run with its own turn. An unknown session is created in the same commit. If an agent answers
where it is called, this process begins its turn, or stores the answer in the commit of the request. If another turn
blocks the run, the run waits in the session's queue. With a session, its log records the call of a tool and its result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from moorage.core import work
from moorage.core.agent import AgentDefinition, Occasion, Refused, ToolAnswer, Toolbox
from moorage.core.codec import check_json, encode_text
from moorage.core.entry import check_message
from moorage.core.errors import (
    AsksAncestor,
    IdTaken,
    InvalidField,
    NotFound,
    RunSettled,
    SessionNotFound,
    SessionSuspended,
    ToolNotFound,
    ToolUnreachable,
)
from moorage.core.family import born
from moorage.core.ids import check_label
from moorage.core.run import Mode, Run
from moorage.core.session import Birth, Change, Needs, Session, View
from moorage.core.turn import LEASE, LOST_AFTER, Retry, Turn, TurnState
from moorage.core.work import Claim, TurnEnd
from moorage.service.conversation import append_messages, session_with_window
from moorage.service.deps import Caller, Deps, stamp_of
from moorage.service.presence import announce
from moorage.service.runs import Wish, asker_of, check_not_above, new_run, parent_of, stop_run, way_of
from moorage.service.sessions import SessionRequest, new_session

log = logging.getLogger(__name__)

CallRule = Callable[..., Change]  # of a view, a run and its message; `stamp` and `asking` by name


class Call(Struct, frozen=True, kw_only=True):
    """A call of an agent in a session."""

    agent: AgentDefinition
    input: str
    session: str  # an id or a name
    parent: str | None = None  # the asking session
    parameters: dict[str, Any] = {}
    tools: tuple[str, ...] = ()

    async def recalled(self, deps: Deps, caller: Caller) -> Session | None:
        """Return the session of the call; a person's call wakes a suspended session, an agent's does not."""
        return await recalled(deps, caller, self.session, wakes=self.parent is None and caller.session_id is None)


class RecordedCall(Struct, frozen=True, kw_only=True):
    """A stored call: its run, and its turn if this process began it."""

    session: Session
    run: Run
    turn: Turn | None = None


async def recalled(deps: Deps, caller: Caller, ref: str, *, wakes: bool = False) -> Session | None:
    """Return the session with its window as `messages`; None if it does not exist.

    Raises SessionClosed, SessionGone, InvalidId. Raises SessionSuspended if it waits for an approval, or if a person
    suspended it and the call does not wake it.
    """
    try:
        session = await session_with_window(deps, caller, ref, deps.settings.window)
    except SessionNotFound:
        return None
    session.check_open()
    if session.pending_approvals > 0:
        raise SessionSuspended(session.session_id, approval_id=session.awaited_approval)
    if session.is_kept_asleep and not wakes:
        raise SessionSuspended(session.session_id)
    return session


async def put_answered(deps: Deps, caller: Caller, call: Call, known: Session | None, end: TurnEnd) -> RecordedCall:
    """Store a call with its answer in one commit. Raises AnotherTurn if the agent did not know of an earlier turn."""
    turns, wish = 0 if known is None else known.turns, _claim(deps, call.agent.name)
    try:
        return await _put(deps, caller, call, known, partial(work.answered_here, end=end, wish=wish, after_turns=turns))
    except IdTaken:
        raise work.AnotherTurn from None  # another caller created the session


async def put_waiting(
    deps: Deps, caller: Caller, call: Call, known: Session | None, *, begins: bool = False
) -> RecordedCall:
    """Request a run; if this process `begins` its turn, in the same commit, unless another turn blocks it."""
    rule: CallRule = work.ask
    if begins:
        announce(deps.launchers, deps.own_launcher)
        rule = partial(work.ask, wish=_claim(deps, call.agent.name))
    try:
        return await _put(deps, caller, call, known, rule)
    except IdTaken:  # another caller created the session
        return await _put(deps, caller, call, await call.recalled(deps, caller), rule)


async def begin_queued(deps: Deps, caller: Caller, run: Run) -> Turn | None:
    """Begin the turn of a queued call here if it is the next."""
    wish, stamp = _claim(deps, run.agent_name or ""), stamp_of(deps, caller)
    decide = partial(work.take_here, run_id=run.run_id, wish=wish, stamp=stamp)
    return _begun(await deps.store.apply(caller.owner, run.session_id, decide))


async def stop_call(deps: Deps, caller: Caller, run_id: str) -> None:
    """Stop a call whose caller no longer waits, unless it is over."""
    with suppress(NotFound, RunSettled):
        await stop_run(deps, caller, run_id)


async def _put(deps: Deps, caller: Caller, call: Call, known: Session | None, rule: CallRule) -> RecordedCall:
    message = check_message(call.input)
    parent = await _asking(deps, caller, call, known)
    wish = Wish(
        mode=Mode.SYNC,
        parent=None if parent is None else parent.session_id,
        parent_run=caller.run_id,
        by_agent=call.parent is not None,
        parameters=call.parameters or None,
        tools=call.tools,
        called=True,
    )
    run = await new_run(deps, caller, wish, call.agent, message, parent)
    stamp, how, made = stamp_of(deps, caller), way_of(caller, wish), list[Change]()

    def decide(view: View) -> Change:
        made.append(rule(view, run, message, stamp=stamp, asking=how))
        return made[-1]

    asker = asker_of(caller, run, wish)
    if known is not None:
        session = (await deps.store.apply(caller.owner, known.session_id, decide, needs=Needs(asker=asker))).session
    else:
        new, _ = new_session(deps, caller, SessionRequest(agent=call.agent.name, session_id=call.session))

        def birth(found: Birth) -> Change:
            return born(new, found, stamp, deps.settings.family).then(lambda head: decide(View(head)))

        session = await deps.store.create(caller.owner, birth, parent=wish.parent, asker=asker)
        log.info("session %s was not known and is made", new.session_id, extra={"session": new.session_id})
    change = made[-1]
    put = next(each for each in change.runs if each.run_id == run.run_id)
    return RecordedCall(session=session, run=put, turn=_begun(change))


def _begun(change: Change) -> Turn | None:
    return next((turn for turn in change.turns if turn.state is TurnState.RUNNING), None)


async def _asking(deps: Deps, caller: Caller, call: Call, known: Session | None) -> Session | None:
    """Return the asking session if it waits for the answer. Raises AsksAncestor if it would wait for itself."""
    if call.parent is None:
        return None
    parent = await parent_of(deps, caller, call.parent)
    if known is None:
        return parent
    if parent.session_id != known.session_id:
        await check_not_above(deps, caller, parent, known)
        return parent
    if known.live_turn is not None:
        raise AsksAncestor(parent.session_id, known.session_id)
    return None


def _claim(deps: Deps, agent: str) -> Claim:
    """Return this process's claim for the turn of a call. A lost turn fails its run: no caller waits for the answer."""
    return Claim(
        launcher_id=deps.own_launcher,
        lease=LEASE,
        lost_after=LOST_AFTER,
        token=deps.new_token(),
        retries={agent: Retry.NEVER},
    )


# Tools ------------------------------------------------------------------------------------------


async def call_tool(
    deps: Deps,
    caller: Caller,
    tools: Toolbox,
    name: str,
    operation: str | None = None,
    parameters: dict[str, Any] | None = None,
    *,
    session: str | None = None,
    timeout: float | None = None,
) -> ToolAnswer:
    """Call a tool; with a session, log the call and the result. Raises ToolNotFound, ToolUnreachable."""
    if name not in tools:
        raise ToolNotFound(name)
    tool, function = tools[name]
    given = {} if parameters is None else parameters
    if not isinstance(given, dict):
        raise InvalidField("parameters", "must be an object")
    check_json(given, "parameters")
    wanted = tool.fitting(given) if operation in (None, "") else check_label("operation", operation)
    if tool.operations and wanted not in tool.operations:
        raise InvalidField("operation", f"is {wanted!r}; {name} has {', '.join(tool.operations)}")
    given = tool.read(wanted, given)
    try:
        occasion = Occasion(today=deps.clock.now().date(), session_id=session, timeout=timeout)
        result = function(wanted, given, occasion)
        told = await result if hasattr(result, "__await__") else result
        answer = ToolAnswer(tool=name, operation=wanted, success=True, result=told)
    except Refused as refused:
        answer = ToolAnswer(tool=name, operation=wanted, success=False, error=str(refused))
    except ToolUnreachable as error:
        if session is not None:
            failed = ToolAnswer(tool=name, operation=wanted, success=False, error=error.message)
            await _kept(deps, caller, session, failed, given)
        raise
    return answer if session is None else await _kept(deps, caller, session, answer, given)


async def _kept(deps: Deps, caller: Caller, session: str, answer: ToolAnswer, given: dict[str, Any]) -> ToolAnswer:
    call = {"type": "tool_call", "id": deps.new_id(), "name": answer.tool}
    call["input"] = {"operation": answer.operation, **given}  # type: ignore[assignment]
    told = answer.error if answer.error is not None else encode_text(answer.result)
    result = {"type": "tool_result", "call_id": call["id"], "output": told, "is_error": not answer.success}
    said = [{"role": "assistant", "content": [call]}, {"role": "tool", "content": [result]}]
    entries = await append_messages(deps, caller, session, said)
    return replace(answer, session_id=entries[0].session_id)
