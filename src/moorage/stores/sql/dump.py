"""Everything as records, out of a store. Each store's `records` takes them in.

Rows are read along a key; a place in a list is the key of the row that came last, as JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

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
from moorage.stores.rows import ENTRY, TOMBSTONE, Row, approval_of, entry_of, instant, item_of, json_text, tombstone_of
from moorage.stores.session_rows import session_of
from moorage.stores.sql import documents
from moorage.stores.sql.db import Db
from moorage.stores.sql.documents import document_of
from moorage.stores.sql.lookup import HEAD_OF_S, OF_SESSION
from moorage.stores.work_rows import ITEM, run_of, turn_of
from moorage.stores.work_rows import item_of as inbox_item_of

MARK = "taking records in"  # the name of the store's note


class _List(NamedTuple):
    """How the records of a kind are read."""

    columns: str
    tables: str
    key: tuple[str, ...]
    record_of: Callable[[Db, Row], Record]
    owner: str | None = None  # stands in front of the key on PostgreSQL; SQLite's keys are the same for all owners


async def dump(db: Db, kind: str, limit: int, cursor: str | None) -> Page[Record]:
    """Return some records of a kind, and where the next begin."""
    how = (_ON_POSTGRES if db.is_postgres else _ON_SQLITE).get(kind) or _ON_BOTH[kind]
    key = (how.owner, *how.key) if how.owner and db.is_postgres else how.key
    last = None if cursor is None else msgspec.json.decode(cursor)
    names, marks = ", ".join(key), ", ".join("?" * len(key))
    sql = f"SELECT {names}, {how.columns} FROM {how.tables}"
    if last is not None:
        sql += f" {'AND' if ' WHERE ' in how.tables else 'WHERE'} ({names}) > ({marks})"
    rows = await db.all(f"{sql} ORDER BY {names} LIMIT ?", (*(last or ()), limit))
    items = [how.record_of(db, tuple(row)[len(key) :]) for row in rows]
    return Page(items, json_text(tuple(rows[-1])[: len(key)]) if len(rows) == limit else None)


async def mark(db: Db) -> str | None:
    """Return how far taking in has come."""
    return await documents.note(db, MARK)


def _session(db: Db, row: Row) -> Record:
    *head, lineage = row
    parts = msgspec.json.decode(lineage) if lineage else ()
    session = session_of(tuple(head), db.opener).as_kept()
    return SessionRecord(head[-1], session, tuple((part[0], part[1]) for part in parts))


def _entry(db: Db, row: Row) -> Record:
    owner, session_id, segment, *columns = row
    if owner is None:
        raise StoreCorrupt(db.path, f"entry {columns[0]} of segment {segment} belongs to nobody")
    entry = entry_of(tuple(columns), session_id, "", db.opener)
    return EntryRecord(owner, segment, msgspec.structs.replace(entry, session_id=None, task_id=None))


def _context(db: Db, row: Row) -> Record:
    owner, session_id, session, *columns = row
    try:
        key, item = item_of(tuple(columns), session, db.opener)
    except ValueError as error:  # it is not JSON, or does not open
        raise SessionCorrupt(session_id, f"context: {error}") from error
    return ContextRecord(owner, session_id, key, item)


def _approval(db: Db, row: Row) -> Record:
    owner, session_id, *columns = row
    try:
        return ApprovalRecord(owner, approval_of(tuple(columns), db.opener))
    except ValueError as error:
        raise SessionCorrupt(session_id, f"approval {row[-1]}: {error}") from error


_ITEM = ", ".join(f"t.{column}" for column in [*ITEM.split(", "), "body"])
_ENTRY = ", ".join(f"e.{column}" for column in ENTRY.split(", "))
_CONTEXT = "s.owner, s.id, t.session, t.key, t.value, t.version, t.updated_at, t.expires_at"
_KINDS_NOT_COPIED = ", ".join(f"'{kind}'" for kind in NOT_COPIED)
_ON_BOTH = {
    "tombstone": _List(
        f"t.owner, {TOMBSTONE}",
        "moor.tombstones t",
        ("t.n",),
        lambda _, row: TombstoneRecord(row[0], tombstone_of(row[2:])),
        "t.owner",
    ),
    "approval": _List("t.owner, s.id, t.body, t.id", f"moor.approvals t {OF_SESSION}", ("t.n",), _approval, "t.owner"),
    "run": _List(
        "t.owner, t.body, t.id, s.id",
        f"moor.runs t {OF_SESSION}",
        ("t.n",),
        lambda db, row: RunRecord(row[0], run_of(db, row[1:])),
        "t.owner",
    ),
    "turn": _List(
        "t.owner, t.n, t.body, t.id, s.id",
        f"moor.turns t {OF_SESSION}",
        ("t.n",),
        lambda db, row: TurnRecord(row[0], row[1], turn_of(db, row[2:])),
        "t.owner",
    ),
    "item": _List(
        f"t.owner, s.id, {_ITEM}",
        f"moor.inbox t {OF_SESSION}",
        ("t.n",),
        lambda db, row: ItemRecord(row[0], inbox_item_of(db, row[2:], row[1])),
        "t.owner",
    ),
    "delegation": _List(
        f"t.owner, {DELEGATION}, t.n",
        "moor.delegations t",
        ("t.n",),
        lambda _, row: DelegationRecord(row[0], delegation_of(row[1:])),
        "t.owner",
    ),
    "once": _List(
        "owner, operation, key, digest, ref, at",
        "moor.once",
        ("owner", "operation", "key"),
        lambda _, row: OnceRecord(row[0], Once(row[1], row[2], row[3], row[4], instant(row[5]))),
    ),
    "document": _List(
        "kind, key, body, expires_at",
        f"moor.documents WHERE kind NOT IN ({_KINDS_NOT_COPIED})",
        ("kind", "key"),
        lambda _, row: DocumentRecord(document_of(row)),
    ),
}
# The rest is kept differently: in SQLite only sessions have an owner, and the feed's ids contain it. An entry whose
# session is gone belongs to whose fork reads it. What the feed told of sessions that were deleted since is left out, as
# it is for its readers.
_ON_SQLITE = {
    "session": _List(
        f"{HEAD_OF_S}, (SELECT json_group_array(json_array(l.segment, l.upto) ORDER BY l.upto) FROM moor.lineage l "
        "WHERE l.session = s.pk)",
        "moor.sessions s",
        ("s.pk",),
        _session,
    ),
    "entry": _List(
        "coalesce(s.owner, (SELECT h.owner FROM moor.lineage l ORDERED JOIN moor.sessions h ON h.pk = l.session "
        f"WHERE l.segment = e.segment LIMIT 1)), coalesce(s.id, 'segment ' || e.segment), e.segment, {_ENTRY}",
        "moor.entries e LEFT JOIN moor.sessions s ON s.pk = e.segment WHERE e.segment > 0",
        ("e.id",),
        _entry,
    ),
    "context": _List(
        _CONTEXT,
        "moor.context t ORDERED JOIN moor.sessions s ON s.pk = t.session",
        ("t.session", "t.key"),
        _context,
    ),
    "feed": _List(
        "o.name, f.id - (o.no << 40), coalesce(s.id, t.id), f.last, f.count",
        "moor.feed f ORDERED JOIN moor.owners o ON o.no = f.id >> 40 "
        "LEFT JOIN moor.sessions s ON f.last > 0 AND s.pk = f.subject "
        "LEFT JOIN moor.tombstones t ON f.last = 0 AND t.n = f.subject WHERE coalesce(s.id, t.id) IS NOT NULL",
        ("f.id",),
        lambda _, row: FeedRecord(*row),
    ),
}
_ON_POSTGRES = {
    "session": _List(
        f"{HEAD_OF_S}, (SELECT json_agg(json_build_array(l.segment, l.upto) ORDER BY l.upto)::text "
        "FROM moor.lineage l WHERE l.owner = s.owner AND l.session = s.pk)",
        "moor.sessions s",
        ("s.pk",),
        _session,
        "s.owner",
    ),
    "entry": _List(
        f"e.owner, 'segment ' || e.segment, e.segment, {_ENTRY}",
        "moor.entries e",
        ("e.root", "e.segment", "e.number"),
        _entry,
        "e.owner",
    ),
    "context": _List(_CONTEXT, f"moor.context t {OF_SESSION}", ("t.session", "t.key"), _context, "t.owner"),
    "feed": _List(
        "f.owner, f.id, coalesce(s.id, t.id), f.last, f.count",
        "moor.feed f LEFT JOIN moor.sessions s ON f.last > 0 AND s.owner = f.owner AND s.pk = f.subject "
        "LEFT JOIN moor.tombstones t ON f.last = 0 AND t.owner = f.owner AND t.n = f.subject "
        "WHERE coalesce(s.id, t.id) IS NOT NULL",
        ("f.id",),
        lambda _, row: FeedRecord(*row),
        "f.owner",
    ),
}
