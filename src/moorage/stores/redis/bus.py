"""Notifications of commits: by a channel for every commit, and by a timer.

A message is a hint. It is lost when a connection breaks, so a new connection counts as one; in a cluster it may be
lost between servers, so there each check of the timer counts as one too.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import UTC, datetime

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from moorage.clocks import SystemClock
from moorage.core.errors import MoorageError
from moorage.stores.pulse import Pulse
from moorage.stores.redis.db import RedisDb

LOOK_EVERY = 1.0  # seconds between two checks of the clock and the connection
AGAIN_AFTER = 0.5  # seconds until reconnecting after the connection broke
LONGEST_LOOK = 10.0  # seconds until the connection is considered dead
CLOCK_STEP = 0.005  # seconds by which clocks may differ without a correction


class RedisBus(Pulse):
    """The pulse of a store."""

    def __init__(self, db: RedisDb) -> None:
        super().__init__()
        self._db = db
        self._listener: asyncio.Task[None] | None = None
        self._hears: asyncio.Future[None] | None = None  # done once the subscription is active
        self._heard_at = 0.0
        self.offset = time.time() - time.monotonic()  # seconds that the server's clock is ahead of the monotonic clock

    async def ready(self) -> None:
        """Wait until the subscription is active: earlier commits would go unnoticed."""
        if self._hears is not None and not self._hears.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await asyncio.shield(self._hears)

    # Listening ----------------------------------------------------------------------------------

    def listen(self) -> None:
        if self._listener is None or self._listener.done():
            with suppress(RuntimeError):  # no event loop runs here, so no task waits
                loop = asyncio.get_running_loop()
                self._hears = loop.create_future()
                self._listener = loop.create_task(self._hear())

    async def _hear(self) -> None:
        """Keep a connection that listens, for as long as the store is open."""
        while True:
            try:
                [address, *_] = await self._db.servers.addresses()
                connection = self._db.servers.connection(address)
                try:
                    await connection.connect()  # type: ignore[no-untyped-call]
                    await self._set_clock(connection)
                    await connection.send_command("SUBSCRIBE", self._db.options.channel)
                    await self._follow(connection)
                finally:
                    await connection.disconnect(nowait=True)
            except (MoorageError, RedisError, OSError, TimeoutError):
                self._is_heard()
                await asyncio.sleep(AGAIN_AFTER)

    async def _follow(self, connection: AbstractConnection) -> None:
        """Read messages; also ping, so that a dead connection is noticed."""
        self._heard_at = time.monotonic()
        pinger = asyncio.create_task(self._ping(connection))
        try:
            while True:
                kind, *rest = await connection.read_response()
                self._heard_at = time.monotonic()
                if kind == b"subscribe":
                    self._is_heard()
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

    def _is_heard(self) -> None:
        assert self._hears is not None
        if self._hears.done():
            self.beat()  # notifications sent before the subscription are lost
        else:
            self._hears.set_result(None)

    async def _set_clock(self, connection: AbstractConnection) -> None:
        """Measure how far the server's clock is ahead of this machine's monotonic one."""
        asked = time.monotonic()
        await connection.send_command("TIME")
        seconds, micros = await connection.read_response()
        took = time.monotonic() - asked
        offset = int(seconds) + int(micros) / 1e6 - asked - took / 2
        if abs(offset - self.offset) > took / 2 + CLOCK_STEP:
            self.offset = offset

    async def close(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            self._listener.cancel()
            with suppress(asyncio.CancelledError):
                await self._listener


class ServerClock(SystemClock):
    """The server's clock, as measured by this machine, so that leases mean the same on every machine."""

    def __init__(self, bus: RedisBus) -> None:
        self._bus = bus

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.monotonic() + self._bus.offset, UTC)
