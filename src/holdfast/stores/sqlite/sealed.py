"""A sealed database: what says that it is one, and how all of it is sealed.

What says so is kept in the database itself, with fingerprints of its keys, and triggers keep
plain bodies out: a process without the key, one that was started before, or a statement that
forgot to seal. Bodies from before stay readable; `rewrite` seals them, some in each
transaction, and can be interrupted and repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import apsw
import msgspec

from holdfast.core.errors import EncryptionKeyMissing, EncryptionKeyWrong, InvalidField, StoreCorrupt, Unsupported
from holdfast.stores import SEALED
from holdfast.stores.rows import (
    Row,
    about_body,
    about_context,
    about_entry,
    about_head,
    json_text,
    opened,
    plain_head_text,
)
from holdfast.stores.sealing import Sealer
from holdfast.stores.sqlite.connection import REFUSED_PLAIN, Connection, translating

CHUNK = 200  # rows sealed in one transaction: the write lock is held for milliseconds
WHY_NO_SEARCH = "this store is encrypted at rest: an index of its words would tell what is in it, so there is no search"
_PURPOSE = "encryption at rest"  # in the table `secrets`
# Every column that has a body, by its table. An entry's text is sealed in `data`.
COLUMNS = {
    "sessions": ("purpose", "last_error", "summary"),
    "entries": ("data",),
    "context": ("value",),
    "approvals": ("body",),
    "runs": ("body",),
    "turns": ("body",),
    "inbox": ("body",),
}

Progress = Callable[[int], None]  # how many bodies were looked at


# What says that it is sealed --------------------------------------------------------------------


class _Mark(msgspec.Struct, frozen=True):
    """What a database says of how it is sealed."""

    is_on: bool
    keys: dict[str, str]  # fingerprints, by key id


def is_sealed(db: Connection) -> bool:
    """Whether only sealed bodies may be written."""
    mark = _mark(db)
    return mark is not None and mark.is_on


def prepare(db: Connection) -> None:
    """Let a database that is opened with keys say so, once. Raises EncryptionKeyWrong for a key it knows otherwise."""
    sealer = db.opener
    assert sealer is not None
    known = _checked(db, sealer)
    if _is_as_wanted(known, sealer):
        return
    with translating(db.path), db.transaction():
        known = _checked(db, sealer)  # somebody may have been quicker
        if not _is_as_wanted(known, sealer):
            _write_mark(db, known, sealer)


def _is_as_wanted(known: _Mark | None, sealer: Sealer) -> bool:
    if not sealer.seals:
        return known is None or not known.is_on
    return known is not None and known.is_on and sealer.key_id in known.keys


def _mark(db: Connection) -> _Mark | None:
    row = db.one("SELECT body FROM secrets WHERE purpose = ?", (_PURPOSE,))
    try:
        return None if row is None else msgspec.json.decode(row[0], type=_Mark)
    except msgspec.DecodeError as error:
        raise StoreCorrupt(db.path, f"how it is sealed: {error}") from error


def _checked(db: Connection, sealer: Sealer) -> _Mark | None:
    mark = _mark(db)
    if mark is None:
        return None
    for key_id, fingerprint in sealer.fingerprints().items():
        if mark.keys.get(key_id, fingerprint) != fingerprint:
            raise EncryptionKeyWrong(key_id, db.path)
    return mark


def _write_mark(db: Connection, known: _Mark | None, sealer: Sealer) -> None:
    keys = {} if known is None else dict(known.keys)
    if sealer.seals:
        keys[sealer.key_id] = sealer.fingerprints()[sealer.key_id]
    sql = "INSERT INTO secrets VALUES (?, ?) ON CONFLICT (purpose) DO UPDATE SET body = excluded.body"
    db.execute(sql, (_PURPOSE, json_text(_Mark(sealer.seals, keys))))
    for name, statement in _triggers():
        db.execute(f"DROP TRIGGER IF EXISTS {name}")
        if sealer.seals:
            db.execute(statement)


def _triggers() -> Iterator[tuple[str, str]]:
    """Names, and statements that make them."""
    for table, columns in COLUMNS.items():
        conditions = {
            name: f"NEW.{name} IS NOT NULL AND substr(NEW.{name}, 1, {len(SEALED)}) <> '{SEALED}'" for name in columns
        }
        if table == "entries":
            conditions["content"] = "NEW.content IS NOT NULL"
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


class _Body(NamedTuple):
    """A body, and what it belongs to."""

    column: str
    text: str  # as stored, but for what only keeps a plain one from being taken for a sealed one
    about: str
    is_sealed: bool

    def plain(self, sealer: Sealer | None) -> str:
        """What it says. Raises EncryptionKeyMissing, or ValueError if it does not open."""
        return opened(sealer, self.text, self.about) if self.is_sealed else self.text


class _Place(NamedTuple):
    """How the bodies of a table are found."""

    table: str
    key: tuple[str, ...]  # columns that tell rows apart and put them in order
    columns: str
    bodies: Callable[[Row], list[_Body]]


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
        why = "has no key to seal with, or is switched off; `holdfast encryption-key` makes one, see docs/access.md"
        raise InvalidField("encryption", why)
    return db.sealer


_OLDER = r"SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'legacy\_%' ESCAPE '\' ORDER BY name"


def _drop_index(db: Connection) -> None:
    with db.transaction():
        db.execute("INSERT INTO search (search) VALUES ('delete-all')")
        db.execute("DELETE FROM search_marks")
        db.execute("DELETE FROM search_purges")


def _rewritten(db: Connection, place: _Place) -> Iterator[tuple[int, int, list[str]]]:
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


def _seal_rows(db: Connection, place: _Place, rows: list[Row]) -> tuple[int, list[str]]:
    changed, unread = 0, []
    found = " AND ".join(f"{name} = ?" for name in place.key)
    for row in rows:
        key = row[: len(place.key)]
        try:
            new = _sealed_anew(db, place.bodies(row))
        except ValueError as error:  # what was damaged is no better if it is lost
            unread.append(f"{place.table} {_name(place, row)}: {error}")
            continue
        if new:
            names = ", ".join(f"{name} = ?" for name in new)
            db.execute(f"UPDATE {place.table} SET {names} WHERE {found}", (*new.values(), *key))
            changed += 1
    return changed, unread


def _sealed_anew(db: Connection, bodies: list[_Body]) -> dict[str, str | None]:
    """What changes, by column."""
    assert db.sealer is not None
    new: dict[str, str | None] = {}
    for body in bodies:
        if not (body.is_sealed and db.sealer.is_newest(body.text)):
            new[body.column] = db.sealer.seal(body.plain(db.opener), body.about)
    return {**new, "content": None} if "data" in new else new


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
    problems, missing = [], dict[str, int]()
    for place in _PLACES if _mark(db) is not None else ():
        for key, body in _all_bodies(db, place):
            try:
                body.plain(db.opener)
            except EncryptionKeyMissing as error:
                missing[error.key_id] = missing.get(error.key_id, 0) + 1
            except ValueError as error:
                problems.append(f"{place.table} {key}: {error}")
    for key_id, count in missing.items():
        problems.append(f"{count} bodies are sealed with encryption key {key_id!r}, which is not configured")
    return problems


def _all_bodies(db: Connection, place: _Place) -> Iterator[tuple[str, _Body]]:
    """Every body of a table, and which row it is in."""
    for row in db.execute(f"SELECT {', '.join(place.key)}, {place.columns} FROM {place.table}"):
        for body in place.bodies(row):
            yield _name(place, row), body


def _name(place: _Place, row: Row) -> str:
    return "/".join(map(str, row[: len(place.key)]))


def _body(column: str, text: str | None, about: str) -> list[_Body]:
    return [] if text is None else [_Body(column, text, about, text.startswith(SEALED))]


def _of_head(row: Row) -> list[_Body]:
    _, id_, *texts = row
    found = [
        body
        for column, text in zip(COLUMNS["sessions"], texts, strict=True)
        for body in _body(column, text, about_head(id_, column))
    ]
    return [body if body.is_sealed else body._replace(text=plain_head_text(body.text)) for body in found]


def _of_entry(row: Row) -> list[_Body]:
    _, number, kind, at, content, data = row
    text = data if data is not None or content is None else json_text(content)
    return _body("data", text, about_entry(number, kind, at))


def _of_context(row: Row) -> list[_Body]:
    session, key, version, value = row
    return _body("value", value, about_context(session, key, version))


def _of_item(row: Row) -> list[_Body]:
    _, session, id_, body = row
    return _body("body", body, about_body("item", f"{session} {id_}"))


def _of(what: str) -> Callable[[Row], list[_Body]]:
    return lambda row: _body("body", row[2], about_body(what, row[1]))


_PLACES = (
    _Place("sessions", ("pk",), "id, purpose, last_error, summary", _of_head),
    _Place("entries", ("id",), "number, kind, at, content, data", _of_entry),
    _Place("context", ("session", "key"), "version, value", _of_context),
    _Place("approvals", ("n",), "id, body", _of("approval")),
    _Place("runs", ("n",), "id, body", _of("run")),
    _Place("turns", ("n",), "id, body", _of("turn")),
    _Place("inbox", ("n",), "(SELECT id FROM sessions WHERE pk = session), id, body", _of_item),
)
