"""Dump all data of a store. Each store's `load` reads it.

Rows are read in order of a key; a place in a list is the key of the last row, as JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from moorage.core import dump as dumps
from moorage.core.document import NOT_COPIED
from moorage.core.dump import DumpKind, DumpRecord
from moorage.core.errors import StoreCorrupt
from moorage.core.once import Once
from moorage.core.query import Page
from moorage.stores.places import DELEGATION, delegation_of
from moorage.stores.rows import (
    ENTRY,
    TOMBSTONE,
    WHOLE_ITEM_OF_T,
    Row,
    approval_of,
    entry_of,
    instant,
    json_text,
    tombstone_of,
)
from moorage.stores.session_rows import session_of
from moorage.stores.sql import records
from moorage.stores.sql.db import Db
from moorage.stores.sql.documents import document_of
from moorage.stores.sql.lookup import HEAD_OF_S, OF_SESSION
from moorage.stores.sql.walks import Walk
from moorage.stores.work_rows import item_of as inbox_item_of
from moorage.stores.work_rows import run_of, turn_of


class _List(NamedTuple):
    """How the records of a kind are read."""

    walk: Walk
    record_of: Callable[[Db, Row], DumpRecord]


async def dump(db: Db, kind: DumpKind, limit: int, cursor: str | None = None) -> Page[DumpRecord]:
    """Return some records of a kind, and the cursor of the next ones."""
    how = (_ON_POSTGRES if db.is_postgres else _ON_SQLITE).get(kind) or _ON_BOTH[kind]
    rows = await how.walk.rows(db, None if cursor is None else msgspec.json.decode(cursor), limit)
    return Page([how.record_of(db, row) for _, row in rows], json_text(rows[-1][0]) if len(rows) == limit else None)


def _session(db: Db, row: Row) -> DumpRecord:
    *head, lineage = row
    parts = msgspec.json.decode(lineage) if lineage else ()
    session = session_of(tuple(head), db.opener).as_kept()
    return dumps.DumpedSession(head[-1], session, tuple((part[0], part[1]) for part in parts))


def _entry(db: Db, row: Row) -> DumpRecord:
    owner, session_id, segment, *columns = row
    if owner is None:
        raise StoreCorrupt(db.path, f"entry {columns[0]} of segment {segment} belongs to no session")
    entry = entry_of(tuple(columns), session_id, "", db.opener)
    return dumps.DumpedEntry(owner, segment, msgspec.structs.replace(entry, session_id=None, task_id=None))


def _record(db: Db, row: Row) -> DumpRecord:
    owner, session_id, session, *columns = row
    try:
        return dumps.DumpedRecord(owner, session_id, records.record_of(db, owner, session, tuple(columns)))
    except ValueError as error:  # it cannot be opened, or is invalid
        raise StoreCorrupt(db.path, f"record {columns[1]} of {session_id or owner}: {error}") from error


_ENTRY = ", ".join(f"t.{column}" for column in ENTRY.split(", "))
_RECORD = ", ".join(f"t.{column}" for column in records.COLUMNS.split(", "))
_KINDS_NOT_COPIED = ", ".join(f"'{kind}'" for kind in NOT_COPIED)


def _of_owner(table: str, columns: str, value_of: Callable[[Db, Row], dumps.OwnedValue]) -> _List:
    """Return how to read values of owners; `value_of` gets the columns."""
    walk = Walk(table, ("t.n",), f"t.owner, {columns}")
    return _List(walk, lambda db, row: dumps.DumpedValue(row[0], value_of(db, row[1:])))


def _of_session(table: str, columns: str, value_of: Callable[[Db, Row], dumps.OwnedValue]) -> _List:
    return _of_owner(f"moor.{table} t {OF_SESSION}", columns, value_of)


_ON_BOTH = {
    DumpKind.TOMBSTONE: _of_owner("moor.tombstones t", TOMBSTONE, lambda _, row: tombstone_of(row[1:])),
    DumpKind.DELEGATION: _of_owner("moor.delegations t", f"{DELEGATION}, t.n", lambda _, row: delegation_of(row)),
    DumpKind.APPROVAL: _of_session("approvals", "t.body, t.id, s.id", lambda db, row: approval_of(row, db.opener)),
    DumpKind.RUN: _of_session("runs", "t.body, t.id, s.id", run_of),
    DumpKind.TURN: _List(
        Walk(f"moor.turns t {OF_SESSION}", ("t.n",), "t.owner, t.n, t.body, t.id, s.id"),
        lambda db, row: dumps.DumpedTurn(row[0], row[1], turn_of(db, row[2:])),
    ),
    DumpKind.ITEM: _of_session("inbox", f"s.id, {WHOLE_ITEM_OF_T}", lambda db, row: inbox_item_of(db, row[1:], row[0])),
    DumpKind.RECORD: _List(
        Walk(
            "moor.records t LEFT JOIN moor.sessions s ON s.owner = t.owner AND s.pk = t.session",
            ("t.owner", "t.session", "t.namespace", "t.key"),
            f"t.owner, s.id, t.session, {_RECORD}",
            (),
        ),
        _record,
    ),
    DumpKind.ONCE: _List(
        Walk("moor.once", ("owner", "operation", "key"), "owner, operation, key, digest, ref, at", ()),
        lambda _, row: dumps.DumpedValue(row[0], Once(row[1], row[2], row[3], row[4], instant(row[5]))),
    ),
    DumpKind.DOCUMENT: _List(
        Walk(
            f"moor.documents WHERE kind NOT IN ({_KINDS_NOT_COPIED})",
            ("kind", "key"),
            "kind, key, body, expires_at",
            (),
        ),
        lambda _, row: dumps.DumpedDocument(document_of(row)),
    ),
}
# The other kinds are stored differently: in SQLite only sessions have an owner, and the feed's ids contain it. An entry
# whose session was deleted belongs to the owner of the fork that reads it. Feed entries of deleted sessions are left
# out, as they are for readers of the feed.
_SHARED = "json_agg(json_build_array(l.segment, l.upto) ORDER BY l.upto)"
_LINEAGE = f"SELECT {_SHARED} FROM moor.lineage l WHERE l.session = s.pk"
_WHOSE = (
    "coalesce(s.owner, (SELECT h.owner FROM moor.lineage l ORDERED JOIN moor.sessions h ON h.pk = l.session "
    "WHERE l.segment = t.segment LIMIT 1)), coalesce(s.id, 'segment ' || t.segment)"
)
_ON_SQLITE = {
    DumpKind.SESSION: _List(Walk("moor.sessions s", ("s.pk",), f"{HEAD_OF_S}, ({_LINEAGE})"), _session),
    DumpKind.ENTRY: _List(
        Walk(
            "moor.entries t LEFT JOIN moor.sessions s ON s.pk = t.segment WHERE t.segment > 0",
            ("t.id",),
            f"{_WHOSE}, t.segment, {_ENTRY}",
        ),
        _entry,
    ),
    DumpKind.FEED: _List(
        Walk(
            "moor.feed t ORDERED JOIN moor.owners o ON o.no = t.id >> 40 "
            "LEFT JOIN moor.sessions s ON t.last > 0 AND s.pk = t.subject "
            "LEFT JOIN moor.tombstones d ON t.last = 0 AND d.n = t.subject WHERE coalesce(s.id, d.id) IS NOT NULL",
            ("t.id",),
            "o.name, t.id - (o.no << 40), coalesce(s.id, d.id), t.last, t.count",
        ),
        lambda _, row: dumps.DumpedFeed(*row),
    ),
}
_ON_POSTGRES = {
    DumpKind.SESSION: _List(
        Walk("moor.sessions s", ("s.pk",), f"{HEAD_OF_S}, ({_LINEAGE} AND l.owner = s.owner)", ("s.owner",)), _session
    ),
    DumpKind.ENTRY: _List(
        Walk(
            "moor.entries t",
            ("t.root", "t.segment", "t.number"),
            f"t.owner, 'segment ' || t.segment, t.segment, {_ENTRY}",
        ),
        _entry,
    ),
    DumpKind.FEED: _List(
        Walk(
            "moor.feed t LEFT JOIN moor.sessions s ON t.last > 0 AND s.owner = t.owner AND s.pk = t.subject "
            "LEFT JOIN moor.tombstones d ON t.last = 0 AND d.owner = t.owner AND d.n = t.subject "
            "WHERE coalesce(s.id, d.id) IS NOT NULL",
            ("t.id",),
            "t.owner, t.id, coalesce(s.id, d.id), t.last, t.count",
        ),
        lambda _, row: dumps.DumpedFeed(*row),
    ),
}
