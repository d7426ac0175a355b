"""Records: values by namespace and key, of a session or (session 0) of its owner.

Values are text: JSON as it is, bytes in base64. So sealing and PostgreSQL's JSON payload take them like other bodies.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from moorage.core.errors import SessionCorrupt, StoreCorrupt
from moorage.core.record import (
    BYTES,
    FLOOR,
    HIGHEST,
    NEXT,
    DropRecords,
    PutRecord,
    Record,
    RecordName,
    RecordNeeds,
    RecordQuery,
    RecordsView,
    RecordWrite,
    TouchRecords,
    has_floor,
    raised_floor,
)
from moorage.ports import RecordDecision
from moorage.stores import SEALED, Stale
from moorage.stores.rows import (
    Fields,
    Row,
    about_record,
    instant,
    instant_or_none,
    json_text,
    micros,
    micros_or_none,
    opened,
)
from moorage.stores.sql.db import Db
from moorage.stores.sql.lookup import key_of, may_be_ref

FEW = 8  # keys that a statement takes as separate values
OWNERS = 0  # the session number of records that belong to their owner
COLUMNS = "namespace, key, form, size, parts, version, updated_at, expires_at, value"
_WITHOUT_VALUE = COLUMNS.removesuffix("value") + "CASE WHEN parts > 0 THEN value ELSE '' END"
_OURS = "FROM moor.records WHERE owner = ? AND session = ?"
_BELOW = "namespace = ? AND key >= ? AND key < ?"


class RecordScope(NamedTuple):
    """The session that records belong to; OWNERS for those of their owner."""

    pk: int
    session_id: str = ""


OF_OWNER = RecordScope(OWNERS)


# Base64 by msgspec: the standard library takes two and six times as long, and a graph reads large states at every step.


def record_of(db: Db, owner: str, session: int, row: Row) -> Record:
    """Return a record from COLUMNS. Raises ValueError if its value is invalid."""
    namespace, key, form, size, parts, version, updated_at, expires_at, text = row
    if text.startswith(SEALED):
        text = opened(db.opener, text, about_record(owner, session, namespace, key, version))
    is_text = parts > 0 or form != BYTES
    return Record(
        namespace=namespace, key=key, value=text.encode() if is_text else msgspec.convert(text, bytes), form=form,
        size=size, parts=parts, version=version, updated_at=instant(updated_at), expires_at=instant_or_none(expires_at),
    )  # fmt: skip


def row_of(db: Db, owner: str, session: int, record: Record) -> Row:
    """Return a record as COLUMNS, its value sealed if new bodies are."""
    is_text = record.parts > 0 or record.form != BYTES
    text = record.value.decode() if is_text else msgspec.to_builtins(record.value)
    if db.sealer is not None:
        text = db.sealer.seal(text, about_record(owner, session, record.namespace, record.key, record.version))
    times = micros(record.updated_at), micros_or_none(record.expires_at)
    return record.namespace, record.key, record.form, record.size, record.parts, record.version, *times, text


# Reading ----------------------------------------------------------------------------------------


async def records(db: Db, owner: str, ref: str | None, names: list[RecordName], at: datetime) -> list[Record | None]:
    scope = await _scope(db, owner, ref)
    found = {record.name: record for record in await _named(db, owner, scope, names, COLUMNS)}
    living = {name: record for name, record in found.items() if record.lives(at)}
    return [living.get(name) for name in names]


_OF_SESSIONS = f"""
    SELECT s.pk, s.id, {", ".join(f"r.{name}" for name in COLUMNS.split(", "))} FROM moor.sessions s
    ORDERED JOIN moor.records r ON r.owner = s.owner AND r.session = s.pk AND r.namespace = ? AND r.key = ?
    WHERE s.owner = ? AND s.id IN LIST(?::text)
"""


async def records_of(db: Db, owner: str, session_ids: list[str], name: RecordName, at: datetime) -> list[Record | None]:
    ids = db.listed([each for each in session_ids if may_be_ref(each)])
    found = {}
    for pk, session_id, *row in await db.all(_OF_SESSIONS, (name.namespace, name.key, owner, ids)):
        with suppress(ValueError):
            found[session_id] = record_of(db, owner, pk, tuple(row))
    living = {session_id: record for session_id, record in found.items() if record.lives(at)}
    return [living.get(session_id) for session_id in session_ids]


async def list_records(db: Db, owner: str, ref: str | None, query: RecordQuery, at: datetime) -> list[Record]:
    scope = await _scope(db, owner, ref)
    sql, values = f"SELECT {COLUMNS if query.values else _WITHOUT_VALUE} {_OURS}", [owner, scope.pk]
    if query.namespace is not None:
        sql, values = f"{sql} AND namespace = ?", [*values, query.namespace]
    if query.prefix:
        sql, values = f"{sql} AND key >= ? AND key < ?", [*values, query.prefix, query.prefix + HIGHEST]
    if query.after is not None:
        sign = "<" if query.descending else ">"
        sql, values = f"{sql} AND (namespace, key) {sign} (?, ?)", [*values, query.after.namespace, query.after.key]
    order = "namespace DESC, key DESC" if query.descending else "namespace, key"
    sql = f"{sql} AND (expires_at IS NULL OR expires_at > ?) ORDER BY {order} LIMIT ?"
    return _read(db, owner, scope, await db.all(sql, (*values, micros(at), query.limit)))


async def load(db: Db, owner: str, session: RecordScope, needs: RecordNeeds) -> RecordsView:
    """Return the records that a decision has to know."""
    found = await _named(db, owner, session, needs.names, _WITHOUT_VALUE)
    last: dict[RecordName, Record] = {}
    below = f"SELECT {_WITHOUT_VALUE} {_OURS} AND {_BELOW}"
    for start in needs.last:
        rows = await db.all(f"{below} ORDER BY key DESC LIMIT 1", (owner, session.pk, *_range(start)))
        if rows:
            [last[start]] = _read(db, owner, session, rows)
    for start in needs.below:
        found += _read(db, owner, session, await db.all(below, (owner, session.pk, *_range(start))))
    return RecordsView({record.name: record for record in found}, last)


async def load_memory(db: Db, owner: str, needs: RecordNeeds) -> RecordsView:
    """Return the owner's records that a decision has to know."""
    if db.lock():  # a concurrent commit won: from now on take the lock
        await db.all("SELECT pg_advisory_xact_lock(hashtextextended('moor. memory of ' || ?, 0))", (owner,))
    return await load(db, owner, OF_OWNER, needs)


async def _scope(db: Db, owner: str, ref: str | None) -> RecordScope:
    return OF_OWNER if ref is None else RecordScope(*(await key_of(db, owner, ref))[:2])


async def _named(db: Db, owner: str, scope: RecordScope, names: Any, columns: str) -> list[Record]:
    parts, values = [], list[Any]()
    for namespace, some in groupby(sorted(set(names)), key=lambda name: name.namespace):
        keys = [name.key for name in some]
        is_short = len(keys) <= FEW  # SQLite has to walk a list given as one value
        wanted = f"IN (?{', ?' * (len(keys) - 1)})" if is_short else "IN LIST(?::text)"
        parts.append(f"SELECT {columns} {_OURS} AND namespace = ? AND key {wanted}")
        values += owner, scope.pk, namespace, *(keys if is_short else (db.listed(keys),))
    return _read(db, owner, scope, await db.all(" UNION ALL ".join(parts), values)) if parts else []


def _read(db: Db, owner: str, scope: RecordScope, rows: list[Row]) -> list[Record]:
    try:
        return [record_of(db, owner, scope.pk, row) for row in rows]
    except ValueError as error:
        if scope.pk == OWNERS:
            raise StoreCorrupt(db.path, f"memory of {owner}: {error}") from error
        raise SessionCorrupt(scope.session_id, f"record: {error}") from error


def _range(name: RecordName, is_prefix: bool = True) -> tuple[str, str, str]:
    """Return a namespace, the first key of a range, and where the range ends."""
    return name.namespace, name.key, name.key + (HIGHEST if is_prefix else NEXT)


# Writing ----------------------------------------------------------------------------------------

_NAMES, _RANGE = COLUMNS.split(", "), ("namespace", "key", "end")
_INSERT = (
    f"INSERT INTO moor.records (owner, session, {COLUMNS}) VALUES (?, ?{', ?' * len(_NAMES)}) ON CONFLICT DO NOTHING"
)
_UPDATE = (
    f"UPDATE moor.records SET {', '.join(f'{name} = ?' for name in _NAMES[2:])} "
    "WHERE owner = ? AND session = ? AND namespace = ? AND key = ? AND version = ?"
)
_THESE = f"WHERE owner = ? AND session = ? AND {_BELOW}"


async def write(db: Db, owner: str, session: int, writes: tuple[RecordWrite, ...]) -> None:
    """Write records in order. Raises Stale if one has changed since the decision saw it."""
    for each in writes:
        match each:
            case PutRecord(record, was):
                row = row_of(db, owner, session, record)
                update = (*row[2:], owner, session, *row[:2], was)
                written = await (db.run(_UPDATE, update) if was else db.run(_INSERT, (owner, session, *row)))
                if written != 1:
                    raise Stale(f"record {record.key!r} of {record.namespace} has changed")
            case DropRecords(name, is_prefix):
                await db.run(f"DELETE FROM moor.records {_THESE}", (owner, session, *_range(name, is_prefix)))
            case TouchRecords(name, expires_at, is_prefix):
                sql = f"UPDATE moor.records SET expires_at = ? {_THESE}"
                await db.run(sql, (micros_or_none(expires_at), owner, session, *_range(name, is_prefix)))


def payload_of(db: Db, owner: str, session: int, writes: tuple[RecordWrite, ...]) -> list[Fields]:
    """Return writes in the form that PostgreSQL's function `write_records` takes."""
    payload: list[Fields] = []
    for each in writes:
        match each:
            case PutRecord(record, was):
                row = dict(zip(_NAMES, row_of(db, owner, session, record), strict=True))
                payload.append({"op": "update" if was else "insert", "was": was, **row})
            case DropRecords(name, is_prefix):
                payload.append({"op": "drop", **dict(zip(_RANGE, _range(name, is_prefix), strict=True))})
            case TouchRecords(name, expires_at, is_prefix):
                where = dict(zip(_RANGE, _range(name, is_prefix), strict=True))
                payload.append({"op": "touch", "expires_at": micros_or_none(expires_at), **where})
    return payload


async def write_memory(db: Db, owner: str, needs: RecordNeeds, decide: RecordDecision) -> tuple[RecordWrite, ...]:
    writes = decide(await load_memory(db, owner, needs))
    if db.is_postgres:
        payload = json_text(payload_of(db, owner, OWNERS, writes))
        await db.run("SELECT moor.write_records(?, 0, ?::text::jsonb)", (owner, payload))
    else:
        await write(db, owner, OWNERS, writes)
    return writes


async def has_sealed(db: Db, owner: str, scope: RecordScope) -> bool:
    """Return whether a value is sealed for this session."""
    return await db.one(f"SELECT 1 {_OURS} AND substr(value, 1, 1) = '~' LIMIT 1", (owner, scope.pk)) is not None


async def copies(db: Db, owner: str, scope: RecordScope) -> tuple[PutRecord, ...]:
    """Return the writes of copies of all records of a session, expired or not."""
    rows = await db.all(f"SELECT {COLUMNS} {_OURS}", (owner, scope.pk))
    return tuple(PutRecord(record, 0) for record in _read(db, owner, scope, rows))


async def copy(db: Db, owner: str, source: int, target: int) -> None:
    """Copy the records of a session to a fork unchanged."""
    into = f"INSERT INTO moor.records (owner, session, {COLUMNS})"
    await db.run(f"{into} SELECT owner, ?, {COLUMNS} {_OURS}", (target, owner, source))


_EXPIRED = (
    "SELECT owner, session, namespace, key, version FROM moor.records WHERE expires_at <= ? ORDER BY expires_at LIMIT ?"
)
_PURGE = "DELETE FROM moor.records WHERE owner = ? AND session = ? AND namespace = ? AND key = ? AND version = ?"


async def purge(db: Db, at: datetime, limit: int) -> int:
    """Delete some expired records; return their number."""
    expired = await db.all(f"{_EXPIRED}{db.lock()}", (micros(at), limit))
    await db.many(_PURGE, expired)
    floors: dict[tuple[str, int], int] = {}
    for owner, session, namespace, key, version in expired:
        if has_floor(RecordName(namespace, key)):
            floors[owner, session] = max(version, floors.get((owner, session), 0))
    for (owner, session), version in floors.items():
        rows = await db.all(f"SELECT {COLUMNS} {_OURS} AND namespace = ?{db.lock()}", (owner, session, FLOOR))
        old = record_of(db, owner, session, rows[0]) if rows else None
        await write(db, owner, session, tuple(raised_floor(old, version, at)))
    return len(expired)
