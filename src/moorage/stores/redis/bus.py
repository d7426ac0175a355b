"""Notifications of commits: by a channel for every commit, and by a timer.

A message is a hint. It is lost when a connection breaks, so a new connection counts as one; in a cluster it may be
lost between servers, so there each check of the timer counts as one too.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from moorage.core.errors import MoorageError
from moorage.stores.redis.db import RedisDb
from moorage.stores.server import LONGEST_LOOK, LOOK_EVERY, ListeningPulse


class RedisBus(ListeningPulse):
    """The pulse of a store."""

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
