"""A sealed database: what says that it is one, and how all of it is sealed.

What says so is kept in the database itself, with fingerprints of its keys, and triggers keep
plain bodies out: a process without the key, one that was started before, or a statement that
forgot to seal. Bodies from before stay readable; `rewrite` seals them, some in each
transaction, and can be interrupted and repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import apsw
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
from moorage.stores.rows import Row, json_text
from moorage.stores.sealing import Sealer
from moorage.stores.sql import documents
from moorage.stores.sqlite.connection import REFUSED_PLAIN, Connection, translating
from moorage.stores.sqlite.driven import Driven, drive

CHUNK = 200  # rows sealed in one transaction: the write lock is held for milliseconds
Progress = Callable[[int], None]  # how many bodies were looked at


# What says that it is sealed --------------------------------------------------------------------


def is_sealed(db: Connection) -> bool:
    """Whether only sealed bodies may be written."""
    mark = _mark(db)
    return mark is not None and mark.is_on


def prepare(db: Connection) -> None:
    """Let a database that is opened with keys say so, once. Raises EncryptionKeyWrong for a key it knows otherwise."""
    sealer = db.opener
    assert sealer is not None
    known = _checked(db, sealer)
    if is_as_wanted(known, sealer):
        return
    with translating(db.path), db.transaction():
        known = _checked(db, sealer)  # somebody may have been quicker
        if not is_as_wanted(known, sealer):
            _write_mark(db, known, sealer)


def _mark(db: Connection) -> Mark | None:
    return mark_of(drive(documents.note(Driven(db), PURPOSE)), db.path)


def _checked(db: Connection, sealer: Sealer) -> Mark | None:
    mark = _mark(db)
    check_keys(mark, sealer, db.path)
    return mark


def _write_mark(db: Connection, known: Mark | None, sealer: Sealer) -> None:
    drive(documents.set_note(Driven(db), PURPOSE, json_text(wanted(known, sealer))))
    for name, statement in _triggers():
        db.execute(f"DROP TRIGGER IF EXISTS {name}")
        if sealer.seals:
            db.execute(statement)


def _triggers() -> Iterator[tuple[str, str]]:
    """Names, and statements that make them."""
    for table in COLUMNS:
        conditions = plain_conditions(table)
        new = " OR ".join(f"({plain})" for plain in conditions.values())
        # One that was plain before may stay so, while something else in its row changes.
        changed = " OR ".join(f"({plain} AND NEW.{name} IS NOT OLD.{name})" for name, plain in conditions.items())
        refuse = f"BEGIN SELECT RAISE(ABORT, '{REFUSED_PLAIN}'); END"
        watched = ", ".join(conditions)
        yield f"sealed_{table}", f"CREATE TRIGGER sealed_{table} BEFORE INSERT ON {table} WHEN {new} {refuse}"
        yield (
            f"resealed_{table}",
            f"CREATE TRIGGER resealed_{table} BEFORE UPDATE OF {watched} ON {table} WHEN {changed} {refuse}",
        )


def check_searchable(db: Connection) -> None:
    """Raise Unsupported if new bodies are sealed, by whomever."""
    if db.sealer is not None or is_sealed(db):
        raise Unsupported(WHY_NO_SEARCH)


# Sealing what is there --------------------------------------------------------------------------


class Rewritten(msgspec.Struct, frozen=True, kw_only=True):
    """What sealing a database did."""

    key_id: str
    looked_at: int
    sealed: int
    left: list[str]  # what does not open or read, and stays as it is
    plain_tables: list[str]  # of an older orchestrator: they are kept as they were
    is_compact: bool  # whether what was plain is gone from the file's free pages, too


def rewrite(db: Connection, progress: Progress | None = None) -> Rewritten:
    """Seal every body with the first key, and forget what was plain.

    Raises EncryptionKeyMissing if something is sealed with a key that is not given.
    """
    sealer = _needed(db)
    looked_at, sealed, left = 0, 0, list[str]()
    with translating(db.path):
        db.raw.pragma("secure_delete", True)  # pragmas are given so
        _drop_index(db)
        for place in _PLACES:
            for seen, changed, unread in _rewritten(db, place):
                looked_at, sealed = looked_at + seen, sealed + changed
                left += unread
                if progress is not None:
                    progress(looked_at)
        return Rewritten(
            key_id=sealer.key_id,
            looked_at=looked_at,
            sealed=sealed,
            left=left,
            plain_tables=[row[0] for row in db.all(_OLDER)],
            is_compact=_compact(db),
        )


def count_plain(db: Connection) -> int:
    """How many bodies `rewrite` would seal, for the first time or with another key."""
    sealer = _needed(db)
    return sum(
        not (body.is_sealed and sealer.is_newest(body.text)) for place in _PLACES for _, body in _all_bodies(db, place)
    )


def _needed(db: Connection) -> Sealer:
    if db.sealer is None:
        why = "has no key to seal with, or is switched off; `moorage encryption-key` makes one, see docs/access.md"
        raise InvalidField("encryption", why)
    return db.sealer


_OLDER = r"SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'legacy\_%' ESCAPE '\' ORDER BY name"


def _drop_index(db: Connection) -> None:
    with db.transaction():
        db.execute("INSERT INTO search (search) VALUES ('delete-all')")
        db.execute("DELETE FROM search_marks")
        db.execute("DELETE FROM search_purges")


def _rewritten(db: Connection, place: Place) -> Iterator[tuple[int, int, list[str]]]:
    """Walk a table; how many rows each transaction has seen, and changed, and what it had to leave."""
    last: tuple[Any, ...] | None = None
    keys, marks = ", ".join(place.key), ", ".join("?" * len(place.key))
    order = f"ORDER BY {keys} LIMIT {CHUNK}"
    while True:
        where = "" if last is None else f"WHERE ({keys}) > ({marks})"
        with db.transaction():
            rows = db.all(f"SELECT {keys}, {place.columns} FROM {place.table} {where} {order}", last or ())
            changed, unread = _seal_rows(db, place, rows)
        if not rows:
            return
        last = rows[-1][: len(place.key)]
        yield len(rows), changed, unread


def _seal_rows(db: Connection, place: Place, rows: list[Row]) -> tuple[int, list[str]]:
    changed, unread = 0, []
    found = " AND ".join(f"{name} = ?" for name in place.key)
    for row in rows:
        key = row[: len(place.key)]
        try:
            new = sealed_anew(_needed(db), db.opener, place.bodies_in(row))
        except ValueError as error:  # what was damaged is no better if it is lost
            unread.append(f"{place.table} {place.name(row)}: {error}")
            continue
        if new:
            names = ", ".join(f"{name} = ?" for name in new)
            db.execute(f"UPDATE {place.table} SET {names} WHERE {found}", (*new.values(), *key))
            changed += 1
    return changed, unread


def _compact(db: Connection) -> bool:
    """Write the file anew, without pages that are free and remember; False if others kept it from that."""
    try:
        db.execute("VACUUM")
        busy = db.raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]
    except apsw.BusyError:
        return False
    return not busy


# Where bodies are -------------------------------------------------------------------------------


def unreadable(db: Connection) -> list[str]:
    """Which sealed bodies do not open, in words; and how many nobody can look at, for want of a key."""
    places = _PLACES if _mark(db) is not None else ()
    return unopened(((place.table, *found) for place in places for found in _all_bodies(db, place)), db.opener)


def _all_bodies(db: Connection, place: Place) -> Iterator[tuple[str, Body]]:
    """Which row it is in, and every body of a table."""
    for row in db.execute(f"SELECT {', '.join(place.key)}, {place.columns} FROM {place.table}"):
        for body in place.bodies_in(row):
            yield place.name(row), body


_PLACES = (
    Place("sessions", ("pk",), "id, purpose, last_error, summary", of_head),
    Place("entries", ("id",), "number, kind, at, content, data", of_entry),
    Place("context", ("session", "key"), "session, key, version, value", of_context),
    Place("approvals", ("n",), "id, body", of("approval")),
    Place("runs", ("n",), "id, body", of("run")),
    Place("turns", ("n",), "id, body", of("turn")),
    Place("inbox", ("n",), "(SELECT id FROM sessions WHERE pk = session), id, body", of_item),
)
