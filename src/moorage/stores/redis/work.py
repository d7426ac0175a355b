"""Runs, inboxes, and turns given to launchers."""

from __future__ import annotations

import asyncio
from datetime import datetime
from functools import partial

from moorage.core.document import DocumentKind
from moorage.core.errors import ItemNotFound, RunNotFound, SessionCorrupt, TurnNotFound
from moorage.core.inbox import Item, ItemState, inbox_fingerprint
from moorage.core.query import Page, make_cursor, read_cursor
from moorage.core.run import Run, RunQuery, RunState
from moorage.core.session import Needs, Stamp
from moorage.core.turn import Turn
from moorage.core.work import Claim, released
from moorage.ports import Claimed, LauncherTurn
from moorage.stores import seam
from moorage.stores.redis import documents, heads, queue
from moorage.stores.redis.db import CommitGuard, Op, scored
from moorage.stores.redis.keys import Keys
from moorage.stores.redis.lists import items_of, page_of, rows_of, walk
from moorage.stores.redis.sessions import RedisSessions
from moorage.stores.redis.values import RUNS, TURNS
from moorage.stores.rows import micros
from moorage.stores.seam import Unit


class RedisWork(RedisSessions):
    """Stores runs, turns and inboxes, and gives turns to launchers."""

    async def run(self, owner: str, run_id: str) -> Run:
        return await heads.one(self.db, owner, RUNS, run_id, RunNotFound)

    async def run_by_key(self, owner: str, key: str) -> Run | None:
        run_id = await self.db.one("HGET", self.db.keys(owner)("run_keys"), key)
        if run_id is None:
            return None
        await self.settle(owner)
        return await self.run(owner, run_id.decode())

    async def runs(self, owner: str, query: RunQuery) -> Page[Run]:
        keys, mark = self.db.keys(owner), query.fingerprint()
        below = None if query.cursor is None else read_cursor(query.cursor, mark)
        places = walk(self.db, _list_of_runs(keys, query), below, query.limit + 1, newest_first=True)
        read = partial(rows_of, self.db, keys, RUNS)
        return await page_of(places, read, query.admits, query.limit, lambda at: make_cursor(at, mark))

    async def inbox(
        self, owner: str, *, ref: str | None = None, states: tuple[str, ...], limit: int, cursor: str | None = None
    ) -> Page[Item]:
        session_id = None if ref is None else await heads.id_of(self.db, owner, ref)
        keys, mark = self.db.keys(owner), inbox_fingerprint(session_id, states)
        above = 0 if cursor is None else read_cursor(cursor, mark)
        if session_id is None:
            lists = [keys.list("inbox", state) for state in states]
        else:
            lists = [keys.list(f"inbox_{state}", session_id) for state in states]
        ends = f"({above}", "+inf", "WITHSCORES", "LIMIT", 0, limit + 1
        ops: list[Op] = [("ZRANGEBYSCORE", key, *ends) for key in lists]
        places = sorted(place for found in await self.db.read(ops) for place in scored(found))
        page = places[:limit]
        names = [member.rpartition("\0") for _, member in page]
        items = await items_of(self.db, owner, [(session_id or of, id_) for of, _, id_ in names])
        more = make_cursor(page[-1][0], mark) if len(places) > limit else None
        return Page([item for item in items if item is not None and item.state in states], more)

    async def item(self, owner: str, item_id: str) -> Item:
        key = self.db.keys(owner).list("items")
        found = await self.db.one("ZRANGEBYLEX", key, f"[{item_id}\0", f"({item_id}\x01", "LIMIT", 0, 1)
        if found:
            of = found[0].decode().partition("\0")[2].partition(":")[2]
            [known] = await items_of(self.db, owner, [(of, item_id)])
            if known is not None and known.state is not ItemState.CONSUMED:
                return known
        raise ItemNotFound(item_id)

    async def find_turn(self, owner: str, turn_id: str) -> Turn:
        return await heads.one(self.db, owner, TURNS, turn_id, TurnNotFound)

    # Claims -------------------------------------------------------------------------------------

    async def claim(
        self, owners: tuple[str, ...], agents: tuple[str, ...], wish: Claim, stamp: Stamp, *, root: str | None = None
    ) -> Claimed | None:
        if not agents or await self._is_drained(wish.launcher_id):
            return None
        looked = await self.ready.among(owners)
        passed: set[tuple[str, str]] = set()  # sessions whose turn cannot be taken now
        while True:
            due = await queue.due(self.db, looked, agents, micros(stamp.at), root)
            left = [each[1:] for each in due if each[1:] not in passed and each[1:] not in self.ready.in_hand]
            if not left:
                return None
            claimed = await self._claim(*left[0], wish, stamp)
            if claimed is not None:
                return claimed
            passed.add(left[0])

    async def _claim(self, owner: str, session_id: str, wish: Claim, stamp: Stamp) -> Claimed | None:
        async def story() -> Claimed | None:
            unit = Unit(self, owner)
            try:
                found = await unit.session(session_id)
            except SessionCorrupt:
                return None
            if found is None:
                return None
            if not self.db.options.cluster:
                unit.guards.append(self._not_drained(wish.launcher_id))
            return await seam.claim_turn(unit, found, wish, stamp)

        try:
            with self.ready.taking(owner, session_id):
                claimed = await self.told(owner, story, session_id)
        except _Drained:
            return None
        if claimed is not None and self.db.options.cluster and await self._is_drained(wish.launcher_id):
            await self._give_back(claimed, stamp)
            return None
        return None if claimed is None else await self._with_bodies(claimed)

    async def _give_back(self, claimed: Claimed, stamp: Stamp) -> None:
        """Release a turn. A launcher's drain mark is in another slot: a cluster checks it again after a claim."""
        turn = claimed.turn
        await self.apply(
            claimed.owner,
            claimed.session.session_id,
            lambda view: released(view, turn.turn_id, turn.epoch, stamp),
            needs=Needs(turn=turn.turn_id),
        )

    async def _with_bodies(self, claimed: Claimed) -> Claimed:
        names = [(item.session_id, item.item_id) for item in claimed.items]
        items = await items_of(self.db, claimed.owner, names)
        return Claimed(
            claimed.owner, claimed.session, claimed.turn, tuple(i for i in items if i is not None), claimed.runs
        )

    async def _is_drained(self, launcher_id: str) -> bool:
        return await documents.get(self.db, DocumentKind.DRAINED_LAUNCHER, launcher_id) is not None

    def _not_drained(self, launcher_id: str) -> CommitGuard:
        key = documents.place(self.db, DocumentKind.DRAINED_LAUNCHER)
        return CommitGuard("HGET", key, launcher_id, None, lambda _: _Drained())

    # Leases -------------------------------------------------------------------------------------

    async def overdue(self, at: datetime, limit: int) -> list[tuple[str, str]]:
        return await queue.overdue(self.db, await self.known_owners(), micros(at), limit)

    async def turns_of(self, launcher_id: str) -> list[LauncherTurn]:
        held = await queue.of_launcher(self.db, await self.known_owners(), launcher_id)
        awaits = await asyncio.gather(*(queue.awaits_child(self.db, o, turn.session_id) for _, o, turn in held))
        return [LauncherTurn(owner, turn, waits) for (_, owner, turn), waits in zip(held, awaits, strict=True)]


def _list_of_runs(keys: Keys, query: RunQuery) -> str:
    """Return the list that contains all runs of a query."""
    if query.session_id is not None:
        return keys.list("runs_of", query.session_id)
    if query.parent_session_id is not None:
        return keys.list("runs_for", query.parent_session_id)
    if query.open_only or query.state in (RunState.QUEUED, RunState.RUNNING):
        return keys.list("open_runs")
    return keys.list("runs") if query.agent is None else keys.list("runs_by", query.agent)


class _Drained(Exception):
    """The launcher is draining, and gets no turn."""
