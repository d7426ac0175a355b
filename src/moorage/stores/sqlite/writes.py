"""Writes to SQLite: appends, commits and deletions, one statement after another, within a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from moorage.core.entry import Entry, Message
from moorage.core.errors import HoldLost, IdTaken, KeyReused, NameTaken, SessionClosed, VersionConflict
from moorage.core.session import FINAL_STATES, HOLD_FOR, Session, Stamp, State, as_said, message_entries, unsaid
from moorage.stores import sql
from moorage.stores.rows import APPROVALS, ENTRY, PINNED, Row, Table, entry_row, json_text, micros
from moorage.stores.session_rows import ALL, PLACE, ColumnPart, Columns, place_of
from moorage.stores.sql.db import FEED_CHUNK, FEED_ROOM, Commit, SessionPlace, Target, Written
from moorage.stores.sql.lookup import SessionColumns, check_not_spent, key_of, may_be_ref

if TYPE_CHECKING:
    from moorage.stores.sqlite.connection import Driven, SqliteConnection

# Appending, the hot path: four statements for a history of any length ---------------------------

_HEAD = "SELECT pk, id, task, state, last_entry, hold_token, version FROM sessions WHERE owner = ? AND id = ?"
# With a live turn, the hold ends with its lease.
_RENEW = "UPDATE sessions SET hold_until = ? WHERE pk = ? AND live_turn IS NULL"
_ADVANCE = "UPDATE sessions SET last_entry = ?, last_activity_at = ?, updated_at = ? WHERE pk = ?"


async def append(
    owner: str, ref: str, messages: list[Message], stamp: Stamp, token: str | None, expected: int | None, jobs: Driven
) -> list[Entry]:
    """Append messages; for those whose client key was seen, return the earlier entries."""
    db = jobs.connection
    row = db.one(_HEAD, (owner, ref)) if may_be_ref(ref) else None
    if row is None:
        row = db.one(_HEAD, (owner, (await key_of(jobs, owner, ref)).session_id))
        assert row is not None
    pk, session_id, task, state, last, hold_token, version = row
    if expected is not None and expected != version:
        raise VersionConflict(session_id, expected, version)
    if state in FINAL_STATES:
        raise SessionClosed(session_id, state)
    if token is not None and token != hold_token:
        raise HoldLost(session_id)
    keys = [message.client_key for message in messages if message.client_key is not None]
    known = await sql.history.said_under(jobs, owner, SessionColumns(pk, session_id, task), keys) if keys else {}
    fresh = unsaid(messages, known) if known else messages
    entries = message_entries(fresh, stamp, last + 1, session_id, task)
    if entries:
        at = micros(stamp.at)
        db.execute(_ADVANCE, (last + len(entries), at, at, pk))
        if state == State.CREATED:
            db.execute("UPDATE sessions SET state = 'active' WHERE pk = ?", (pk,))
        if token is not None:
            db.execute(_RENEW, (micros(stamp.at + HOLD_FOR), pk))
        add_entries(db, pk, owner, entries)
    return as_said(messages, known, entries) if known else entries


# Commits ----------------------------------------------------------------------------------------


async def commit(jobs: Driven, unit: Commit) -> None:
    """Write all changes. SQLite has one writer at a time, so the guard holds."""
    owner, once = unit.owner, unit.once
    if once is not None:
        await sql.documents.check_once(jobs, owner, once)
        await sql.documents.write_once(jobs, [(owner, once)])
    for each in unit.changes:
        await _write(jobs, owner, each)


async def _write(jobs: Driven, owner: str, one: Written) -> None:
    db, change, pk, old = jobs.connection, one.change, one.pk, one.view.session
    if one.place is not None:
        await _check_names(jobs, owner, change.session)
        pk = insert(db, change.session, pk, one.place)
    assert pk is not None
    if change.session is not old and change.session != old:
        _write_head(db, pk, old, change.session)
    add_entries(db, pk, owner, change.entries)
    for approval in change.approvals:
        db.execute(_APPROVAL, (pk, owner, *APPROVALS.new(approval, db.sealer)))
    if one.place is not None and one.place.is_copied:
        await sql.records.copy(jobs, owner, one.place.source or 0, pk)
    if change.records:
        await sql.records.write(jobs, owner, pk, change.records)
    if change.memory:
        await sql.records.write(jobs, owner, sql.records.OWNERS, change.memory)
    if change.runs or change.turns or change.items:
        _write_work(db, owner, pk, one)


# New sessions -----------------------------------------------------------------------------------

NEW_KEY = "SELECT max(spent.pk, coalesce((SELECT max(pk) FROM sessions), 0)) + 1 FROM spent_keys spent"
_INSERT = (
    f"INSERT INTO sessions (pk, {', '.join((*PLACE, *ALL.names))}) "
    f"VALUES (coalesce(?, ({NEW_KEY})){', ?' * (len(PLACE) + len(ALL.names))})"
)
_LABEL = "INSERT INTO labels VALUES (?, ?, ?)"


def insert(db: SqliteConnection, new: Session, pk: int | None, place: SessionPlace) -> int:
    """Write the row of a new session, and the parts it shares; return its key."""
    stands = place_of(new, (place.parent, place.root), place.shared_upto)
    db.execute(_INSERT, (pk, *stands, *ALL.values(new, db.sealer)))
    pk = db.raw.last_insert_rowid()
    if place.segments:
        db.execute("UPDATE sessions SET has_pins = 1 WHERE pk = ?", (pk,))  # its source may have pins
        shared = [(pk, segment, end) for _, segment, _, end in place.segments]
        db.executemany("INSERT INTO lineage VALUES (?, ?, ?)", shared)
    if new.labels:
        db.executemany(_LABEL, [(pk, label, new.owner) for label in new.labels])
    return pk


_TAKEN = """
SELECT (SELECT 1 FROM tombstones WHERE owner = ?1 AND id = ?2), (SELECT 1 FROM sessions WHERE owner = ?1 AND id = ?2),
    (SELECT 1 FROM sessions WHERE owner = ?1 AND name = ?2 AND finalized_at IS NULL)
"""


async def _check_names(jobs: Driven, owner: str, new: Session) -> None:
    """Check that the id was never used, no open session has the name, and the name is no session's id."""
    db = jobs.connection
    row = db.one(_TAKEN, (owner, new.session_id))
    if row is not None and any(row):
        await check_not_spent(jobs, owner, new.session_id)
        raise IdTaken(new.session_id)
    if new.session_name is not None and not new.is_final:
        _check_name(db, owner, new.session_name)


def _check_name(db: SqliteConnection, owner: str, name: str) -> None:
    taken = db.one("SELECT id FROM sessions WHERE owner = ? AND name = ? AND finalized_at IS NULL", (owner, name))
    taken = taken or db.one("SELECT id FROM sessions WHERE owner = ? AND id = ?", (owner, name))
    if taken:
        raise NameTaken(name, taken[0])


# Heads ------------------------------------------------------------------------------------------

_MOVING, _STATE, _TURNS = ColumnPart.MOVING, ColumnPart.STATE, ColumnPart.TURNS
_OF_STATE, _OF_TURNS = Columns(_STATE), Columns(_TURNS)
_CHANGED = {  # what is written of a head, by whether its state and its turns have changed
    (False, False): Columns(_MOVING),
    (True, False): Columns(_MOVING, _STATE),
    (False, True): Columns(_MOVING, _TURNS),
    (True, True): Columns(_MOVING, _STATE, _TURNS),
}


def _write_head(db: SqliteConnection, pk: int, old: Session, new: Session) -> None:
    """Write the head's changed columns; indexed ones only if they have changed."""
    if new.session_name != old.session_name:
        if new.session_name is not None:
            _check_name(db, new.owner, new.session_name)
        db.execute("UPDATE sessions SET name = ? WHERE pk = ?", (new.session_name, pk))
    is_moved, is_turned = (part.fields(new) != part.fields(old) for part in (_OF_STATE, _OF_TURNS))
    changed = _CHANGED[is_moved, is_turned]
    db.execute(f"UPDATE sessions SET {changed.assignments} WHERE pk = ?", [*changed.values(new, db.sealer), pk])
    if new.labels != old.labels:
        db.execute("DELETE FROM labels WHERE session = ?", (pk,))
        db.executemany(_LABEL, [(pk, label, new.owner) for label in new.labels])


# Rows of a change -------------------------------------------------------------------------------

_INSERT_ENTRY = f"INSERT INTO entries (segment, {ENTRY}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def add_entries(db: SqliteConnection, pk: int, owner: str, entries: Sequence[Entry]) -> None:
    """Write consecutively numbered entries, and their rows in the feed."""
    if not entries:
        return
    rows = [entry_row(entry, pk, micros(entry.at), db.sealer) for entry in entries]
    db.executemany(_INSERT_ENTRY, rows)
    for row in rows:
        if row[2] in PINNED:
            db.execute("UPDATE sessions SET has_pins = 1 WHERE pk = ?", (pk,))
            break
    end = feed_end(db, owner)
    for start in range(0, len(rows), FEED_CHUNK):
        chunk = rows[start : start + FEED_CHUNK]
        end += len(chunk)
        db.execute("INSERT INTO feed VALUES (?, ?, ?, ?)", (end, pk, chunk[-1][1], len(chunk)))
    db.feed_ends[owner] = end


def feed_end(db: SqliteConnection, owner: str) -> int:
    """Return the id of the owner's newest row in the feed.

    Cursors are counted inside the write transaction: gap-free, in order of commits.
    """
    if (known := db.feed_ends.get(owner)) is not None:
        return known
    base = db.new_owner_no(owner) * FEED_ROOM
    row = db.one("SELECT id FROM feed WHERE id < ? ORDER BY id DESC LIMIT 1", (base + FEED_ROOM,))
    return max(base, row[0] if row else 0)


_APPROVAL = (
    f"INSERT INTO approvals (session, owner, {', '.join(APPROVALS.columns)}) VALUES (?, ?, ?, ?, ?, ?) "
    f"ON CONFLICT (owner, id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in APPROVALS.moving)}"
)


def _write_work(db: SqliteConnection, owner: str, pk: int, one: Written) -> None:
    """Write runs, turns and items. Objects in the view are updated, others are inserted."""
    from moorage.stores.work_rows import ITEMS, RUNS, TURNS, items_in, turns_in

    change, view = one.change, one.view
    known = {run.run_id for run in view.work.runs}
    for run in change.runs:
        key = run.idempotency_key if run.run_id not in known else None
        if key is not None and db.one("SELECT 1 FROM runs WHERE owner = ? AND key = ?", (owner, key)):
            raise KeyReused(key)
    _write_rows(db, RUNS, owner, pk, change.runs, view.work.runs)
    _write_rows(db, TURNS, owner, pk, change.turns, turns_in(view))
    _write_rows(db, ITEMS, owner, pk, change.items, items_in(view))


def _write_rows(
    db: SqliteConnection, table: Table[Any], owner: str, pk: int, values: Iterable[Any], known: Iterable[Any]
) -> None:
    """Write values; update those in `known`, insert the others. A repeated id is refused."""
    known_ids = {table.id_of(value) for value in known}
    insert, update = _statements(table)
    for value in values:
        if (value_id := table.id_of(value)) in known_ids:
            db.execute(update, (*table.changed(value, db.sealer), owner, pk, value_id))
        else:
            db.execute(insert, (pk, owner, *table.new(value, db.sealer)))


@cache
def _statements(table: Table[Any]) -> tuple[str, str]:
    """Return the statements that insert new rows of a table, and update existing ones."""
    names, values = ["session", "owner", *table.columns], ["?"] * (2 + len(table.columns))
    if table.name == "turns":
        names.append("root")
        values.append("(SELECT coalesce(root, pk) FROM sessions WHERE pk = ?1)")
    moving = ", ".join(f"{name} = ?" for name in table.moving)
    insert = f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({', '.join(values)})"
    return insert, f"UPDATE {table.name} SET {moving} WHERE owner = ? AND session = ? AND id = ?"


# Deleting ---------------------------------------------------------------------------------------

_HAVE_RUNS = "SELECT 1 FROM json_each(?) target CROSS JOIN runs r ON r.session = target.value LIMIT 1"

_LEAVE_TOMBSTONES = """
INSERT INTO tombstones (owner, id, name, agent, task, state, root_of_deletion, deleted_at, deleted_by, reason)
SELECT s.owner, s.id, s.name, s.agent, s.task, s.state, target.value ->> 1, ?2, ?3, target.value ->> 2
FROM json_each(?1) target CROSS JOIN sessions s ON s.pk = target.value ->> 0 ORDER BY target.key
"""
_ANNOUNCE = "INSERT INTO feed (id, subject, last, count) SELECT ?1 + n - ?2, n, 0, 1 FROM tombstones WHERE n > ?2"
# Segments that may have lost their last reader: those of the deleted sessions, and those they shared as forks.
_SHARED = "SELECT DISTINCT segment FROM lineage WHERE session IN (SELECT value FROM json_each(?))"
_KEPT = """
SELECT gone.value, coalesce((SELECT max(upto) FROM lineage WHERE segment = gone.value), 0)
FROM json_each(?) gone WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE pk = gone.value)
"""


async def delete(jobs: Driven, owner: str, targets: list[Target], stamp: Stamp) -> None:
    """Delete sessions, leaves first; write a tombstone and an event for each."""
    db, pks = jobs.connection, [each.pk for each in targets]
    if db.one(_HAVE_RUNS, (json_text(pks),)):
        await sql.work.call_back_for(jobs, owner, pks, stamp)  # their work will not be done any more
    segments = {*pks, *(row[0] for row in db.all(_SHARED, (json_text(pks),)))}
    newest_tombstone = _newest(db, "SELECT max(n) FROM tombstones")
    db.execute(_LEAVE_TOMBSTONES, (json_text(targets), micros(stamp.at), stamp.by))
    end = feed_end(db, owner)
    db.execute(_ANNOUNCE, (end, newest_tombstone))
    db.feed_ends[owner] = end + len(targets)
    db.executemany("DELETE FROM records WHERE owner = ? AND session = ?", [(owner, pk) for pk in pks])
    db.executemany("DELETE FROM sessions WHERE pk = ?", [(pk,) for pk in pks])
    db.execute("UPDATE spent_keys SET pk = max(pk, ?)", (max(pks),))
    _trim(db, owner, db.all(_KEPT, (json_text(sorted(segments)),)))


def _trim(db: SqliteConnection, owner: str, kept: list[Row]) -> None:
    """Delete the entries of segments whose session was deleted, except those that forks need: (segment, upto)."""
    newest = _newest(db, "SELECT max(id) FROM entries")
    indexed = db.one("SELECT entry FROM search_marks WHERE owner = ?", (db.owner_no(owner),))
    if indexed is not None:
        db.executemany(
            "INSERT INTO search_purges SELECT id FROM entries WHERE segment = ? AND number > ? AND id <= ?",
            [(segment, upto, indexed[0]) for segment, upto in kept],
        )
    db.executemany("DELETE FROM entries WHERE segment = ? AND number > ?", kept)
    # An empty row in segment 0 keeps SQLite from reusing the newest id.
    if _newest(db, "SELECT max(id) FROM entries") < newest:
        db.execute("INSERT INTO entries (id, segment, number, kind, at) VALUES (?1, 0, ?1, 'deleted', 0)", (newest,))
    db.execute("DELETE FROM entries WHERE segment = 0 AND number < ?", (newest,))


def _newest(db: SqliteConnection, statement: str) -> int:
    row = db.one(statement)
    return (row and row[0]) or 0
