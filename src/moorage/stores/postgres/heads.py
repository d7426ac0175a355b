"""Heads: finding, creating, forking and changing sessions.

A head is read with its revision and written if it still has it: see `access`.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from moorage.core.errors import (
    EntryNotFound,
    NotFound,
    ParentNotFound,
)
from moorage.core.session import Asker, Birth, Change, Session, View
from moorage.ports import BirthDecision, Decision, ForkDecision
from moorage.stores import sql
from moorage.stores.postgres import writes
from moorage.stores.postgres.connection import Connection
from moorage.stores.rows import Row
from moorage.stores.session_rows import session_of
from moorage.stores.sql import lookup
from moorage.stores.sql.lookup import HEAD, found

TYPE_CHECKING = False
if TYPE_CHECKING:
    from moorage.stores.postgres.writes import Written


# Finding ----------------------------------------------------------------------------------------

_HEAD = f"SELECT revision, {HEAD} FROM moor.sessions"


class Head(NamedTuple):
    """A session as it was read."""

    pk: int
    revision: int
    session: Session


async def load(db: Connection, owner: str, ref: str) -> Head:
    """The head: by id, else by open name, else the newest that had the name."""
    return head_of(db, await found(db, _HEAD, owner, ref))


def head_of(db: Connection, row: Row) -> Head:
    """A head from the columns of _HEAD."""
    return Head(row[-1], row[0], session_of(row[1:], db.opener))


async def by_id(db: Connection, owner: str, session_id: str) -> Head | None:
    """The head of the session with this very id; a name will not do."""
    row = await db.one(f"{_HEAD} WHERE owner = ? AND id = ?{db.lock()}", (owner, session_id))
    return None if row is None else head_of(db, row)


# Creating ---------------------------------------------------------------------------------------


async def create(
    db: Connection, owner: str, decide: BirthDecision, parent: str | None, asker: Asker | None = None
) -> Session:
    """A new session with its first entries."""
    family, birth = await _family_of(db, owner, parent)
    guard = None
    if asker is not None:
        from moorage.stores.postgres import work

        found, guard = await work.asker_of(db, owner, asker, family.parent)
        birth = replace(birth, asker=found)
    change = decide(birth)
    written = writes.made(db, change.session, family=family) | writes.came_with(db, View(change.session), change)
    room = _room(db, family, change)
    await writes.commit(db, owner, [writes.with_pins(written)], change.once, room=room, guard=guard)
    return change.session


def _room(db: Connection, family: Family, change: Change) -> Written | None:
    """What the database has to see to; nothing for whoever has the family to themselves."""
    if db.is_locking or family.root is None or change.open_at_most is None:
        return None
    return {"root": family.root, "open_at_most": change.open_at_most}


class Family(NamedTuple):
    """Where a new session belongs, by keys."""

    parent: int | None = None
    root: int | None = None


_OPEN_BELOW = "SELECT count(*) FROM moor.sessions WHERE owner = ? AND root = ? AND finalized_at IS NULL"


async def _family_of(db: Connection, owner: str, parent: str | None) -> tuple[Family, Birth]:
    """Where it belongs, and what the decision needs to know."""
    if parent is None:
        return Family(), Birth()
    try:
        head, key = await lookup.load_to_read(db, owner, parent)
    except NotFound:
        raise ParentNotFound(parent) from None
    if db.is_locking:  # then nobody else has a child meanwhile
        await db.all("SELECT pg_advisory_xact_lock(moor.family_lock(?, ?))", (owner, key.root))
    count = await db.one(_OPEN_BELOW, (owner, key.root))
    assert count is not None
    return Family(key.pk, key.root), Birth(parent=head, open_descendants=count[0])


async def fork(
    db: Connection, owner: str, ref: str, at: int | None, decide: ForkDecision, expected: int | None = None
) -> Session:
    """A new root that shares the source's entries up to `at`."""
    guard = None
    if expected is not None:
        pk, revision, _ = await load(db, owner, ref)
        guard = pk, revision
    source, key = await lookup.load_to_read(db, owner, ref)
    source.check_version(expected)
    upto = source.last_entry if at is None else at
    if not 1 <= upto <= source.last_entry:
        raise EntryNotFound(source.session_id, upto, source.last_entry)
    segments = await sql.history.shared_segments(db, owner, key, upto)
    change = decide(source, upto, await sql.history.newest_checkpoint(db, owner, segments))
    written = writes.made(db, change.session, shared_upto=upto)
    written["new"]["has_pins"] = True  # its source may have some
    written["shares"] = key.pk
    written["lineage"] = [{"segment_root": root, "segment": segment, "upto": end} for root, segment, _, end in segments]
    written |= await _copied_context(db, owner, key.pk)
    written |= writes.came_with(db, View(change.session), change)
    await writes.commit(db, owner, [written], change.once, guard=guard)
    return change.session


_SEALED_CONTEXT = "SELECT 1 FROM moor.context WHERE owner = ? AND session = ? AND left(value, 1) = '~' LIMIT 1"


async def _copied_context(db: Connection, owner: str, source: int) -> Written:
    """As it is, unless something in it is sealed as the source's: that would not open as another's."""
    if not await db.one(_SEALED_CONTEXT, (owner, source)):
        return {"context": {"copy": source, "put": []}}
    row = await db.one("SELECT nextval('moor.sessions_pk_seq')")
    assert row is not None
    values = await sql.context.all_items(db, owner, source)
    return {"pk": row[0], "context": {"put": writes.context_items(db, row[0], values)}}


# Changing ---------------------------------------------------------------------------------------


async def apply(
    db: Connection,
    owner: str,
    ref: str,
    decide: Decision,
    expected: int | None,
    approval: str | None,
    turn: str | None,
    item: str | None,
    run: str | None = None,
    asker: Asker | None = None,
) -> Change:
    """Load, decide, write."""
    from moorage.stores.postgres import work

    seen = await work.load_view(db, owner, ref)
    session = seen.view.session
    session.check_version(expected)
    names = {"approval": approval, "turn": turn, "item": item, "run": run}
    view = seen.view if not any(names.values()) else await sql.named.with_named(db, owner, seen.pk, seen.view, **names)
    guard = None
    if asker is not None:
        found, guard = await work.asker_of(db, owner, asker, None)
        view = replace(view, asker=found)
    return await work.save(db, owner, seen._replace(view=view), decide(view), guard)
