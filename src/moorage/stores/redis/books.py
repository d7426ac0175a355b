"""Records: of a session or of its owner, a hash of rows, a list of names in order, and a list of expiry times.

A row is `VERSION FORM SIZE PARTS UPDATED SEALED VALUE`, so that a script can leave the value out. Names are
`NAMESPACE\\0KEY`. One list of the owner holds the earliest expiry of each of these books: `purge` reads it. It is a
hint, and never too late.

Every write is guarded by the revision of its session, or of the owner's memory, so that names read before a commit are
still current.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from datetime import datetime

from moorage.core.errors import SessionCorrupt, StoreCorrupt
from moorage.core.record import (
    BYTES,
    DropRecords,
    PutRecord,
    Record,
    RecordName,
    RecordNeeds,
    RecordsView,
    RecordWrite,
    TouchRecords,
)
from moorage.stores.redis.db import Op, RedisDb
from moorage.stores.redis.keys import Keys
from moorage.stores.rows import about_record, instant, instant_or_none, micros, micros_or_none, opened

MEMORY = "-memory"  # the book of an owner; no session has such an id
MANY = 1 << 20  # more than the records of any prefix
STEP = 1000  # names in one command


class Book:
    """The keys for the records of a session or of an owner."""

    def __init__(self, keys: Keys, session_id: str = MEMORY, serial: int = 0) -> None:
        self.id, self.owner, self.serial = session_id, keys.owner, serial
        self.names, self.rows, self.ends = keys.of("n", session_id), keys.of("r", session_id), keys.of("y", session_id)

    def op(self, at: datetime | None, *wanted: object, values: bool = True) -> Op:
        """Return the command of `read` that reads records; without a time, expired ones too."""
        time = False if at is None else micros(at)
        return ("RECORDS", self.names, self.rows, self.ends, time, values, *wanted)

    # Rows ---------------------------------------------------------------------------------------

    def row(self, db: RedisDb, record: Record) -> bytes:
        """Return a record as stored."""
        value, is_sealed = record.value, 0
        if db.sealer is not None:
            text = (value if _is_text(record.form, record.parts) else b64encode(value)).decode()
            value, is_sealed = db.sealer.seal(text, self._about(record.name, record.version)).encode(), 1
        fields = record.version, record.form, record.size, record.parts, micros(record.updated_at), is_sealed
        return b"%d %s %d %d %d %d " % (fields[0], fields[1].encode(), *fields[2:]) + value

    def record(self, db: RedisDb, name: bytes, row: bytes, end: bytes) -> Record:
        """Return a record from its stored form. Raises SessionCorrupt, StoreCorrupt."""
        try:
            version, form, size, parts, updated, is_sealed, value = row.split(b" ", 6)
            of = name_of(name)
            if is_sealed == b"1" and value:
                text = opened(db.opener, value.decode(), self._about(of, int(version)))
                value = text.encode() if _is_text(form.decode(), int(parts)) else b64decode(text, validate=True)
            return Record(
                namespace=of.namespace, key=of.key, value=value, form=form.decode(), size=int(size),
                version=int(version), updated_at=instant(int(updated)),
                expires_at=instant_or_none(int(float(end)) if end else None), parts=int(parts),
            )  # fmt: skip
        except ValueError as error:
            if self.id == MEMORY:
                raise StoreCorrupt(db.options.shown, f"memory of {self.owner}: {error}") from error
            raise SessionCorrupt(self.id, f"record: {error}") from error

    def read(self, db: RedisDb, flat: Sequence[bytes]) -> list[Record]:
        """Return records from the answer to `op`."""
        return [self.record(db, *flat[place : place + 3]) for place in range(0, len(flat), 3)]

    def _about(self, name: RecordName, version: int) -> str:
        return about_record(self.owner, self.serial, name.namespace, name.key, version)


def _is_text(form: str, parts: int) -> bool:
    return parts > 0 or form != BYTES


def text_of(name: RecordName) -> str:
    """Return a name as stored in lists."""
    return f"{name.namespace}\0{name.key}"


def name_of(text: bytes) -> RecordName:
    """Return a name from its form in lists."""
    namespace, _, key = text.decode().partition("\0")
    return RecordName(namespace, key)


# Reads of a decision ----------------------------------------------------------------------------


def need_ops(book: Book, needs: RecordNeeds) -> list[Op]:
    """Return the reads of the records that a decision has to know."""
    last = [book.op(None, *names_below(start, 1, descending=True), values=False) for start in needs.last]
    below = [book.op(None, *names_below(start, MANY), values=False) for start in needs.below]
    return [book.op(None, *map(text_of, needs.names), values=False), *last, *below]


def view_of(db: RedisDb, book: Book, needs: RecordNeeds, answers: list[list[bytes]]) -> RecordsView:
    """Return the records that a decision has to know, from the answers to `need_ops`."""
    named, *rest = [book.read(db, each) for each in answers]
    last, below = rest[: len(needs.last)], rest[len(needs.last) :]
    return RecordsView(
        {record.name: record for found in (named, *below) for record in found},
        {start: found[0] for start, found in zip(needs.last, last, strict=True) if found},
    )


def names_below(start: RecordName, limit: int, *, descending: bool = False) -> tuple[object, ...]:
    """Return the names with this prefix."""
    text = text_of(start)
    return "RANGE", f"[{text}", above(text), limit, descending


def above(prefix: str) -> str:
    """Return the end of the range of names with this prefix: no text sorts between them and this."""
    return f"({prefix}\U0010ffff"


# Writing ----------------------------------------------------------------------------------------


class BookDraft:
    """The combined result of several writes to a book, in order."""

    def __init__(self, db: RedisDb, book: Book) -> None:
        self._db, self._book = db, book
        self._rows: dict[str, Record | None] = {}  # written and deleted records, by name
        self._ends: dict[str, datetime | None] = {}  # their expiry times, if those change

    async def take(self, writes: Iterable[RecordWrite]) -> None:
        """Apply writes."""
        for each in writes:
            match each:
                case PutRecord(record):
                    self._rows[text_of(record.name)] = record
                    self._ends[text_of(record.name)] = record.expires_at
                case DropRecords(name, is_prefix):
                    for text in await self._named(name, is_prefix=is_prefix):
                        self._rows[text] = self._ends[text] = None
                case TouchRecords(name, expires_at, is_prefix):
                    for text in await self._named(name, is_prefix=is_prefix):
                        self._ends[text] = expires_at

    async def _named(self, name: RecordName, *, is_prefix: bool) -> list[str]:
        """Return the names of records that exist after the writes so far."""
        text = text_of(name)
        if is_prefix:
            stored = await self._db.one("ZRANGEBYLEX", self._book.names, f"[{text}", above(text))
        else:
            is_there = await self._db.one("ZSCORE", self._book.names, text)
            stored = [] if is_there is None else [text.encode()]
        names = {one.decode() for one in stored} | {each for each in self._rows if is_prefix and each.startswith(text)}
        names |= {text} & self._rows.keys()
        return [each for each in names if self._rows.get(each, self) is not None]

    def ops(self, keys: Keys) -> list[Op]:
        """Return the commands for all these writes."""
        book, ops = self._book, list[Op]()
        put = {name: record for name, record in self._rows.items() if record is not None}
        gone = [name for name, record in self._rows.items() if record is None]
        ops += [("PUT", book.rows, name, book.row(self._db, record)) for name, record in put.items()]
        ops += in_steps("ZADD", book.names, [part for name in put for part in ("0", name)])
        ops += in_steps("HDEL", book.rows, gone) + in_steps("ZREM", book.names, gone)
        ends = {name: micros_or_none(end) for name, end in self._ends.items()}
        ops += in_steps("ZREM", book.ends, [name for name, end in ends.items() if end is None])
        timed = {name: end for name, end in ends.items() if end is not None}
        ops += in_steps("ZADD", book.ends, [part for name, end in timed.items() for part in (str(end), name)])
        if timed:
            ops.append(("ZADD", keys.list("record_ends"), "LT", str(min(timed.values())), book.id))
        return ops


def in_steps(command: str, key: str, arguments: list[str]) -> list[Op]:
    """Return a command in several parts: a script cannot unpack more than some thousand arguments."""
    return [(command, key, *arguments[start : start + STEP]) for start in range(0, len(arguments), STEP)]


async def load_memory(db: RedisDb, keys: Keys, needs: RecordNeeds) -> tuple[RecordsView, str | None]:
    """Return the owner's records that a decision has to know, and the revision at which they were read."""
    book = Book(keys)
    revision, *answers = await db.read(("HGET", keys("meta"), "memory"), *need_ops(book, needs))
    return view_of(db, book, needs, answers), None if revision is None else revision.decode()


async def write_ops(db: RedisDb, keys: Keys, book: Book, writes: Iterable[RecordWrite]) -> list[Op]:
    """Return the commands of some writes, in order."""
    draft = BookDraft(db, book)
    await draft.take(writes)
    return draft.ops(keys)


async def copy_ops(db: RedisDb, keys: Keys, source: Book, target: Book) -> list[Op]:
    """Return the commands that copy a book to a fork; values sealed for the source are sealed again."""
    hint, first = keys.list("record_ends"), await db.one("ZRANGE", source.ends, 0, 0, "WITHSCORES")
    ends: list[Op] = [("ZADD", hint, "LT", first[1].decode(), target.id)] if first else []
    if db.sealer is None:
        pairs = ((source.names, target.names), (source.rows, target.rows), (source.ends, target.ends))
        return [*(("COPY", *pair) for pair in pairs), *ends]
    [flat] = await db.read(source.op(None, "RANGE", "-", "+", MANY, False))
    return await write_ops(db, keys, target, [PutRecord(record, 0) for record in source.read(db, flat)])
