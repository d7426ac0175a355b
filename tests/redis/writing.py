"""Writers who keep account of what was acknowledged, and a reader who looks whether all of it is there, once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from itertools import count
from typing import Any

from moorage.core.errors import IdTaken, StoreError
from moorage.stores.redis.store import RedisStore
from moorage.testing.builders import a_session, a_stamp, said, updated, whole_feed, whole_log


class Writers:
    """Some tasks that write to sessions of their own and to one that they share, whatever happens to the servers."""

    def __init__(self, store: RedisStore, owners: list[str]) -> None:
        self._store, self._owners = store, owners
        self.said: dict[tuple[str, str], list[str]] = {}  # acknowledged, by owner and session
        self.errors: dict[tuple[str, str], int] = {}
        self.unknown = 0
        self._is_over = asyncio.Event()

    async def write(self) -> None:
        """Write until `stop`."""
        for owner in self._owners:
            await self._create(owner, "shared")
        await asyncio.gather(*(self._one(owner, f"own-{place}") for place, owner in enumerate(self._owners)))

    def stop(self) -> None:
        """Let all writers finish their present write."""
        self._is_over.set()

    @property
    def acknowledged(self) -> int:
        """How many messages."""
        return sum(map(len, self.said.values()))

    async def _one(self, owner: str, session_id: str) -> None:
        await self._create(owner, session_id)
        for number in count():
            if self._is_over.is_set():
                return
            for place in (session_id, "shared"):
                await self._say(owner, place, f"{session_id} says {number}")
            if number % 5 == 0:
                await self._fail(owner, session_id, number)

    async def _create(self, owner: str, session_id: str) -> None:
        self.said.setdefault((owner, session_id), [])
        with suppress(IdTaken):  # by an attempt whose outcome was unknown
            await self._again(lambda: self._store.create(owner, a_session(session_id)))

    async def _say(self, owner: str, session_id: str, text: str) -> None:
        """Under a key, so that to repeat it is harmless."""
        await self._again(lambda: self._store.append(owner, session_id, said(text, key=text), a_stamp()))
        self.said[owner, session_id].append(text)

    async def _fail(self, owner: str, session_id: str, number: int) -> None:
        """Not under a key: what is unknown is not repeated."""
        try:
            await self._store.apply(owner, session_id, updated(error=str(number)))
        except StoreError:
            self.unknown += 1
        else:
            self.errors[owner, session_id] = self.errors.get((owner, session_id), 0) + 1

    async def _again(self, attempt: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        while True:
            try:
                await attempt()
                return
            except StoreError:
                self.unknown += 1
                await asyncio.sleep(0.02)

    async def problems(self, store: RedisStore) -> list[str]:
        """Return what is lost, doubled or out of order."""
        found = []
        for (owner, session_id), texts in self.said.items():
            log = await whole_log(store, session_id, owner)
            if [entry.number for entry in log] != list(range(1, len(log) + 1)):
                found.append(f"{owner} {session_id}: gaps or doubles")
            said_there = Counter(str(entry.content) for entry in log if entry.is_message)
            found += [f"{owner} {session_id}: {text!r} is lost" for text in texts if not said_there[text]]
            found += [f"{owner} {session_id}: {text!r} twice" for text, times in said_there.items() if times > 1]
            errors = sum(entry.kind == "error" for entry in log)
            if errors < self.errors.get((owner, session_id), 0):
                found.append(f"{owner} {session_id}: an error is lost")
        for owner in set(self._owners):
            ids = [event.id for event in await whole_feed(store, owner)]
            if ids != list(range(1, len(ids) + 1)):
                found.append(f"{owner}: the feed has gaps or doubles")
        return found + await store.check()
