"""Servers that may be away: how long callers wait for one.

A server that was reached before is restarting, so callers wait for it. At an address that was never reached there is
probably no server at all, and waiting would only delay the error.
"""

from __future__ import annotations

import asyncio
import errno
import random
import re
import time
from math import inf
from socket import gaierror

from moorage.core.errors import MoorageError, StoreUnavailable
from moorage.stores import OpeningProcess

FIRST_PAUSE = 0.02  # seconds between the first two attempts
_NUMBER = re.compile(r"\[Errno (\d+)\]")


def is_dead(error: BaseException | None) -> bool:
    """Return whether an attempt to connect was refused, or failed because a name or a socket's file does not exist."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, (ConnectionRefusedError, FileNotFoundError, gaierror)) or _is_refused_everywhere(error):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _is_refused_everywhere(error: BaseException) -> bool:
    """Return whether all addresses of a name refused: asyncio puts their errors into the text of one error."""
    numbers = {int(number) for number in _NUMBER.findall(str(error))} if isinstance(error, OSError) else set()
    return numbers == {errno.ECONNREFUSED}


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
