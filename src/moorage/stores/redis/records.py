"""Records, of a session or of its owner (`books` says how they are stored), and documents, which belong to neither.

Documents have a hash for each kind, a list of its keys in order, and their expiry times.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from msgspec.json import Decoder
from msgspec.structs import replace

from moorage.core.codec import encode_text
from moorage.core.document import Document
from moorage.core.errors import SessionCorrupt
from moorage.core.ids import looks_like_ref
from moorage.core.once import KEPT_FOR
from moorage.core.record import (
    FLOOR,
    Record,
    RecordName,
    RecordNeeds,
    RecordQuery,
    RecordWrite,
    has_floor,
    raised_floor,
)
from moorage.ports import DocumentDecision, RecordDecision
from moorage.stores import Stale
from moorage.stores.redis import heads
from moorage.stores.redis.base import Base
from moorage.stores.redis.books import MEMORY, Book, above, in_steps, load_memory, name_of, text_of, write_ops
from moorage.stores.redis.db import CommitGuard, Op, Plan, RedisDb
from moorage.stores.redis.keys import Keys
from moorage.stores.redis.writes import stale
from moorage.stores.rows import micros
from moorage.stores.seam import Unit

_read = Decoder(Document).decode


class RedisRecords(Base):
    """Stores records, and small JSON values that belong to no session."""

    async def records(self, owner: str, ref: str | None, names: list[RecordName], at: datetime) -> list[Record | None]:
        found = await self._read(owner, ref, at, *map(text_of, names))
        by_name = {record.name: record for record in found}
        return [by_name.get(name) for name in names]

    async def records_of(
        self, owner: str, session_ids: list[str], name: RecordName, at: datetime
    ) -> list[Record | None]:
        db, keys = self.db, self.db.keys(owner)
        asked = [each if looks_like_ref(each) else "" for each in session_ids]
        serials = [("HGET", keys.of("h", each), "serial") for each in asked]
        answers = await db.read(*serials, *(Book(keys, each).op(at, text_of(name)) for each in asked))
        found: list[Record | None] = [None] * len(asked)
        for place, (serial, flat) in enumerate(zip(answers[: len(asked)], answers[len(asked) :], strict=True)):
            if serial is not None:
                with suppress(SessionCorrupt):
                    found[place] = next(iter(Book(keys, asked[place], int(serial)).read(db, flat)), None)
        return found

    async def list_records(self, owner: str, ref: str | None, query: RecordQuery, at: datetime) -> list[Record]:
        found: list[Record] = []
        while True:
            page = await self._read(owner, ref, at, *_page(query), values=query.values)
            found += [record for record in page if query.admits(record.name)]
            if len(page) < query.limit or len(found) >= query.limit:
                return found[: query.limit]
            query = replace(query, after=page[-1].name)  # across namespaces, some names lack the prefix

    async def _read(
        self, owner: str, ref: str | None, at: datetime, *wanted: object, values: bool = True
    ) -> list[Record]:
        db, keys = self.db, self.db.keys(owner)
        if ref is None:
            book = Book(keys)
            [flat] = await db.read(book.op(at, *wanted, values=values))
            return book.read(db, flat)
        session_id = ref if looks_like_ref(ref) else await heads.id_of(db, owner, ref)
        while True:
            book = Book(keys, session_id)
            head = ("HGET", keys.of("h", session_id), "serial")
            serial, flat = await db.read(head, book.op(at, *wanted, values=values))
            if serial is not None:
                return Book(keys, session_id, int(serial)).read(db, flat)
            session_id = await heads.id_of(db, owner, ref)

    async def write_memory(self, owner: str, needs: RecordNeeds, decide: RecordDecision) -> tuple[RecordWrite, ...]:
        async def story() -> tuple[RecordWrite, ...]:
            unit = Unit(self, owner)
            view, unit.memory_revision = await load_memory(self.db, self.db.keys(owner), needs)
            writes = decide(view)
            unit.memory += writes
            await (self.commit(unit) if writes else self.settle(owner))
            return writes

        return await self.told(owner, story, MEMORY)

    async def purge_records(self, owner: str, when: datetime, limit: int) -> int:
        """Delete records that have expired, the oldest first; return how many."""
        keys, count, at = self.db.keys(owner), 0, micros(when)
        for name in await self.db.one("ZRANGEBYSCORE", keys.list("record_ends"), "-inf", at, "LIMIT", 0, limit):
            with suppress(Stale):  # a concurrent write: the next purge will do
                count += await self._purge_book(keys, Book(keys, name.decode()), when, limit - count)
            if count >= limit:
                break
        return count

    async def _purge_book(self, keys: Keys, book: Book, when: datetime, limit: int) -> int:
        at = micros(when)
        revised = (keys("meta"), "memory") if book.id == MEMORY else (keys.of("h", book.id), "revision")
        revision, names, left = await self.db.read(
            ("HGET", *revised),
            ("ZRANGEBYSCORE", book.ends, "-inf", at, "LIMIT", 0, limit),
            ("ZRANGEBYSCORE", book.ends, f"({at}", "+inf", "WITHSCORES", "LIMIT", 0, 1),
        )
        plan, gone, hint = Plan(), [name.decode() for name in names], keys.list("record_ends")
        floored = [text for text in gone if has_floor(name_of(text.encode()))]
        plan.writes += await self._floor_ops(keys, book, floored, when)
        if revision is not None:
            seen = revision.decode()
            plan.guards.append(CommitGuard("HGET", *revised, seen, stale("a book of records", book.id)))
            plan.writes.append(("HSET", *revised, str(int(seen) + 1)))
        for command, key in (("HDEL", book.rows), ("ZREM", book.names), ("ZREM", book.ends)):
            plan.writes += in_steps(command, key, gone)
        if len(gone) < limit:
            plan.writes.append(("ZADD", hint, left[1].decode(), book.id) if left else ("ZREM", hint, book.id))
        await self.db.commit(plan)
        return len(gone)

    async def _floor_ops(self, keys: Keys, book: Book, names: list[str], when: datetime) -> list[Op]:
        """Return the writes that record the highest version of records that are deleted."""
        if not names:
            return []
        floor = RecordName(FLOOR, FLOOR)
        head = ("HGET", keys.of("h", book.id), "serial")
        serial, flat = await self.db.read(head, book.op(None, text_of(floor), *names, values=False))
        book = Book(keys, book.id, int(serial or 0))
        found = {record.name: record for record in book.read(self.db, flat)}
        old, highest = found.pop(floor, None), max((record.version for record in found.values()), default=0)
        return await write_ops(self.db, keys, book, raised_floor(old, highest, when))

    # Documents ----------------------------------------------------------------------------------

    async def document(self, kind: str, key: str) -> Document | None:
        return await get_document(self.db, kind, key)

    async def documents(self, kind: str, *, after: str = "", limit: int = 1000) -> list[Document]:
        return await every_document(self.db, kind, after, limit)

    async def put_document(self, kind: str, key: str, decide: DocumentDecision) -> Document | None:
        while True:
            found = await self.db.one("HGET", document_key(self.db, kind), key)
            known = None if found is None else _read(found)
            new = decide(known)
            if new == known:
                await self.db.settle(self.db.shared("settled"))
                return new
            text = None if found is None else found.decode()
            is_same = CommitGuard("HGET", document_key(self.db, kind), key, text, stale("a document"))
            with suppress(Stale):
                await self.db.write(*_document_ops(self.db, kind, key, new), guard=is_same)
                return new

    async def purge(self, at: datetime, limit: int) -> int:
        count, owners = await self._purge_documents(micros(at), limit), await self.known_owners()
        for purge in (self._purge_once, self.purge_records):
            left = limit
            for owner in owners:
                left -= await purge(owner, at, left) if left else 0
            count += limit - left
        return count

    async def _purge_once(self, owner: str, at: datetime, limit: int) -> int:
        hash_, order = self.db.keys(owner)("once"), self.db.keys(owner).list("once")
        old = await self.db.one("ZRANGEBYSCORE", order, "-inf", micros(at - KEPT_FOR), "LIMIT", 0, limit)
        names = [name.decode() for name in old]
        await self.db.write(*(op for name in names for op in (("HDEL", hash_, name), ("ZREM", order, name))))
        return len(names)

    async def _purge_documents(self, at: int, limit: int) -> int:
        ended = await self.db.one("ZRANGEBYSCORE", self.db.shared("ends"), "-inf", at, "LIMIT", 0, limit)
        count = 0
        for member in ended:
            kind, _, key = member.decode().partition("\0")
            known = await get_document(self.db, kind, key)
            if known is not None and known.expires_at is not None and micros(known.expires_at) <= at:
                await self.put_document(kind, key, lambda found, old=known: None if found == old else found)  # type: ignore[misc]
                count += 1
        return count


def _page(query: RecordQuery) -> tuple[object, ...]:
    """Return the names of a page."""
    first = "" if query.namespace is None else text_of(RecordName(query.namespace, query.prefix))
    least, most = f"[{first}", above(first)
    if query.after is not None:
        seen = text_of(query.after)
        if query.descending:
            most = min(f"({seen}", most, key=str.encode)
        elif seen.encode() >= first.encode():
            least = f"({seen}"
    return "RANGE", least, most, query.limit, query.descending


def document_key(db: RedisDb, kind: str) -> str:
    """Return the key of a kind."""
    return db.shared(f"documents:{kind}")


async def get_document(db: RedisDb, kind: str, key: str) -> Document | None:
    """Return one document."""
    found = await db.one("HGET", document_key(db, kind), key)
    return None if found is None else _read(found)


async def every_document(db: RedisDb, kind: str, after: str, limit: int) -> list[Document]:
    """Return documents of a kind after a key, in the order of their keys."""
    least = f"({after}" if after else "-"
    names = await db.one("ZRANGEBYLEX", db.shared(f"keys:{kind}"), least, "+", "LIMIT", 0, limit)
    found = await db.one("HMGET", document_key(db, kind), *names) if names else []
    return [_read(each) for each in found if each is not None]


def _document_ops(db: RedisDb, kind: str, key: str, new: Document | None) -> list[Op]:
    hash_, names, ends, member = document_key(db, kind), db.shared(f"keys:{kind}"), db.shared("ends"), f"{kind}\0{key}"
    if new is None:
        return [("HDEL", hash_, key), ("ZREM", names, key), ("ZREM", ends, member)]
    end: Op = ("ZREM", ends, member)
    if new.expires_at is not None:
        end = ("ZADD", ends, str(micros(new.expires_at)), member)
    return [("HSET", hash_, key, encode_text(new)), ("ZADD", names, "0", key), end]


async def load_documents(db: RedisDb, documents: list[Document]) -> None:
    """Write documents unchanged."""
    await db.write(*(op for each in documents for op in _document_ops(db, each.kind, each.key, each)))
