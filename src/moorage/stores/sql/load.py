"""Load the dump of another store. The rows of each kind are written at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from moorage.core import dump as dumps
from moorage.core.approval import Approval
from moorage.core.delegation import Delegation
from moorage.core.document import LOAD_MARK
from moorage.core.dump import DumpRecord
from moorage.core.family import Tombstone
from moorage.core.inbox import Item
from moorage.core.once import Once
from moorage.core.run import Run
from moorage.core.session import Session
from moorage.stores.rows import (
    APPROVALS,
    ENTRY,
    PINNED,
    TOMBSTONE,
    Fields,
    Table,
    entry_row,
    micros,
    tombstone_row,
)
from moorage.stores.session_rows import new_fields
from moorage.stores.sql import counts, documents, once
from moorage.stores.sql.db import Db
from moorage.stores.sql.records import COLUMNS, OWNERS, row_of
from moorage.stores.work_rows import ITEMS, RUNS, TURNS

# Columns that SQLite lacks: only its sessions have an owner, and a segment alone identifies entries.
_NOT_ON_SQLITE = {
    "sessions": ("revision",),
    "entries": ("owner", "root"),
    "lineage": ("owner", "segment_root"),
    "feed": ("owner", "root"),
}


async def load(db: Db, records: Iterable[DumpRecord], mark: str | None) -> None:
    """Write records, and the mark of the progress."""
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
    rows = [{"owner": owner, **dict(zip(names, tombstone_row(one), strict=True))} for owner, one in owned]
    await _insert(db, "tombstones", rows)


async def _load_sessions(db: Db, records: list[dumps.DumpedSession]) -> None:
    known = await _found(db, _KEYS, (pair for one in records for pair in _relatives(one.session)))
    known |= {(one.session.owner, one.session.session_id): one.serial for one in records}
    await _load_owners(db, {one.session.owner for one in records})
    await _insert(db, "sessions", [_session_fields(db, record, known) for record in records])
    await _load_lineages(db, records)
    if not db.is_postgres:
        heads = [(one.serial, one.session) for one in records]
        labels = [{"session": pk, "label": label, "owner": head.owner} for pk, head in heads for label in head.labels]
        await _insert(db, "labels", labels)
    await _keep_spent(db, max(record.serial for record in records))


async def _load_owners(db: Db, owners: set[str]) -> None:
    sql = "INSERT INTO moor.owners (name) VALUES (?) ON CONFLICT DO NOTHING"
    await db.many(sql, [(owner,) for owner in sorted(owners)])


def _relatives(session: Session) -> list[tuple[str, str]]:
    names = (session.parent_session_id, session.root_session_id)
    return [(session.owner, name) for name in names if name is not None]


def _session_fields(db: Db, record: dumps.DumpedSession, known: dict[tuple[str, Any], int]) -> Fields:
    session, lineage = record.session, record.lineage
    parent = known.get((session.owner, session.parent_session_id))
    root = known.get((session.owner, session.root_session_id))
    family = (parent, None if root == record.serial else root)
    fields = new_fields(session, db.sealer, family, lineage[-1][1] if lineage else 0)
    return {**fields, "pk": record.serial, "revision": 1, "has_pins": bool(lineage)}


async def _load_lineages(db: Db, records: list[dumps.DumpedSession]) -> None:
    shared = [(one.session.owner, one.serial, segment, upto) for one in records for segment, upto in one.lineage]
    roots = await _roots(db, ((owner, segment) for owner, _, segment, _ in shared))
    rows = [
        {"owner": owner, "session": serial, "segment": segment, "segment_root": roots[owner, segment], "upto": upto}
        for owner, serial, segment, upto in shared
    ]
    await _insert(db, "lineage", rows)


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
    of_sessions = ((one.owner, one.session_id) for one in records if one.session_id is not None)
    known = await _found(db, _KEYS, of_sessions)
    rows = []
    for one in records:
        pk = OWNERS if one.session_id is None else known[one.owner, one.session_id]
        columns = zip(COLUMNS.split(", "), row_of(db, one.owner, pk, one.record), strict=True)
        rows.append({"owner": one.owner, "session": pk, **dict(columns)})
    await _insert(db, "records", rows)


async def _load_values(db: Db, values: list[tuple[str, Any]], *places: Fields, table: Table[Any]) -> None:
    """Write approvals, runs, turns or items with their owners."""
    known = await _found(db, _KEYS, ((owner, value.session_id) for owner, value in values))
    rows = [
        {"owner": owner, "session": known[owner, value.session_id], **table.new_by_name(value, db.sealer)}
        for owner, value in values
    ]
    if table is TURNS:
        roots = await _roots(db, ((row["owner"], row["session"]) for row in rows))
        rows = [{**row, "root": roots[row["owner"], row["session"]]} for row in rows]
    await _insert(
        db, table.name, [{**row, **place} for row, place in zip(rows, places or ({},) * len(rows), strict=True)]
    )


async def _load_turns(db: Db, records: list[dumps.DumpedTurn]) -> None:
    values = [(record.owner, record.turn) for record in records]
    await _load_values(db, values, *({"n": record.number} for record in records), table=TURNS)
    if db.is_postgres:
        await _continue_after(db, "turns_n_seq", max(record.number for record in records))


_FEED_ENDS = (
    "INSERT INTO moor.owners (name, feed_end) VALUES (?, ?) ON CONFLICT (name) DO UPDATE "
    "SET feed_end = greatest(owners.feed_end, excluded.feed_end)"
)


async def _load_feed(db: Db, records: list[dumps.DumpedFeed]) -> None:
    told = [(record.owner, record.session_id) for record in records if record.last]
    known = await _found(db, _KEYS, told)
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
    Once: once.write,
}
_WRITERS: dict[type[Any], Callable[[Db, Any], Awaitable[None]]] = {
    dumps.DumpedSession: _load_sessions,
    dumps.DumpedEntry: _load_entries,
    dumps.DumpedRecord: _load_records,
    dumps.DumpedTurn: _load_turns,
    dumps.DumpedFeed: _load_feed,
    dumps.DumpedDocument: lambda db, some: documents.write(db, [one.document for one in some]),
}
