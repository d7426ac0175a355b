"""Dump all data of a store, and load the dump of another store of any kind.

Rows are read in order of a key; a place in a list is the key of the last row, as JSON. Loaded rows of each kind are
written at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import msgspec
from msgspec.structs import astuple

from moorage.core import dump as dumps
from moorage.core.approval import Approval
from moorage.core.document import LOAD_MARK, NOT_COPIED
from moorage.core.dump import DumpKind, DumpRecord
from moorage.core.errors import StoreCorrupt
from moorage.core.family import Tombstone
from moorage.core.inbox import Item
from moorage.core.once import Once
from moorage.core.policy import Delegation
from moorage.core.query import Page
from moorage.core.run import Run
from moorage.stores.rows import (
    APPROVALS,
    ENTRY,
    PINNED,
    TOMBSTONE,
    WHOLE_ITEM_OF_T,
    Fields,
    Row,
    Table,
    approval_of,
    entry_of,
    entry_row,
    instant,
    json_text,
    micros,
    tombstone_of,
)
from moorage.stores.session_rows import new_fields, session_of
from moorage.stores.sql import counts, documents
from moorage.stores.sql.counts import DELEGATION, delegation_of
from moorage.stores.sql.db import Db, Walk
from moorage.stores.sql.documents import document_of
from moorage.stores.sql.lookup import HEAD_OF_S, OF_SESSION
from moorage.stores.sql.records import COLUMNS, OWNERS, record_of, row_of
from moorage.stores.work_rows import ITEMS, RUNS, TURNS, item_of, run_of, turn_of

_List = tuple[Walk, Callable[[Db, Row], DumpRecord]]  # how the records of a kind are read


async def dump(db: Db, kind: DumpKind, limit: int, cursor: str | None = None) -> Page[DumpRecord]:
    walk, record = _ON_BOTH.get(kind) or (_BY_DIALECT[db.is_postgres][kind], _READERS[kind])
    rows = await walk.rows(db, None if cursor is None else msgspec.json.decode(cursor), limit)
    return Page([record(db, row) for _, row in rows], json_text(rows[-1][0]) if len(rows) == limit else None)


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
        return dumps.DumpedRecord(owner, session_id, record_of(db, owner, session, tuple(columns)))
    except ValueError as error:  # it cannot be opened, or is invalid
        raise StoreCorrupt(db.path, f"record {columns[1]} of {session_id or owner}: {error}") from error


_ENTRY = ", ".join(f"t.{column}" for column in ENTRY.split(", "))
_RECORD = ", ".join(f"t.{column}" for column in COLUMNS.split(", "))
_NAME = "t.owner, t.session, t.namespace, t.key"
_KINDS_NOT_COPIED = ", ".join(f"'{kind}'" for kind in NOT_COPIED)


def _of_owner(table: str, columns: str, value_of: Callable[[Db, Row], dumps.OwnedValue]) -> _List:
    """Return how to read values of owners; `value_of` gets the columns."""
    walk = Walk(table, "t.n", f"t.owner, {columns}")
    return walk, lambda db, row: dumps.DumpedValue(row[0], value_of(db, row[1:]))


def _of_session(table: str, columns: str, value_of: Callable[[Db, Row], dumps.OwnedValue]) -> _List:
    return _of_owner(f"moor.{table} t {OF_SESSION}", columns, value_of)


_MAYBE_OF_SESSION = "LEFT JOIN moor.sessions s ON s.owner = t.owner AND s.pk = t.session"
_DOCUMENTS = f"moor.documents WHERE kind NOT IN ({_KINDS_NOT_COPIED})"
_ON_BOTH: dict[DumpKind, _List] = {
    DumpKind.TOMBSTONE: _of_owner("moor.tombstones t", TOMBSTONE, lambda _, row: tombstone_of(row[1:])),
    DumpKind.DELEGATION: _of_owner("moor.delegations t", f"{DELEGATION}, t.n", lambda _, row: delegation_of(row)),
    DumpKind.APPROVAL: _of_session("approvals", "t.body, t.id, s.id", lambda db, row: approval_of(row, db.opener)),
    DumpKind.RUN: _of_session("runs", "t.body, t.id, s.id", run_of),
    DumpKind.TURN: (
        Walk(f"moor.turns t {OF_SESSION}", "t.n", "t.owner, t.n, t.body, t.id, s.id"),
        lambda db, row: dumps.DumpedTurn(row[0], row[1], turn_of(db, row[2:])),
    ),
    DumpKind.ITEM: _of_session("inbox", f"s.id, {WHOLE_ITEM_OF_T}", lambda db, row: item_of(db, row[1:], row[0])),
    DumpKind.RECORD: (
        Walk(f"moor.records t {_MAYBE_OF_SESSION}", _NAME, f"t.owner, s.id, t.session, {_RECORD}", leads=""),
        _record,
    ),
    DumpKind.ONCE: (
        Walk("moor.once", "owner, operation, key", "owner, operation, key, digest, ref, at", leads=""),
        lambda _, row: dumps.DumpedValue(row[0], Once(row[1], row[2], row[3], row[4], instant(row[5]))),
    ),
    DumpKind.DOCUMENT: (
        Walk(_DOCUMENTS, "kind, key", "kind, key, body, expires_at", leads=""),
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
_ENTRIES_ON_SQLITE = "moor.entries t LEFT JOIN moor.sessions s ON s.pk = t.segment WHERE t.segment > 0"
_FEED_ON_SQLITE = (
    "moor.feed t ORDERED JOIN moor.owners o ON o.no = t.id >> 40 "
    "LEFT JOIN moor.sessions s ON t.last > 0 AND s.pk = t.subject "
    "LEFT JOIN moor.tombstones d ON t.last = 0 AND d.n = t.subject WHERE coalesce(s.id, d.id) IS NOT NULL"
)
_FEED_ON_POSTGRES = (
    "moor.feed t LEFT JOIN moor.sessions s ON t.last > 0 AND s.owner = t.owner AND s.pk = t.subject "
    "LEFT JOIN moor.tombstones d ON t.last = 0 AND d.owner = t.owner AND d.n = t.subject "
    "WHERE coalesce(s.id, d.id) IS NOT NULL"
)
_EVENT = "coalesce(s.id, d.id), t.last, t.count"
_BY_DIALECT = {  # by whether it is PostgreSQL
    False: {
        DumpKind.SESSION: Walk("moor.sessions s", "s.pk", f"{HEAD_OF_S}, ({_LINEAGE})"),
        DumpKind.ENTRY: Walk(_ENTRIES_ON_SQLITE, "t.id", f"{_WHOSE}, t.segment, {_ENTRY}"),
        DumpKind.FEED: Walk(_FEED_ON_SQLITE, "t.id", f"o.name, t.id - (o.no << 40), {_EVENT}"),
    },
    True: {
        DumpKind.SESSION: Walk(
            "moor.sessions s", "s.pk", f"{HEAD_OF_S}, ({_LINEAGE} AND l.owner = s.owner)", leads="s.owner"
        ),
        DumpKind.ENTRY: Walk(
            "moor.entries t", "t.root, t.segment, t.number", f"t.owner, 'segment ' || t.segment, t.segment, {_ENTRY}"
        ),
        DumpKind.FEED: Walk(_FEED_ON_POSTGRES, "t.id", f"t.owner, t.id, {_EVENT}"),
    },
}
_READERS: dict[DumpKind, Callable[[Db, Row], DumpRecord]] = {
    DumpKind.SESSION: _session,
    DumpKind.ENTRY: _entry,
    DumpKind.FEED: lambda _, row: dumps.DumpedFeed(*row),
}


# Loading ----------------------------------------------------------------------------------------

# Columns that SQLite lacks: only its sessions have an owner, and a segment alone identifies entries.
_NOT_ON_SQLITE = {
    "sessions": ("revision",),
    "entries": ("owner", "root"),
    "lineage": ("owner", "segment_root"),
    "feed": ("owner", "root"),
}


async def load(db: Db, records: Iterable[DumpRecord], mark: str | None) -> None:
    for kind, some in groupby(records, dumps.type_of):
        group = list(some)
        if kind in _OWNED:
            await _OWNED[kind](db, [(one.owner, one.value) for one in group if isinstance(one, dumps.DumpedValue)])
        else:
            await _WRITERS[kind](db, group)
    await documents.set_note(db, LOAD_MARK, mark)


async def _insert(db: Db, table: str, rows: Sequence[Fields]) -> None:
    """Write rows with the same columns, in their order."""
    if not rows:
        return
    lacking = () if db.is_postgres else _NOT_ON_SQLITE.get(table, ())
    names = [name for name in rows[0] if name not in lacking]
    sql = f"INSERT INTO moor.{table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    await db.many(sql, [[row[name] for name in names] for row in rows])


async def _keep_spent(db: Db, highest: int) -> None:
    """Let the keys of new sessions begin after the highest loaded one."""
    if db.is_postgres:
        await _continue_after(db, "sessions_pk_seq", highest)
    else:
        await db.run("UPDATE spent_keys SET pk = max(pk, ?)", (highest,))


async def _continue_after(db: Db, sequence: str, number: int) -> None:
    """Let a sequence of PostgreSQL continue after a number."""
    sql = f"SELECT setval('moor.{sequence}', greatest(?::bigint, last_value)) FROM moor.{sequence}"
    await db.all(sql, (number,))


_KEYS = "SELECT id, pk FROM moor.sessions WHERE owner = ? AND id IN LIST(?::text)"
_TOMBSTONES = "SELECT id, n FROM moor.tombstones WHERE owner = ? AND id IN LIST(?::text)"
_ROOTS = "SELECT pk, coalesce(root, pk) FROM moor.sessions NOT INDEXED WHERE owner = ? AND pk IN LIST(?::bigint)"


async def _found(db: Db, sql: str, pairs: Iterable[tuple[str, Any]]) -> dict[tuple[str, Any], int]:
    """Return the ids that a statement finds for pairs of owner and name, in one query per owner."""
    wanted: dict[str, set[Any]] = {}
    for owner, name in pairs:
        wanted.setdefault(owner, set()).add(name)
    found = {}
    for owner, names in wanted.items():
        for name, value in await db.all(sql, (owner, db.listed(sorted(names)))):
            found[owner, name] = value
    return found


async def _roots(db: Db, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Return the roots of sessions by their keys. A segment whose session was deleted is its own root."""
    wanted = set(places)
    found = await _found(db, _ROOTS, wanted)
    return {place: found.get(place, place[1]) for place in wanted}


async def _load_tombstones(db: Db, owned: list[tuple[str, Tombstone]]) -> None:
    names = TOMBSTONE.split(", ")[1:]
    rows = [{"owner": owner, **dict(zip(names, astuple(one), strict=True))} for owner, one in owned]
    await _insert(db, "tombstones", [{**row, "deleted_at": micros(row["deleted_at"])} for row in rows])


async def _load_sessions(db: Db, records: list[dumps.DumpedSession]) -> None:
    heads = [one.session for one in records]
    relatives = [(head.owner, name) for head in heads for name in (head.parent_session_id, head.root_session_id)]
    known = await _found(db, _KEYS, (relative for relative in relatives if relative[1] is not None))
    known |= {(one.session.owner, one.session.session_id): one.serial for one in records}
    await _load_owners(db, {head.owner for head in heads})
    await _insert(db, "sessions", [_session_fields(db, record, known) for record in records])
    shared = [(one.session.owner, one.serial, segment, upto) for one in records for segment, upto in one.lineage]
    roots = await _roots(db, ((owner, segment) for owner, _, segment, _ in shared))
    lineage = [
        {"owner": owner, "session": serial, "segment": segment, "segment_root": roots[owner, segment], "upto": upto}
        for owner, serial, segment, upto in shared
    ]
    await _insert(db, "lineage", lineage)
    if not db.is_postgres:
        pairs = [(one.serial, one.session) for one in records]
        labels = [{"session": pk, "label": label, "owner": head.owner} for pk, head in pairs for label in head.labels]
        await _insert(db, "labels", labels)
    await _keep_spent(db, max(record.serial for record in records))


async def _load_owners(db: Db, owners: set[str]) -> None:
    sql = "INSERT INTO moor.owners (name) VALUES (?) ON CONFLICT DO NOTHING"
    await db.many(sql, [(owner,) for owner in sorted(owners)])


def _session_fields(db: Db, record: dumps.DumpedSession, known: dict[tuple[str, Any], int]) -> Fields:
    session, lineage = record.session, record.lineage
    parent = known.get((session.owner, session.parent_session_id))
    root = known.get((session.owner, session.root_session_id))
    family = (parent, None if root == record.serial else root)
    fields = new_fields(session, db.sealer, family, lineage[-1][1] if lineage else 0)
    return {**fields, "pk": record.serial, "revision": 1, "has_pins": bool(lineage)}


async def _load_entries(db: Db, records: list[dumps.DumpedEntry]) -> None:
    roots = await _roots(db, ((record.owner, record.segment) for record in records))
    names = ["segment", *ENTRY.split(", ")]
    rows = []
    for owner, segment, entry in ((one.owner, one.segment, one.entry) for one in records):
        columns = zip(names, entry_row(entry, segment, micros(entry.at), db.sealer), strict=True)
        rows.append({"owner": owner, "root": roots[owner, segment], **dict(columns)})
    await _insert(db, "entries", rows)
    pinned = sorted({(row["owner"], row["segment"]) for row in rows if row["kind"] in PINNED})
    await db.many("UPDATE moor.sessions SET has_pins = true WHERE owner = ? AND pk = ?", pinned)
    await _keep_spent(db, max(record.segment for record in records))


async def _load_records(db: Db, records: list[dumps.DumpedRecord]) -> None:
    known = await _found(db, _KEYS, ((one.owner, one.session_id) for one in records if one.session_id is not None))
    rows = []
    for one in records:
        pk = OWNERS if one.session_id is None else known[one.owner, one.session_id]
        columns = zip(COLUMNS.split(", "), row_of(db, one.owner, pk, one.record), strict=True)
        rows.append({"owner": one.owner, "session": pk, **dict(columns)})
    await _insert(db, "records", rows)


async def _rows_of(db: Db, values: list[tuple[str, Any]], table: Table[Any]) -> list[Fields]:
    """Return approvals, runs, turns or items with their owners as rows."""
    known = await _found(db, _KEYS, ((owner, value.session_id) for owner, value in values))
    return [
        {"owner": owner, "session": known[owner, value.session_id], **table.new_by_name(value, db.sealer)}
        for owner, value in values
    ]


async def _load_values(db: Db, values: list[tuple[str, Any]], table: Table[Any]) -> None:
    await _insert(db, table.name, await _rows_of(db, values, table))


async def _load_turns(db: Db, records: list[dumps.DumpedTurn]) -> None:
    rows = await _rows_of(db, [(record.owner, record.turn) for record in records], TURNS)
    roots = await _roots(db, ((row["owner"], row["session"]) for row in rows))
    for row, record in zip(rows, records, strict=True):
        row |= {"root": roots[row["owner"], row["session"]], "n": record.number}
    await _insert(db, "turns", rows)
    if db.is_postgres:
        await _continue_after(db, "turns_n_seq", max(record.number for record in records))


_FEED_ENDS = (
    "INSERT INTO moor.owners (name, feed_end) VALUES (?, ?) ON CONFLICT (name) DO UPDATE "
    "SET feed_end = greatest(owners.feed_end, excluded.feed_end)"
)


async def _load_feed(db: Db, records: list[dumps.DumpedFeed]) -> None:
    known = await _found(db, _KEYS, ((record.owner, record.session_id) for record in records if record.last))
    roots = await _roots(db, ((owner, pk) for (owner, _), pk in known.items()))
    gone = await _found(db, _TOMBSTONES, ((record.owner, record.session_id) for record in records if not record.last))
    await _load_owners(db, {record.owner for record in records})
    starts = {record.owner: await db.feed_start(record.owner) or 0 for record in records}
    rows = []
    for record in records:
        name = (record.owner, record.session_id)
        subject = known[name] if record.last else gone[name]
        root = roots[record.owner, subject] if record.last else 0
        place = {"owner": record.owner, "id": starts[record.owner] + record.cursor, "subject": subject, "root": root}
        rows.append({**place, "last": record.last, "count": record.count})
    await _insert(db, "feed", rows)
    if db.is_postgres:
        await db.many(_FEED_ENDS, sorted({record.owner: record.cursor for record in records}.items()))


_OWNED: dict[type[Any], Callable[[Db, Any], Awaitable[None]]] = {  # of pairs of owner and value
    Tombstone: _load_tombstones,
    Approval: partial(_load_values, table=APPROVALS),
    Run: partial(_load_values, table=RUNS),
    Item: partial(_load_values, table=ITEMS),
    Delegation: counts.write,
    Once: documents.write_once,
}
_WRITERS: dict[type[Any], Callable[[Db, Any], Awaitable[None]]] = {
    dumps.DumpedSession: _load_sessions,
    dumps.DumpedEntry: _load_entries,
    dumps.DumpedRecord: _load_records,
    dumps.DumpedTurn: _load_turns,
    dumps.DumpedFeed: _load_feed,
    dumps.DumpedDocument: lambda db, some: documents.write(db, [one.document for one in some]),
}
