"""Memory by session id: what whoever is asked in a session is told of it, and what is kept of the answer.

For doors at which agents, workers and tools are called by name and a session id comes along (gRPC, MCP). Several
agents may be asked in one session: each sees what was said before, to whichever of them, and the context.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Any

from msgspec import Struct, field

from moorage.core.entry import Entry, Kind, Message, check_messages
from moorage.core.errors import IdTaken, SessionNotFound, SessionSuspended
from moorage.core.session import BY_PERSON, Session, State, Update, check_said
from moorage.service.context import merge_context, read_context
from moorage.service.conversation import session_with_window
from moorage.service.deps import Caller, Deps, stamp_of
from moorage.service.sessions import SessionRequest, create_session

log = logging.getLogger(__name__)

MOST_COUNTED = 10_000  # sessions whose turns are remembered; those not asked for longest are counted anew
AT_ONCE = 1000  # entries read to count

_counted: OrderedDict[tuple[int, str, str], tuple[int, int]] = OrderedDict()  # up to which entry, and how many


class Memory(Struct, frozen=True, kw_only=True):
    """What an agent is told of the session it is asked in."""

    session: Session | None = None  # None: nothing is kept here
    history: list[dict[str, Any]] = field(default_factory=list)  # role and content of what came before
    context: dict[str, Any] = field(default_factory=dict)
    turns: int = 0  # how often something was asked in it before


NOTHING = Memory()


async def recall(deps: Deps, caller: Caller, session_id: str, *, agent: str | None, parent: str | None) -> Memory:
    """What there is to know of a session; one that is not known is made, for this agent and under this parent.

    Raises SessionClosed, SessionGone, InvalidId, and SessionSuspended if it waits for a person.
    """
    session = await _opened(deps, caller, session_id, agent=agent, parent=parent)
    session.check_open()
    _check_not_waiting(session)
    said = session.messages or []
    return Memory(
        session=session,
        history=[{"role": each.role, "content": each.content} for each in said],
        context=await read_context(deps, caller, session.session_id) if session.context_version else {},
        turns=await _turns(deps, caller, session, said),
    )


async def keep(deps: Deps, caller: Caller, memory: Memory, messages: list[dict[str, Any]]) -> None:
    """Add what was said to the log; after an answer, errors that came before it no longer count."""
    if memory.session is None:
        return
    session_id, stamp = memory.session.session_id, stamp_of(deps, caller)
    said: list[Message] = check_messages(messages)
    await deps.store.append(caller.owner, session_id, said, stamp)
    if memory.session.error_count and said[-1].role == "assistant":
        await deps.store.apply(caller.owner, session_id, lambda view: view.session.end_turn(stamp))


async def keep_error(deps: Deps, caller: Caller, memory: Memory, error: str) -> None:
    """Note in the log that there was no answer."""
    if memory.session is None:
        return
    update, stamp = Update(error=check_said("error", error)), stamp_of(deps, caller)
    await deps.store.apply(caller.owner, memory.session.session_id, lambda view: view.session.update(update, stamp))


async def keep_context(deps: Deps, caller: Caller, memory: Memory, values: dict[str, Any]) -> None:
    """Remember values for whoever is asked next in the session, for as long as is configured."""
    if memory.session is not None and values:
        ttl = deps.settings.memory.context_ttl
        await merge_context(deps, caller, memory.session.session_id, values, ttl=ttl)


async def _opened(deps: Deps, caller: Caller, ref: str, *, agent: str | None, parent: str | None) -> Session:
    size = deps.settings.window
    try:
        return await session_with_window(deps, caller, ref, size)
    except SessionNotFound:
        pass
    try:
        made = await create_session(deps, caller, SessionRequest(agent=agent, session_id=ref), parent=parent)
        told = {"session": made.session_id}
        log.info("session %s was not known and is made, for %s", made.session_id, agent or "a tool", extra=told)
        return made
    except IdTaken:  # somebody was faster
        return await session_with_window(deps, caller, ref, size)


def _check_not_waiting(session: Session) -> None:
    is_waiting = session.pending_approvals > 0
    if is_waiting or (session.state is State.SUSPENDED and session.suspended_by == BY_PERSON):
        why = "waits for an approval; decide it first" if is_waiting else "was suspended by a person; resume it first"
        raise SessionSuspended(session.session_id, why)


async def _turns(deps: Deps, caller: Caller, session: Session, window: list[Entry]) -> int:
    """How many messages of users the log has. Long logs are counted once, then only what is new in them."""
    roles = [each.role for each in window]
    size = deps.settings.window.last
    if size is not None and len(roles) < size and None not in roles:  # all that was ever said, and no summary
        return roles.count("user")
    place = (id(deps.store), caller.owner, session.session_id)
    upto, count = _counted.pop(place, (0, 0))
    if any(each.number <= upto and each.role == "user" for each in window):  # all that came since is in the window
        count += _asked([each for each in window if upto < each.number <= session.last_entry])
    else:
        count += await _asked_since(deps, caller, session, upto)
    _counted[place] = (session.last_entry, count)
    if len(_counted) > MOST_COUNTED:
        _counted.popitem(last=False)
    return count


async def _asked_since(deps: Deps, caller: Caller, session: Session, upto: int) -> int:
    count, end = 0, session.last_entry + 1
    while upto < session.last_entry:
        page = await deps.store.log(
            caller.owner, session.session_id, after=upto, before=end, limit=AT_ONCE, kinds=(Kind.MESSAGE.value,)
        )
        count += _asked(page)
        upto = page[-1].number if len(page) == AT_ONCE else session.last_entry
    return count


def _asked(messages: list[Entry]) -> int:
    return [each.role for each in messages].count("user")
