"""The pulse of a store on a server: a task listens for commits of other processes, and measures the server's clock."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import UTC, datetime

from moorage.clocks import SystemClock
from moorage.core.errors import MoorageError
from moorage.stores.pulse import Pulse

LOOK_EVERY = 1.0  # seconds between two checks of the clock and the connection
LONGEST_LOOK = 10.0  # seconds until the connection is considered dead
AGAIN_AFTER = 0.5  # seconds until reconnecting after the connection broke
CLOCK_STEP = 0.005  # seconds by which clocks may differ without a correction


class ListeningPulse(Pulse):
    """The pulse of a store on a server."""

    _breaks: tuple[type[Exception], ...] = (MoorageError, OSError)  # the errors of a broken connection

    def __init__(self) -> None:
        super().__init__()
        self._listener: asyncio.Task[None] | None = None
        self._hears: asyncio.Future[None] | None = None  # done once the connection listens
        self.offset = time.time() - time.monotonic()  # seconds that the server's clock is ahead of the monotonic clock

    def listen(self) -> None:
        if self._listener is None or self._listener.done():
            with suppress(RuntimeError):  # no event loop runs here, so no task waits
                loop = asyncio.get_running_loop()
                self._hears = loop.create_future()
                self._listener = loop.create_task(self._hear())

    async def ready(self) -> None:
        """Wait until the connection listens: earlier commits would go unnoticed."""
        if self._hears is not None and not self._hears.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await asyncio.shield(self._hears)

    async def _hear(self) -> None:
        """Keep a connection that listens, for as long as the store is open."""
        while True:
            try:
                await self._follow()
            except self._breaks:
                self.note_listening()
                await asyncio.sleep(AGAIN_AFTER)

    async def _follow(self) -> None:
        """Listen on a new connection until it breaks; call `note_listening` once it listens."""
        raise NotImplementedError

    def note_listening(self) -> None:
        """End the wait for the connection; after the first time, wake all waiters: notifications may be lost."""
        assert self._hears is not None
        if self._hears.done():
            self.beat()
        else:
            self._hears.set_result(None)

    def set_offset(self, asked: float, told: float) -> None:
        """Correct the offset: the server told its time just now, asked at that time of our monotonic clock."""
        took = time.monotonic() - asked
        offset = told - asked - took / 2
        if abs(offset - self.offset) > took / 2 + CLOCK_STEP:  # otherwise the known offset is accurate enough
            self.offset = offset

    async def close(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            self._listener.cancel()
            with suppress(asyncio.CancelledError):
                await self._listener


class ServerClock(SystemClock):
    """The server's clock, as measured by this machine, so that leases mean the same on every machine.

    Times still come in with the call. The difference to this machine's monotonic clock is measured while the store
    listens, every second on PostgreSQL: a step of this machine's own clock has no effect.
    """

    def __init__(self, pulse: ListeningPulse) -> None:
        self._pulse = pulse

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.monotonic() + self._pulse.offset, UTC)
