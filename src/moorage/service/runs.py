"""Runs: work asked of agents, waited for, stopped.

A run is asked of a session, an existing one or one made for it. Nothing here starts an agent:
a launcher takes the turn that is queued, and reports its end (`turns`).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from moorage.core import work
from moorage.core.context import check_ttl
from moorage.core.entry import Message, check_message
from moorage.core.errors import (
    AsksAncestor,
    InvalidField,
    KeyReused,
    NotFound,
    ParentNotFound,
    RunNotFound,
)
from moorage.core.family import born
from moorage.core.ids import check_label
from moorage.core.inbox import Item, ItemState
from moorage.core.query import Page
from moorage.core.run import MAX_ASKED, Join, Mode, Run, RunQuery, RunState, check_join, check_mode
from moorage.core.session import Birth, Change, Session, View
from moorage.service.conversation import Reply
from moorage.service.deps import Caller, Deps, shown, stamp_of
from moorage.service.family import MAX_TREE
from moorage.service.inline import pause
from moorage.service.sessions import SessionRequest, new_session

MOST_PAUSE = 0.25  # seconds between two looks at a run that takes long
KNOWN_FOR = timedelta(seconds=1)  # what is registered elsewhere is known for so long, unless it is asked for by name
LOOK_AGAIN = 1.0  # seconds: a wake-up is a hint and may get lost
MAX_CORRELATION = 256
FIRST_ASKED = 2  # the entry that asks a session which was made for it, right behind its `created`
MOST_AT_WORK = 1000  # runs of one session that are looked at for the oldest
WAITING = (ItemState.HELD.value, ItemState.WAITING.value, ItemState.GIVEN.value)
SET_ASIDE = (ItemState.SET_ASIDE.value,)


class Asked(Struct, frozen=True, kw_only=True):
    """A run as it was taken down, and the session it was asked of."""

    session: Session
    run: Run


class RunReply(Struct, frozen=True, kw_only=True):
    """What came of asking an agent: the session, the run, and its result if it has settled."""

    session: Session
    run: Run
    status: str
    result: str | None = None
    error: str | None = None


class Wish(Struct, frozen=True, kw_only=True):
    """How whoever asks wants to hear of the end."""

    mode: str = Mode.ASYNC_POLL.value
    join: str = Join.EACH.value
    parent: str | None = None  # the session that asks
    parent_run: str | None = None  # of that session; if none is named, the one it is at work on
    correlation: str | None = None
    idempotency_key: str | None = None
    expires_in: object = None  # how long it may wait for a launcher


async def start_run(
    deps: Deps,
    caller: Caller,
    agent: str,
    prompt: object,
    *,
    wish: Wish | None = None,
    session: SessionRequest | None = None,
) -> Asked:
    """Open a session for an agent, under the session that asks, and put a run to it; both or neither.

    Raises AgentNotFound; asked twice with one idempotency key, the same run answers, and KeyReused
    is raised if something else was asked with it.
    """
    wish, message = wish or Wish(), check_message(prompt)
    wanted = replace(session or SessionRequest(), agent=agent)
    request = _Request(agent=agent, session_id=wanted.session_id, message=message, wish=wish, new=wanted)
    if (known := await _known(deps, caller, request)) is not None:
        return known
    await deps.look_for(agent)
    deps.agent(agent)
    new, redacted = new_session(deps, caller, wanted)
    parent = None if wish.parent is None else await _parent(deps, caller, wish.parent)
    run = await _new_run(deps, caller, wish, agent, message, parent)
    stamp, limits = stamp_of(deps, caller), deps.settings.family

    def decide(birth: Birth) -> Change:
        change = born(new, birth, stamp, limits)
        return change.then(lambda head: work.ask(View(head), run, message, stamp))

    ref = None if parent is None else parent.session_id
    try:
        made = await deps.store.create(caller.owner, decide, parent=ref)
    except KeyReused:
        return await _faster(deps, caller, request)
    deps.expect_end(made.expires_at)
    asked = replace(made, redacted=redacted) if redacted else made
    return Asked(session=shown(asked), run=work.put_to(run, made))


async def ask(
    deps: Deps, caller: Caller, ref: str, prompt: object, *, wish: Wish | None = None, agent: str | None = None
) -> Asked:
    """Put a run to a session that is there; if `agent` is named, only to a session of that agent.

    Raises AgentNotFound if its agent cannot be started, AsksAncestor if it would wait for whom it serves,
    KeyReused if something else was asked with its idempotency key.
    """
    wish, message = wish or Wish(), check_message(prompt)
    session = await deps.store.get(caller.owner, ref)
    if agent not in (None, session.agent_name):
        why = f"is {agent!r}, but session {session.session_id} is one of {session.agent_name or 'no agent'}"
        raise InvalidField("agent", why)
    request = _Request(agent=session.agent_name, session_id=session.session_id, message=message, wish=wish)
    if (known := await _known(deps, caller, request)) is not None:
        return known
    await deps.look_for(session.agent_name)
    deps.agent(session.agent_name or "")
    parent = None if wish.parent is None else await _parent(deps, caller, wish.parent)
    if parent is not None and check_mode(wish.mode) is not Mode.ASYNC_POLL:
        await _check_not_above(deps, caller, parent, session)
    run = await _new_run(deps, caller, wish, session.agent_name, message, parent)
    stamp = stamp_of(deps, caller)
    try:
        change = await deps.store.apply(
            caller.owner, session.session_id, lambda view: work.ask(view, run, message, stamp)
        )
    except KeyReused:
        return await _faster(deps, caller, request)
    return Asked(session=shown(change.session), run=work.put_to(run, change.session))


async def send(deps: Deps, caller: Caller, ref: str, content: object, *, client_key: str | None = None) -> Reply | None:
    """Say something to a session's agent as a run; None if the agent cannot be started."""
    session = await deps.store.get(caller.owner, ref)
    await deps.look_for(session.agent_name, unless_younger=KNOWN_FOR)
    if not deps.can_start(session.agent_name):
        return None
    key = None if client_key is None else f"send:{session.session_id}:{check_label('client_key', client_key)}"
    message = content if isinstance(content, dict) else {"role": "user", "content": content}
    asked = await ask(deps, caller, session.session_id, message, wish=Wish(idempotency_key=key))
    said = await deps.store.log(caller.owner, session.session_id, after=(asked.run.asked_entry or 1) - 1, limit=1)
    return Reply(session_id=session.session_id, message=said[0], run_id=asked.run.run_id)


class _Request(Struct, frozen=True, kw_only=True):
    """What is asked: two requests with one idempotency key must be the same."""

    agent: str | None
    session_id: str | None  # None: of a session made for it
    message: Message
    wish: Wish
    new: SessionRequest = SessionRequest()

    def is_met_by(self, session: Session) -> bool:
        """Whether a session was made as this asks, as far as that never changes."""
        new = self.new
        told = (
            (new.name, session.session_name),
            (new.purpose, session.purpose),
            (new.task_id, session.task_id),
            (new.project_dir, session.project_dir),
        )
        return all(wanted in (None, is_) for wanted, is_ in told)


async def _known(deps: Deps, caller: Caller, request: _Request) -> Asked | None:
    """What was asked before with the same key. Raises KeyReused if that was something else."""
    key = request.wish.idempotency_key
    if key is None:
        return None
    run = await deps.store.run_by_key(caller.owner, check_label("idempotency_key", key))
    if run is None:
        return None
    session = await deps.store.get(caller.owner, run.session_id)
    if not request.is_met_by(session) or not await _is_for(deps, caller, request, run):
        raise KeyReused(key)
    return Asked(session=shown(session), run=run)


async def _is_for(deps: Deps, caller: Caller, request: _Request, run: Run) -> bool:
    """Whether a run is what a request asks for."""
    wish = request.wish
    asked = (request.agent, check_mode(wish.mode), check_join(wish.join), wish.correlation)
    if asked != (run.agent_name, run.mode, run.join, run.correlation):
        return False
    in_it = run.asked_entry == FIRST_ASKED if request.session_id is None else run.session_id == request.session_id
    if not in_it or not await _is_by(deps, caller, wish.parent, run):
        return False
    said = await deps.store.log(caller.owner, run.session_id, after=(run.asked_entry or 1) - 1, limit=1)
    return [(entry.role, entry.content) for entry in said] == [(request.message.role, request.message.content)]


async def _is_by(deps: Deps, caller: Caller, parent: str | None, run: Run) -> bool:
    if parent is None or parent == run.parent_session_id:
        return parent == run.parent_session_id
    return (await _parent(deps, caller, parent)).session_id == run.parent_session_id


async def _faster(deps: Deps, caller: Caller, request: _Request) -> Asked:
    """What somebody has asked with the same key at the same time, and was faster."""
    known = await _known(deps, caller, request)
    assert known is not None  # a key is refused only because it is there
    return known


async def _parent(deps: Deps, caller: Caller, ref: str) -> Session:
    try:
        return await deps.store.get(caller.owner, ref)
    except NotFound:
        raise ParentNotFound(ref) from None


async def _check_not_above(deps: Deps, caller: Caller, parent: Session, asked: Session) -> None:
    above = [parent, *await deps.store.ancestors(caller.owner, parent.session_id)]
    if asked.session_id in {session.session_id for session in above}:
        raise AsksAncestor(parent.session_id, asked.session_id)


async def _parent_run(deps: Deps, caller: Caller, parent: Session, named: str | None) -> str | None:
    """The run of the parent that waits for the new one: the one it names, else the one it is at work on.

    A name that is no open run of that session is nobody's business and counts as none.
    """
    if named is not None and await _is_open_run_of(deps, caller, parent, named):
        return named
    if parent.live_turn is None:
        return None
    query = RunQuery(session_id=parent.session_id, state=RunState.RUNNING.value, limit=MOST_AT_WORK)
    at_work = (await deps.store.runs(caller.owner, query)).items
    return at_work[-1].run_id if at_work else None  # the oldest, as agents are told


async def _is_open_run_of(deps: Deps, caller: Caller, parent: Session, run_id: str) -> bool:
    try:
        run = await deps.store.run(caller.owner, run_id)
    except RunNotFound:
        return False
    return run.session_id == parent.session_id and not run.is_settled


async def _new_run(
    deps: Deps, caller: Caller, wish: Wish, agent: str | None, message: Message, parent: Session | None
) -> Run:
    now, lifetime = deps.clock.now(), check_ttl(wish.expires_in)
    text = message.content if isinstance(message.content, str) else ""
    return Run(
        run_id=deps.new_id(),
        session_id="",
        created_at=now,
        agent_name=agent,
        mode=check_mode(wish.mode),
        join=check_join(wish.join),
        asked=text[:MAX_ASKED],
        parent_session_id=None if parent is None else parent.session_id,
        parent_run_id=None if parent is None else await _parent_run(deps, caller, parent, wish.parent_run),
        correlation=None if wish.correlation is None else check_label("correlation", wish.correlation, MAX_CORRELATION),
        idempotency_key=wish.idempotency_key,
        by=caller.by,
        expires_at=None if lifetime is None else now + lifetime,
    )


# Looking ----------------------------------------------------------------------------------------


async def get_run(deps: Deps, caller: Caller, run_id: str) -> Run:
    """One run. Raises RunNotFound."""
    return await deps.store.run(caller.owner, run_id)


async def list_runs(deps: Deps, caller: Caller, query: RunQuery) -> Page[Run]:
    """A page of runs, newest first; of a session, or asked by one, by its id or name.

    Raises SessionNotFound, SessionGone.
    """
    session_id, parent = [await _id_of(deps, caller, ref) for ref in (query.session_id, query.parent_session_id)]
    return await deps.store.runs(caller.owner, replace(query, session_id=session_id, parent_session_id=parent))


async def _id_of(deps: Deps, caller: Caller, ref: str | None) -> str | None:
    return None if ref is None else (await deps.store.get(caller.owner, ref)).session_id


async def wait_for_run(deps: Deps, caller: Caller, run_id: str, *, timeout: float | None = None) -> Run:
    """The run, once it has settled or when time is up.

    Looked at whenever something was committed, but the longer it takes the less often: a thousand
    who wait must not read the store a thousand times for every commit.
    """
    began = deps.clock.now()
    ends = None if timeout is None else began + timedelta(seconds=timeout)
    while True:
        seen = deps.store.pulse()
        run = await deps.store.run(caller.owner, run_id)
        now = deps.clock.now()
        left = _left(ends, now)
        if run.is_settled or left <= 0:
            return run
        await deps.store.wait(seen, min(left, LOOK_AGAIN))
        await pause(min(left, (now - began).total_seconds() / 20, MOST_PAUSE))


def _left(ends: datetime | None, now: datetime) -> float:
    return LOOK_AGAIN if ends is None else (ends - now).total_seconds()


async def inbox(
    deps: Deps,
    caller: Caller,
    *,
    ref: str | None = None,
    set_aside: bool = False,
    limit: int = 100,
    cursor: str | None = None,
) -> Page[Item]:
    """What waits, or what was set aside: of one session, or of all."""
    states = SET_ASIDE if set_aside else WAITING
    return await deps.store.inbox(caller.owner, ref=ref, states=states, limit=limit, cursor=cursor)


# Acting -----------------------------------------------------------------------------------------


async def stop_run(deps: Deps, caller: Caller, run_id: str) -> Run:
    """Stop a run: one that waits ends at once, one at work is told to."""
    run = await deps.store.run(caller.owner, run_id)
    stamp = stamp_of(deps, caller)
    await deps.store.apply(caller.owner, run.session_id, lambda view: work.stop(view, run_id, stamp))
    return await deps.store.run(caller.owner, run_id)


async def stop_session(deps: Deps, caller: Caller, ref: str, *, tree: bool = True) -> list[str]:
    """Stop whatever runs in a session, and in all that hang on it; the ids of those told to stop, children first."""
    root = await deps.store.get(caller.owner, ref)
    members = await deps.store.tree(caller.owner, root.session_id, MAX_TREE) if tree else [root]
    stamp, stopped = stamp_of(deps, caller), []
    for session in reversed(members):
        if session.launched and not session.is_final:
            await deps.store.apply(caller.owner, session.session_id, lambda view: work.stop(view, None, stamp))
            stopped.append(session.session_id)
    return stopped


async def send_again(deps: Deps, caller: Caller, item_id: str) -> Item:
    """Let an item that was set aside wait for the next turn again; one that waits already is left alone."""
    found = await deps.store.item(caller.owner, item_id)
    stamp = stamp_of(deps, caller)
    change = await deps.store.apply(
        caller.owner, found.session_id, lambda view: work.sent_again(view, stamp), item=item_id
    )
    return change.items[0] if change.items else found
