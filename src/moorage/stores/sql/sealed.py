"""A sealed database: the mark that identifies it, and how its contents are sealed.

The mark in the database contains fingerprints of its keys. Triggers reject plain bodies from a process without
the key, from a process that was started before, or from a statement that does not encrypt. Older bodies stay
readable; `rewrite` seals them, some in each transaction, and can be interrupted and repeated.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

import msgspec

from moorage.core.errors import EncryptionKeyMissing, EncryptionKeyWrong, InvalidField, StoreCorrupt, Unsupported
from moorage.stores import REFUSED_PLAIN, SEALED
from moorage.stores.rows import (
    Row,
    about_body,
    about_entry,
    about_head,
    about_record,
    json_text,
    opened,
    plain_head_text,
)
from moorage.stores.sealing import Sealer
from moorage.stores.sql import documents
from moorage.stores.sql.db import Db, SqlJob, Walk

CHUNK = 200  # rows sealed in one transaction: SQLite's write lock is held for milliseconds
WHY_NO_SEARCH = "this store is encrypted at rest, so there is no search: an index would contain the words in plain text"
NOTE = "encryption at rest"  # the name of the store's note
SealProgress = Callable[[int], None]  # called with the number of rows examined


# The mark of an encrypted database -------------------------------------------------------------


class SealMark(msgspec.Struct, frozen=True):
    """The mark of an encrypted database, which says how it is encrypted."""

    is_on: bool = False
    keys: dict[str, str] = {}  # fingerprints, by key id


async def _mark(db: Db) -> SealMark:
    body = await documents.note(db, NOTE)
    try:
        return SealMark() if body is None else msgspec.json.decode(body, type=SealMark)
    except msgspec.DecodeError as error:
        raise StoreCorrupt(db.path, f"how it is sealed: {error}") from error


async def check_searchable(db: Db) -> None:
    """Raise Unsupported if new bodies are sealed, by this or by another process."""
    if db.sealer is not None or (await _mark(db)).is_on:
        raise Unsupported(WHY_NO_SEARCH)


async def is_marked(db: Db, sealer: Sealer) -> bool:
    """Return whether the database has the mark for these keys. Raises EncryptionKeyWrong for another key."""
    mark = await _mark(db)
    for key_id, fingerprint in sealer.fingerprints().items():
        if mark.keys.get(key_id, fingerprint) != fingerprint:
            raise EncryptionKeyWrong(key_id, db.path)
    return mark.is_on == sealer.seals and (not sealer.seals or sealer.key_id in mark.keys)


async def mark(db: Db, sealer: Sealer) -> None:
    """Mark the database as sealed, within a transaction."""
    if await is_marked(db, sealer):  # a concurrent opener was first
        return
    keys = dict((await _mark(db)).keys)
    if sealer.seals:
        keys[sealer.key_id] = sealer.fingerprints()[sealer.key_id]
    await documents.set_note(db, NOTE, json_text(SealMark(sealer.seals, keys)))
    for drop, create in _triggers(db):
        await db.run(drop)
        if sealer.seals:
            await db.run(create)


# By whether it is PostgreSQL: the statements that drop and create a trigger.
_TRIGGERS = {
    False: (
        "DROP TRIGGER IF EXISTS {name}_{table}",
        "CREATE TRIGGER {name}_{table} BEFORE {event} ON {table} WHEN {plain} "
        f"BEGIN SELECT RAISE(ABORT, '{REFUSED_PLAIN}'); END",
    ),
    True: (
        "DROP TRIGGER IF EXISTS {name} ON moor.{table}",
        "CREATE TRIGGER {name} BEFORE {event} ON moor.{table} FOR EACH ROW WHEN ({plain}) "
        "EXECUTE FUNCTION moor.refuse_plain()",
    ),
}


def _triggers(db: Db) -> list[tuple[str, str]]:
    """Return the statements that drop and make the triggers of all tables."""
    triggers = []
    for table, names in COLUMNS.items():
        plain = {
            name: f"NEW.{name} IS NOT NULL AND substr(NEW.{name}, 1, {len(SEALED)}) <> '{SEALED}'" for name in names
        }
        if table == "entries":
            plain["content"] = "NEW.content IS NOT NULL"
        new = " OR ".join(f"({each})" for each in plain.values())
        # A body that was plain before may stay plain while another column of its row changes.
        changed = " OR ".join(f"({each} AND NEW.{name} IS DISTINCT FROM OLD.{name})" for name, each in plain.items())
        for name, event, condition in (
            ("sealed", "INSERT", new),
            ("resealed", f"UPDATE OF {', '.join(plain)}", changed),
        ):
            drop, create = _TRIGGERS[db.is_postgres]
            words = {"name": name, "table": table, "event": event, "plain": condition}
            triggers.append((drop.format(**words), create.format(**words)))
    return triggers


# Where bodies are -------------------------------------------------------------------------------


class Body(NamedTuple):
    """A body, and the associated data that it is sealed with."""

    column: str
    stored: str
    about: str

    def plain(self, sealer: Sealer | None) -> str:
        """Return the plain text. Raises EncryptionKeyMissing, or ValueError if it cannot be decrypted."""
        is_sealed = self.stored.startswith(SEALED)
        return opened(sealer, self.stored, self.about) if is_sealed else plain_head_text(self.stored)


Bodies = Callable[[Row], list[Body]]


def _of_head(row: Row) -> list[Body]:
    texts = zip(_HEAD_TEXTS, row[1:], strict=True)
    return [Body(name, text, about_head(row[0], name)) for name, text in texts if text is not None]


def _of_entry(row: Row) -> list[Body]:
    number, kind, at, content, data = row
    text = data if data is not None or content is None else json_text(content)
    return [] if text is None else [Body("data", text, about_entry(number, kind, at))]


def _of_record(row: Row) -> list[Body]:
    return [Body("value", row[-1], about_record(*row[:-1]))]


def _of(what: str) -> Bodies:
    """Return a function that reads bodies: of a run, a turn or an approval by id, of an item by session and id.

    The body is the last column.
    """
    return lambda row: [Body("body", row[-1], about_body(what, " ".join(row[:-1])))]


class SealedColumns(NamedTuple):
    """How to find the bodies of a table."""

    table: str
    walk: Walk
    bodies: Bodies  # from the columns of the walk
    sealed: tuple[str, ...]

    def name(self, key: Row) -> str:
        """Return the name of a row."""
        return f"{self.table} {'/'.join(map(str, key))}"


_SESSION_ID = "(SELECT s.id FROM moor.sessions s WHERE s.owner = t.owner AND s.pk = t.session)"
_HEAD_TEXTS = ("purpose", "last_error", "summary")


def _place(table: str, key: str, columns: str, bodies: Bodies, *sealed: str, leads: str = "owner") -> SealedColumns:
    return SealedColumns(table, Walk(f"moor.{table} t", key, columns, leads), bodies, sealed or ("body",))


_RECORD = "owner, session, namespace, key"
PLACES = (
    _place("sessions", "pk", f"id, {', '.join(_HEAD_TEXTS)}", _of_head, *_HEAD_TEXTS),
    # An entry's text is sealed in `data`.
    _place("entries", "segment, number", "number, kind, at, content, data", _of_entry, "data", leads="owner, root"),
    _place("records", _RECORD, f"{_RECORD}, version, value", _of_record, "value", leads=""),
    _place("approvals", "n", "id, body", _of("approval")),
    _place("runs", "n", "id, body", _of("run")),
    _place("turns", "n", "id, body", _of("turn")),
    _place("inbox", "n", f"{_SESSION_ID}, id, body", _of("item")),
)
COLUMNS = {place.table: place.sealed for place in PLACES}


async def _all_bodies(db: Db) -> AsyncIterator[tuple[str, Body]]:
    """Yield every body, with its table and row."""
    for place in PLACES:
        after: Row | None = None
        while rows := await place.walk.rows(db, after, CHUNK):
            for key, row in rows:
                for body in place.bodies(row):
                    yield place.name(key), body
            after = rows[-1][0]


async def unopened(db: Db) -> list[str]:
    """Describe the sealed bodies that cannot be opened; count those that cannot be checked for lack of a key."""
    if not (await _mark(db)).keys:  # it was never sealed
        return []
    problems, missing = [], dict[str, int]()
    async for name, body in _all_bodies(db):
        try:
            body.plain(db.opener)
        except EncryptionKeyMissing as error:
            missing[error.key_id] = missing.get(error.key_id, 0) + 1
        except ValueError as error:
            problems.append(f"{name}: {error}")
    for key_id, count in missing.items():
        problems.append(f"{count} bodies are sealed with encryption key {key_id!r}, which is not configured")
    return problems


# Sealing existing bodies -----------------------------------------------------------------------


class Rewritten(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a rewrite."""

    key_id: str
    looked_at: int
    sealed: int
    left: list[str]  # bodies that cannot be opened or read, and stay as they are


_Step = tuple[Row | None, int, int, list[str]]  # where to continue, if not at the end, and the counts of `Rewritten`


async def count_plain(db: Db) -> int:
    """Return how many bodies `rewrite` would seal, for the first time or with another key."""
    sealer, count = _sealer(db), 0
    async for _, body in _all_bodies(db):
        count += not sealer.is_newest(body.stored)
    return count


async def rewrite(transact: Callable[[SqlJob[Any]], Awaitable[Any]], progress: SealProgress | None) -> Rewritten:
    """Seal every body with the first key, some in each transaction, and delete the search index of words.

    Plain text stays in free space of PostgreSQL's tables and in backups until they are rewritten.
    Raises EncryptionKeyMissing if something is sealed with a key that is not given.
    """
    looked_at, sealed, left = 0, 0, list[str]()
    key_id = await transact(_begin)
    for place in PLACES:
        after: Row | None = None
        while (step := await transact(partial(_rewrite_some, place=place, after=after)))[0] is not None:
            after, looked_at, sealed, left = step[0], looked_at + step[1], sealed + step[2], left + step[3]
            if progress is not None:
                progress(looked_at)
    return Rewritten(key_id=key_id, looked_at=looked_at, sealed=sealed, left=left)


# By whether it is PostgreSQL. It truncates: DELETE would leave the rows in the file, and take long.
_FORGET_WORDS = {
    False: (
        "INSERT INTO search (search) VALUES ('delete-all')",
        "DELETE FROM search_marks",
        "DELETE FROM search_purges",
    ),
    True: ("TRUNCATE moor.search, moor.search_marks",),
}


async def _begin(db: Db) -> str:
    """Delete all words and their positions; return the id of the sealing key."""
    key_id = _sealer(db).key_id
    for sql in _FORGET_WORDS[db.is_postgres]:
        await db.run(sql)
    return key_id


async def _rewrite_some(db: Db, place: SealedColumns, after: Row | None) -> _Step:
    """Seal some bodies of a table with the first key, within a transaction."""
    rows = await place.walk.rows(db, after, CHUNK)
    sealed, left = 0, list[str]()
    for key, row in rows:
        try:
            new = _sealed_anew(db, place.bodies(row))
        except ValueError as error:  # a damaged body is not improved by losing it
            left.append(f"{place.name(key)}: {error}")
            continue
        if new:
            names = ", ".join(f"{name} = ?" for name in new)
            found = " AND ".join(f"{name} = ?" for name in place.walk.key_on(db))
            await db.run(f"UPDATE moor.{place.table} SET {names} WHERE {found}", (*new.values(), *key))
            sealed += 1
    return rows[-1][0] if rows else None, len(rows), sealed, left


def _sealed_anew(db: Db, bodies: list[Body]) -> dict[str, str | None]:
    """Return the changed columns when bodies are sealed with the newest key."""
    sealer, new = _sealer(db), dict[str, str | None]()
    for body in bodies:
        if not sealer.is_newest(body.stored):
            new[body.column] = sealer.seal(body.plain(db.opener), body.about)
    return {**new, "content": None} if "data" in new else new


def _sealer(db: Db) -> Sealer:
    """Return the sealer for bodies."""
    if db.sealer is None:
        why = "has no key to seal with, or is switched off; `moorage encryption-key` makes one, see docs/access.md"
        raise InvalidField("encryption", why)
    return db.sealer
