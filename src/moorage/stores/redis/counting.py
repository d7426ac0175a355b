"""Counting: facts of sessions, outcomes, delegations, the backlog."""

from __future__ import annotations

from asyncio import gather
from collections.abc import AsyncIterator
from functools import partial

from msgspec.json import Decoder

from moorage.core.codec import encode_text
from moorage.core.entry import Kind
from moorage.core.fact import Backlog, Fate, SessionFact, Size, Totals, callback_counts, tokens_of
from moorage.core.inbox import ItemKind, ItemState
from moorage.core.policy import Delegation, Span
from moorage.core.query import Page
from moorage.core.render import like
from moorage.core.session import Session, State
from moorage.stores import Stale
from moorage.stores.redis import heads
from moorage.stores.redis.base import Base
from moorage.stores.redis.db import CommitGuard, Op, RedisDb, scored
from moorage.stores.redis.keys import Keys
from moorage.stores.redis.lists import items_of, padded, page_of
from moorage.stores.redis.writes import stale
from moorage.stores.rows import SortPlace, cursor_at, instant, micros, start

PART = 500
read_delegation = Decoder(Delegation).decode


class RedisCounting(Base):
    """Stores delegations, and counts stored data."""

    async def record_delegation(self, owner: str, delegation: Delegation) -> bool:
        keys, db = self.db.keys(owner), self.db
        number = await db.numbers(1, ("SADD", db.shared("owners"), owner))
        is_new = CommitGuard("HGET", keys("delegations"), delegation.delegation_id, None, stale("it is known already"))
        try:
            await db.write(*delegation_ops(keys, delegation, number), guard=is_new)
        except Stale:
            await self.settle(owner)
            return False
        return True

    async def delegations(self, owner: str, span: Span, limit: int, cursor: str | None = None) -> Page[Delegation]:
        mark, keys = span.fingerprint("delegations"), self.db.keys(owner)

        async def read(ids: list[str]) -> list[Delegation | None]:
            rows = await self.db.one("HMGET", keys("delegations"), *ids)
            return [None if row is None else read_delegation(row) for row in rows]

        def admits(one: Delegation) -> bool:
            return span.has(one.at, one.agent_name, one.task_id)

        places = _walk_in_time(self.db, keys.list("delegated"), span, cursor, mark)
        return await page_of(places, read, admits, limit, lambda at: cursor_at(at, mark))

    async def facts(self, owner: str, span: Span, limit: int, cursor: str | None = None) -> Page[SessionFact]:
        """Return facts of sessions in order of creation times."""
        mark, keys = span.fingerprint("facts"), self.db.keys(owner)

        def admits(head: Session) -> bool:
            return span.has(head.created_at, head.agent_name, head.task_id)

        places = _walk_in_time(self.db, keys.list("born"), span, cursor, mark)
        read = partial(heads.many, self.db, owner)
        page = await page_of(places, read, admits, limit, lambda at: cursor_at(at, mark))
        return Page(list(await gather(*(_fact_of(self.db, keys, owner, head) for head in page.items))), page.next)

    async def fates(self, owner: str, session_ids: list[str]) -> list[Fate]:
        keys, found, names = self.db.keys(owner), list[Fate](), list(dict.fromkeys(session_ids))
        for begin in range(0, len(names), PART):
            part = names[begin : begin + PART]
            reads = (("HGET", keys.of("h", id_), "state") for id_ in part)
            *states, raw_tombstones = await self.db.read(*reads, ("HMGET", keys("dead"), *part))
            for id_, state, raw in zip(part, states, raw_tombstones, strict=True):
                if state is not None:
                    found.append(Fate(id_, State(state.decode())))
                elif raw is not None:
                    found.append(Fate(id_, State(heads.read_tombstone(raw).state), is_deleted=True))
        return found

    async def totals(self) -> Totals:
        """Return the waiting work, the memory that all clients of the servers use, and the number of sessions."""
        found = await gather(*(_totals_of(self.db, owner) for owner in await self.known_owners()))
        sessions, queued, running, callbacks, dead_letters = (sum(each[place] for each in found) for place in range(5))
        times, used = [each[5] for each in found if each[5]], await self.db.used_memory()
        backlog = Backlog(
            queued=queued,
            running=running,
            oldest_queued_at=instant(min(times)) if times else None,
            callbacks=callbacks,
            dead_letters=dead_letters,
        )
        return Totals(backlog, Size(bytes=used, used_bytes=used, sessions=sessions))


async def _walk_in_time(
    db: RedisDb, key: str, span: Span, cursor: str | None, mark: int
) -> AsyncIterator[tuple[SortPlace, str]]:
    """Yield the places of a span in a list in order of time, after a cursor."""
    seen, offset, is_more = start(span, cursor, mark), 0, True
    most = "+inf" if span.created_before is None else f"({micros(span.created_before)}"
    while is_more:
        least = max(seen[0], 0)
        part = await db.one("ZRANGEBYSCORE", key, least, most, "WITHSCORES", "LIMIT", offset, PART)
        for at, member in scored(part):
            padded_number, _, id_ = member.partition(":")
            if (place := (at, int(padded_number))) > seen:
                seen = place
                yield seen, id_
        offset = 0 if seen[0] > least else offset + PART  # many may have the same time
        is_more = len(part) == 2 * PART


async def _fact_of(db: RedisDb, keys: Keys, owner: str, head: Session) -> SessionFact:
    id_ = head.session_id
    states = [state.value for state in ItemState]
    ops: list[Op] = [("ZLEXCOUNT", keys.of("e", id_), f"[{Kind.ERROR}:", f"({Kind.ERROR};")]
    ops += [("ZRANGE", keys.list(f"inbox_{state}", id_), 0, -1) for state in states]
    errors, *inboxes = await db.read(*ops)
    callbacks = []
    for state, ids in zip(states, inboxes, strict=True):
        items = await items_of(db, owner, [(id_, each.decode()) for each in ids]) if ids else []
        callbacks += [(state, 1) for item in items if item is not None and item.kind is ItemKind.CALLBACK]
    given, said = tokens_of(head.metadata.get("usage"))
    counts = callback_counts(callbacks) if callbacks else None
    return like(SessionFact, head, has_errors=errors > 0, input_tokens=given, output_tokens=said, callbacks=counts)


def delegation_ops(keys: Keys, delegation: Delegation, number: int) -> list[Op]:
    """Return the writes of a delegation."""
    id_ = delegation.delegation_id
    return [
        ("HSET", keys("delegations"), id_, encode_text(delegation)),
        ("ZADD", keys.list("delegated"), str(micros(delegation.at)), f"{padded(number)}:{id_}"),
        ("ZADD", keys.list("delegations"), str(number), id_),
    ]


async def _totals_of(db: RedisDb, owner: str) -> list[int]:
    """Return the sizes of an owner's lists, and when the oldest queued turn was queued; 0 if there is none."""
    keys = db.keys(owner)
    dead_letters = keys.list("inbox", ItemState.DEAD_LETTER.value)
    lists = [*(keys.list(name) for name in ("sessions", "queued", "leases", "callbacks")), dead_letters]
    *counts, oldest = await db.read(*(("ZCARD", key) for key in lists), ("ZRANGE", lists[1], 0, 0, "WITHSCORES"))
    return [*counts, int(float(oldest[1])) if oldest else 0]
