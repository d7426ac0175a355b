"""Hosts: programs with agents of their own, which tell through hooks what becomes of them.

A host's conversation is a session, each of its sub-agents a child of it; both are known
here by the ids the host gives them. A closed session is never opened again: who comes
back to its id goes on in a fork, which is found by the name `<id>:latest`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec import Struct

from moorage.core.approval import Approval
from moorage.core.entry import MAX_MESSAGE_BYTES, Entry, Kind, Message, check_message
from moorage.core.errors import HeldByAnother, IdTaken, NameTaken, NotFound, TooLarge
from moorage.core.ids import looks_like_ref
from moorage.core.policy import verdict_on
from moorage.core.query import SessionQuery
from moorage.core.session import (
    BY_AGENT,
    MAX_TEXT,
    Change,
    Phase,
    Session,
    Stamp,
    State,
    Update,
    View,
    check_checkpoint,
    check_metadata,
    check_outcome,
)
from moorage.service.deps import Caller, Deps, shown, stamp_of, with_what_follows
from moorage.service.sessions import SessionRequest, create_session, fork_session

LATEST = ":latest"
CALL = "tool_use_id"  # in a sub-agent's metadata: the call that started it
MAX_HOST_ID = 128 - len(LATEST)
NEWEST = 5  # entries of a kind, to see whether something has been told before
TRIES = 5  # somebody else may open the same session at the same time
OUTLOOK = 5  # sessions of a kind that a host is told of
MAX_SUMMARY = 200
CUT = "\n[cut: the rest was too long to keep]"


class Hosted(Struct, frozen=True, kw_only=True):
    """A host's conversation, or one of its sub-agents, as the host speaks of it."""

    host_id: str
    agent: str | None = None
    project_dir: str | None = None
    metadata: dict[str, Any] = {}
    works_for: str | None = None  # the session that the host itself works for, if it can be found
    holder: str = ""  # who drives it, if not the caller
    told_late: bool = False  # whether it began some time ago, and may be over by now


def session_id_of(host_id: str) -> str:
    """The id of the session that a host's id stands for: the same, if it may be one."""
    if looks_like_ref(host_id) and len(host_id) <= MAX_HOST_ID and not host_id.endswith(LATEST):
        return host_id
    from hashlib import sha256

    return f"host-{sha256(host_id.encode()).hexdigest()[:32]}"


def latest_name(host_id: str) -> str:
    """The name of the session that goes on where the one with that id was closed."""
    return f"{session_id_of(host_id)}{LATEST}"


async def current(deps: Deps, caller: Caller, host_id: str) -> Session | None:
    """The session that a host's id stands for now, or None."""
    for ref in (latest_name(host_id), session_id_of(host_id)):
        try:
            return await deps.store.get(caller.owner, ref)
        except NotFound:
            continue
    return None


# Opening ----------------------------------------------------------------------------------------


async def open_session(deps: Deps, caller: Caller, wanted: Hosted, parent: Hosted | None = None) -> Session:
    """The session of a host's id, in its host's hands: made under `parent`, woken, or forked if it is closed.

    One that has ended since its beginning, of which we are told late, stays closed.
    """
    if wanted.told_late:
        found = await current(deps, caller, wanted.host_id)
        if found is not None and found.finalized_at is not None and found.finalized_at > deps.clock.now():
            return shown(found)
    return await _opened(deps, caller, wanted, parent)


async def open_for_writing(deps: Deps, caller: Caller, wanted: Hosted) -> Session:
    """The session of a host's id; opened only if it is not open."""
    found = await current(deps, caller, wanted.host_id)
    return await _opened(deps, caller, wanted) if found is None or found.is_final else found


async def _opened(deps: Deps, caller: Caller, wanted: Hosted, parent: Hosted | None = None) -> Session:
    is_spent = False
    for _ in range(TRIES):
        found = await current(deps, caller, wanted.host_id)
        try:
            if found is None:
                above = await _above(deps, caller, wanted, parent)
                found = await _made(deps, caller, wanted, above, is_spent=is_spent)
            elif found.is_final:
                again = SessionRequest(name=latest_name(wanted.host_id), metadata=wanted.metadata)
                found = await fork_session(deps, caller, found.session_id, again)
        except IdTaken:
            is_spent = (
                True  # somebody was faster, and the next look finds theirs; or it was deleted, and an id is used once
            )
        except NameTaken:
            continue  # somebody was faster
        else:
            return await _driven(deps, caller, found, wanted.holder or caller.holder)
    raise NameTaken(latest_name(wanted.host_id), wanted.host_id)


async def _above(deps: Deps, caller: Caller, wanted: Hosted, parent: Hosted | None) -> str | None:
    """The session that a new one is to be under; none rather than a wrong one."""
    if parent is not None:
        return (await open_for_writing(deps, caller, parent)).session_id
    if wanted.works_for is None:
        return None
    try:
        found = await deps.store.get(caller.owner, wanted.works_for)
    except NotFound:
        return None
    return None if found.is_final or found.session_id == session_id_of(wanted.host_id) else found.session_id


async def _made(deps: Deps, caller: Caller, wanted: Hosted, parent: str | None, *, is_spent: bool) -> Session:
    request = SessionRequest(
        agent=wanted.agent,
        name=latest_name(wanted.host_id) if is_spent else None,
        metadata=wanted.metadata,
        session_id=None if is_spent else session_id_of(wanted.host_id),
        project_dir=wanted.project_dir,
    )
    return await create_session(deps, caller, request, parent=parent)


async def _driven(deps: Deps, caller: Caller, session: Session, holder: str) -> Session:
    """The session in its host's hands, if it is in nobody's."""
    stamp, token = stamp_of(deps, caller), deps.new_token()
    try:
        change = await deps.store.apply(
            caller.owner, session.session_id, lambda view: view.session.resume(holder, token, stamp)
        )
    except HeldByAnother:
        return shown(session)
    return shown(change.session)


# What happens to them ---------------------------------------------------------------------------


async def say(deps: Deps, caller: Caller, session: Session, role: str, text: str, key: str | None = None) -> None:
    """Add what was said; the same key again is harmless."""
    if text.strip():
        await deps.store.append(caller.owner, session.session_id, [_message(role, text, key)], stamp_of(deps, caller))


async def end_turn(deps: Deps, caller: Caller, session: Session) -> Session:
    """A turn went well."""
    stamp = stamp_of(deps, caller)
    change = await deps.store.apply(caller.owner, session.session_id, lambda view: view.session.end_turn(stamp))
    return shown(change.session)


async def fail_turn(deps: Deps, caller: Caller, session: Session, error: str) -> Session:
    """A turn went wrong: one error more, if it was not told before."""
    stamp, said = stamp_of(deps, caller), fitting(error, MAX_TEXT)
    if any(entry.at == stamp.at for entry in await _newest(deps, caller, session.session_id, Kind.ERROR)):
        return session
    change = await deps.store.apply(
        caller.owner, session.session_id, lambda view: view.session.update(Update(error=said), stamp)
    )
    return shown(change.session)


async def bridge(
    deps: Deps, caller: Caller, session: Session, *, prompt: str, key: str | None, metadata: dict[str, Any]
) -> Session:
    """Tie a sub-agent to the call that started it: what was asked, and of whom. Once, in one commit."""
    stamp, known = stamp_of(deps, caller), _clean(deps, metadata)
    messages = [_message("user", prompt, key)] if prompt.strip() else []

    def decide(view: View) -> Change:
        session = view.session
        if session.is_final or (CALL in known and session.metadata.get(CALL) == known[CALL]):
            return Change(session=session)
        change = session.append(messages, stamp) if messages else Change(session=session)
        return change.then(lambda head: _noted(head, known, stamp))

    return shown((await deps.store.apply(caller.owner, session.session_id, decide)).session)


class Ending(Struct, frozen=True, kw_only=True):
    """How an agent's work ended."""

    outcome: str = "completed"
    said: str = ""  # its last words
    asked: str = ""  # what it was asked; kept if no call is known that did
    key: str = ""  # makes telling it twice harmless
    metadata: dict[str, Any] = {}


async def end_session(deps: Deps, caller: Caller, ref: str, ending: Ending) -> Session:
    """Keep the last words and close the session, in one commit; suspend it if a person is still to be asked.

    A session that is closed already stays as it is.
    """
    stamp, outcome = stamp_of(deps, caller), check_outcome(ending.outcome).value
    metadata = _clean(deps, ending.metadata)
    asked, said = await _untold(deps, caller, ref, ending)
    summary = fitting(ending.said.strip().partition("\n")[0], MAX_SUMMARY, "…") or None

    def decide(view: View) -> Change:
        session = view.session
        if session.is_final:
            return Change(session=session)
        change = _noted(session, metadata, stamp)
        if messages := said if CALL in session.metadata else asked + said:
            change = change.then(lambda head: head.append(messages, stamp))
        if session.pending_approvals and session.state is State.SUSPENDED:
            return change  # the answer wakes it
        if session.pending_approvals or session.phase is Phase.APPROVAL:
            return change.then(lambda head: head.suspend(stamp, reason="awaiting approval", by=BY_AGENT))
        closed = change.then(lambda head: head.finalize(outcome, stamp, summary=summary))
        return with_what_follows(view, closed, stamp)

    return shown((await deps.store.apply(caller.owner, ref, decide)).session)


async def is_told(deps: Deps, caller: Caller, ref: str, key: str) -> bool:
    """Whether something with that key was said lately."""
    return any(entry.client_key == key for entry in await _newest(deps, caller, ref, Kind.MESSAGE))


async def _untold(deps: Deps, caller: Caller, ref: str, ending: Ending) -> tuple[list[Message], list[Message]]:
    """What was asked and what was said, without what the log has: a suspended session can be told of twice."""
    known = {entry.client_key for entry in await _newest(deps, caller, ref, Kind.MESSAGE)}
    asked, said = (
        [_message(role, text, key)] if text.strip() and (key is None or key not in known) else []
        for role, text, key in (
            ("user", ending.asked, f"{ending.key}:asked" if ending.key else None),
            ("assistant", ending.said, ending.key or None),
        )
    )
    return asked, said


async def suspend(deps: Deps, caller: Caller, session: Session, reason: str) -> Session:
    """Pause a session whose host is gone; one that a person paused, or that waits for an answer, stays as it is."""
    stamp = stamp_of(deps, caller)

    def decide(view: View) -> Change:
        if view.session.is_final or view.session.state is State.SUSPENDED:
            return Change(session=view.session)
        return view.session.suspend(stamp, reason=reason, by=BY_AGENT)

    return shown((await deps.store.apply(caller.owner, session.session_id, decide)).session)


async def suspend_children(deps: Deps, caller: Caller, session: Session, reason: str) -> None:
    """Pause what still runs under a host that is gone: it will not tell us more."""
    query = SessionQuery(parent=session.session_id, state=State.ACTIVE.value, limit=100)
    while children := (await deps.store.find(caller.owner, query)).items:
        for child in children:
            await suspend(deps, caller, child, reason)


async def finalize(deps: Deps, caller: Caller, session: Session, summary: str) -> Session:
    """Close a host's session; what it still asked is withdrawn."""
    stamp = stamp_of(deps, caller)

    def decide(view: View) -> Change:
        if view.session.is_final:
            return Change(session=view.session)
        change = view.session.finalize("completed", stamp, summary=summary, pending=view.pending)
        return with_what_follows(view, change, stamp)

    return shown((await deps.store.apply(caller.owner, session.session_id, decide)).session)


async def checkpoint(deps: Deps, caller: Caller, session: Session, state: dict[str, Any]) -> None:
    """Keep what the host is about to forget."""
    stamp, kept = stamp_of(deps, caller), check_checkpoint(state)
    await deps.store.apply(caller.owner, session.session_id, lambda view: view.session.save_checkpoint(kept, stamp))


async def only_open_session(deps: Deps, caller: Caller, *, agent: str, task_id: str) -> Session | None:
    """The one open session of that agent and task; None if there is none, or no telling which."""
    query = SessionQuery(agent=agent, task=task_id, active_only=True, limit=2)
    found = (await deps.store.find(caller.owner, query)).items
    return found[0] if len(found) == 1 else None


# What a host should know ------------------------------------------------------------------------


class Outlook(Struct, frozen=True, kw_only=True):
    """What waits in a folder: questions to a person, and work that could be picked up."""

    approvals: list[Approval]
    resumable: list[Session]


async def outlook(deps: Deps, caller: Caller, project_dir: str | None, own_id: str) -> Outlook:
    """What waits in a folder, apart from the host's own session."""
    if project_dir is None:
        return Outlook(approvals=[], resumable=[])
    query = SessionQuery(project_dir=project_dir, resume_ready=True, active_only=True, limit=OUTLOOK)
    ready = (await deps.store.find(caller.owner, query)).items
    now, policy = deps.clock.now(), deps.settings.resume
    resumable = [each for each in ready if verdict_on(each, policy, now, caller.holder) and each.session_id != own_id]
    asked: list[Approval] = []
    for session in ready:
        if session.pending_approvals:
            asked += await deps.store.approvals(caller.owner, ref=session.session_id, limit=OUTLOOK)
    return Outlook(approvals=asked[:OUTLOOK], resumable=resumable)


def ago(session: Session, deps: Deps) -> timedelta:
    """How long ago somebody worked on it."""
    return deps.clock.now() - session.last_activity_at


# Helpers ----------------------------------------------------------------------------------------


def fitting(text: str, limit: int, mark: str = CUT) -> str:
    """A text of at most so many bytes; what is cut off is marked."""
    encoded = text.encode()
    if len(encoded) <= limit:
        return text
    return encoded[: limit - len(mark.encode())].decode(errors="ignore") + mark


async def _newest(deps: Deps, caller: Caller, ref: str, kind: Kind) -> list[Entry]:
    """The newest entries of a kind that the session has written itself."""
    kinds = (kind.value, Kind.FORKED.value)
    found = await deps.store.log(caller.owner, ref, limit=NEWEST, kinds=kinds, newest_first=True)
    own = next((index for index, entry in enumerate(found) if entry.kind == Kind.FORKED), len(found))
    return found[:own]


def _noted(session: Session, metadata: dict[str, Any], stamp: Stamp) -> Change:
    """Metadata added, if there is room: nothing else is given up for want of it."""
    try:
        return session.update(Update(metadata=metadata), stamp)
    except TooLarge:
        return Change(session=session)


def _message(role: str, text: str, key: str | None = None) -> Message:
    return check_message({"role": role, "content": fitting(text, MAX_MESSAGE_BYTES), "client_key": key})


def _clean(deps: Deps, metadata: dict[str, Any]) -> dict[str, Any]:
    return deps.redactor.clean(check_metadata(metadata))[0] if metadata else {}
