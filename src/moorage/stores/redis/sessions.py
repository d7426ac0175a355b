"""Sessions: created, read and changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from functools import partial
from typing import Any

from msgspec.json import Decoder

from moorage.core.bundle import Bundle, restored
from moorage.core.entry import Entry, Message
from moorage.core.errors import (
    ApprovalNotFound,
    EntryNotFound,
    ItemNotFound,
    NotFound,
    ParentNotFound,
    RunNotFound,
    TurnNotFound,
)
from moorage.core.ids import looks_like_ref
from moorage.core.inbox import Item
from moorage.core.once import Once
from moorage.core.query import Page, SessionQuery
from moorage.core.run import Run
from moorage.core.session import (
    FINAL_STATES,
    NO_NEEDS,
    OPEN_STATES,
    AppendDecision,
    Asker,
    AskerView,
    Birth,
    Change,
    Needs,
    Session,
    Stamp,
)
from moorage.ports import BirthDecision, Decision, ForkDecision
from moorage.stores import seam
from moorage.stores.redis import heads, log, writes
from moorage.stores.redis.base import Base
from moorage.stores.redis.books import Book, copy_ops, load_memory, need_ops, view_of
from moorage.stores.redis.db import CommitGuard, Op, RedisDb
from moorage.stores.redis.keys import Keys
from moorage.stores.redis.lists import PlacedId, dead_letters, items_of, page_of, walk
from moorage.stores.redis.values import APPROVALS, ITEMS, RUNS, TURNS, HeadGuard
from moorage.stores.seam import Loaded, Unit

LOOKED_AT = 1000  # sessions examined for one page, if it finds any at all
SMALL = 2000  # members of a list that is sorted again
_read_once = Decoder(Once).decode


class RedisSessions(Base):
    """Creates, reads and changes sessions."""

    async def create(
        self, owner: str, decide: BirthDecision, *, parent: str | None = None, asker: Asker | None = None
    ) -> Session:
        async def story() -> Session:
            unit = Unit(self, owner)
            birth = await self._birth(unit, parent, asker)
            change = decide(birth)
            if birth.parent is not None and change.open_at_most is not None:
                unit.room = (birth.parent.root_session_id, change.open_at_most)
            return await seam.add_session(unit, change)

        return await self.told(owner, story)

    async def _birth(self, unit: Unit, parent: str | None, asker: Asker | None) -> Birth:
        """Load the data that a birth is decided on; the unit guards it."""
        if parent is None:
            return Birth(asker=await self._asker(unit, asker))
        try:
            found = unit.add((await heads.found(self.db, unit.owner, parent, heads.view_ops))[0])
        except NotFound:
            raise ParentNotFound(parent) from None
        key = self.db.keys(unit.owner).list("open_below", found.session.root_session_id)
        return Birth(
            parent=found.head(),
            open_descendants=await self.db.one("ZCARD", key),
            asker=await self._asker(unit, asker, found.session_id),
        )

    async def _asker(self, unit: Unit, asker: Asker | None, session_id: str | None = None) -> AskerView:
        """Load the asker of a new session or run; the unit guards it."""
        if asker is None:
            return AskerView()
        run: Run | None = None
        if asker.run_id is not None:
            stored = await heads.row(self.db, unit.owner, RUNS, asker.run_id)
            run = None if stored is None else stored[1]
        named = run.session_id if run is not None else asker.session_id or session_id
        loaded = None if named is None else await unit.session(named)
        if run is not None and loaded is not None:
            now = loaded.values.get((Run, run.run_id), run)
            run = now if isinstance(now, Run) else run
        return seam.asker_view(run, loaded)

    async def restore(self, owner: str, bundle: Bundle) -> bool:
        session_id, parent = bundle.session.session_id, bundle.session.parent_session_id
        keys = self.db.keys(owner)
        is_there, gone = await self.db.read(("EXISTS", keys.of("h", session_id)), ("HGET", keys("dead"), session_id))
        if is_there:
            return False
        if gone is not None:
            raise heads.read_tombstone(gone).gone()
        await self.create(owner, lambda birth: restored(bundle, birth, owner), parent=parent)
        return True

    async def fork(
        self, owner: str, ref: str, at: int | None, decide: ForkDecision, *, expected: int | None = None
    ) -> Session:
        async def story() -> Session:
            found = await heads.head_loaded(self.db, owner, ref)
            source = found.head()
            source.check_version(expected)
            upto = source.last_entry if at is None else at
            if not 1 <= upto <= source.last_entry:
                raise EntryNotFound(source.session_id, upto, source.last_entry)
            checkpoint = await log.SessionLog(self.db, owner, found).newest_checkpoint(upto)
            change = decide(source, upto, checkpoint)
            unit, guard = Unit(self, owner), HeadGuard(lineage=log.shared_up_to(found, upto))
            if expected is not None or self.db.sealer is not None:  # sealed records are copied as they were read
                unit.add(found)
            await self._copy_records(unit, found, change.session.session_id, guard)
            return await seam.add_session(unit, change, guard)

        return await self.told(owner, story)

    async def _copy_records(self, unit: Unit, source: Loaded, new_id: str, guard: HeadGuard) -> None:
        """Copy the records at the commit; those sealed for their session are read and sealed again."""
        keys, serial = self.db.keys(unit.owner), source.guard.serial
        head = keys.of("h", source.session_id)
        unit.guards.append(CommitGuard("HGET", head, "serial", str(serial), writes.stale("the source of a fork")))
        if self.db.sealer is not None:
            guard.serial = await self.db.numbers(1)
        book = Book(keys, source.session_id, serial)
        unit.writes += await copy_ops(self.db, keys, book, Book(keys, new_id, guard.serial))

    async def apply(
        self, owner: str, ref: str, decide: Decision, *, needs: Needs = NO_NEEDS, expected: int | None = None
    ) -> Change:
        keys, records = self.db.keys(owner), needs.records

        def needed(session_id: str) -> list[Op]:
            return [] if records is None else need_ops(Book(keys, session_id), records)

        async def story() -> Change:
            unit = Unit(self, owner)
            found, beside = await heads.found(self.db, owner, ref, heads.view_ops, needed)
            unit.add(found).session.check_version(expected)
            named = await self._named(owner, found, needs)
            if records is not None:
                named["records"] = view_of(self.db, Book(keys, found.session_id, found.guard.serial), records, beside)
            if needs.memory is not None:
                named["memory"], unit.memory_revision = await load_memory(self.db, keys, needs.memory)
            if needs.client_keys:
                named["seen"] = await log.SessionLog(self.db, owner, found).seen(needs.client_keys)
            if needs.asker is not None:
                named["asker"] = await self._asker(unit, needs.asker)
            change = await seam.change_session(unit, found, decide, **named)
            if not found.is_touched:
                await self.settle(owner)
            return change

        return await self.told(owner, story, ref)

    async def _named(self, owner: str, found: Loaded, needs: Needs) -> dict[str, Any]:
        """Load the values that a decision asks for by name."""
        db, named = self.db, dict[str, Any]()
        if needs.approval is not None:
            named["approval"] = await heads.named(db, owner, found, APPROVALS, needs.approval, ApprovalNotFound)
        if needs.turn is not None:
            named["turn"] = await heads.named(db, owner, found, TURNS, needs.turn, TurnNotFound)
        if needs.item is not None:
            named["item"] = await self._named_item(owner, found, needs.item)
        if needs.run is not None:
            named["run"] = await heads.named(db, owner, found, RUNS, needs.run, RunNotFound)
            letters = await dead_letters(db, owner, found.session_id, needs.run)
            named["dead_letters"] = tuple(heads.add_row(found, Item, each[1].item_id, each) for each in letters)
        return named

    async def _named_item(self, owner: str, found: Loaded, item_id: str) -> Item:
        row = await self.db.one("HGET", self.db.keys(owner).of("i", found.session_id), item_id)
        if row is None:
            raise ItemNotFound(item_id)
        stored = ITEMS.value(self.db, item_id, row, found.session_id)
        known: Item = heads.add_row(found, Item, item_id, stored)
        [whole] = await items_of(self.db, owner, [(found.session_id, item_id)])
        return whole or known

    async def append(
        self,
        owner: str,
        ref: str,
        messages: list[Message],
        stamp: Stamp,
        *,
        token: str | None = None,
        expected: int | None = None,
    ) -> list[Entry]:
        if messages and self.db.sealer is None and looks_like_ref(ref):
            said = messages, stamp, token, expected
            if (done := await log.append_quickly(self.db, owner, ref, *said)) is not None:
                return done

        appending = AppendDecision(messages, stamp, token)
        await self.apply(owner, ref, appending, needs=appending.needs, expected=expected)
        return appending.entries

    async def once(self, owner: str, operation: str, key: str, at: datetime) -> Once | None:
        found = await self.db.one("HGET", self.db.keys(owner)("once"), f"{operation}\0{key}")
        kept = None if found is None else _read_once(found)
        if kept is None or not kept.lives(at):
            return None
        await self.settle(owner)
        return kept

    async def get(self, owner: str, ref: str) -> Session:
        return await heads.head(self.db, owner, ref)

    async def get_many(self, owner: str, session_ids: list[str]) -> list[Session | None]:
        return await heads.many(self.db, owner, session_ids)

    async def match(self, owner: str, prefix: str, limit: int) -> list[str]:
        least, most = (f"[{prefix}", f"({prefix}\x7f") if prefix else ("-", "+")
        key = self.db.keys(owner).list("ids")
        return [name.decode() for name in await self.db.one("ZRANGEBYLEX", key, least, most, "LIMIT", 0, limit)]

    async def find(self, owner: str, *queries: SessionQuery) -> list[Page[Session]]:
        return list(await asyncio.gather(*(self._find(owner, query) for query in queries)))

    async def _find(self, owner: str, query: SessionQuery) -> Page[Session]:
        places = _places(self.db, self.db.keys(owner), query, query.position())
        read = partial(heads.many, self.db, owner, strict=True)
        return await page_of(places, read, query.admits, query.limit, query.cursor_at, LOOKED_AT)

    async def owners(self) -> list[str]:
        owners, db = await self.known_owners(), self.db
        sizes = await asyncio.gather(*(db.one("ZCARD", db.keys(each).list("sessions")) for each in owners))
        return [owner for owner, size in zip(owners, sizes, strict=True) if size]


# Lists for the sessions of a query -------------------------------------------------------------


def _lists_of(keys: Keys, query: SessionQuery) -> list[list[str]]:
    """Return lists that each have all sessions of a query; the lists of an inner list have them together."""
    wanted = (("agent", query.agent), ("task", query.task), ("project", query.project_dir), ("children", query.parent))
    lists = [[keys.list(name, value)] for name, value in wanted if value is not None]
    states = _states_of(query)
    return [*lists, [keys.list("state", state) for state in states]] if states else lists


def _states_of(query: SessionQuery) -> tuple[str, ...]:
    if query.state is not None:
        return (query.state,)
    if query.status in FINAL_STATES:
        return (str(query.status),)
    if query.active_only or query.status is not None:
        return tuple(sorted(OPEN_STATES))
    return ()


async def _places(db: RedisDb, keys: Keys, query: SessionQuery, position: int | None) -> AsyncIterator[PlacedId]:
    """Walk the smallest list that contains all sessions that a query may find."""
    order, lists = keys.list("updated" if query.by_update else "sessions"), _lists_of(keys, query)
    if query.root is not None:
        lists = [*lists, [keys.list("below", query.root)]]
    flat = [key for group in lists for key in group]
    sizes = dict(zip(flat, await db.read(*(("ZCARD", key) for key in flat)), strict=True))
    small = min(lists, key=lambda group: sum(sizes[key] for key in group), default=None)
    extra = [] if query.root is None or small != lists[-1] else [query.root]
    count = query.limit + 1
    if small is None or (sum(sizes[key] for key in small) > SMALL and (query.by_update or len(small) > 1)):
        async for place in walk(db, order, position, count, newest_first=query.newest_first):
            yield place
    elif not query.by_update and len(small) == 1 and not extra:
        async for place in walk(db, small[0], position, count, newest_first=query.newest_first):
            yield place
    else:
        for place in await _sorted_anew(db, order, small, extra, query, position):
            yield place


async def _sorted_anew(
    db: RedisDb, order: str, lists: list[str], extra: list[str], query: SessionQuery, position: int | None
) -> list[PlacedId]:
    """Return the members of small lists in the order of another list."""
    read = await db.read(*(("ZRANGE", key, 0, -1) for key in lists))
    members = [*extra, *(member.decode() for each in read for member in each)]
    if not members:
        return []
    scores = await db.one("ZMSCORE", order, *members)
    places = [(int(float(s)), m) for s, m in zip(scores, members, strict=True) if s is not None]
    ordered = sorted(places, reverse=query.newest_first)
    if position is None:
        return ordered
    return [each for each in ordered if (each[0] < position if query.newest_first else each[0] > position)]
