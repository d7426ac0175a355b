"""Appends in groups: appends that arrive while a group is under way share the next one, in one statement.

An append never waits for company: a single one is sent at once, by its own task. Two groups
may be under way, so that one is assembled while the other is synced to disk; a session is in only one of
them at a time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from moorage.core.entry import Entry
from moorage.stores.postgres import log
from moorage.stores.postgres.connection import PostgresConnection
from moorage.stores.postgres.log import AppendedMessages

if TYPE_CHECKING:
    from moorage.stores.postgres.access import PostgresAccess

MAX_GROUP = 64
MAX_GROUP_BYTES = 1024 * 1024
AT_ONCE = 2  # groups under way

Place = tuple[str, str]  # an owner, and a session's id
Waiting = tuple[AppendedMessages, "asyncio.Future[list[Entry] | None]"]


class Groups:
    """The queue of waiting appends."""

    def __init__(self, access: PostgresAccess) -> None:
        self._access = access
        self._waiting: list[Waiting] = []
        self._under_way: set[Place] = set()
        self._senders: set[asyncio.Task[None]] = set()
        self._alone = 0  # single appends under way
        self._none_alone = asyncio.Event()

    async def append(self, one: AppendedMessages) -> list[Entry] | None:
        """Add messages in one commit with those of other callers; return None if they were refused."""
        if self._has_room and not self._waiting and (one.owner, one.ref) not in self._under_way:
            return await self._append_alone(one)
        future: asyncio.Future[list[Entry] | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((one, future))
        self._send()
        return await future

    async def finish(self) -> None:
        """Wait for all appends. This includes single ones, because the next group may start after them."""
        while self._senders or self._alone:
            if self._senders:
                await asyncio.wait(self._senders)
            else:
                await self._none_alone.wait()

    async def _append_alone(self, one: AppendedMessages) -> list[Entry] | None:
        place = (one.owner, one.ref)
        self._under_way.add(place)
        self._alone += 1
        self._none_alone.clear()
        try:
            return await self._access.write(lambda db: log.append_one(db, one))
        finally:
            self._alone -= 1
            self._under_way.discard(place)
            self._send()
            if not self._alone:
                self._none_alone.set()

    @property
    def _has_room(self) -> bool:
        return len(self._senders) + self._alone < AT_ONCE

    def _send(self) -> None:
        while self._waiting and self._has_room and (group := self._next_group()):
            sender = asyncio.create_task(self._commit(group))
            self._senders.add(sender)
            sender.add_done_callback(self._sent)

    def _sent(self, sender: asyncio.Task[None]) -> None:
        self._senders.discard(sender)
        self._send()

    def _next_group(self) -> list[Waiting]:
        """Return the oldest appends that can go together: each session once, and none of a session in another group."""
        group, left, weight = list[Waiting](), list[Waiting](), 0
        for place, one in enumerate(self._waiting):
            if len(group) == MAX_GROUP or weight > MAX_GROUP_BYTES:
                left += self._waiting[place:]
                break
            where = (one[0].owner, one[0].ref)
            if where in self._under_way:
                left.append(one)
                continue
            self._under_way.add(where)
            group.append(one)
            weight += one[0].weight
        self._waiting = left
        return group

    async def _commit(self, group: list[Waiting]) -> None:
        async def job(db: PostgresConnection) -> list[list[Entry] | None]:
            return await log.append_all(db, [one for one, _ in group])

        try:
            done = await self._access.write(job)
        except BaseException as error:  # an error fails the whole group
            for _, future in group:
                if not future.done():
                    future.set_exception(error)
            if not isinstance(error, Exception):
                raise
        else:
            for (_, future), entries in zip(group, done, strict=True):
                if not future.done():
                    future.set_result(entries)
        finally:
            self._under_way -= {(one.owner, one.ref) for one, _ in group}
