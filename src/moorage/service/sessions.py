"""Sessions: create, read, change, suspend, resume, close."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from moorage.core.brief import brief
from moorage.core.duration import check_ttl
from moorage.core.entry import Entry, Kind
from moorage.core.errors import (
    AmbiguousReference,
    EntryNotFound,
    HeldByAnother,
    InvalidField,
    MoorageError,
    OwnAncestor,
    SessionCorrupt,
    SessionNotFound,
    SessionRunning,
)
from moorage.core.family import NewSession, born, forked
from moorage.core.ids import MIN_PREFIX, check_label, check_session_id, check_session_name, looks_like_ref
from moorage.core.query import LogQuery, Page, SessionQuery, check_numbers
from moorage.core.session import (
    BY_AGENT,
    BY_PERSON,
    Asker,
    Birth,
    Change,
    Session,
    Update,
    View,
    check_checkpoint,
    check_labels,
    check_metadata,
    check_phase,
    check_said,
    check_text,
)
from moorage.core.window import WindowSize
from moorage.ports import Capability
from moorage.service.conversation import add_entry, read_log, repair, session_with_window, window
from moorage.service.deps import Caller, Deps, done_once, id_of, once_key, stamp_of, with_what_follows
from moorage.service.status import reasons, told, told_one, without_due

if TYPE_CHECKING:
    from moorage.core.inbox import Item
    from moorage.core.once import OnceKey
    from moorage.service.packet import ResumePacket

MAX_PURPOSE = 4096
MOST_HANDED_OVER = 1000  # a family has at most this many open sessions
WAITING = ("held", "waiting")  # states of inbox items; resuming most sessions needs no other items


class SessionRequest(Struct, frozen=True, kw_only=True):
    """The options for a new session, not yet checked."""

    agent: str | None = None
    name: str | None = None
    purpose: str | None = None
    metadata: dict[str, Any] | None = None
    labels: list[str] | None = None
    task_id: str | None = None
    session_id: str | None = None
    project_dir: str | None = None
    ttl: object = None


async def create_session(
    deps: Deps, caller: Caller, request: SessionRequest, *, parent: str | None = None, once: OnceKey | None = None
) -> Session:
    """Create a session, under `parent` if given. With `once`, a repeated request returns the session of the first one.

    Raises ParentNotFound, IdTaken, SessionGone, NameTaken, FamilyLimit, or InvalidRequest; nothing is written then.
    """
    new, redacted = new_session(deps, caller, request)
    if parent is not None and parent == new.session_id:
        raise OwnAncestor(new.session_id)
    stamp, limits = stamp_of(deps, caller), deps.settings.family

    def decide(birth: Birth) -> Change:
        change = born(new, birth, stamp, limits)
        return change if once is None else once.on(change, new.session_id, stamp.at)

    asker = asker_of(caller, parent)
    made = partial(deps.store.create, caller.owner, decide, parent=parent, asker=asker)
    return await _made(deps, caller, once, made, redacted)


async def _made(
    deps: Deps, caller: Caller, once: OnceKey | None, make: Callable[[], Awaitable[Session]], redacted: tuple[str, ...]
) -> Session:
    """Create a session; if the same request created one before, return that."""
    session = await done_once(deps, caller, once, make, lambda ref: get_session(deps, caller, ref))
    deps.expect_end(session.expires_at)
    return replace(session, redacted=redacted) if redacted else session


def asker_of(caller: Caller, parent: str | None) -> Asker | None:
    """Return the run that the caller works on, else the live turn of the asking session; None without either."""
    return None if caller.run_id is None and parent is None else Asker(run_id=caller.run_id)


def new_session(deps: Deps, caller: Caller, request: SessionRequest) -> tuple[NewSession, tuple[str, ...]]:
    """Check a request for a session; return it with the paths of secrets removed from its metadata."""
    metadata, agent, purpose, project_dir = request.metadata, request.agent, request.purpose, request.project_dir
    lifetime = check_ttl(request.ttl)
    cleaned, redacted = deps.redactor.clean(check_metadata(metadata)) if metadata is not None else ({}, ())
    made = deps.new_id() if request.session_id is None else check_session_id(request.session_id)
    new = NewSession(
        session_id=made,
        session_name=None if request.name is None else check_session_name(request.name),
        task_id=_task_in(cleaned) if request.task_id is None else check_label("task_id", request.task_id),
        spare_task_id=made,
        agent_name=None if agent is None else check_label("agent_name", agent),
        purpose=None if purpose is None else check_text("purpose", purpose, MAX_PURPOSE),
        project_dir=None if project_dir is None else check_label("project_dir", project_dir, 4096),
        owner=caller.owner,
        metadata=cleaned,
        labels=[] if request.labels is None else check_labels(request.labels),
        expires_at=None if lifetime is None else deps.clock.now() + lifetime,
    )
    return new, redacted


def _task_in(metadata: dict[str, Any]) -> str | None:
    """Return the task named in the metadata; any other value of `task_id` is only metadata."""
    if "task_id" in metadata:
        with suppress(InvalidField):
            return check_label("task_id", metadata["task_id"])
    return None


async def get_session(deps: Deps, caller: Caller, ref: str, *, messages: int | None = None) -> Session:
    """Return the session, with this many of its last messages. Raises SessionNotFound, SessionGone, SessionCorrupt."""
    if messages is not None:
        if type(messages) is not int or messages < 1:
            raise InvalidField("messages", f"is {messages!r}; give a whole number above 0")
        return await session_with_window(deps, caller, ref, WindowSize(last=messages))
    return await told_one(deps, await deps.store.get(caller.owner, ref))


async def resolve(deps: Deps, caller: Caller, ref: str) -> str:
    """Return the session id for an id, a name, or an unambiguous prefix of an id."""
    try:
        return (await deps.store.get(caller.owner, ref)).session_id
    except SessionCorrupt:
        return ref
    except SessionNotFound:
        may_be_prefix = looks_like_ref(ref) and len(ref) >= MIN_PREFIX
        found = await deps.store.match(caller.owner, ref, 11) if may_be_prefix else []
    if len(found) > 1:
        raise AmbiguousReference(ref, found[:10], cut=len(found) > 10)
    if not found:
        raise SessionNotFound(ref)
    return found[0]


async def list_sessions(deps: Deps, caller: Caller, query: SessionQuery) -> Page[Session]:
    """Return a page of sessions."""
    if query.parent is not None or query.root is not None:
        parent, root = await id_of(deps, caller, query.parent), await id_of(deps, caller, query.root)
        query = replace(query, parent=parent, root=root)
    [page] = await deps.store.find(caller.owner, query)
    return Page(await told(deps, page.items), page.next)


async def sessions_of(deps: Deps, caller: Caller, session_ids: list[str]) -> list[Session | None]:
    """Return the sessions with these ids, in one read of the store; None for a missing one."""
    found = await deps.store.get_many(caller.owner, session_ids)
    there = iter(await told(deps, [session for session in found if session is not None]))
    return [None if session is None else next(there) for session in found]


async def pages_of(deps: Deps, caller: Caller, queries: list[SessionQuery]) -> list[Page[Session]]:
    """Return a page of sessions for each query, in one read of the store. Queries name parents by id."""
    pages = await deps.store.find(caller.owner, *queries)
    every = iter(await told(deps, [session for page in pages for session in page.items]))
    return [Page([next(every) for _ in page.items], page.next) for page in pages]


async def update_session(
    deps: Deps, caller: Caller, ref: str, *, version: int | None = None, token: str | None = None, **facts: Any
) -> Session:
    """Change phase, metadata, labels or readiness, or count an error; all of it or nothing."""
    update, redacted = checked_update(deps, **facts)
    stamp = stamp_of(deps, caller)
    session = await _changed(deps, caller, ref, lambda view: view.session.update(update, stamp, token=token), version)
    return replace(session, redacted=redacted) if redacted else session


def checked_update(
    deps: Deps,
    phase: object = None,
    metadata: object = None,
    labels: object = None,
    error: object = None,
    resume_ready: object = None,
) -> tuple[Update, tuple[str, ...]]:
    """Check the facts of an update; return it with the paths of secrets removed from its metadata."""
    cleaned, redacted = deps.redactor.clean(check_metadata(metadata)) if metadata is not None else (None, ())
    if resume_ready is not None and not isinstance(resume_ready, bool):
        raise InvalidField("resume_ready", "must be true or false")
    update = Update(
        phase=None if phase is None else check_phase(phase),
        metadata=cleaned,
        labels=None if labels is None else check_labels(labels),
        error=None if error is None else check_said("error", error),
        resume_ready=resume_ready,
    )
    return update, redacted


async def rename_session(
    deps: Deps, caller: Caller, ref: str, name: str | None, *, version: int | None = None, token: str | None = None
) -> Session:
    """Change or remove a session's name; the old name becomes free. Raises NameTaken."""
    wanted, stamp = None if name is None else check_session_name(name), stamp_of(deps, caller)
    return await _changed(deps, caller, ref, lambda view: view.session.rename(wanted, stamp, token=token), version)


async def suspend_session(
    deps: Deps,
    caller: Caller,
    ref: str,
    *,
    checkpoint: dict[str, Any] | None = None,
    reason: str | None = None,
    version: int | None = None,
    token: str | None = None,
) -> Session:
    """Suspend a session and keep its agent's checkpoint. With the hold's token, the agent itself suspends it."""
    by = BY_PERSON if token is None and caller.session_id is None else BY_AGENT
    kept = None if checkpoint is None else check_checkpoint(checkpoint)
    why = None if reason is None else check_text("reason", reason)
    stamp = stamp_of(deps, caller)

    def decide(view: View) -> Change:
        caller.check_hold(view.session, token, stamp.at)
        change = view.session.suspend(stamp, checkpoint=kept, reason=why, by=by, token=token)
        return with_what_follows(view, change, stamp)

    return await _changed(deps, caller, ref, decide, version)


async def resume_session(
    deps: Deps, caller: Caller, ref: str, *, hold: bool = True, holder: str | None = None, version: int | None = None
) -> ResumePacket:
    """Give the caller the session to drive, or without `hold` let its agent continue; return all that is needed for it.

    With a hold, a tool call that a crash left without a result gets a result that says so. If the session's agent
    cannot be started, its waiting items go to the caller. Raises SessionClosed if it is final, HeldByAnother if another
    holder drives it. Without a hold, a running session is left as it is.
    """
    from moorage.service.packet import ResumePacket  # needed only to resume

    who, token, stamp = caller.held_as(holder), deps.new_token(), stamp_of(deps, caller)

    def decide(view: View) -> Change:
        change = view.session.resume(who, token, stamp) if hold else view.session.wake(who, stamp)
        return with_what_follows(view, change, stamp)

    if Capability.SHARED_CONTEXT in deps.store.capabilities:  # if its server is away, nothing changes
        await context_for_agent(deps, caller, await deps.store.get(caller.owner, ref))
    change = await _applied(deps, caller, ref, decide, version)
    session = change.session
    if hold and change.entries:  # only for a new holder: a repeated request may still be waiting for its own calls
        await repair(deps, caller, session.session_id)
    return ResumePacket(
        session=await told_one(deps, await deps.store.get(caller.owner, session.session_id)),
        hold=session.hold if hold else None,
        checkpoint=await checkpoint_of(deps, caller, session),
        context=await context_for_agent(deps, caller, session),
        messages=(await window(deps, caller, session.session_id, deps.settings.window)).items,
        inbox=await _hand_over(deps, caller, session, drives=hold),
    )


async def context_for_agent(deps: Deps, caller: Caller, session: Session) -> dict[str, Any]:
    """Return the whole context; skip the read if it was never written."""
    if not session.context_version and Capability.SHARED_CONTEXT not in deps.store.capabilities:
        return {}
    from moorage.service.records import read_context  # hooks rarely need it

    return {**await read_context(deps, caller, session.session_id)}


async def _hand_over(deps: Deps, caller: Caller, session: Session, *, drives: bool) -> list[Item]:
    """Return the waiting items of a session; if it can have no turns of its own, hand them over to the holder."""
    page = await deps.store.inbox(caller.owner, ref=session.session_id, states=WAITING, limit=MOST_HANDED_OVER)
    if not drives or not page.items or session.launched or deps.can_start(session.agent_name):
        return page.items
    from moorage.core import work  # needed only for callbacks

    ids, stamp = {item.item_id for item in page.items}, stamp_of(deps, caller)
    await deps.store.apply(caller.owner, session.session_id, lambda view: work.handed_over(view, ids, stamp))
    return page.items


async def release_session(deps: Deps, caller: Caller, ref: str, *, token: str | None = None) -> Session:
    """Release the hold, so that others may resume. An agent's token releases only its own hold."""
    stamp = stamp_of(deps, caller)

    def decide(view: View) -> Change:
        caller.check_hold(view.session, token, stamp.at)
        return with_what_follows(view, view.session.release(stamp, token=token), stamp)

    return await _changed(deps, caller, ref, decide)


async def finalize_session(
    deps: Deps,
    caller: Caller,
    ref: str,
    outcome: str = "completed",
    *,
    summary: str | None = None,
    version: int | None = None,
    token: str | None = None,
) -> Session:
    """Close a session: completed, failed or abandoned."""
    text = None if summary is None else check_text("summary", summary)
    stamp = stamp_of(deps, caller)

    def decide(view: View) -> Change:
        caller.check_hold(view.session, token, stamp.at)
        change = view.session.finalize(outcome, stamp, summary=text, pending=view.pending, token=token)
        return with_what_follows(view, change, stamp)

    return await _changed(deps, caller, ref, decide, version)


async def _changed(
    deps: Deps, caller: Caller, ref: str, decide: Callable[[View], Change], version: int | None = None
) -> Session:
    session = (await _applied(deps, caller, ref, decide, version)).session
    if session.expires_at is not None and session.expires_at <= deps.clock.now():
        deps.expect_end(session.expires_at)  # it was kept because it was in use, which may have ended
    return await told_one(deps, session)


async def _applied(
    deps: Deps, caller: Caller, ref: str, decide: Callable[[View], Change], version: int | None = None
) -> Change:
    """Apply a change; if a live turn blocks it, end that turn if it is due and try again."""
    try:
        return await deps.store.apply(caller.owner, ref, decide, expected=version)
    except (HeldByAnother, SessionRunning) as error:
        head = await deps.store.get(caller.owner, ref)
        [now] = await without_due(deps, [head])
        if now is head:
            raise await _with_end(deps, head, error) from None
    return await deps.store.apply(caller.owner, ref, decide, expected=version)


async def _with_end(deps: Deps, head: Session, error: MoorageError) -> MoorageError:
    """Return a refusal with the time at which an unresponsive live turn is given up."""
    [because] = await reasons(deps, [head])
    if not isinstance(error, HeldByAnother) or because is None or because.until is None or head.live_turn is None:
        return error
    return HeldByAnother(head.session_id, str(because.by), because.until)


# Forks and checkpoints --------------------------------------------------------------------------


async def fork_session(
    deps: Deps, caller: Caller, ref: str, request: SessionRequest, *, at: int | None = None, once: OnceKey | None = None
) -> Session:
    """Create a session that continues from entry `at` of another, without copying its entries."""
    if at is not None and (type(at) is not int or at < 1):
        raise InvalidField("at", f"is {at!r}; give an entry's number, from 1")
    new, redacted = new_session(deps, caller, request)
    stamp = stamp_of(deps, caller)

    def decide(source: Session, upto: int, checkpoint: int | None) -> Change:
        change = forked(source, upto, checkpoint, new, stamp)
        return change if once is None else once.on(change, new.session_id, stamp.at)

    return await _made(deps, caller, once, partial(deps.store.fork, caller.owner, ref, at, decide), redacted)


@brief("number", "checkpoint", "at", "by")
class Checkpoint(Struct, frozen=True, kw_only=True):
    """State that an agent saved."""

    number: int
    at: datetime
    by: str | None
    checkpoint: dict[str, Any]


async def save_checkpoint(
    deps: Deps,
    caller: Caller,
    ref: str,
    checkpoint: dict[str, Any],
    *,
    token: str | None = None,
    idempotency_key: str | None = None,
) -> Checkpoint:
    """Save a checkpoint without suspending the session."""
    kept, stamp = check_checkpoint(checkpoint), stamp_of(deps, caller)
    once = once_key("save_checkpoint", idempotency_key, [ref, checkpoint])
    entry = await add_entry(
        deps, caller, ref, lambda view: view.session.save_checkpoint(kept, stamp, token=token), once, stamp.at
    )
    return _as_checkpoint(entry)


async def checkpoint_of(deps: Deps, caller: Caller, session: Session) -> dict[str, Any] | None:
    """Return the state of the newest checkpoint, or None."""
    if session.last_checkpoint is None:
        return None
    return (await get_checkpoint(deps, caller, session.session_id, session.last_checkpoint)).checkpoint


async def get_checkpoint(deps: Deps, caller: Caller, ref: str, number: int | None = None) -> Checkpoint:
    """Return the checkpoint with this entry number, or the newest. Raises EntryNotFound."""
    check_numbers(number)
    session = await deps.store.get(caller.owner, ref)
    wanted = session.last_checkpoint if number is None else number
    entries: list[Entry] = []
    if wanted is not None:
        entries = await deps.store.log(caller.owner, ref, LogQuery(after=wanted - 1, before=wanted + 1, limit=1))
    if not entries or entries[0].kind != Kind.CHECKPOINT:
        raise EntryNotFound(session.session_id, wanted, session.last_entry, "checkpoint")
    return _as_checkpoint(entries[0])


async def list_checkpoints(
    deps: Deps, caller: Caller, ref: str, *, before: int | str | None = None, limit: int = 100
) -> Page[Checkpoint]:
    """Return checkpoints, newest first; pass `next` as `before` for more."""
    page = await read_log(
        deps, caller, ref, before=before, limit=limit, kinds=(Kind.CHECKPOINT.value,), newest_first=True
    )
    return Page([_as_checkpoint(entry) for entry in page.items], page.next)


def _as_checkpoint(entry: Entry) -> Checkpoint:
    data = entry.data or {}
    return Checkpoint(number=entry.number, at=entry.at, by=entry.by, checkpoint=data.get("checkpoint", {}))
