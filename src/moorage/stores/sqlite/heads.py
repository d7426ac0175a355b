"""Heads: finding, creating, forking and changing sessions. Each function runs inside a transaction."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from moorage.core.approval import Approval
from moorage.core.entry import Entry
from moorage.core.errors import (
    EntryNotFound,
    IdTaken,
    NameTaken,
    NotFound,
    ParentNotFound,
    SessionCorrupt,
)
from moorage.core.session import Asker, AskerView, Birth, Change, Session, View
from moorage.ports import BirthDecision, Decision, ForkDecision
from moorage.stores import sql
from moorage.stores.rows import ENTRY, entry_row, json_text, kept, micros, micros_or_none
from moorage.stores.session_rows import ALL, HEAD_WITH_PK, PLACE, Columns, Part, place_of, session_of
from moorage.stores.sql import lookup
from moorage.stores.sql.lookup import Key, may_be_ref, named
from moorage.stores.sqlite.connection import BrokenText, Connection
from moorage.stores.sqlite.cursors import feed_base, feed_end_id
from moorage.stores.sqlite.driven import Driven, drive

TYPE_CHECKING = False
if TYPE_CHECKING:
    pass

# Finding ----------------------------------------------------------------------------------------

_HEAD = f"SELECT {HEAD_WITH_PK} FROM sessions"
_BY_ID = f"{_HEAD} WHERE owner = ? AND id = ?"


def load(db: Connection, owner: str, ref: str) -> tuple[int, Session]:
    """The session's key and head: by id, else by open name, else the newest that had the name."""
    try:
        row = db.one(_BY_ID, (owner, ref)) if may_be_ref(ref) else None
        row = row or drive(named(Driven(db), _HEAD, owner, ref))
    except BrokenText as error:
        raise SessionCorrupt(ref, "a text of it is not UTF-8") from error
    return row[-1], session_of(row, db.opener)


def by_id(db: Connection, owner: str, session_id: str) -> tuple[int, Session] | None:
    """The key and head of the session with this very id; a name will not do."""
    row = db.one(_BY_ID, (owner, session_id))
    return None if row is None else (row[-1], session_of(row, db.opener))


def key_of(db: Connection, owner: str, ref: str) -> Key:
    """Return the key of a session."""
    return drive(lookup.key_of(Driven(db), owner, ref))


# Creating ---------------------------------------------------------------------------------------

_INSERT = (
    f"INSERT INTO sessions (pk, {', '.join((*PLACE, *ALL.names))}) VALUES ("
    "(SELECT max(spent.pk, coalesce((SELECT max(pk) FROM sessions), 0)) + 1 FROM spent_keys spent)"
    f"{', ?' * (len(PLACE) + len(ALL.names))})"
)


def create(
    db: Connection, owner: str, decide: BirthDecision, parent: str | None, asker: Asker | None = None
) -> Session:
    """A new session with its first entries."""
    family, birth = _family_of(db, owner, parent)
    birth = replace(birth, asker=_asker(db, owner, asker, family[0])) if asker is not None else birth
    change = decide(birth)
    if change.once is not None:
        drive(sql.once.check(Driven(db), owner, change.once))
    check_names(db, owner, change.session)
    pk = insert(db, change.session, family=family)
    add_entries(db, pk, owner, change.entries)
    _write_work(db, owner, pk, View(change.session), change)
    if change.once is not None:
        drive(sql.once.note(Driven(db), owner, change.once))
    return change.session


def _family_of(db: Connection, owner: str, parent: str | None) -> tuple[tuple[int | None, int | None], Birth]:
    """(parent's pk, root's pk) and what the decision needs to know."""
    if parent is None:
        return (None, None), Birth()
    try:
        pk, head = load(db, owner, parent)
    except NotFound:
        raise ParentNotFound(parent) from None
    row = db.one("SELECT coalesce(root, pk) FROM sessions WHERE pk = ?", (pk,))
    assert row is not None
    count = db.one("SELECT count(*) FROM sessions WHERE root = ? AND finalized_at IS NULL", row)
    assert count is not None
    return (pk, row[0]), Birth(parent=head, open_descendants=count[0])


_TAKEN = """
SELECT (SELECT 1 FROM tombstones WHERE owner = ?1 AND id = ?2), (SELECT 1 FROM sessions WHERE owner = ?1 AND id = ?2),
    (SELECT 1 FROM sessions WHERE owner = ?1 AND name = ?2 AND finalized_at IS NULL)
"""


def check_names(db: Connection, owner: str, new: Session) -> None:
    """An id is used once, ever; a name by one open session; no name is another's id."""
    row = db.one(_TAKEN, (owner, new.session_id))
    if row is not None and any(row):
        raise IdTaken(new.session_id, spent=row[0] is not None)
    if new.session_name is not None and not new.is_final:
        check_name(db, owner, new.session_name)


def check_name(db: Connection, owner: str, name: str) -> None:
    """Raise NameTaken if an open session has it, or any session is called so by id."""
    taken = db.one("SELECT id FROM sessions WHERE owner = ? AND name = ? AND finalized_at IS NULL", (owner, name))
    taken = taken or db.one("SELECT id FROM sessions WHERE owner = ? AND id = ?", (owner, name))
    if taken:
        raise NameTaken(name, taken[0])


def insert(
    db: Connection, new: Session, *, family: tuple[int | None, int | None] = (None, None), shared_upto: int = 0
) -> int:
    """The row of a new session; its key."""
    db.execute(_INSERT, (*place_of(new, family, shared_upto), *ALL.values(new, db.sealer)))
    return db.raw.last_insert_rowid()


def fork(
    db: Connection, owner: str, ref: str, at: int | None, decide: ForkDecision, expected: int | None = None
) -> Session:
    """A new root that shares the source's entries up to `at`."""
    jobs = Driven(db)
    source, key = drive(lookup.load_to_read(jobs, owner, ref))
    source.check_version(expected)
    upto = source.last_entry if at is None else at
    if not 1 <= upto <= source.last_entry:
        raise EntryNotFound(source.session_id, upto, source.last_entry)
    segments = drive(sql.history.shared_segments(jobs, owner, key, upto))
    change = decide(source, upto, drive(sql.history.newest_checkpoint(jobs, owner, segments)))
    if change.once is not None:
        drive(sql.once.check(Driven(db), owner, change.once))
    check_names(db, owner, change.session)
    pk = insert(db, change.session, shared_upto=upto)
    db.execute("UPDATE sessions SET has_pins = 1 WHERE pk = ?", (pk,))  # its source may have some
    db.executemany("INSERT INTO lineage VALUES (?, ?, ?)", [(pk, segment, end) for _, segment, _, end in segments])
    _copy_context(db, owner, key.pk, pk)
    add_entries(db, pk, owner, change.entries)
    _write_work(db, owner, pk, View(change.session), change)
    if change.once is not None:
        drive(sql.once.note(Driven(db), owner, change.once))
    return change.session


def _copy_context(db: Connection, owner: str, source: int, target: int) -> None:
    """As it is, unless something in it is sealed as the source's: that would not open as another's."""
    if db.one("SELECT 1 FROM context WHERE session = ? AND substr(value, 1, 1) = '~' LIMIT 1", (source,)):
        from moorage.stores.sqlite import context

        context.put(db, target, drive(sql.context.all_items(Driven(db), owner, source)))
        return
    db.execute(
        "INSERT INTO context SELECT ?, key, value, version, updated_at, expires_at FROM context WHERE session = ?",
        (target, source),
    )


# Changing ---------------------------------------------------------------------------------------

_MOVING, _STATE, _TURNS = Columns(Part.MOVING), Columns(Part.STATE), Columns(Part.TURNS)
_UPDATES = {  # by whether the state, and whether its turns have changed
    (is_moved, is_turned): f"UPDATE sessions SET {', '.join(part.assignments() for part in parts)} WHERE pk = ?"
    for is_moved, is_turned, *parts in (
        (False, False, _MOVING),
        (True, False, _MOVING, _STATE),
        (False, True, _MOVING, _TURNS),
        (True, True, _MOVING, _STATE, _TURNS),
    )
}
# Whether something waits, in the words of the index of what is not consumed: one look, for most sessions in vain.
_WAITED_FOR = "SELECT 1 FROM inbox WHERE session = ? AND state IN ('held', 'waiting', 'given') AND state <> 'consumed'"


def apply(
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
    pk, session = load(db, owner, ref)
    session.check_version(expected)
    view = view_of(db, pk, session)
    if session.launched or turn is not None or item is not None or db.one(_WAITED_FOR, (pk,)):
        from moorage.stores.sqlite import work  # only sessions that a launcher has to do with need it

        view = replace(view, work=work.work_of(db, owner, pk, session.session_id))
    names = {"approval": approval, "turn": turn, "item": item, "run": run}
    if any(names.values()):
        view = drive(sql.named.with_named(Driven(db), owner, pk, view, **names))
    view = replace(view, asker=_asker(db, owner, asker)) if asker is not None else view
    return save(db, owner, pk, view, decide(view))


def _asker(db: Connection, owner: str, asker: Asker, pk: int | None = None) -> AskerView:
    running = "SELECT 1 FROM turns WHERE session = ? AND state = 'running'"
    if asker.run_id is asker.session_id is None and db.one(running, (pk,)) is None:
        return AskerView()  # a host's hooks name no run, and start in milliseconds without what runs need
    from moorage.stores.sqlite import work

    return work.asker_of(db, owner, asker, pk)


def view_of(db: Connection, pk: int, session: Session) -> View:
    """A session with its pending approvals."""
    pending: tuple[Approval, ...] = ()
    if session.pending_approvals:
        pending = drive(sql.approvals.pending_approvals(Driven(db), session.owner, pk))
    return View(session, pending)


def save(db: Connection, owner: str, pk: int, view: View, change: Change) -> Change:
    """Write a whole change; the change with what became of its callbacks."""
    if change.once is not None:
        drive(sql.once.check(Driven(db), owner, change.once))
        drive(sql.once.note(Driven(db), owner, change.once))
    if change.session != view.session:
        write_head(db, pk, view.session, change.session)
    add_entries(db, pk, owner, change.entries)
    for changed in change.approvals:
        write_approval(db, pk, owner, changed)
    return _write_work(db, owner, pk, view, change)


def _write_work(db: Connection, owner: str, pk: int, view: View, change: Change) -> Change:
    if not (change.runs or change.turns or change.items):
        return change
    from moorage.stores.sqlite import work

    work.check(db, owner, view, change)
    return work.write(db, owner, pk, view, change)


def write_head(db: Connection, pk: int, old: Session, new: Session) -> None:
    """The head's changed columns; indexed ones only if they did change."""
    is_moved, is_turned = (part.fields(new) != part.fields(old) for part in (_STATE, _TURNS))
    values = _MOVING.values(new, db.sealer)
    if is_moved:
        values += _STATE.values(new, db.sealer)
    if is_turned:
        values += _TURNS.values(new, db.sealer)
    values.append(pk)
    db.execute(_UPDATES[is_moved, is_turned], values)


INSERT_ENTRY = f"INSERT INTO entries (segment, {ENTRY}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def add_entries(db: Connection, pk: int, owner: str, entries: Sequence[Entry]) -> None:
    """Entries with consecutive numbers, and their place in the feed."""
    if not entries:
        return
    rows = [entry_row(entry, pk, micros(entry.at), db.sealer) for entry in entries]
    db.executemany(INSERT_ENTRY, rows)
    for row in rows:
        if row[2] in ("system", "summary"):
            db.execute("UPDATE sessions SET has_pins = 1 WHERE pk = ?", (pk,))
            break
    end = feed_end(db, owner) + len(rows)
    db.execute("INSERT INTO feed VALUES (?, ?, ?, ?)", (end, pk, entries[-1].number, len(rows)))
    db.feed_ends[owner] = end


def feed_end(db: Connection, owner: str) -> int:
    """The id of the owner's newest row in the feed.

    Cursors are counted inside the write transaction: gap-free, in order of commits.
    """
    if (known := db.feed_ends.get(owner)) is not None:
        return known
    number = db.new_owner_no(owner)
    row = db.one("SELECT id FROM feed WHERE id < ? ORDER BY id DESC LIMIT 1", (feed_end_id(number),))
    return max(feed_base(number), row[0] if row else 0)


def write_approval(db: Connection, pk: int, owner: str, approval: Approval) -> None:
    """An approval as it stands now."""
    db.execute(
        "INSERT INTO approvals (session, owner, id, state, expires_at, body) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (owner, id) DO UPDATE SET state = excluded.state, body = excluded.body",
        (
            pk, owner, approval.approval_id, approval.state.value, micros_or_none(approval.expires_at),
            kept(db.sealer, json_text(approval), "approval", approval.approval_id),
        ),
    )  # fmt: skip
