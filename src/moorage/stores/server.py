"""Stores on a server: how long callers wait for it, its clock, the commits of other processes, and options of its URL.

A server that was reached before is restarting, so callers wait for it. At an address that was never reached there is
probably no server at all, and waiting would only delay the error.
"""

from __future__ import annotations

import asyncio
import errno
import random
import re
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from datetime import UTC, datetime
from math import inf
from socket import gaierror

from moorage.clocks import SystemClock
from moorage.core.errors import InvalidField, MoorageError, StoreUnavailable
from moorage.stores import OpeningProcess
from moorage.stores.pulse import Pulse

FIRST_PAUSE = 0.02  # seconds between the first two attempts
_NUMBER = re.compile(r"\[Errno (\d+)\]")


def is_dead(error: BaseException | None) -> bool:
    """Return whether an attempt to connect was refused, or failed because a name or a socket's file does not exist."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, (ConnectionRefusedError, FileNotFoundError, gaierror)):
            return True
        # That all addresses of a name refused is in the text of one error of asyncio.
        if isinstance(error, OSError) and set(_NUMBER.findall(str(error))) == {str(errno.ECONNREFUSED)}:
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


class StoreServer:
    """A server, as this process reaches it."""

    longest_pause = 1.0  # seconds between two attempts
    in_a_hurry = 2.0  # seconds that callers wait once the process is about to end

    def __init__(self, shown: str, patience: float, *, is_known: bool) -> None:
        """Set up. With `is_known`, wait for the server even if the first connection is refused."""
        self.shown, self.patience, self.is_known = shown, patience, is_known
        self.process = OpeningProcess(shown)
        self.hurried_at = inf  # from this time on, no call waits long

    def hurry(self) -> None:
        """Let no call wait long from now on."""
        self.hurried_at = time.monotonic()

    def retries(self) -> Retries:
        """Return the retries of a call that begins now."""
        return Retries(self)

    def given_up(self, error: Exception) -> MoorageError:
        """Return the error for a caller that has waited long enough."""
        why = f"{self.shown} cannot be reached ({error}); nothing was changed, try again"
        return StoreUnavailable(why, store=self.shown)


class Retries:
    """How long a caller waits in total, and how long between two attempts."""

    def __init__(self, server: StoreServer) -> None:
        self._server, self._began, self._pause = server, time.monotonic(), FIRST_PAUSE

    @property
    def left(self) -> float:
        """Return the remaining seconds."""
        hurried = max(self._began, self._server.hurried_at) + self._server.in_a_hurry
        return min(self._began + self._server.patience, hurried) - time.monotonic()

    async def wait(self, error: Exception, *, pauses: bool = True) -> None:
        """Pause before another attempt, or the last one. Raises the caller's error once the time is over."""
        left = self.left
        if left <= 0 or (not self._server.is_known and is_dead(error)):
            raise self._server.given_up(error) from error
        if pauses:
            await asyncio.sleep(min(self._pause * random.uniform(0.5, 1.0), left))
            self._pause = min(self._pause * 2, self._server.longest_pause)


# Commits of other processes, and the clock ------------------------------------------------------

LOOK_EVERY = 1.0  # seconds between two checks of the clock and the connection
LONGEST_LOOK = 10.0  # seconds until the connection is considered dead
AGAIN_AFTER = 0.5  # seconds until reconnecting after the connection broke
CLOCK_STEP = 0.005  # seconds by which clocks may differ without a correction


class ListeningPulse(Pulse, ABC):
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
            await asyncio.wait({self._hears}, timeout=1)

    async def _hear(self) -> None:
        """Keep a connection that listens, for as long as the store is open."""
        while True:
            try:
                await self._follow()
            except self._breaks:
                self.note_listening()
                await asyncio.sleep(AGAIN_AFTER)

    @abstractmethod
    async def _follow(self) -> None:
        """Listen on a new connection until it breaks; call `note_listening` once it listens."""

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
        await end(self._listener)


async def end(task: asyncio.Task[None] | None) -> None:
    """Cancel a task, if there is one, and wait until it has ended."""
    if task is not None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class ServerClock(SystemClock):
    """The server's clock, as measured by this machine, so that leases mean the same on every machine.

    Times still come in with the call. The difference to this machine's monotonic clock is measured while the store
    listens, every second on PostgreSQL: a step of this machine's own clock has no effect.
    """

    def __init__(self, pulse: ListeningPulse) -> None:
        self._pulse = pulse

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.monotonic() + self._pulse.offset, UTC)


# Options of URLs --------------------------------------------------------------------------------


def whole_number(name: str, value: str, most: int) -> int:
    """Return a positive whole number."""
    if not value.isdecimal() or not 1 <= int(value) <= most:
        raise InvalidField("url", f"has {name}={value!r}; give a whole number from 1 to {most}")
    return int(value)


def seconds(name: str, value: str) -> float:
    """Return a timeout in seconds."""
    try:
        found = float(value)
    except ValueError:
        found = 0.0
    if not 0.05 <= found <= 86_400:
        raise InvalidField("url", f"has {name}={value!r}; give seconds, from 0.05 to 86400")
    return found
