"""The base of the store: its servers, its backend for `seam`, and the retry of changes that lose to a concurrent one.

One script reads the data for a decision, another commits it. The commit is refused if any of that data has changed.
Writers of one session queue inside a process, because a collision costs a round trip. A writer that loses too often
against other processes takes a short lock, which excludes them once.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from moorage.core.errors import MoorageError
from moorage.core.run import Run
from moorage.core.turn import Turn, TurnState
from moorage.ports import CommitWatcher
from moorage.stores import Stale, seam
from moorage.stores.redis import heads, writes
from moorage.stores.redis.db import CommitGuard, RedisDb
from moorage.stores.redis.values import RUNS
from moorage.stores.seam import Loaded, Unit
from moorage.stores.server import LONGEST_LOOK, LOOK_EVERY, ListeningPulse, ServerClock

if TYPE_CHECKING:
    from moorage.stores.sealing import Sealer

T = TypeVar("T")

PATIENT_TRIES = 4  # attempts lost against other processes; then a lock keeps those away
LOCKED_FOR = 500  # milliseconds at most
MANY = 16  # with at most this many owners, all are checked for queued turns each time
LOOK_AT_ALL_EVERY = 5.0  # seconds


class RedisBus(ListeningPulse):
    """Notifications of commits: by a channel for every commit, and by a timer.

    A message is a hint. It is lost when a connection breaks, so a new connection counts as one; in a cluster it may be
    lost between servers, so there each check of the timer counts as one too.
    """

    _breaks = (MoorageError, OSError, RedisError)

    def __init__(self, db: RedisDb) -> None:
        super().__init__()
        self._db = db
        self._heard_at = 0.0

    async def _follow(self) -> None:
        [address, *_] = await self._db.servers.addresses()
        connection = self._db.servers.connection(address)
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
            await self._set_clock(connection)
            await connection.send_command("SUBSCRIBE", self._db.options.channel)
            await self._read(connection)
        finally:
            await connection.disconnect(nowait=True)

    async def _read(self, connection: AbstractConnection) -> None:
        """Read messages; also ping, so that a dead connection is noticed."""
        self._heard_at = time.monotonic()
        pinger = asyncio.create_task(self._ping(connection))
        try:
            while True:
                kind, *rest = await connection.read_response()
                self._heard_at = time.monotonic()
                if kind == b"subscribe":
                    self.note_listening()
                elif kind == b"message" and rest[-1] != self._db.name.encode():
                    self.beat()
        finally:
            pinger.cancel()

    async def _ping(self, connection: AbstractConnection) -> None:
        while time.monotonic() - self._heard_at < LONGEST_LOOK:
            await asyncio.sleep(LOOK_EVERY)
            with suppress(RedisError, OSError):
                await connection.send_command("PING")
            if self._db.options.cluster:
                self.beat()
        await connection.disconnect(nowait=True)

    async def _set_clock(self, connection: AbstractConnection) -> None:
        """Measure how far the server's clock is ahead of this machine's monotonic one."""
        asked = time.monotonic()
        await connection.send_command("TIME")
        seconds, micros = await connection.read_response()
        self.set_offset(asked, int(seconds) + int(micros) / 1e6)


class Ready:
    """The owners that may have turns for a launcher, according to a shared set, which is a hint.

    With it, a launcher for thousands of owners need not check all of them each time. Every few seconds it does so
    nevertheless.
    """

    def __init__(self, db: RedisDb) -> None:
        self._db, self._key = db, db.shared("ready")
        self._looked_at = 0.0  # when all owners were checked last
        self.in_hand: set[tuple[str, str]] = set()  # sessions whose turns this process is about to take

    @contextmanager
    def taking(self, owner: str, session_id: str) -> Iterator[None]:
        """Keep other claims of this process away from a session during the block."""
        self.in_hand.add((owner, session_id))
        try:
            yield
        finally:
            self.in_hand.discard((owner, session_id))

    async def among(self, owners: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of these owners that may have turns."""
        now = time.monotonic()
        if len(owners) <= MANY:
            return owners
        if now - self._looked_at > LOOK_AT_ALL_EVERY:
            self._looked_at = now
            await self._repair(owners)
            return owners
        noted = await self._db.one("SMISMEMBER", self._key, *owners)
        return tuple(owner for owner, is_noted in zip(owners, noted, strict=True) if is_noted)

    async def note(self, owner: str) -> None:
        """Record that an owner has a queued turn. The turn is committed already: losing the hint is no error."""
        with suppress(MoorageError):
            await self._db.one("SADD", self._key, owner)

    async def _repair(self, owners: tuple[str, ...]) -> None:
        """Remove owners without queued turns from the hint; the next check finds an owner that gets a turn just now."""
        noted = await self._db.one("SMISMEMBER", self._key, *owners)
        known = [owner for owner, is_noted in zip(owners, noted, strict=True) if is_noted]
        counts = await asyncio.gather(*(self._db.one("ZCARD", self._db.keys(owner).list("queued")) for owner in known))
        if idle := [owner for owner, count in zip(known, counts, strict=True) if not count]:
            await self._db.one("SREM", self._key, *idle)


class Base:
    """The servers of a store, and how changes are committed to them."""

    def __init__(
        self, url: str, sealer: Sealer | None = None, *, patience: float | None = None, is_known: bool = False
    ) -> None:
        """Open the store of a URL. With `patience`, callers wait at most so many seconds for it.

        With `is_known`, wait for the server even if the first connection is refused.
        """
        self.db = RedisDb(url, sealer, patience, is_known=is_known)
        self.db.committed = self._committed
        self.bus = RedisBus(self.db)
        self.clock = ServerClock(self.bus)
        self.ready = Ready(self.db)
        self.tokens: dict[tuple[str, str], str] = {}  # of this process's locks, by owner and session
        self._watcher: CommitWatcher | None = None
        self._locks: dict[tuple[str, str | None], asyncio.Lock] = {}

    def on_commit(self, watcher: CommitWatcher) -> None:
        """Call `watcher` after every commit of this process."""
        self._watcher = watcher

    def _committed(self, seconds: float) -> None:
        self.bus.beat()
        if self._watcher is not None:
            self._watcher(1, seconds)

    async def known_owners(self) -> list[str]:
        """Return all owners that ever had data."""
        return [owner.decode() for owner in await self.db.one("SMEMBERS", self.db.shared("owners"))]

    # The seam -----------------------------------------------------------------------------------

    async def load_session(self, owner: str, session_id: str) -> Loaded | None:
        """Return the session with exactly this id, and all its open work."""
        return await heads.load(self.db, owner, session_id)

    async def settled_run(self, owner: str, run_id: str) -> Run | None:
        """Return a run if it has ended."""
        found = await heads.row(self.db, owner, RUNS, run_id)
        return found[1] if found is not None and found[1].is_settled else None

    async def commit(self, unit: Unit) -> None:
        """Write a unit completely or not at all."""
        await writes.commit(self.db, unit, self.tokens)
        is_queued = any(
            isinstance(value, Turn) and value.state is TurnState.QUEUED
            for loaded in unit.sessions.values()
            for value in loaded.now.values()
        )
        if is_queued:
            await self.ready.note(unit.owner)

    async def settle(self, owner: str) -> None:
        """Wait until an owner's earlier commits are as durable as requested."""
        await self.db.settle(self.db.keys(owner)("settled"))

    async def told(self, owner: str, story: Callable[[], Awaitable[T]], ref: str | None = None) -> T:
        """Run a story until it loses to no concurrent change; stories about one session run one after another."""
        locked: set[str] = set()

        async def wait(tries: int, error: Stale) -> None:
            if tries >= PATIENT_TRIES:
                if error.session_id is not None and await self._lock(owner, error.session_id):
                    locked.add(error.session_id)
                else:
                    await asyncio.sleep(random.uniform(0, 0.002 * min(tries, 10)))

        place = owner, ref
        turn = self._locks.setdefault(place, asyncio.Lock()) if ref is not None else asyncio.Lock()
        try:
            async with turn:
                return await seam.told_again(story, wait)
        finally:
            if not turn.locked() and self._locks.get(place) is turn:
                del self._locks[place]
            for session_id in locked:
                await self._unlock(owner, session_id)

    async def _lock(self, owner: str, session_id: str) -> bool:
        """Lock out other writers of a session briefly; return False if another writer has the lock."""
        key = self.db.keys(owner).of("t", session_id)
        token = self.tokens.get((owner, session_id)) or os.urandom(8).hex()
        holder = await self.db.one("SET", key, token, "NX", "GET", "PX", LOCKED_FOR)
        if holder is not None and holder.decode() != token:
            self.tokens.pop((owner, session_id), None)
            return False
        self.tokens[owner, session_id] = token
        return True

    async def _unlock(self, owner: str, session_id: str) -> None:
        token = self.tokens.pop((owner, session_id), None)
        key = self.db.keys(owner).of("t", session_id)
        if token is not None:
            is_ours = CommitGuard("GET", key, None, token, writes.stale("the lock is another's"))
            with suppress(Stale, MoorageError):  # the lock expires by itself
                await self.db.write(("DEL", key), guard=is_ours)
