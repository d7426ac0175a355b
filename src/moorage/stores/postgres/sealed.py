"""A sealed database: what says that it is one, and how all of it is sealed.

What says so is kept in the database itself, with fingerprints of its keys, and triggers keep
plain bodies out: a process without the key, one that was started before, or a statement that
forgot to seal. Bodies from before stay readable; `rewrite` seals them, some in each
transaction, and can be interrupted and repeated.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from moorage.core.errors import InvalidField, Unsupported
from moorage.stores.bodies import (
    COLUMNS,
    PURPOSE,
    WHY_NO_SEARCH,
    Body,
    Mark,
    Place,
    check_keys,
    is_as_wanted,
    mark_of,
    of,
    of_context,
    of_entry,
    of_head,
    of_item,
    plain_conditions,
    sealed_anew,
    unopened,
    wanted,
)
from moorage.stores.postgres.connection import REFUSED_PLAIN, Connection
from moorage.stores.rows import Row, json_text
from moorage.stores.sealing import Sealer
from moorage.stores.sql import documents

if TYPE_CHECKING:
    from moorage.stores.postgres.access import Access

CHUNK = 200  # rows sealed in one transaction
Progress = Callable[[int], None]  # how many rows were looked at

# What says that it is sealed --------------------------------------------------------------------


async def is_sealed(db: Connection) -> bool:
    """Whether only sealed bodies may be written."""
    mark = await _mark(db)
    return mark is not None and mark.is_on


async def check_searchable(db: Connection) -> None:
    """Raise Unsupported if new bodies are sealed, by whomever."""
    if db.sealer is not None or await is_sealed(db):
        raise Unsupported(WHY_NO_SEARCH)


async def prepare(db: Connection) -> None:
    """Let a database that is opened with keys say so, once. Raises EncryptionKeyWrong for a key it knows otherwise."""
    sealer = db.opener
    assert sealer is not None
    if is_as_wanted(await _checked(db, sealer), sealer):
        return
    async with db.transaction():
        await db.run("SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", (f"moorage {db.prefix} sealing",))
        known = await _checked(db, sealer)  # somebody may have been quicker
        if not is_as_wanted(known, sealer):
            await _write_mark(db, known, sealer)


async def _mark(db: Connection) -> Mark | None:
    return mark_of(await documents.note(db, PURPOSE), db.path)


async def _checked(db: Connection, sealer: Sealer) -> Mark | None:
    mark = await _mark(db)
    check_keys(mark, sealer, db.path)
    return mark


_REFUSE = f"""
CREATE OR REPLACE FUNCTION moor.refuse_plain() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'a plain body in a sealed store' USING ERRCODE = '{REFUSED_PLAIN}'; END $$
"""


async def _write_mark(db: Connection, known: Mark | None, sealer: Sealer) -> None:
    await documents.set_note(db, PURPOSE, json_text(wanted(known, sealer)))
    await db.script(_REFUSE)
    for table, name, statement in _triggers():
        await db.script(f"DROP TRIGGER IF EXISTS {name} ON moor.{table}")
        if sealer.seals:
            await db.script(statement)


def _triggers() -> Iterator[tuple[str, str, str]]:
    """Tables, names, and statements that make them."""
    for table in COLUMNS:
        conditions = plain_conditions(table)
        new = " OR ".join(f"({plain})" for plain in conditions.values())
        # One that was plain before may stay so, while something else in its row changes.
        changed = " OR ".join(
            f"({plain} AND NEW.{name} IS DISTINCT FROM OLD.{name})" for name, plain in conditions.items()
        )
        does = "EXECUTE FUNCTION moor.refuse_plain()"
        begin = f"ON moor.{table} FOR EACH ROW WHEN"
        yield table, "sealed", f"CREATE TRIGGER sealed BEFORE INSERT {begin} ({new}) {does}"
        yield table, "resealed", f"CREATE TRIGGER resealed BEFORE UPDATE {begin} ({changed}) {does}"


# Sealing what is there --------------------------------------------------------------------------


class Rewritten(msgspec.Struct, frozen=True, kw_only=True):
    """What sealing a database did."""

    key_id: str
    looked_at: int
    sealed: int
    left: list[str]  # what does not open or read, and stays as it is


class _Step(NamedTuple):
    after: Row | None  # where to go on; None at the end of a table
    looked_at: int
    sealed: int
    left: list[str]


async def rewrite(access: Access, progress: Progress | None = None) -> Rewritten:
    """Seal every body with the first key, and forget all words.

    What was plain stays in free space of the tables, and in backups, until they are written anew.
    Raises EncryptionKeyMissing if something is sealed with a key that is not given.
    """
    looked_at, sealed, left = 0, 0, list[str]()
    key_id = await access.transact(_begin)
    for place in PLACES:
        async for step in _steps(access, place):
            looked_at, sealed = looked_at + step.looked_at, sealed + step.sealed
            left += step.left
            if progress is not None:
                progress(looked_at)
    return Rewritten(key_id=key_id, looked_at=looked_at, sealed=sealed, left=left)


async def _steps(access: Access, place: Place) -> AsyncIterator[_Step]:
    step = await access.transact(partial(_rewrite_some, place=place, after=None))
    while step.after is not None:
        yield step
        step = await access.transact(partial(_rewrite_some, place=place, after=step.after))


async def _rewrite_some(db: Connection, place: Place, after: Row | None) -> _Step:
    """Seal some bodies of a table with the first key, within a transaction."""
    keys = ", ".join(place.key)
    where = "" if after is None else f"WHERE ({keys}) > ({', '.join('?' * len(place.key))})"
    sql = f"SELECT {keys}, {place.columns} FROM moor.{place.table} t {where} ORDER BY {keys} LIMIT {CHUNK}"
    rows = [tuple(row) for row in await db.all(f"{sql} FOR UPDATE OF t", after or ())]
    changed, unread = 0, list[str]()
    for row in rows:
        try:
            new = sealed_anew(_needed(db), db.opener, place.bodies_in(row))
        except ValueError as error:  # what was damaged is no better if it is lost
            unread.append(f"{place.table} {place.name(row)}: {error}")
            continue
        if new:
            await _update(db, place, row, new)
            changed += 1
    return _Step(rows[-1][: len(place.key)] if rows else None, len(rows), changed, unread)


async def _update(db: Connection, place: Place, row: Row, new: dict[str, Any]) -> None:
    names = ", ".join(f"{name} = ?" for name in new)
    found = " AND ".join(f"{name} = ?" for name in place.key)
    sql = f"UPDATE moor.{place.table} SET {names} WHERE {found}"
    await db.run(sql, (*new.values(), *row[: len(place.key)]))


def _needed(db: Connection) -> Sealer:
    """What bodies are sealed with."""
    if db.sealer is None:
        why = "has no key to seal with, or is switched off; `moorage encryption-key` makes one, see docs/access.md"
        raise InvalidField("encryption", why)
    return db.sealer


async def _begin(db: Connection) -> str:
    """Forget all words, and where they were; which key it is done with."""
    key_id = _needed(db).key_id
    await db.run("TRUNCATE moor.search, moor.search_marks")  # deleted rows would stay in the file, and take long
    return key_id


# Where bodies are -------------------------------------------------------------------------------


async def unreadable(db: Connection) -> list[str]:
    """Which sealed bodies do not open, in words; and how many nobody can look at, for want of a key."""
    if await _mark(db) is None:
        return []
    found = [(place.table, *each) for place in PLACES async for each in _all_bodies(db, place)]
    return unopened(found, db.opener)


async def count_plain(db: Connection) -> int:
    """How many bodies `rewrite` would seal, for the first time or with another key."""
    sealer, count = _needed(db), 0
    for place in PLACES:
        async for _, body in _all_bodies(db, place):
            count += not (body.is_sealed and sealer.is_newest(body.text))
    return count


async def _all_bodies(db: Connection, place: Place) -> AsyncIterator[tuple[str, Body]]:
    """Which row it is in, and every body of a table."""
    after: Row | None = None
    keys, marks = ", ".join(place.key), ", ".join("?" * len(place.key))
    while True:
        where = "" if after is None else f"WHERE ({keys}) > ({marks})"
        sql = f"SELECT {keys}, {place.columns} FROM moor.{place.table} t {where} ORDER BY {keys} LIMIT {CHUNK}"
        rows = await db.all(sql, after or ())
        for row in rows:
            for body in place.bodies_in(row):
                yield place.name(row), body
        if not rows:
            return
        after = rows[-1][: len(place.key)]


_SESSION_ID = "(SELECT s.id FROM moor.sessions s WHERE s.owner = t.owner AND s.pk = t.session)"
PLACES = (
    Place("sessions", ("owner", "pk"), "id, purpose, last_error, summary", of_head),
    Place("entries", ("owner", "root", "segment", "number"), "number, kind, at, content, data", of_entry),
    Place("context", ("owner", "session", "key"), "session, key, version, value", of_context),
    Place("approvals", ("owner", "n"), "id, body", of("approval")),
    Place("runs", ("owner", "n"), "id, body", of("run")),
    Place("turns", ("owner", "n"), "id, body", of("turn")),
    Place("inbox", ("owner", "n"), f"{_SESSION_ID}, id, body", of_item),
)
