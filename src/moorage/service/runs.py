"""Runs: requesting work from agents, waiting for it, stopping it.

A run is requested in a session, an existing one or one created for it. This module starts no agent:
a launcher takes the queued turn and reports its end (`turns`).
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from moorage.core import work
from moorage.core.agent import AgentDefinition
from moorage.core.answer import Answer, RunAnswer, answer_of, kept
from moorage.core.duration import check_ttl
from moorage.core.entry import Entry, Kind, Message, check_message, check_messages
from moorage.core.errors import (
    AgentNotFound,
    AsksAncestor,
    Conflict,
    InvalidField,
    KeyReused,
    NotFound,
    ParentNotFound,
    RunNotFound,
    RunSettled,
)
from moorage.core.family import born
from moorage.core.ids import check_is_text, check_label
from moorage.core.inbox import Item, ItemState
from moorage.core.once import AlreadyDone, OnceKey
from moorage.core.query import LogQuery, Page, check_limit
from moorage.core.run import MAX_ASKED, MAX_TURNS, Join, Mode, Run, RunQuery, RunState, check_join, check_mode
from moorage.core.session import Asker, Birth, Change, Needs, Session, Stamp, View, check_metadata
from moorage.core.status import Because, Reason, why_not_started
from moorage.service.deps import Caller, Deps, id_of, stamp_of
from moorage.service.family import MAX_TREE
from moorage.service.inline import pause
from moorage.service.retention import expire_due
from moorage.service.sessions import SessionRequest, new_session
from moorage.service.status import reasons, told_one, without_due

MOST_PAUSE = 0.25  # seconds between two reads of a run that takes long
KNOWN_FOR = timedelta(seconds=1)  # registrations are read at most this often, unless a run is required
LOOK_AT_REASON = 0.25  # seconds between two checks whether the agent of a run asks a person, or its launcher is silent
LOOK_AGAIN = 1.0  # seconds: a wake-up is a hint and may get lost
MAX_CORRELATION = 256
FIRST_ASKED = 2  # number of the entry that has the prompt in a session created for it, right after `created`
MOST_AT_WORK = 1000  # runs of one session that are read to find the oldest
WAITING = (ItemState.HELD.value, ItemState.WAITING.value, ItemState.GIVEN.value)
DEAD_LETTERS = (ItemState.DEAD_LETTER.value,)
CREATES = "create:"  # begins the idempotency key of a run that is requested together with its session
_MESSAGES = (Kind.MESSAGE.value,)


class Wish(Struct, frozen=True, kw_only=True):
    """How a caller requests a run: mode, parent, keys, and what it does not wait for."""

    mode: str = Mode.ASYNC_POLL
    join: str = Join.EACH
    parent: str | None = None  # the session of the asking agent
    parent_run: str | None = None  # the asking run of that session; by default the one at work
    correlation: str | None = None
    idempotency_key: str | None = None
    expires_in: object = None  # how long the run may wait for a launcher
    token: str | None = None  # token of a hold, which ends with the request
    queue: bool = False  # wait while another holder has the session
    wake: bool = True  # resume a suspended session, even if a person suspended it
    by_agent: bool = False  # an agent asks: this does not wake a session that a person suspended
    parameters: dict[str, Any] | None = None  # named values that go with the prompt
    tools: tuple[str, ...] = ()  # tools named for the agent
    called: bool = False  # see Run.called


async def start_run(
    deps: Deps,
    caller: Caller,
    agent: str,
    prompt: object,
    *,
    wish: Wish | None = None,
    session: SessionRequest | None = None,
    once: OnceKey | None = None,
) -> RunAnswer:
    """Create a session for an agent, as a child of the session that asks, with a run; both or neither.

    `once` marks the request as one that creates a session. A repeated request with the same idempotency key returns the
    same run. Raises AgentNotFound, and KeyReused if the key was used for another request.
    """
    wish, message = wish or Wish(), check_message(prompt)
    wanted = replace(session or SessionRequest(), agent=agent)
    request = _Request(agent=agent, session_id=wanted.session_id, messages=[message], wish=wish, new=wanted)
    if (known := await _known(deps, caller, request)) is not None:
        return known
    definition = await deps.find_startable(agent)
    new, redacted = new_session(deps, caller, wanted)
    parent = None if wish.parent is None else await parent_of(deps, caller, wish.parent)
    run = await new_run(deps, caller, wish, definition, message, parent)
    stamp, limits = stamp_of(deps, caller), deps.settings.family

    def decide(birth: Birth) -> Change:
        asked = replace(stamp, takes_turns=stamp.takes_turns or birth.asker.takes_turns)
        change = born(new, birth, stamp, limits).then(lambda head: work.ask(View(head), run, message, asked))
        return change if once is None else once.on(change, new.session_id, stamp.at)

    ref = None if parent is None else parent.session_id
    try:
        made = await deps.store.create(caller.owner, decide, parent=ref, asker=asker_of(caller, run, wish))
    except (AlreadyDone, KeyReused):
        if (known := await _known(deps, caller, request)) is None:
            raise
        return known  # the run of a concurrent request with the same key
    deps.expect_end(made.expires_at)
    asked = replace(made, redacted=redacted) if redacted else made
    return await _told(deps, asked, work.put_to(run, made), [])


async def ask(
    deps: Deps, caller: Caller, ref: str, prompt: object, *, wish: Wish | None = None, agent: str | None = None
) -> RunAnswer:
    """Request a run in an existing session, of its own agent or of the named one.

    Raises AgentNotFound if the agent cannot be started, AsksAncestor if it would wait for its own ancestor,
    HeldByAnother if another holder has the session, KeyReused if its idempotency key was used for another
    request.
    """
    request = _Request(agent=agent, messages=[check_message(prompt)], wish=wish or Wish())
    if (asked := await _asked_unread(deps, caller, ref, request)) is not None:
        return asked
    session = await deps.store.get(caller.owner, ref)
    await deps.look_for(agent or session.agent_name)
    return await _asked(deps, caller, session, request)


async def _asked_unread(deps: Deps, caller: Caller, ref: str, request: _Request) -> RunAnswer | None:
    """Request a run without reading the session first; return None if it must be read.

    It must be read if a parent asks, if the agent is unknown here, or if the key may have been used before.
    """
    if request.wish.parent is not None:
        return None
    if request.agent is not None:
        check_is_text(request.agent, "agent")
    try:
        return await _put(deps, caller, ref, request, deps.startable())
    except _NotKnownHere:
        return None
    except Conflict:
        if request.client_key is None and request.wish.idempotency_key is None:
            raise
        return None


async def _put(
    deps: Deps,
    caller: Caller,
    ref: str,
    request: _Request,
    known: dict[str, AgentDefinition],
    parent: Session | None = None,
) -> RunAnswer:
    """Add a run of the requested agent, or of the session's own. Raises _NotKnownHere if it is not among the known."""
    wish, (*before, message) = request.wish, request.messages
    unnamed = await new_run(deps, caller, wish, None, message, parent)
    stamp, how = stamp_of(deps, caller), way_of(caller, wish)

    def decide(view: View) -> Change:
        found = known.get(request.agent or view.session.agent_name or "")
        if found is None:
            raise _NotKnownHere
        key = unnamed.idempotency_key if request.client_key is None else _send_key(view.session, request.client_key)
        run = replace(unnamed, agent_name=found.name, max_turns=found.max_turns, idempotency_key=key)
        return work.ask(view, run, message, stamp, before=tuple(before), asking=how)

    change = await deps.store.apply(caller.owner, ref, decide, needs=Needs(asker=asker_of(caller, unnamed, wish)))
    run = next(each for each in change.runs if each.run_id == unnamed.run_id)
    return await _told(deps, change.session, run, [entry for entry in change.entries if entry.is_message])


class _NotKnownHere(Exception):
    """Raised if this process does not know the session's agent."""


def _send_key(session: Session, client_key: str) -> str:
    """Return the idempotency key of the run that a message with this client key requests."""
    return check_label("idempotency_key", f"send:{session.session_id}:{check_label('client_key', client_key)}")


async def _asked(deps: Deps, caller: Caller, session: Session, request: _Request) -> RunAnswer:
    """Add a run to a session. A repeated request with the same key gets the same answer."""
    request = replace(request, agent=request.agent or session.agent_name, session_id=session.session_id)
    try:
        session.check_open()
        agent = deps.agent(request.agent or "")
        parent = None if request.wish.parent is None else await parent_of(deps, caller, request.wish.parent)
        if parent is not None and check_mode(request.wish.mode) is not Mode.ASYNC_POLL:
            await check_not_above(deps, caller, parent, session)
        return await _put(deps, caller, session.session_id, request, {agent.name: agent}, parent)
    except (Conflict, AgentNotFound):
        if (known := await _known(deps, caller, request)) is None:
            raise
        return known


async def _told(deps: Deps, session: Session, run: Run, said: list[Entry]) -> RunAnswer:
    """Return the answer to a request, with the reason why its run has not started."""
    seen = await told_one(deps, session)
    if run.state is not RunState.QUEUED:
        return answer_of(run, seen, entries=said)
    because = seen.because
    if run.agent_name != session.agent_name:
        [because] = await reasons(deps, [replace(session, agent_name=run.agent_name)])
    return answer_of(replace(run, because=because), seen, entries=said)


def way_of(caller: Caller, wish: Wish) -> work.Asking:
    """Return the hold, token and waiting options of a request, for the rules of work."""
    is_agent = wish.by_agent or wish.parent is not None or caller.session_id is not None
    return work.Asking(holder=caller.holder, token=wish.token, queue=wish.queue, wakes=wish.wake and not is_agent)


async def post(
    deps: Deps,
    caller: Caller,
    ref: str,
    messages: object,
    *,
    run: bool | None = None,
    wish: Wish | None = None,
    agent: str | None = None,
) -> Answer:
    """Append messages to a session in one commit, and request a run if the last message asks for one.

    A user's message asks for a run if the session's agent can be started. With `run=True`, or with another `agent`, it
    always does; AgentNotFound is raised and nothing is stored if the agent cannot be started. With `run=False`, or with
    a token and no `run`, no run is requested.
    """
    wish, said = wish or Wish(), check_messages(messages)
    if run and said[-1].role != "user":
        raise InvalidField("run", f"asks for an answer to a user's message, and the last one has role {said[-1].role}")
    if run is None and agent is not None:
        run = True
    elif run is None and wish.token is not None:
        run = False
    if run is False or said[-1].role != "user" or (run is None and deps.find_agent is None):
        return kept(await deps.store.append(caller.owner, ref, said, stamp_of(deps, caller), token=wish.token))
    key, said_without_keys = said[-1].client_key, [replace(each, client_key=None) for each in said]
    request = _Request(agent=agent, messages=said_without_keys, wish=wish, client_key=key)
    if (asked := await _asked_unread(deps, caller, ref, request)) is not None:
        return asked
    session = await deps.store.get(caller.owner, ref)
    await deps.look_for(agent or session.agent_name, unless_younger=timedelta(0) if run else KNOWN_FOR)
    if not run and not deps.can_start(session.agent_name):
        stamp = stamp_of(deps, caller)
        entries = await deps.store.append(caller.owner, session.session_id, said, stamp, token=wish.token)
        why = why_not_started(session, (), stamp.at) if session.pending_approvals else None
        return replace(kept(entries), because=why)
    if key is not None:
        request = replace(request, wish=replace(wish, idempotency_key=_send_key(session, key)))
    return await _asked(deps, caller, session, request)


class _Request(Struct, frozen=True, kw_only=True):
    """The request for a run. Two requests with one idempotency key must be equal."""

    agent: str | None
    session_id: str | None = None  # None: of a session created for it
    messages: list[Message]  # the last one is the prompt
    wish: Wish
    client_key: str | None = None  # of the prompt: it stands for an idempotency key in its session
    new: SessionRequest = SessionRequest()

    def is_met_by(self, session: Session) -> bool:
        """Return whether a session was created by an equal request, as far as its fields never change."""
        new = self.new
        wanted = (new.name, new.purpose, new.task_id, new.project_dir)
        present = (session.session_name, session.purpose, session.task_id, session.project_dir)
        return all(want in (None, is_) for want, is_ in zip(wanted, present, strict=True))


async def _known(deps: Deps, caller: Caller, request: _Request) -> RunAnswer | None:
    """Return the run created by an earlier request with the same key. Raises KeyReused if that request differs."""
    if (key := _checked_key(request.wish)) is None:
        return None
    if (run := await deps.store.run_by_key(caller.owner, key)) is None:
        return None
    session = await deps.store.get(caller.owner, run.session_id)
    asked = run.asked_entry or 1
    around = LogQuery(after=max(asked - len(request.messages), 0), before=asked + 1, kinds=_MESSAGES)
    said = await deps.store.log(caller.owner, run.session_id, around)
    if not request.is_met_by(session) or not await _is_for(deps, caller, request, run, said):
        as_given = key.removeprefix(f"send:{session.session_id}:").removeprefix(CREATES)
        raise KeyReused(as_given)
    return await _told(deps, session, run, said)


async def _is_for(deps: Deps, caller: Caller, request: _Request, run: Run, said: list[Entry]) -> bool:
    """Return whether a run that a message requested equals a request."""
    wish, parent = request.wish, request.wish.parent
    asked = (request.agent, check_mode(wish.mode), check_join(wish.join), wish.correlation, wish.parameters or {})
    if asked != (run.agent_name, run.mode, run.join, run.correlation, run.parameters):
        return False
    in_it = run.asked_entry == FIRST_ASKED if request.session_id is None else run.session_id == request.session_id
    if in_it and parent is not None and parent != run.parent_session_id:
        parent = (await parent_of(deps, caller, parent)).session_id
    asked_for = [(message.role, message.content) for message in request.messages]
    is_same_text = [(entry.role, entry.content) for entry in said] == asked_for
    return in_it and parent == run.parent_session_id and is_same_text


def asker_of(caller: Caller, run: Run, wish: Wish) -> Asker | None:
    """Return the run that requests another: the named one, else the one its parent works on."""
    named = caller.run_id or wish.parent_run or run.parent_run_id
    if named is None and run.parent_session_id is None:
        return None
    return Asker(run_id=named, session_id=run.parent_session_id)


async def parent_of(deps: Deps, caller: Caller, ref: str) -> Session:
    """Return the session that asks. Raises ParentNotFound."""
    try:
        return await deps.store.get(caller.owner, ref)
    except NotFound:
        raise ParentNotFound(ref) from None


async def check_not_above(deps: Deps, caller: Caller, parent: Session, asked: Session) -> None:
    """Raise AsksAncestor if a session would wait for one that waits for it."""
    above = [parent, *await deps.store.ancestors(caller.owner, parent.session_id)]
    if asked.session_id in {session.session_id for session in above}:
        raise AsksAncestor(parent.session_id, asked.session_id)


async def _parent_run(deps: Deps, caller: Caller, parent: Session, named: str | None) -> str | None:
    """Return the run of the parent that waits for the new one: the named one, else the one it works on.

    An id that is not an open run of that session counts as none.
    """
    if named is not None:
        with suppress(RunNotFound):
            run = await deps.store.run(caller.owner, named)
            if run.session_id == parent.session_id and not run.is_settled:
                return named
    if parent.live_turn is None:
        return None
    query = RunQuery(session_id=parent.session_id, state=RunState.RUNNING.value, limit=MOST_AT_WORK)
    at_work = (await deps.store.runs(caller.owner, query)).items
    return at_work[-1].run_id if at_work else None  # the oldest, as agents are told


async def new_run(
    deps: Deps, caller: Caller, wish: Wish, agent: AgentDefinition | None, message: Message, parent: Session | None
) -> Run:
    """Return a new run; its session may be filled in later."""
    now, lifetime = deps.clock.now(), check_ttl(wish.expires_in)
    ends = None if lifetime is None else now + lifetime
    deps.expect_end(ends)
    text = message.content if isinstance(message.content, str) else ""
    return Run(
        run_id=deps.new_id(),
        session_id="",
        created_at=now,
        agent_name=None if agent is None else agent.name,
        mode=check_mode(wish.mode),
        join=check_join(wish.join),
        asked=text[:MAX_ASKED],
        parameters={} if wish.parameters is None else check_metadata(wish.parameters, "parameters"),
        tools=wish.tools,
        called=wish.called,
        parent_session_id=None if parent is None else parent.session_id,
        parent_run_id=None if parent is None else await _parent_run(deps, caller, parent, wish.parent_run),
        correlation=None if wish.correlation is None else check_label("correlation", wish.correlation, MAX_CORRELATION),
        idempotency_key=_checked_key(wish),
        by=caller.by,
        max_turns=MAX_TURNS if agent is None else agent.max_turns,
        expires_at=ends,
    )


def _checked_key(wish: Wish) -> str | None:
    return None if wish.idempotency_key is None else check_label("idempotency_key", wish.idempotency_key)


# Looking ----------------------------------------------------------------------------------------


async def get_run(deps: Deps, caller: Caller, run_id: str) -> Run:
    """Return a run. Raises RunNotFound."""
    return (await told_runs(deps, caller.owner, [await deps.store.run(caller.owner, run_id)]))[0]


async def list_runs(deps: Deps, caller: Caller, query: RunQuery) -> Page[Run]:
    """Return a page of runs, newest first; of a session, or requested by one. Raises SessionNotFound, SessionGone."""
    session_id = await id_of(deps, caller, query.session_id)
    parent = await id_of(deps, caller, query.parent_session_id)
    page = await deps.store.runs(caller.owner, replace(query, session_id=session_id, parent_session_id=parent))
    return Page(await told_runs(deps, caller.owner, page.items), page.next)


async def told_runs(deps: Deps, owner: str, runs: list[Run]) -> list[Run]:
    """Return the runs after applying deadlines; those that wait or have a silent launcher get `because`."""
    if not (ids := list({run.session_id: None for run in runs if not run.is_settled})):
        return runs
    heads = [head for head in await deps.store.get_many(owner, ids) if head is not None]
    now = await without_due(deps, heads)
    changed = {head.session_id for head, before in zip(now, heads, strict=True) if head is not before}
    if changed:
        runs = [await deps.store.run(owner, run.run_id) if run.session_id in changed else run for run in runs]
    by_id = {head.session_id: head for head in now}
    wanted = {(run.session_id, run.agent_name): None for run in runs if run.session_id in by_id}
    waiting = [_as_its_runs_wait(by_id[session_id], agent) for session_id, agent in wanted]
    found = dict(zip(wanted, await reasons(deps, waiting), strict=True))
    return [_with_reason(run, found.get((run.session_id, run.agent_name))) for run in runs]


def _with_reason(run: Run, because: Because | None) -> Run:
    """Return a run with the reason why it waits, or why its running turn cannot continue."""
    if because is None or run.is_settled:
        return run
    # A stop withdraws the question.
    is_asking = because.reason is Reason.WAITING_FOR_APPROVAL and not run.stop_requested
    is_meant = run.state is RunState.QUEUED or because.is_silence or is_asking
    return replace(run, because=because) if is_meant else run


def _as_its_runs_wait(head: Session, agent: str | None) -> Session:
    """Keep the reason of a queued run that waits for its child while a turn of another run is running."""
    is_for_another = not head.waits and head.awaited_child is not None
    return replace(head, agent_name=agent, live_turn=None if is_for_another else head.live_turn)


async def wait_for_run(
    deps: Deps,
    caller: Caller,
    run_id: str,
    *,
    session_id: str | None = None,
    timeout: float | None = None,
    hears: bool = False,
) -> Run:
    """Return the run once it has settled, when time is up, or at once if only a person can let it start or continue.

    `because` has the reason why a run does not start or continue. A parent that asked in mode sync keeps waiting, and
    so does a caller that `hears` the questions of a running agent. The run is read after commits, but less often the
    longer it takes: a thousand callers must not read the store a thousand times for every commit.

    Raises RunNotFound; SessionGone if its session, named or seen before, is deleted meanwhile.
    """
    began = deps.clock.monotonic()
    ends = None if timeout is None else began + timeout
    look_at = began + LOOK_AT_REASON
    while True:
        seen = deps.store.pulse()
        run = await _run_in(deps, caller, run_id, session_id)
        session_id = run.session_id
        now = deps.clock.monotonic()
        left = LOOK_AGAIN if ends is None else ends - now
        if run.is_settled:
            return run
        is_due = left <= 0 or now >= look_at or (run.state is RunState.QUEUED and not run.is_awaited_by_a_parent)
        if is_due:
            look_at = now + LOOK_AT_REASON
            [run] = await told_runs(deps, caller.owner, [run])
            if run.is_settled:
                return run
        is_awaited = run.is_awaited_by_a_parent or (hears and run.is_asking)
        if left <= 0 or (run.needs_a_person and not is_awaited):
            return run
        await deps.store.wait(seen, min(left, LOOK_AGAIN if is_due else look_at - now))
        await pause(min(left, (now - began) / 20, MOST_PAUSE))
        await expire_due(deps, caller)


async def _run_in(deps: Deps, caller: Caller, run_id: str, session_id: str | None) -> Run:
    """Return a run. Raises RunNotFound; SessionGone if the run was in this session, which was deleted."""
    try:
        return await deps.store.run(caller.owner, run_id)
    except RunNotFound:
        if session_id is not None:
            await deps.store.get(caller.owner, session_id)
        raise


async def inbox(
    deps: Deps,
    caller: Caller,
    ref: str | None = None,
    *,
    dead_letters: bool = False,
    limit: int = 100,
    cursor: str | None = None,
) -> Page[Item]:
    """Return the waiting items, or the dead letters, of one session or of all."""
    states = DEAD_LETTERS if dead_letters else WAITING
    return await deps.store.inbox(caller.owner, ref=ref, states=states, limit=check_limit(limit), cursor=cursor)


# Acting -----------------------------------------------------------------------------------------


async def stop_run(deps: Deps, caller: Caller, run_id: str) -> Run:
    """Stop a run and the runs that it requested: a queued one ends at once, a running one is told to stop."""
    run = await deps.store.run(caller.owner, run_id)
    stamp = stamp_of(deps, caller)
    change = await deps.store.apply(caller.owner, run.session_id, lambda view: work.stop(view, run_id, stamp))
    await without_due(deps, [change.session])  # there may be no launcher left to confirm it
    await _stop_below(deps, caller, run, stamp)
    return await get_run(deps, caller, run_id)


async def _stop_below(deps: Deps, caller: Caller, above: Run, stamp: Stamp) -> None:
    """Stop the runs that a stopped run requested, until none is left: it cannot request new ones."""
    query = RunQuery(parent_session_id=above.session_id, open_only=True, limit=MOST_AT_WORK)
    while True:
        below = [run for run in (await deps.store.runs(caller.owner, query)).items if run.parent_run_id == above.run_id]
        unmarked = [run for run in below if not run.stop_requested]
        if not unmarked:
            return
        for run in unmarked:
            decide = partial(work.stop, run_id=run.run_id, stamp=stamp)
            with suppress(NotFound, RunSettled):  # it has ended meanwhile
                change = await deps.store.apply(caller.owner, run.session_id, decide)
                await without_due(deps, [change.session])
            await _stop_below(deps, caller, run, stamp)


async def stop_session(deps: Deps, caller: Caller, ref: str, *, tree: bool = True) -> list[str]:
    """Stop the runs of a session and of its descendants; return the ids of those in which something ends.

    Children come first in the answer. Parents are stopped first, because a stopped session gets no new children. A
    second look finds children that were created meanwhile.
    """
    root = await deps.store.get(caller.owner, ref)
    seen, stopped = set[str](), list[str]()
    for _ in range(deps.settings.family.depth + 2):  # each round ends at least one generation
        members = await deps.store.tree(caller.owner, root.session_id, MAX_TREE) if tree else [root]
        if not await _stop_each(deps, caller, members, seen, stopped):
            break
    return stopped[::-1]


async def _stop_each(deps: Deps, caller: Caller, members: list[Session], seen: set[str], stopped: list[str]) -> bool:
    """Stop sessions that were not seen before, and additions to those that were; return whether there were any.

    Those in which something ends go to `stopped`.
    """
    stamp, found = stamp_of(deps, caller), False
    for session in members:
        if not session.launched or session.is_final:
            continue
        again = session.session_id in seen
        seen.add(session.session_id)
        with suppress(NotFound):  # it was deleted meanwhile
            if session.awaited_child is not None:
                await _mute_children(deps, caller, session, stamp)
            decide = partial(work.stop, run_id=None, stamp=stamp, again=again)
            change = await deps.store.apply(caller.owner, session.session_id, decide)
            is_changed = bool(change.runs or change.turns or change.items)
            found = found or not again or is_changed
            is_ending = change.session.live_turn is not None  # told by an earlier stop
            if (is_changed or is_ending) and session.session_id not in stopped:
                stopped.append(session.session_id)
            await without_due(deps, [change.session])  # there may be no launcher left to confirm it
    return found


async def _mute_children(deps: Deps, caller: Caller, parent: Session, stamp: Stamp) -> None:
    """Let no child wake a session that is about to be stopped, if none of its open runs asked for that child's run."""
    query = RunQuery(session_id=parent.session_id, open_only=True, limit=MOST_AT_WORK)
    own = {run.run_id for run in (await deps.store.runs(caller.owner, query)).items}
    query = RunQuery(parent_session_id=parent.session_id, open_only=True, limit=MOST_AT_WORK)
    for run in (await deps.store.runs(caller.owner, query)).items:
        if run.calls_back and not run.parent_stopped and run.parent_run_id not in own:
            with suppress(NotFound):
                await deps.store.apply(
                    caller.owner, run.session_id, partial(work.unheard, run_id=run.run_id, stamp=stamp)
                )


async def retry_run(deps: Deps, caller: Caller, run_id: str) -> Run:
    """Retry a failed or expired run, as a new run with its dead letters.

    A repeated request returns the same new run. Raises RunNotFound, RunNotFailed, AgentNotFound,
    SessionClosed, RunStopped.
    """
    failed, key = await deps.store.run(caller.owner, run_id), f"retry:{run_id}"
    if (known := await deps.store.run_by_key(caller.owner, key)) is not None:
        return await get_run(deps, caller, known.run_id)
    await deps.find_startable(failed.agent_name or "")
    stamp = stamp_of(deps, caller)
    run = Run(
        run_id=deps.new_id(), session_id=failed.session_id, created_at=stamp.at, idempotency_key=key, by=caller.by
    )
    asked = LogQuery(after=(failed.asked_entry or 1) - 1, limit=1)
    said = await deps.store.log(caller.owner, failed.session_id, asked)
    content = said[0].content if said and said[0].content is not None else failed.asked
    prompt = Message(role=(said[0].role if said else None) or "user", content=content)
    needs = Needs(run=run_id, asker=None if caller.run_id is None else Asker(run_id=caller.run_id))
    decide = partial(work.retried, run=run, prompt=prompt, stamp=stamp)
    try:
        change = await deps.store.apply(caller.owner, failed.session_id, decide, needs=needs)
    except KeyReused:  # a concurrent request was faster
        known = await deps.store.run_by_key(caller.owner, key)
        assert known is not None
        return await get_run(deps, caller, known.run_id)
    return (await _told(deps, change.session, work.repeating(run, failed), [])).run


async def send_again(deps: Deps, caller: Caller, item_id: str) -> Item:
    """Send a dead letter again; leave an item that already waits unchanged."""
    found = await deps.store.item(caller.owner, item_id)
    decide = partial(work.sent_again, stamp=stamp_of(deps, caller))
    change = await deps.store.apply(caller.owner, found.session_id, decide, needs=Needs(item=item_id))
    return change.items[0] if change.items else found
