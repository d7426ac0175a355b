"""Approvals, runs, inboxes, and turns given to launchers, which wait in a list for each agent of each owner."""

from __future__ import annotations

import asyncio
from datetime import datetime
from functools import partial
from itertools import chain

from msgspec.structs import replace

from moorage.core.approval import PENDING, Approval, ApprovalQuery
from moorage.core.document import DocumentKind
from moorage.core.errors import ApprovalNotFound, ItemNotFound, RunNotFound, SessionCorrupt, TurnNotFound
from moorage.core.inbox import Item, ItemState, inbox_fingerprint
from moorage.core.query import Page, make_cursor, read_cursor
from moorage.core.run import Mode, Run, RunQuery, RunState
from moorage.core.session import Needs, Stamp
from moorage.core.turn import Turn
from moorage.core.work import Claim, released
from moorage.ports import Claimed, LauncherTurn
from moorage.stores import seam
from moorage.stores.redis import heads
from moorage.stores.redis.db import CommitGuard, Op, scored
from moorage.stores.redis.keys import Keys
from moorage.stores.redis.lists import items_of, page_of, rows_of, walk
from moorage.stores.redis.records import document_key, get_document
from moorage.stores.redis.sessions import RedisSessions
from moorage.stores.redis.values import APPROVALS, RUNS, TURNS
from moorage.stores.rows import micros
from moorage.stores.seam import Unit

CHOICE = 16  # turns of one agent that are considered, so that concurrent launchers find different ones


class RedisWork(RedisSessions):
    """Stores approvals, runs, turns and inboxes, and gives turns to launchers."""

    async def approval(self, owner: str, approval_id: str) -> Approval:
        return await heads.one(self.db, owner, APPROVALS, approval_id, ApprovalNotFound)

    async def approvals(self, owner: str, query: ApprovalQuery = PENDING) -> list[Approval]:
        keys = self.db.keys(owner)
        if query.due_at is not None:
            due = await self.db.one("ZRANGEBYSCORE", keys.list("asked_until"), "-inf", micros(query.due_at))
            found = await rows_of(self.db, keys, APPROVALS, [id_.decode() for id_ in due])
            return [one for one in found if one is not None and query.admits(one)][: query.limit]
        key = keys.list("pending" if query.pending_only else "approvals")
        if query.session_id is not None:
            key = keys.list("approvals_of", query.session_id)
        places = walk(self.db, key, None, min(query.limit + 1, 500), newest_first=False)
        read = partial(rows_of, self.db, keys, APPROVALS)
        return (await page_of(places, read, query.admits, query.limit, str)).items

    async def approvals_of(
        self, owner: str, session_ids: list[str], *, pending_only: bool = True, limit: int = 100
    ) -> list[list[Approval]]:
        async def one(session_id: str) -> list[Approval]:
            try:
                query = ApprovalQuery(session_id=session_id, pending_only=pending_only, limit=limit)
                return await self.approvals(owner, query)
            except SessionCorrupt:
                return []

        return list(await asyncio.gather(*map(one, session_ids)))

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
        if query.due_at is not None:
            due = await self.db.one(
                "ZRANGEBYSCORE", keys.list("untaken"), "-inf", micros(query.due_at), "LIMIT", 0, query.limit
            )
            found = await rows_of(self.db, keys, RUNS, [id_.decode() for id_ in due])
            return Page([run for run in found if run is not None and query.admits(run)], None)
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
        places = sorted(place for found in await self.db.read(*ops) for place in scored(found))
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
            due = await asyncio.gather(*(self._due(owner, agents, micros(stamp.at), root) for owner in looked))
            ordered = [each[1:] for each in sorted(chain.from_iterable(due))]
            left = [each for each in ordered if each not in passed and each not in self.ready.in_hand]
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
        owner, session_id, turn = claimed.owner, claimed.session.session_id, claimed.turn
        needs = Needs(turn=turn.turn_id)
        await self.apply(owner, session_id, lambda view: released(view, turn.turn_id, turn.epoch, stamp), needs=needs)

    async def _with_bodies(self, claimed: Claimed) -> Claimed:
        names = [(item.session_id, item.item_id) for item in claimed.items]
        items = await items_of(self.db, claimed.owner, names)
        return replace(claimed, items=tuple(item for item in items if item is not None))

    async def _is_drained(self, launcher_id: str) -> bool:
        return await get_document(self.db, DocumentKind.DRAINED_LAUNCHER, launcher_id) is not None

    def _not_drained(self, launcher_id: str) -> CommitGuard:
        key = document_key(self.db, DocumentKind.DRAINED_LAUNCHER)
        return CommitGuard("HGET", key, launcher_id, None, lambda _: _Drained())

    async def _due(self, owner: str, agents: tuple[str, ...], at: int, root: str | None) -> list[tuple[int, str, str]]:
        """Return number, owner and session of an owner's due queued turns."""
        keys = self.db.keys(owner)
        if root is not None:
            ids = await self.db.one("ZRANGE", keys.list("queue_of", root), 0, -1)
        else:
            ops: list[Op] = [("ZRANGE", keys.list("queue", agent), 0, CHOICE - 1) for agent in agents]
            ops += [("ZRANGEBYSCORE", keys.list("later", agent), "-inf", at, "LIMIT", 0, 500) for agent in agents]
            ids = [id_ for each in await self.db.read(*ops) for id_ in each]
        return [
            (number, owner, turn.session_id)
            for number, turn in await self._turns(owner, [id_.decode() for id_ in ids])
            if turn.agent_name in agents and turn.state == "queued"
            if turn.not_before is None or micros(turn.not_before) <= at
        ]

    async def _turns(self, owner: str, ids: list[str]) -> list[tuple[int, Turn]]:
        """Return turns by id, each with its number."""
        rows = await self.db.one("HMGET", self.db.keys(owner)("turns"), *ids) if ids else []
        return [TURNS.value(self.db, id_, row) for id_, row in zip(ids, rows, strict=True) if row is not None]

    # Leases -------------------------------------------------------------------------------------

    async def overdue(self, at: datetime, limit: int) -> list[tuple[str, str]]:
        owners, silent, untaken = await self.known_owners(), list[tuple[int, str, str]](), list[tuple[int, str, str]]()
        ended = await asyncio.gather(*(self._ended(owner, micros(at), limit) for owner in owners))
        for owner, (leases, runs) in zip(owners, ended, strict=True):
            turns = {turn.turn_id: turn for _, turn in await self._turns(owner, [id_ for _, id_ in leases])}
            silent += [(end, owner, turns[id_].session_id) for end, id_ in leases if id_ in turns]
            for end, id_ in runs:
                if (run := await heads.row(self.db, owner, RUNS, id_)) is not None:
                    untaken.append((end, owner, run[1].session_id))
        ordered = [(owner, session_id) for _, owner, session_id in (*sorted(silent), *sorted(untaken))]
        return list(dict.fromkeys(ordered))[:limit]

    async def _ended(self, owner: str, at: int, limit: int) -> list[list[tuple[int, str]]]:
        """Return an owner's turns whose lease has expired, and the runs that were not taken in time."""
        keys, ends = self.db.keys(owner), ("-inf", at, "WITHSCORES", "LIMIT", 0, limit)
        found = await self.db.read(*(("ZRANGEBYSCORE", keys.list(name), *ends) for name in ("leases", "untaken")))
        return [scored(each) for each in found]

    async def turns_of(self, launcher_id: str) -> list[LauncherTurn]:
        async def of_owner(owner: str) -> list[tuple[int, str, Turn]]:
            ids = await self.db.one("ZRANGE", self.db.keys(owner).list("launcher", launcher_id), 0, -1)
            return [(number, owner, turn) for number, turn in await self._turns(owner, [id_.decode() for id_ in ids])]

        found = await asyncio.gather(*map(of_owner, await self.known_owners()))
        held = sorted(chain.from_iterable(found), key=lambda each: each[0])
        awaits = await asyncio.gather(*(self._awaits_child(owner, turn.session_id) for _, owner, turn in held))
        return [LauncherTurn(owner, turn, waits) for (_, owner, turn), waits in zip(held, awaits, strict=True)]

    async def _awaits_child(self, owner: str, session_id: str) -> bool:
        """Return whether a session waits for a child that it called synchronously."""
        ops = heads.head_ops(self.db.keys(owner), session_id)
        found = heads.loaded(self.db, session_id, await self.db.read(*ops))
        return found is not None and any(out.mode is Mode.SYNC for out in found.out.values())


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
