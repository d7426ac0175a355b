"""Where a store keeps bodies that are sealed, and what it says of how it is sealed; whatever the dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from moorage.core.errors import EncryptionKeyMissing, EncryptionKeyWrong, StoreCorrupt
from moorage.stores import SEALED
from moorage.stores.rows import (
    Row,
    about_body,
    about_context,
    about_entry,
    about_head,
    json_text,
    opened,
    plain_head_text,
)
from moorage.stores.sealing import Sealer

WHY_NO_SEARCH = "this store is encrypted at rest: an index of its words would tell what is in it, so there is no search"
PURPOSE = "encryption at rest"  # the name of the store's note
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


# What says that it is sealed --------------------------------------------------------------------


class Mark(msgspec.Struct, frozen=True):
    """What a database says of how it is sealed."""

    is_on: bool
    keys: dict[str, str]  # fingerprints, by key id


def mark_of(body: str | None, where: str) -> Mark | None:
    """Return what the store's note says."""
    try:
        return None if body is None else msgspec.json.decode(body, type=Mark)
    except msgspec.DecodeError as error:
        raise StoreCorrupt(where, f"how it is sealed: {error}") from error


def check_keys(mark: Mark | None, sealer: Sealer, where: str) -> None:
    """Raise EncryptionKeyWrong for a key that the database knows otherwise."""
    known = {} if mark is None else mark.keys
    for key_id, fingerprint in sealer.fingerprints().items():
        if known.get(key_id, fingerprint) != fingerprint:
            raise EncryptionKeyWrong(key_id, where)


def is_as_wanted(known: Mark | None, sealer: Sealer) -> bool:
    """Whether a database says already what it is to say."""
    if not sealer.seals:
        return known is None or not known.is_on
    return known is not None and known.is_on and sealer.key_id in known.keys


def wanted(known: Mark | None, sealer: Sealer) -> Mark:
    """What it is to say."""
    keys = {} if known is None else dict(known.keys)
    if sealer.seals:
        keys[sealer.key_id] = sealer.fingerprints()[sealer.key_id]
    return Mark(sealer.seals, keys)


def plain_conditions(table: str) -> dict[str, str]:
    """By column, when a new row has a body that is not sealed."""
    conditions = {
        name: f"NEW.{name} IS NOT NULL AND substr(NEW.{name}, 1, {len(SEALED)}) <> '{SEALED}'"
        for name in COLUMNS[table]
    }
    return {**conditions, "content": "NEW.content IS NOT NULL"} if table == "entries" else conditions


# Where bodies are -------------------------------------------------------------------------------


class Body(NamedTuple):
    """A body, and what it belongs to."""

    column: str
    text: str  # as stored, but for what only keeps a plain one from being taken for a sealed one
    about: str
    is_sealed: bool

    def plain(self, sealer: Sealer | None) -> str:
        """What it says. Raises EncryptionKeyMissing, or ValueError if it does not open."""
        return opened(sealer, self.text, self.about) if self.is_sealed else self.text


class Place(NamedTuple):
    """How the bodies of a table are found."""

    table: str
    key: tuple[str, ...]  # columns that tell rows apart and put them in order
    columns: str
    bodies: Callable[[Row], list[Body]]  # of these columns

    def bodies_in(self, row: Row) -> list[Body]:
        """The bodies of a row that begins with its key."""
        return self.bodies(row[len(self.key) :])

    def name(self, row: Row) -> str:
        """Which row it is."""
        return "/".join(map(str, row[: len(self.key)]))


def sealed_anew(sealer: Sealer, opener: Sealer | None, bodies: list[Body]) -> dict[str, str | None]:
    """What changes, by column, when bodies are sealed with the newest key."""
    new: dict[str, str | None] = {}
    for body in bodies:
        if not (body.is_sealed and sealer.is_newest(body.text)):
            new[body.column] = sealer.seal(body.plain(opener), body.about)
    return {**new, "content": None} if "data" in new else new


def unopened(found: Iterable[tuple[str, str, Body]], opener: Sealer | None) -> list[str]:
    """Which of (table, row, body) do not open, in words; and how many nobody can look at, for want of a key."""
    problems, missing = [], dict[str, int]()
    for table, row, body in found:
        try:
            body.plain(opener)
        except EncryptionKeyMissing as error:
            missing[error.key_id] = missing.get(error.key_id, 0) + 1
        except ValueError as error:
            problems.append(f"{table} {row}: {error}")
    for key_id, count in missing.items():
        problems.append(f"{count} bodies are sealed with encryption key {key_id!r}, which is not configured")
    return problems


def of_head(row: Row) -> list[Body]:
    """From id, purpose, last_error, summary."""
    id_, *texts = row
    found = [
        body
        for column, text in zip(COLUMNS["sessions"], texts, strict=True)
        for body in _body(column, text, about_head(id_, column))
    ]
    return [body if body.is_sealed else body._replace(text=plain_head_text(body.text)) for body in found]


def of_entry(row: Row) -> list[Body]:
    """From number, kind, at, content, data."""
    number, kind, at, content, data = row
    text = data if data is not None or content is None else json_text(content)
    return _body("data", text, about_entry(number, kind, at))


def of_context(row: Row) -> list[Body]:
    """From the session's key in the store, key, version, value."""
    session, key, version, value = row
    return _body("value", value, about_context(session, key, version))


def of_item(row: Row) -> list[Body]:
    """From the session's id, id, body."""
    session, id_, body = row
    return _body("body", body, about_body("item", f"{session} {id_}"))


def of(what: str) -> Callable[[Row], list[Body]]:
    """From id, body of a run, a turn or an approval."""
    return lambda row: _body("body", row[1], about_body(what, row[0]))


def _body(column: str, text: str | None, about: str) -> list[Body]:
    return [] if text is None else [Body(column, text, about, text.startswith(SEALED))]
