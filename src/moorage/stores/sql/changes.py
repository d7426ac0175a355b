"""View, decide, commit: everything that a decision does to sessions, in one place.

A decision is based on data that was read, and commits with it or not at all. On SQLite that is one transaction.
PostgreSQL holds no lock while Python decides: its commit is refused if that data has changed; then the job runs again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from moorage.core.entry import Entry, Message
from moorage.core.errors import EntryNotFound, NotFound, ParentNotFound
from moorage.core.session import NO_NEEDS, AppendDecision, Asker, Birth, Change, Needs, Session, Stamp, View
from moorage.ports import BirthDecision, Decision, ForkDecision
from moorage.stores import sql
from moorage.stores.sql import lookup
from moorage.stores.sql.db import Commit, Db, Guard, SessionPlace, Written
from moorage.stores.sql.views import Seen, asker_of, load_head, load_view, with_named

if TYPE_CHECKING:
    from moorage.core.bundle import Bundle


# New sessions -----------------------------------------------------------------------------------

_OPEN_BELOW = (
    "SELECT count(*) FROM moor.sessions INDEXED BY sessions_by_root "
    "WHERE owner = ? AND root = ? AND finalized_at IS NULL"
)


async def create(
    db: Db, owner: str, decide: BirthDecision, *, parent: str | None = None, asker: Asker | None = None
) -> Session:
    place, birth = await _birth(db, owner, parent)
    guard = None
    if asker is not None:
        found, guard = await asker_of(db, owner, asker, place.parent)
        birth = replace(birth, asker=found)
    change = decide(birth)
    pk = await db.new_key() if change.records else None  # their values may be sealed for it
    written = Written(change, View(change.session), pk, place=place)
    await db.commit_changes(Commit(owner, [written], change.once, change.open_at_most, guard))
    return change.session


async def _birth(db: Db, owner: str, parent: str | None) -> tuple[SessionPlace, Birth]:
    """Return the place of a new session, and the data that its decision needs."""
    if parent is None:
        return SessionPlace(), Birth()
    try:
        head, key = await lookup.load(db, owner, parent)
    except NotFound:
        raise ParentNotFound(parent) from None
    if db.lock():  # so that no other child is created meanwhile
        await db.all("SELECT pg_advisory_xact_lock(moor.family_lock(?, ?))", (owner, key.root))
    [(count,)] = await db.all(_OPEN_BELOW, (owner, key.root))
    return SessionPlace(key.pk, key.root), Birth(parent=head, open_descendants=count)


async def fork(
    db: Db, owner: str, ref: str, at: int | None, decide: ForkDecision, *, expected: int | None = None
) -> Session:
    source, key = await lookup.load(db, owner, ref)
    source.check_version(expected)
    upto = source.last_entry if at is None else at
    if not 1 <= upto <= source.last_entry:
        raise EntryNotFound(source.session_id, upto, source.last_entry)
    segments = await sql.history.shared_segments(db, owner, key, upto)
    change = decide(source, upto, await sql.history.newest_checkpoint(db, owner, segments))
    # The records are copied. If a value is sealed for the source, the copies are sealed for the fork.
    scope, pk = sql.records.RecordScope(key.pk, source.session_id), None
    is_sealed = await sql.records.has_sealed(db, owner, scope)
    if is_sealed:
        change, pk = replace(change, records=await sql.records.copies(db, owner, scope)), await db.new_key()
    place = SessionPlace(source=key.pk, segments=segments, is_copied=not is_sealed)
    guard = None if expected is None else (key.pk, key.revision)
    written = Written(change, View(change.session), pk, place=place)
    await db.commit_changes(Commit(owner, [written], change.once, guard=guard))
    return change.session


async def restore(db: Db, owner: str, bundle: Bundle) -> bool:
    from moorage.core.bundle import restored

    if await lookup.pk_of(db, owner, bundle.session.session_id) >= 0:
        return False
    await lookup.check_not_spent(db, owner, bundle.session.session_id)
    parent = bundle.session.parent_session_id
    await create(db, owner, lambda birth: restored(bundle, birth, owner), parent=parent)
    return True


# Changing ---------------------------------------------------------------------------------------


async def apply(
    db: Db, owner: str, ref: str, decide: Decision, *, needs: Needs = NO_NEEDS, expected: int | None = None
) -> Change:
    """Load, decide, commit."""
    seen = await (load_view if needs.work else load_head)(db, owner, ref)
    seen.view.session.check_version(expected)
    if needs is NO_NEEDS:
        return await save(db, owner, seen, decide(seen.view))
    view, guard = await with_named(db, owner, seen.pk, seen.view, needs), None
    if needs.asker is not None:
        found, guard = await asker_of(db, owner, needs.asker, None)
        view = replace(view, asker=found)
    if needs.records is not None:
        scope = sql.records.RecordScope(seen.pk, view.session.session_id)
        view = replace(view, records=await sql.records.load(db, owner, scope, needs.records))
    if needs.memory is not None:
        view = replace(view, memory=await sql.records.load_memory(db, owner, needs.memory))
    if needs.client_keys:
        view = replace(view, seen=await sql.history.said_under(db, owner, seen.key, needs.client_keys))
    return await save(db, owner, seen._replace(view=view), decide(view), guard)


async def save(db: Db, owner: str, seen: Seen, change: Change, guard: Guard | None = None) -> Change:
    """Commit a whole change; return it with the outcome of its callbacks."""
    if change.callbacks:
        return await sql.work.save_with_callbacks(db, owner, seen, change)
    if change != Change(session=seen.view.session):
        guard = None if guard is not None and guard[0] == seen.pk else guard  # its own revision is compared in any case
        await db.commit_changes(Commit(owner, [written_of(seen, change)], change.once, guard=guard))
    return change


def written_of(seen: Seen, change: Change) -> Written:
    """Return the effect of a change on an existing session."""
    return Written(change, seen.view, seen.pk, seen.revision)


async def append(
    db: Db,
    owner: str,
    ref: str,
    messages: list[Message],
    stamp: Stamp,
    *,
    token: str | None = None,
    expected: int | None = None,
) -> list[Entry]:
    """Append messages; for those whose client key was seen, return the earlier entries.

    Every store can append this way. Each has a faster way for the common case.
    """
    appending = AppendDecision(messages, stamp, token)
    await apply(db, owner, ref, appending, needs=appending.needs, expected=expected)
    return appending.entries
