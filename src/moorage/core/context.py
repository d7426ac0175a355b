"""Context: the session's keyed memory beside the log, with expiry and versions.

It is a namespace of the session's records. The session counts the writes to it (`context_version`), and the version of
a key is that count at its last write: a key that is deleted and written again never has an old version.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from moorage.core.brief import brief
from moorage.core.codec import check_json, encode
from moorage.core.errors import InvalidField, TooLarge, VersionConflict
from moorage.core.ids import check_label
from moorage.core.record import (
    CONTEXT,
    JSON,
    DropRecords,
    PutRecord,
    Record,
    RecordName,
    RecordNeeds,
    RecordQuery,
    RecordWrite,
)
from moorage.core.session import Change, View

MAX_VALUE_BYTES = 1024 * 1024
MAX_KEYS = 10_000


@brief("value", "version", "expires_at")
class ContextItem(Struct, frozen=True, kw_only=True):
    """A value of the context."""

    value: Any
    version: int
    updated_at: datetime
    expires_at: datetime | None = None

    def lives(self, at: datetime) -> bool:
        """Return whether it has not expired."""
        return self.expires_at is None or at < self.expires_at


def item_of(record: Record) -> ContextItem:
    """Return a record of the context as an item."""
    return ContextItem(
        value=record.content, version=record.version, updated_at=record.updated_at, expires_at=record.expires_at
    )


def record_of(key: str, item: ContextItem) -> Record:
    """Return an item of the context as a record."""
    value = encode(item.value)
    return Record(
        namespace=CONTEXT, key=key, value=value, form=JSON, size=len(value), version=item.version,
        updated_at=item.updated_at, expires_at=item.expires_at,
    )  # fmt: skip


def items_in(records: Iterable[Record]) -> dict[str, ContextItem]:
    """Return the context among some records, by key."""
    return {record.key: item_of(record) for record in records if record.namespace == CONTEXT}


# Rules: each needs the keys that it writes, or `EVERY_KEY` --------------------------------------

EVERY_KEY = RecordNeeds(below=(RecordName(CONTEXT, ""),))
WHOLE = RecordQuery(namespace=CONTEXT, limit=1 << 31)


def needs_keys(keys: Iterable[str]) -> RecordNeeds:
    """Return the records that a rule about some keys needs."""
    return RecordNeeds(tuple(RecordName(CONTEXT, key) for key in keys))


def put_key(
    view: View, values: dict[str, Any], *, at: datetime, ttl: timedelta | None = None, expected: int | None = None
) -> Change:
    """Store a value under a key. `expected` is the version of the key, 0 if it must be new."""
    view.session.check_open()
    [key] = values
    _check_version(view, expected, _version_of(view, key, at), f"key {key} of ")
    return _written(view, values, (), at, ttl)


def merge_keys(
    view: View, values: dict[str, Any], *, at: datetime, ttl: timedelta | None = None, expected: int | None = None
) -> Change:
    """Store several values; other keys stay. `expected` is the version of the whole context."""
    view.session.check_open()
    _check_version(view, expected, view.session.context_version)
    return _written(view, values, (), at, ttl)


def replace_all(
    view: View, values: dict[str, Any], *, at: datetime, ttl: timedelta | None = None, expected: int | None = None
) -> Change:
    """Replace the whole context by these values."""
    change = merge_keys(view, values, at=at, ttl=ttl, expected=expected)
    others = [DropRecords(name) for name in sorted(_known(view)) if name.key not in values]
    return replace(change, records=(*others, *change.records))


def drop_key(view: View, key: str, *, at: datetime, expected: int | None = None) -> Change:
    """Delete a key. Deleting what does not exist changes nothing."""
    view.session.check_open()
    version = _version_of(view, key, at)
    _check_version(view, expected, version, f"key {key} of ")
    return _written(view, {}, [RecordName(CONTEXT, key)], at) if version else Change(session=view.session)


def drop_all(view: View, *, at: datetime, expected: int | None = None) -> Change:
    """Delete everything."""
    view.session.check_open()
    _check_version(view, expected, view.session.context_version)
    known = _known(view)
    if not any(record.lives(at) for record in known.values()):
        return Change(session=view.session)
    return _written(view, {}, sorted(known), at)


def _known(view: View) -> dict[RecordName, Record]:
    """Return the records of the context that the view has, including expired ones."""
    return view.records.found if view.records is not None else {}


def _version_of(view: View, key: str, at: datetime) -> int:
    old = _known(view).get(RecordName(CONTEXT, key))
    return old.version if old is not None and old.lives(at) else 0


def _written(
    view: View, values: dict[str, Any], drop: Sequence[RecordName], at: datetime, ttl: timedelta | None = None
) -> Change:
    head = replace(view.session, context_version=view.session.context_version + 1, updated_at=at)
    known, expires_at = _known(view), None if ttl is None else at + ttl
    writes: list[RecordWrite] = [DropRecords(name) for name in drop]
    for key, value in values.items():
        item = ContextItem(value=value, version=head.context_version, updated_at=at, expires_at=expires_at)
        old = known.get(RecordName(CONTEXT, key))
        writes.append(PutRecord(record_of(key, item), 0 if old is None else old.version))
    return Change(session=head, records=tuple(writes))


def _check_version(view: View, expected: int | None, actual: int, what: str = "the context of ") -> None:
    if expected is not None and expected != actual:
        raise VersionConflict(view.session.session_id, expected, actual, what)


# Checks -----------------------------------------------------------------------------------------


def check_values(values: object) -> dict[str, Any]:
    """Return a JSON object whose values are each within the limit."""
    if not isinstance(values, dict):
        raise InvalidField("context", "must be a JSON object")
    if len(values) > MAX_KEYS:
        raise InvalidField("context", f"has {len(values)} keys, at most {MAX_KEYS} are allowed")
    for key, value in values.items():
        check_key(key)
        check_value(key, value)
    return values


def check_key(key: object) -> str:
    """Return a key: a short text."""
    return check_label("key", key)


def check_value(key: str, value: Any) -> None:
    """Raise an error unless this is a JSON value within the limit."""
    check_json(value, key)
    size = len(encode(value))
    if size > MAX_VALUE_BYTES:
        raise TooLarge("context value", size, MAX_VALUE_BYTES)
