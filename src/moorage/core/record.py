"""Records: opaque values beside the log, by namespace and key, of a session or of its owner.

A record has a version of its own: 1 when it is new, one more with every write. A writer may name the version that it
expects. The highest version that was deleted, or purged after it expired, is kept (in the record `FLOOR`), and new
records begin above it: a version never comes back with another value. Writing sets the time to live anew, reading does
not; an expired record is absent on the very next read.

A value of more than `MAX_INLINE` bytes is written in parts first (namespace `.parts`, each with a short time to live).
The record then names its parts and keeps them alive in the commit that makes it visible, so no commit carries many
megabytes.

Uses no clock and no randomness.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from moorage.core.brief import brief
from moorage.core.codec import decode, is_text
from moorage.core.duration import check_ttl
from moorage.core.errors import InvalidField, MoorageError, TooLarge, error_from
from moorage.core.ids import check_label

if TYPE_CHECKING:
    from moorage.core.entry import Message
    from moorage.core.session import Change, Stamp, View

MAX_INLINE = 1 << 20  # bytes of a value in one record
MAX_VALUE = 64 << 20  # bytes of a value in parts
MAX_WRITES = 1000  # records written in one commit
MAX_MESSAGES = 10_000  # that go with them
MAX_COMMIT = 4 << 20  # bytes of their values
MAX_NAMESPACE = 128  # characters
MAX_KEY = 1024  # bytes of a key
CONTEXT = ".context"  # the namespace of a session's context
FLOOR = ".floor"  # the namespace and the key of the record whose version is the highest that was deleted
PARTS = ".parts"  # the namespace of parts; a key is an upload's id, a slash and five digits
PART_TTL = timedelta(hours=1)  # of a part that no record names yet
NEXT = "\1"  # no other key sorts between a key and that key followed by this
HIGHEST = "\U0010ffff"  # sorts after every key; no key has it
DIGITS = 12  # of the number at the end of an appended key

JSON, BYTES = "json", "bytes"


class RecordName(Struct, frozen=True, order=True):
    """The namespace and the key of a record."""

    namespace: str
    key: str


@brief("namespace", "key", "version", "size", "updated_at", "expires_at")
class Record(Struct, frozen=True, kw_only=True):
    """One value. A record in parts has the id of its upload as its value."""

    namespace: str
    key: str
    value: bytes
    form: str  # JSON or BYTES
    size: int  # bytes of the whole value
    version: int
    updated_at: datetime
    expires_at: datetime | None = None
    parts: int = 0  # how many parts hold the value; 0: the record itself holds it

    @property
    def name(self) -> RecordName:
        """Return its namespace and key."""
        return RecordName(self.namespace, self.key)

    @property
    def content(self) -> Any:
        """Return the value as it was written: bytes, or a JSON value."""
        return decode(self.value) if self.form == JSON else self.value

    def lives(self, at: datetime) -> bool:
        """Return whether it has not expired."""
        return self.expires_at is None or at < self.expires_at

    def without_value(self) -> Record:
        """Return the record without its value: decisions do not read it."""
        return self if self.parts else replace(self, value=b"")


class RecordQuery(Struct, frozen=True, kw_only=True):
    """A query for records: their namespace (None: all) and the prefix of their keys, in byte order."""

    namespace: str | None = None
    prefix: str = ""
    after: RecordName | None = None  # the last record of the previous page
    limit: int = 100
    descending: bool = False
    values: bool = True  # whether values are read

    def admits(self, name: RecordName) -> bool:
        """Return whether a record belongs to the list and comes after the last one seen."""
        if self.namespace not in (None, name.namespace) or not name.key.startswith(self.prefix):
            return False
        if self.after is None:
            return True
        here, seen = sort_key(name), sort_key(self.after)
        return here < seen if self.descending else here > seen


def sort_key(name: RecordName) -> tuple[bytes, bytes]:
    """Return the key by which records are sorted."""
    return name.namespace.encode(), name.key.encode()


# Requests: what a caller asks for ----------------------------------------------------------------


class Put(Struct, frozen=True, kw_only=True, tag_field="op", tag="put", forbid_unknown_fields=True):
    """Write a value under a key."""

    namespace: str
    key: str
    value: bytes
    form: str = BYTES
    ttl: float | None = None
    version: int | None = None  # the version it must have; 0: it must not exist
    keep: bool = False  # leave an existing record as it is
    parts: int = 0  # the value is in so many parts, and `value` names their upload
    size: int | None = None  # of a value in parts


class Append(Struct, frozen=True, kw_only=True, tag_field="op", tag="append", forbid_unknown_fields=True):
    """Write a value under the next number after a prefix."""

    namespace: str
    prefix: str
    value: bytes
    form: str = BYTES
    ttl: float | None = None
    parts: int = 0
    size: int | None = None


class Drop(Struct, frozen=True, kw_only=True, tag_field="op", tag="delete", forbid_unknown_fields=True):
    """Delete a record, or all records of a namespace with this prefix. Deleting nothing is harmless."""

    namespace: str
    key: str
    prefix: bool = False
    version: int | None = None  # of a single record


class Touch(Struct, frozen=True, kw_only=True, tag_field="op", tag="touch", forbid_unknown_fields=True):
    """Set the time to live of a record, or of all records with this prefix; values and versions stay."""

    namespace: str
    key: str
    prefix: bool = False
    ttl: float | None = None


RecordRequest = Put | Append | Drop | Touch
RecordRequests = Sequence[RecordRequest]


# Reads and writes of a decision ------------------------------------------------------------------


class RecordNeeds(Struct, frozen=True):
    """The existing records that a decision needs, including expired ones."""

    names: tuple[RecordName, ...] = ()
    last: tuple[RecordName, ...] = ()  # namespaces and prefixes: the record with the highest key of each
    below: tuple[RecordName, ...] = ()  # namespaces and prefixes: all records


class RecordsView(Struct, frozen=True):
    """The requested records that exist, without their values (see `Record.without_value`)."""

    found: dict[RecordName, Record] = {}  # by name, named or below a prefix
    last: dict[RecordName, Record] = {}  # by namespace and prefix


class PutRecord(Struct, frozen=True):
    """Store a record in place of the one with version `was` (0: none). A store refuses any other version."""

    record: Record
    was: int

    @property
    def name(self) -> RecordName:
        """Return the name of its record."""
        return self.record.name


class DropRecords(Struct, frozen=True):
    """Delete a record, or all with this prefix."""

    name: RecordName
    is_prefix: bool = False


class TouchRecords(Struct, frozen=True):
    """Set the time at which a record, or all with this prefix, expire; None: never."""

    name: RecordName
    expires_at: datetime | None
    is_prefix: bool = False


RecordWrite = PutRecord | DropRecords | TouchRecords


# Rules ------------------------------------------------------------------------------------------


def needs_of(requests: RecordRequests) -> RecordNeeds:
    """Return the records that a store must read before these requests can be decided."""
    names, last, below = [RecordName(FLOOR, FLOOR)], [], []
    for each in requests:
        match each:
            case Append():
                last.append(RecordName(each.namespace, each.prefix))
            case Drop(prefix=True):
                below.append(RecordName(each.namespace, each.key))
            case Put() | Drop():
                names.append(RecordName(each.namespace, each.key))
    return RecordNeeds(tuple(names), tuple(last), tuple(below))


def decide_records(requests: Iterable[RecordRequest], view: RecordsView, at: datetime) -> tuple[RecordWrite, ...]:
    """Return the writes that fulfil the requests, in order. Raises VersionConflict."""
    draft = _Draft(view, at)
    for each in requests:
        match each:
            case Put():
                draft.put(each)
            case Append():
                draft.append(each)
            case Drop():
                draft.drop(each)
            case Touch():
                name = RecordName(each.namespace, each.key)
                draft.writes.append(TouchRecords(name, _end(each.ttl, at), each.prefix))
    return (*draft.writes, *raised_floor(view.found.get(RecordName(FLOOR, FLOOR)), draft.floor, at))


def has_floor(name: RecordName) -> bool:
    """Return whether the versions of this record count its writes and nothing else."""
    return not name.namespace.startswith(".")


def raised_floor(old: Record | None, version: int, at: datetime) -> list[PutRecord]:
    """Return the write that stores the highest deleted version, if it is higher than the one stored."""
    was = 0 if old is None else old.version
    record = Record(namespace=FLOOR, key=FLOOR, value=b"", form=BYTES, size=0, version=version, updated_at=at)
    return [PutRecord(record, was)] if version > was else []


class _Draft:
    """The writes so far, and the records as these writes leave them."""

    def __init__(self, view: RecordsView, at: datetime) -> None:
        self.writes: list[RecordWrite] = []
        self._view, self._at = view, at
        self._found = dict(view.found)
        floor = self._found.pop(RecordName(FLOOR, FLOOR), None)
        self.floor = 0 if floor is None else floor.version
        self._numbers: dict[RecordName, int] = {}

    def put(self, wish: Put) -> None:
        old = self._living(RecordName(wish.namespace, wish.key), wish.version)
        if old is None or not wish.keep:
            self._store(wish, wish.key)

    def append(self, wish: Append) -> None:
        start = RecordName(wish.namespace, wish.prefix)
        if start not in self._numbers:
            self._numbers[start] = _number_of(self._view.last.get(start), wish.prefix)
        self._numbers[start] += 1
        self._store(wish, f"{wish.prefix}{self._numbers[start]:0{DIGITS}d}")

    def drop(self, wish: Drop) -> None:
        name = RecordName(wish.namespace, wish.key)
        if wish.prefix:
            gone = [each for each in self._found if each.namespace == name.namespace and each.key.startswith(name.key)]
            self._numbers[name] = 0
        else:
            self._living(name, wish.version)
            gone = [name] if name in self._found else []
        self._drop_parts(self._found[each] for each in gone)
        if gone or wish.prefix:
            self.writes.append(DropRecords(name, wish.prefix))
        for each in gone:
            self.floor = max(self.floor, self._found.pop(each).version)

    def _living(self, name: RecordName, expected: int | None) -> Record | None:
        """Return the record if it has not expired; raise VersionConflict if it is not at the expected version."""
        old = self._found.get(name)
        old = old if old is not None and old.lives(self._at) else None
        actual = 0 if old is None else old.version
        if expected is not None and expected != actual:
            raise _conflict(name, expected, actual)
        return old

    def _store(self, wish: Put | Append, key: str) -> None:
        name = RecordName(wish.namespace, key)
        old = self._found.get(name)
        was = 0 if old is None else old.version
        end = _end(wish.ttl, self._at)
        size = len(wish.value) if wish.size is None else wish.size
        record = Record(
            namespace=wish.namespace, key=key, value=wish.value, form=wish.form, size=size, parts=wish.parts,
            version=(was or self.floor) + 1, updated_at=self._at, expires_at=end,
        )  # fmt: skip
        if old is not None:
            self._drop_parts([old])
        self.writes.append(PutRecord(record, was))
        if record.parts:
            self.writes.append(TouchRecords(_parts_of(record), end, is_prefix=True))
        self._found[name] = record

    def _drop_parts(self, records: Iterable[Record]) -> None:
        self.writes += [DropRecords(_parts_of(each), is_prefix=True) for each in records if each.parts]


def _conflict(name: RecordName, expected: int, actual: int) -> MoorageError:
    """Return a VersionConflict that speaks of a record."""
    where = f"record {name.key!r} of {name.namespace}"
    detail = f"{where} is at version {actual}, not {expected}; read it again and repeat the change"
    facts = {"namespace": name.namespace, "key": name.key, "expected": expected, "actual": actual}
    return error_from("version_conflict", detail, facts)


def _parts_of(record: Record) -> RecordName:
    return RecordName(PARTS, f"{record.value.decode()}/")


def part_key(upload: str, number: int) -> str:
    """Return the key of one part of a value."""
    return f"{upload}/{number:05d}"


def _number_of(last: Record | None, prefix: str) -> int:
    if last is None:
        return 0
    digits = last.key[len(prefix) :]
    if not (len(digits) == DIGITS and digits.isdecimal()):
        raise InvalidField("prefix", f"{prefix!r} has a record {last.key!r}, which is not numbered; use another prefix")
    return int(digits)


def _end(ttl: float | None, at: datetime) -> datetime | None:
    lifetime = check_ttl(ttl)
    return None if lifetime is None else at + lifetime


def write_with_messages(
    view: View,
    messages: list[Message],
    writes: RecordRequests,
    stamp: Stamp,
    token: str | None = None,
    memory: RecordRequests = (),
) -> Change:
    """Return one change that writes records of a session and its owner, and appends messages new to the log."""
    from moorage.core.session import Change, unsaid

    view.session.check_open()
    fresh = unsaid(messages, view.seen)
    spoken = view.session.append(fresh, stamp, token=token) if fresh else Change(session=view.session)
    return replace(
        spoken,
        records=decide_records(writes, view.records or RecordsView(), stamp.at),
        memory=decide_records(memory, view.memory or RecordsView(), stamp.at),
    )


# Checks -----------------------------------------------------------------------------------------


def check_namespace(namespace: object, *, parts: bool = False) -> str:
    """Return a namespace: a short text that does not begin with a dot."""
    checked = check_label("namespace", namespace, MAX_NAMESPACE)
    if checked.startswith(".") and not (parts and checked == PARTS):
        raise InvalidField("namespace", f"is {checked!r}; names that begin with a dot are kept for Moorage")
    return checked


def check_record_limit(limit: object) -> int:
    """Return the number of records of a page. Raises InvalidField."""
    if type(limit) is not int or not 1 <= limit <= MAX_WRITES:
        raise InvalidField("limit", f"is {limit!r}; give 1 to {MAX_WRITES}")
    return limit


def check_record_key(key: object, field: str = "key", *, empty: bool = False) -> str:
    """Return a key, or a prefix if it may be empty: text of up to 1,024 bytes without a null character."""
    if not isinstance(key, str) or not (key or empty) or "\0" in key or HIGHEST in key or not is_text(key):
        raise InvalidField(field, "must be some text without null characters and U+10FFFF")
    if len(key.encode()) > MAX_KEY:
        raise InvalidField(field, f"has {len(key.encode())} bytes, at most {MAX_KEY} are allowed")
    return key


def check_requests(*parts: RecordRequests) -> None:
    """Raise InvalidRequest for more than one commit may write; each part is for another set of records."""
    for part in parts:
        _check_part(part)
    size = sum(len(value) for part in parts for value in _values(part))
    if size > MAX_COMMIT:
        raise TooLarge("records of one commit", size, MAX_COMMIT)


def _check_part(requests: RecordRequests) -> None:
    if len(requests) > MAX_WRITES:
        raise InvalidField("writes", f"has {len(requests)} items, at most {MAX_WRITES} are allowed")
    for each in requests:
        check_namespace(each.namespace, parts=True)
        if isinstance(each, Append):
            check_record_key(each.prefix + "0" * DIGITS, "prefix")
        else:
            check_record_key(each.key, empty=isinstance(each, (Drop, Touch)) and each.prefix)
        if isinstance(each, (Put, Append)):
            _check_value(each)
    names = [RecordName(each.namespace, each.key) for each in requests if isinstance(each, Put)]
    if len(set(names)) < len(names):
        raise InvalidField("writes", "puts one key twice")


def check_restored(records: Iterable[Record]) -> None:
    """Raise InvalidRequest for a record that no rule could have written."""
    seen: set[RecordName] = set()
    for each in records:
        if each.name in seen:
            raise InvalidField("key", f"{each.key!r} of {each.namespace} comes twice")
        seen.add(each.name)
        if each.namespace not in (CONTEXT, FLOOR):
            check_namespace(each.namespace, parts=True)
        check_record_key(each.key)
        size = each.size if each.parts else None
        _check_value(
            Put(namespace=each.namespace, key=each.key, value=each.value, form=each.form, parts=each.parts, size=size)
        )


def _check_value(wish: Put | Append) -> None:
    if wish.form not in (JSON, BYTES):
        raise InvalidField("form", f"is {wish.form!r}; use {JSON!r} or {BYTES!r}")
    if len(wish.value) > MAX_INLINE:
        raise TooLarge("record value", len(wish.value), MAX_INLINE)
    check_ttl(wish.ttl)
    if wish.parts == 0:
        if wish.size not in (None, len(wish.value)):
            raise InvalidField("size", f"is {wish.size}, but the value has {len(wish.value)} bytes")
        if wish.form == JSON:
            _check_is_json(wish.value)
        return
    if not 1 <= wish.parts <= MAX_VALUE // 1024 or wish.size is None or not 0 <= wish.size <= MAX_VALUE:
        raise InvalidField("parts", f"of a value are at most {MAX_VALUE // 1024}, and it has `size`, up to {MAX_VALUE}")
    check_record_key(wish.value.decode(errors="replace"), "value")


def _check_is_json(value: bytes) -> None:
    try:
        decode(value)
    except ValueError as error:
        raise InvalidField("value", f"is not JSON: {error}") from error


def _values(requests: Iterable[RecordRequest]) -> Iterator[bytes]:
    return (each.value for each in requests if isinstance(each, (Put, Append)))
