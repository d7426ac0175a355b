"""Everything as records, out of this store and into it. Each function runs inside a transaction.

A place in a list is the key of the row that came last, as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from moorage.core.document import NOT_COPIED
from moorage.core.errors import SessionCorrupt, StoreCorrupt
from moorage.core.once import Once
from moorage.core.query import Page
from moorage.core.record import (
    ApprovalRecord,
    ContextRecord,
    DelegationRecord,
    DocumentRecord,
    EntryRecord,
    FeedRecord,
    ItemRecord,
    OnceRecord,
    Record,
    RunRecord,
    SessionRecord,
    TombstoneRecord,
    TurnRecord,
)
from moorage.stores.places import DELEGATION, delegation_of
from moorage.stores.rows import (
    ENTRY,
    HEAD_OF_S,
    TOMBSTONE,
    Row,
    approval_of,
    entry_of,
    entry_row,
    instant,
    item_of,
    json_text,
    micros,
    session_of,
    tombstone_of,
)
from moorage.stores.sql import counts, documents, once
from moorage.stores.sql.documents import document_of
from moorage.stores.sqlite import context, heads, work
from moorage.stores.sqlite.connection import Connection
from moorage.stores.sqlite.cursors import feed_base, feed_end_id
from moorage.stores.sqlite.driven import Driven, drive
from moorage.stores.work_rows import ITEM, run_of, turn_of
from moorage.stores.work_rows import item_of as inbox_item_of

_MARK = "taking records in"  # the name of the store's note

_NOT_COPIED = "({})".format(", ".join(f"'{kind}'" for kind in NOT_COPIED))

# Out --------------------------------------------------------------------------------------------


class _List(NamedTuple):
    """How the records of a kind are read: rows behind a key, the key's columns first."""

    sql: str  # {behind} stands for the condition
    key: tuple[str, ...]
    record_of: Callable[[Connection, Row], Record]  # from the columns after the key's


def dump(db: Connection, kind: str, limit: int, cursor: str | None) -> Page[Record]:
    """Some records of a kind, and where the next begin."""
    how = _LISTS[kind]
    last = None if cursor is None else msgspec.json.decode(cursor)
    names, marks = ", ".join(how.key), ", ".join("?" * len(how.key))
    sql = how.sql.format(behind="TRUE" if last is None else f"({names}) > ({marks})")
    rows = db.all(f"{sql} ORDER BY {names} LIMIT ?", (*(last or ()), limit))
    size = len(how.key)
    items = [how.record_of(db, row[size:]) for row in rows]
    return Page(items, json_text(rows[-1][:size]) if len(rows) == limit else None)


def _session(db: Connection, row: Row) -> Record:
    lineage = db.all("SELECT segment, upto FROM lineage WHERE session = ? ORDER BY upto", (row[-1],))
    return SessionRecord(row[-1], session_of(row, db.opener).as_kept(), tuple((one[0], one[1]) for one in lineage))


_HEIR = "SELECT s.owner FROM lineage l CROSS JOIN sessions s ON s.pk = l.session WHERE l.segment = ? LIMIT 1"


def _entry(db: Connection, row: Row) -> Record:
    owner, session_id, segment, *columns = row
    if owner is None:  # its session is gone: it belongs to whose fork reads it
        heir = db.one(_HEIR, (segment,))
        if heir is None:
            raise StoreCorrupt(db.path, f"entry {columns[0]} of segment {segment} belongs to nobody")
        owner = heir[0]
    entry = entry_of(tuple(columns), session_id or f"segment {segment}", "", db.opener)
    return EntryRecord(owner, segment, msgspec.structs.replace(entry, session_id=None, task_id=None))


def _context(db: Connection, row: Row) -> Record:
    owner, session_id, session, *columns = row
    try:
        key, item = item_of(tuple(columns), session, db.opener)
    except ValueError as error:  # it is not JSON, or does not open
        raise SessionCorrupt(session_id, f"context: {error}") from error
    return ContextRecord(owner, session_id, key, item)


def _approval(db: Connection, row: Row) -> Record:
    owner, session_id, *columns = row
    try:
        return ApprovalRecord(owner, approval_of(tuple(columns), db.opener))
    except ValueError as error:
        raise SessionCorrupt(session_id, f"approval {row[-1]}: {error}") from error


def _feed(_: Connection, row: Row) -> Record:
    owner, number, feed_id, session_id, last, count = row
    return FeedRecord(owner, feed_id - feed_base(number), session_id, last, count)


_WORK = "SELECT t.n, t.owner, t.body, t.id, s.id FROM {table} t CROSS JOIN sessions s ON s.pk = t.session"
_ITEM = ", ".join(f"t.{column}" for column in [*ITEM.split(", "), "body"])
_ITEMS = f"SELECT t.n, t.owner, s.id, {_ITEM} FROM inbox t CROSS JOIN sessions s ON s.pk = t.session WHERE {{behind}}"
# What the feed told of sessions that were deleted since is left out, as it is for its readers.
_FEED = """
SELECT f.id, o.name, o.no, f.id, coalesce(s.id, t.id), f.last, f.count
FROM feed f CROSS JOIN owners o ON o.no = f.id >> 40
LEFT JOIN sessions s ON f.last > 0 AND s.pk = f.subject
LEFT JOIN tombstones t ON f.last = 0 AND t.n = f.subject
WHERE coalesce(s.id, t.id) IS NOT NULL AND {behind}
"""
_LISTS = {
    "tombstone": _List(
        f"SELECT n, owner, {TOMBSTONE} FROM tombstones WHERE {{behind}}",
        ("n",),
        lambda _, row: TombstoneRecord(row[0], tombstone_of(row[2:])),
    ),
    "session": _List(f"SELECT s.pk, {HEAD_OF_S} FROM sessions s WHERE {{behind}}", ("s.pk",), _session),
    "entry": _List(
        f"SELECT e.id, s.owner, s.id, e.segment, {', '.join(f'e.{column}' for column in ENTRY.split(', '))} "
        "FROM entries e LEFT JOIN sessions s ON s.pk = e.segment WHERE e.segment > 0 AND {behind}",
        ("e.id",),
        _entry,
    ),
    "context": _List(
        "SELECT c.session, c.key, s.owner, s.id, c.session, c.key, c.value, c.version, c.updated_at, c.expires_at "
        "FROM context c CROSS JOIN sessions s ON s.pk = c.session WHERE {behind}",
        ("c.session", "c.key"),
        _context,
    ),
    "approval": _List(
        "SELECT a.n, a.owner, s.id, a.body, a.id FROM approvals a CROSS JOIN sessions s ON s.pk = a.session "
        "WHERE {behind}",
        ("a.n",),
        _approval,
    ),
    "run": _List(
        f"{_WORK.format(table='runs')} WHERE {{behind}}",
        ("t.n",),
        lambda db, row: RunRecord(row[0], run_of(db, row[1:])),
    ),
    "turn": _List(
        f"{_WORK.format(table='turns').replace('t.n, ', 't.n, t.n, ')} WHERE {{behind}}",
        ("t.n",),
        lambda db, row: TurnRecord(row[1], row[0], turn_of(db, row[2:])),
    ),
    "item": _List(_ITEMS, ("t.n",), lambda db, row: ItemRecord(row[0], inbox_item_of(db, row[2:], row[1]))),
    "feed": _List(_FEED, ("f.id",), _feed),
    "delegation": _List(
        f"SELECT n, owner, {DELEGATION}, n FROM delegations WHERE {{behind}}",
        ("n",),
        lambda _, row: DelegationRecord(row[0], delegation_of(row[1:])),
    ),
    "once": _List(
        "SELECT owner, operation, key, owner, operation, key, digest, ref, at FROM once WHERE {behind}",
        ("owner", "operation", "key"),
        lambda _, row: OnceRecord(row[0], Once(row[1], row[2], row[3], row[4], instant(row[5]))),
    ),
    "document": _List(
        f"SELECT kind, key, kind, key, body, expires_at FROM documents WHERE kind NOT IN {_NOT_COPIED} AND {{behind}}",
        ("kind", "key"),
        lambda _, row: DocumentRecord(document_of(row)),
    ),
}


# In ---------------------------------------------------------------------------------------------


def load(db: Connection, records: Iterable[Record], mark: str | None) -> None:
    """Write records, and how far that is."""
    for kind, some in groupby(records, type):
        _WRITERS[kind](db, list(some))
    drive(documents.set_note(Driven(db), _MARK, mark))


def mark(db: Connection) -> str | None:
    """How far taking in has come."""
    return drive(documents.note(Driven(db), _MARK))


def _load_tombstones(db: Connection, records: list[TombstoneRecord]) -> None:
    for record in records:
        stone = record.tombstone
        db.execute(
            f"INSERT INTO tombstones (owner, {TOMBSTONE.removeprefix('n, ')}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                record.owner, stone.session_id, stone.session_name, stone.agent_name, stone.task_id, stone.state,
                stone.root_of_deletion, micros(stone.deleted_at), stone.deleted_by, stone.reason,
            ),
        )  # fmt: skip


def _load_sessions(db: Connection, records: list[SessionRecord]) -> None:
    for serial, session, lineage in ((one.serial, one.session, one.lineage) for one in records):
        db.new_owner_no(session.owner)
        parent = _pk(db, session.owner, session.parent_session_id)
        root = _pk(db, session.owner, session.root_session_id)
        shared_upto = lineage[-1][1] if lineage else 0
        pk = heads.insert(db, session, family=(parent, root), shared_upto=shared_upto)
        db.execute(
            "UPDATE sessions SET pk = ?, live_turn = ?, epoch = ?, has_pins = ? WHERE pk = ?",
            (serial, session.live_turn, session.epoch, int(bool(lineage)), pk),
        )
        db.executemany("INSERT INTO lineage VALUES (?, ?, ?)", [(serial, *part) for part in lineage])


def _pk(db: Connection, owner: str, session_id: str | None) -> int | None:
    row = db.one("SELECT pk FROM sessions WHERE owner = ? AND id = ?", (owner, session_id)) if session_id else None
    return None if row is None else int(row[0])


def _load_entries(db: Connection, records: list[EntryRecord]) -> None:
    rows = [entry_row(record.entry, record.segment, micros(record.entry.at), db.sealer) for record in records]
    db.executemany(heads.INSERT_ENTRY, rows)
    db.execute("UPDATE spent_keys SET pk = max(pk, ?)", (max(row[0] for row in rows),))
    pinned = {row[0] for row in rows if row[2] in ("system", "summary")}
    db.executemany("UPDATE sessions SET has_pins = 1 WHERE pk = ?", [(pk,) for pk in pinned])


def _load_context(db: Connection, records: list[ContextRecord]) -> None:
    for record in records:
        context.put(db, heads.key_of(db, record.owner, record.session_id)[0], {record.key: record.item})


def _load_approvals(db: Connection, records: list[ApprovalRecord]) -> None:
    for record in records:
        pk = heads.key_of(db, record.owner, record.approval.session_id)[0]
        heads.write_approval(db, pk, record.owner, record.approval)


def _load_runs(db: Connection, records: list[RunRecord]) -> None:
    for record in records:
        pk = heads.key_of(db, record.owner, record.run.session_id)[0]
        work.write_runs(db, record.owner, pk, [record.run], set())


def _load_turns(db: Connection, records: list[TurnRecord]) -> None:
    for record in records:
        pk = heads.key_of(db, record.owner, record.turn.session_id)[0]
        work.write_turns(db, record.owner, pk, [record.turn], set())
        db.execute(
            "UPDATE turns SET n = ? WHERE owner = ? AND id = ?", (record.number, record.owner, record.turn.turn_id)
        )


def _load_items(db: Connection, records: list[ItemRecord]) -> None:
    for record in records:
        pk = heads.key_of(db, record.owner, record.item.session_id)[0]
        work.write_items(db, record.owner, pk, [record.item], set())


_SUBJECT = "SELECT pk FROM sessions WHERE owner = ? AND id = ?"
_STONE = "SELECT n FROM tombstones WHERE owner = ? AND id = ?"


def _load_feed(db: Connection, records: list[FeedRecord]) -> None:
    for record in records:
        number = db.new_owner_no(record.owner)
        subject = db.one(_SUBJECT if record.last else _STONE, (record.owner, record.session_id))
        assert subject is not None, "what the feed tells of came in before it"
        feed_id = feed_base(number) + record.cursor
        assert feed_id < feed_end_id(number)
        db.execute("INSERT INTO feed VALUES (?, ?, ?, ?)", (feed_id, subject[0], record.last, record.count))


def _load_delegations(db: Connection, records: list[DelegationRecord]) -> None:
    drive(counts.write(Driven(db), [(record.owner, record.delegation) for record in records]))


def _load_once(db: Connection, records: list[OnceRecord]) -> None:
    drive(once.write(Driven(db), [(record.owner, record.once) for record in records]))


def _load_documents(db: Connection, records: list[DocumentRecord]) -> None:
    drive(documents.write(Driven(db), [record.document for record in records]))


_WRITERS: dict[type[Any], Callable[[Connection, Any], None]] = {
    TombstoneRecord: _load_tombstones,
    SessionRecord: _load_sessions,
    EntryRecord: _load_entries,
    ContextRecord: _load_context,
    ApprovalRecord: _load_approvals,
    RunRecord: _load_runs,
    TurnRecord: _load_turns,
    ItemRecord: _load_items,
    FeedRecord: _load_feed,
    DelegationRecord: _load_delegations,
    OnceRecord: _load_once,
    DocumentRecord: _load_documents,
}
