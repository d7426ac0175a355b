"""Documents: a hash for each kind, a list of its keys in order, and their expiry times."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from msgspec.json import Decoder

from moorage.core.codec import encode_text
from moorage.core.document import Document
from moorage.core.once import KEPT_FOR
from moorage.ports import DocumentDecision
from moorage.stores import Stale
from moorage.stores.redis.db import CommitGuard, Op, RedisDb
from moorage.stores.redis.records import RedisRecords
from moorage.stores.redis.writes import stale
from moorage.stores.rows import micros

_read = Decoder(Document).decode


def place(db: RedisDb, kind: str) -> str:
    """Return the key of a kind."""
    return db.shared(f"documents:{kind}")


async def get(db: RedisDb, kind: str, key: str) -> Document | None:
    """Return one document."""
    found = await db.one("HGET", place(db, kind), key)
    return None if found is None else _read(found)


async def every(db: RedisDb, kind: str, after: str, limit: int) -> list[Document]:
    """Return documents of a kind after a key, in the order of their keys."""
    least = f"({after}" if after else "-"
    names = await db.one("ZRANGEBYLEX", db.shared(f"keys:{kind}"), least, "+", "LIMIT", 0, limit)
    found = await db.one("HMGET", place(db, kind), *names) if names else []
    return [_read(each) for each in found if each is not None]


class RedisDocuments(RedisRecords):
    """Stores small JSON values that belong to no session."""

    async def document(self, kind: str, key: str) -> Document | None:
        return await get(self.db, kind, key)

    async def documents(self, kind: str, *, after: str = "", limit: int = 1000) -> list[Document]:
        return await every(self.db, kind, after, limit)

    async def put_document(self, kind: str, key: str, decide: DocumentDecision) -> Document | None:
        while True:
            found = await self.db.one("HGET", place(self.db, kind), key)
            known = None if found is None else _read(found)
            new = decide(known)
            if new == known:
                await self.db.settle(self.db.shared("settled"))
                return new
            text = None if found is None else found.decode()
            is_same = CommitGuard("HGET", place(self.db, kind), key, text, stale("a document"))
            with suppress(Stale):
                await self.db.write(*_writes(self.db, kind, key, new), guard=is_same)
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
            known = await get(self.db, kind, key)
            if known is not None and known.expires_at is not None and micros(known.expires_at) <= at:
                await self.put_document(kind, key, lambda found, old=known: None if found == old else found)  # type: ignore[misc]
                count += 1
        return count


def _writes(db: RedisDb, kind: str, key: str, new: Document | None) -> list[Op]:
    hash_, names, ends, member = place(db, kind), db.shared(f"keys:{kind}"), db.shared("ends"), f"{kind}\0{key}"
    if new is None:
        return [("HDEL", hash_, key), ("ZREM", names, key), ("ZREM", ends, member)]
    end: Op = ("ZREM", ends, member)
    if new.expires_at is not None:
        end = ("ZADD", ends, str(micros(new.expires_at)), member)
    return [("HSET", hash_, key, encode_text(new)), ("ZADD", names, "0", key), end]


async def load(db: RedisDb, documents: list[Document]) -> None:
    """Write documents unchanged."""
    await db.write(*(op for each in documents for op in _writes(db, each.kind, each.key, each)))
