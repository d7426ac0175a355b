"""Hosts: programs with agents of their own, which report the events of their sessions through hooks.

A host's conversation is a session, and each of its sub-agents is a child of that session. Both are found by the ids
that the host gives them. A closed session is never opened again: if the host returns to its id, a fork continues it,
which is found by the name `<id>:latest`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec import Struct

from moorage.core.approval import Approval, ApprovalQuery
from moorage.core.entry import MAX_MESSAGE_BYTES, Entry, Kind, Message, check_message
from moorage.core.errors import HeldByAnother, IdTaken, NameTaken, NotFound, SessionGone, TooLarge
from moorage.core.ids import looks_like_ref
from moorage.core.policy import verdict_on
from moorage.core.query import LogQuery, Page, SessionQuery, each_item
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
HOST = "host_session_id"  # in a sub-agent's metadata: its host's id of the conversation
MAX_HOST_ID = 128 - len(LATEST)
NEWEST = 5  # entries of a kind that are searched for an event already recorded
TRIES = 5  # other processes may open the same session at the same time
OUTLOOK = 5  # sessions of each kind shown to a host
MAX_SUMMARY = 200
CUT = "\n[cut: the rest was too long to keep]"


class Hosted(Struct, frozen=True, kw_only=True):
    """A host's conversation, or one of its sub-agents, as the host names it."""

    host_id: str
    agent: str | None = None
    project_dir: str | None = None
    metadata: dict[str, Any] = {}
    works_for: str | None = None  # the session that the host itself works for, if known
    holder: str = ""  # the holder, if not the caller
    told_late: bool = False  # whether it began some time ago, and may be over by now


def session_id_of(host_id: str) -> str:
    """Return the session id for a host's id: the same, if it is allowed as one."""
    if looks_like_ref(host_id) and len(host_id) <= MAX_HOST_ID and not host_id.endswith(LATEST):
        return host_id
    from hashlib import sha256

    return f"host-{sha256(host_id.encode()).hexdigest()[:32]}"


def latest_name(host_id: str) -> str:
    """Return the name of the session that continues a closed one."""
    return f"{session_id_of(host_id)}{LATEST}"


async def current(deps: Deps, caller: Caller, host_id: str) -> Session | None:
    """Return the present session of a host's id, or None."""
    for ref in (latest_name(host_id), session_id_of(host_id)):
        with suppress(NotFound):
            return await deps.store.get(caller.owner, ref)
    return None


async def open_session(deps: Deps, caller: Caller, wanted: Hosted, parent: Hosted | None = None) -> Session:
    """Return the session of a host's id, held by its host: create it under `parent`, wake it, or fork a closed one.

    If the event comes late and the session has ended since, it stays closed.
    """
    found = await current(deps, caller, wanted.host_id) if wanted.told_late else None
    if found is not None and found.finalized_at is not None and found.finalized_at > deps.clock.now():
        return shown(found)
    return await _opened(deps, caller, wanted, parent)


async def open_for_writing(deps: Deps, caller: Caller, wanted: Hosted) -> Session:
    """Return the session of a host's id; open one if there is none, or only a closed one."""
    found = await current(deps, caller, wanted.host_id)
    return await _opened(deps, caller, wanted) if found is None or found.is_final else found


async def _opened(deps: Deps, caller: Caller, wanted: Hosted, parent: Hosted | None = None) -> Session:
    is_spent, latest = False, latest_name(wanted.host_id)
    for _ in range(TRIES):
        found = await current(deps, caller, wanted.host_id)
        try:
            if found is None:
                above = await _above(deps, caller, wanted, parent)
                new = SessionRequest(
                    agent=wanted.agent,
                    name=latest if is_spent else None,
                    metadata=wanted.metadata,
                    session_id=None if is_spent else session_id_of(wanted.host_id),
                    project_dir=wanted.project_dir,
                )
                found = await create_session(deps, caller, new, parent=above)
            elif found.is_final:
                again = SessionRequest(name=latest, metadata=wanted.metadata)
                found = await fork_session(deps, caller, found.session_id, again)
        except (IdTaken, SessionGone):
            is_spent = True  # another process created it, and the next read finds it; or it was deleted
        except NameTaken:
            continue  # another process was faster
        else:
            return await _driven(deps, caller, found, wanted.holder or caller.holder)
    raise NameTaken(latest, wanted.host_id)


async def _above(deps: Deps, caller: Caller, wanted: Hosted, parent: Hosted | None) -> str | None:
    """Return the parent of a new session; None if there is no open one."""
    if parent is not None:
        return (await open_for_writing(deps, caller, parent)).session_id
    if wanted.works_for is None:
        return None
    try:
        found = await deps.store.get(caller.owner, wanted.works_for)
    except NotFound:
        return None
    return None if found.is_final or found.session_id == session_id_of(wanted.host_id) else found.session_id


async def _driven(deps: Deps, caller: Caller, session: Session, holder: str) -> Session:
    """Let the host drive the session, unless another holder drives it."""
    token, ref = deps.new_token(), session.session_id
    try:
        return await _apply(deps, caller, ref, lambda view, stamp: view.session.resume(holder, token, stamp))
    except HeldByAnother:
        return shown(session)


async def _apply(deps: Deps, caller: Caller, ref: str, decide: Callable[[View, Stamp], Change]) -> Session:
    stamp = stamp_of(deps, caller)
    return shown((await deps.store.apply(caller.owner, ref, lambda view: decide(view, stamp))).session)


# Events of host sessions ------------------------------------------------------------------------


async def say(deps: Deps, caller: Caller, session: Session, role: str, text: str, key: str | None = None) -> None:
    """Append a message; repeating the same key is harmless."""
    if text.strip():
        await deps.store.append(caller.owner, session.session_id, [_message(role, text, key)], stamp_of(deps, caller))


async def end_turn(deps: Deps, caller: Caller, session: Session) -> None:
    """End a turn that went well."""
    await _apply(deps, caller, session.session_id, lambda view, stamp: view.session.end_turn(stamp))


async def fail_turn(deps: Deps, caller: Caller, session: Session, error: str) -> None:
    """Count the error of a failed turn, unless it was counted before."""
    now, update = deps.clock.now(), Update(error=fitting(error, MAX_TEXT))
    if not any(entry.at == now for entry in await _newest(deps, caller, session.session_id, Kind.ERROR)):
        await _apply(deps, caller, session.session_id, lambda view, stamp: view.session.update(update, stamp))


async def bridge(
    deps: Deps, caller: Caller, session: Session, *, prompt: str, key: str | None, metadata: dict[str, Any]
) -> None:
    """Link a sub-agent to the call that started it, with its agent and its prompt. Once, in one commit."""
    known = _clean(deps, metadata)
    messages = [_message("user", prompt, key)] if prompt.strip() else []

    def decide(view: View, stamp: Stamp) -> Change:
        session = view.session
        if session.is_final or (CALL in known and session.metadata.get(CALL) == known[CALL]):
            return Change(session=session)
        change = session.append(messages, stamp) if messages else Change(session=session)
        return change.then(lambda head: _noted(head, known, stamp))

    await _apply(deps, caller, session.session_id, decide)


class Ending(Struct, frozen=True, kw_only=True):
    """How an agent's work ended."""

    outcome: str = "completed"
    said: str = ""  # its last message
    asked: str = ""  # its prompt; kept if no known call has it
    key: str = ""  # makes repeated reports harmless
    metadata: dict[str, Any] = {}


async def end_session(deps: Deps, caller: Caller, ref: str, ending: Ending) -> Session:
    """Append the last messages and close the session, in one commit; suspend it if a question to a person is open.

    A session that is already closed stays as it is.
    """
    outcome, metadata = check_outcome(ending.outcome).value, _clean(deps, ending.metadata)
    asked, said = await _untold(deps, caller, ref, ending)
    summary = fitting(ending.said.strip().partition("\n")[0], MAX_SUMMARY, "…") or None

    def decide(view: View, stamp: Stamp) -> Change:
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

    return await _apply(deps, caller, ref, decide)


async def is_told(deps: Deps, caller: Caller, ref: str, key: str) -> bool:
    """Return whether one of the newest messages has that key."""
    return any(entry.client_key == key for entry in await _newest(deps, caller, ref, Kind.MESSAGE))


async def _untold(deps: Deps, caller: Caller, ref: str, ending: Ending) -> tuple[list[Message], list[Message]]:
    """Return the prompt and the last message, unless the log has them: a suspended session can end twice."""
    known = {entry.client_key for entry in await _newest(deps, caller, ref, Kind.MESSAGE)}
    asked, said = (
        [_message(role, text, key)] if text.strip() and (key is None or key not in known) else []
        for role, text, key in (
            ("user", ending.asked, f"{ending.key}:asked" if ending.key else None),
            ("assistant", ending.said, ending.key or None),
        )
    )
    return asked, said


async def suspend(deps: Deps, caller: Caller, session: Session, reason: str) -> None:
    """Suspend a session whose host is gone, unless a person suspended it or it waits for an answer."""

    def decide(view: View, stamp: Stamp) -> Change:
        if view.session.is_final or view.session.state is State.SUSPENDED:
            return Change(session=view.session)
        return view.session.suspend(stamp, reason=reason, by=BY_AGENT)

    await _apply(deps, caller, session.session_id, decide)


async def suspend_children(deps: Deps, caller: Caller, session: Session, host_id: str, reason: str) -> None:
    """Suspend the active children of a host that is gone, and the forks in which closed ones continue."""
    query = SessionQuery(parent=session.session_id, state=State.ACTIVE.value, limit=100)
    while children := (await deps.store.find(caller.owner, query))[0].items:
        for child in children:
            await suspend(deps, caller, child, reason)

    async def forks(cursor: str | None) -> Page[Session]:
        of_host = SessionQuery(metadata_key=HOST, metadata_value=host_id, state=State.ACTIVE.value, cursor=cursor)
        [page] = await deps.store.find(caller.owner, of_host)
        return page

    async for fork in each_item(forks):  # a fork is a root; its metadata names its host
        if fork.forked_from is not None and (fork.session_name or "").endswith(LATEST):
            await suspend(deps, caller, fork, reason)


async def finalize(deps: Deps, caller: Caller, session: Session, summary: str) -> None:
    """Close a host's session and withdraw its open questions."""

    def decide(view: View, stamp: Stamp) -> Change:
        if view.session.is_final:
            return Change(session=view.session)
        change = view.session.finalize("completed", stamp, summary=summary, pending=view.pending)
        return with_what_follows(view, change, stamp)

    await _apply(deps, caller, session.session_id, decide)


async def checkpoint(deps: Deps, caller: Caller, session: Session, state: dict[str, Any]) -> None:
    """Save the state that the host is about to discard."""
    kept = check_checkpoint(state)
    await _apply(deps, caller, session.session_id, lambda view, stamp: view.session.save_checkpoint(kept, stamp))


async def only_open_session(deps: Deps, caller: Caller, *, agent: str, task_id: str) -> Session | None:
    """Return the one open session of that agent and task; None if there are none or several."""
    query = SessionQuery(agent=agent, task=task_id, active_only=True, limit=2)
    found = (await deps.store.find(caller.owner, query))[0].items
    return found[0] if len(found) == 1 else None


# Information for the host -----------------------------------------------------------------------


class Outlook(Struct, frozen=True, kw_only=True):
    """Open questions to a person and resumable work, in one folder."""

    approvals: list[Approval]
    resumable: list[Session]


async def outlook(deps: Deps, caller: Caller, project_dir: str | None, own_id: str) -> Outlook:
    """Return the open questions and resumable work of a folder, except the host's own session."""
    if project_dir is None:
        return Outlook(approvals=[], resumable=[])
    query = SessionQuery(project_dir=project_dir, resume_ready=True, active_only=True, limit=OUTLOOK)
    ready = (await deps.store.find(caller.owner, query))[0].items
    now, policy = deps.clock.now(), deps.settings.resume
    resumable = [each for each in ready if verdict_on(each, policy, now, caller.holder) and each.session_id != own_id]
    asked: list[Approval] = []
    for session in ready:
        if session.pending_approvals:
            of_session = ApprovalQuery(session_id=session.session_id, limit=OUTLOOK)
            asked += await deps.store.approvals(caller.owner, of_session)
    return Outlook(approvals=asked[:OUTLOOK], resumable=resumable)


def fitting(text: str, limit: int, mark: str = CUT) -> str:
    """Cut a text to at most so many bytes, and mark the cut."""
    encoded = text.encode()
    if len(encoded) <= limit:
        return text
    return encoded[: limit - len(mark.encode())].decode(errors="ignore") + mark


async def _newest(deps: Deps, caller: Caller, ref: str, kind: Kind) -> list[Entry]:
    """Return the newest entries of a kind that the session wrote itself."""
    kinds = (kind.value, Kind.FORKED.value)
    found = await deps.store.log(caller.owner, ref, LogQuery(limit=NEWEST, kinds=kinds, newest_first=True))
    own = next((index for index, entry in enumerate(found) if entry.kind == Kind.FORKED), len(found))
    return found[:own]


def _noted(session: Session, metadata: dict[str, Any], stamp: Stamp) -> Change:
    """Add metadata if there is room; if not, the rest of the change still applies."""
    try:
        return session.update(Update(metadata=metadata), stamp)
    except TooLarge:
        return Change(session=session)


def _message(role: str, text: str, key: str | None = None) -> Message:
    return check_message({"role": role, "content": fitting(text, MAX_MESSAGE_BYTES), "client_key": key})


def _clean(deps: Deps, metadata: dict[str, Any]) -> dict[str, Any]:
    return deps.redactor.clean(check_metadata(metadata))[0] if metadata else {}
