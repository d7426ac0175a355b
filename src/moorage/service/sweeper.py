"""The sweeper: repeats the cleanup by policy for as long as a server runs.

A module of its own, because it needs an event loop: commands and hooks never load it. Every server on a store may run
a sweeper. Each step of a cleanup judges sessions under the lock, so no session is deleted twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from datetime import timedelta

from msgspec.structs import replace

from moorage.core.errors import MoorageError, SessionCorrupt, StoreError
from moorage.service.deps import Caller, Deps
from moorage.service.retention import cleanup_steps, retention_of

log = logging.getLogger(__name__)

PURGE_STEP = 500  # rows in one transaction
FIRST_WITHIN = timedelta(minutes=1)
RETRY_AFTER = timedelta(seconds=10)  # doubled with every failure in a row, up to the usual interval
SPREAD = 0.1  # spreads servers that were started together

Pause = Callable[[float], Awaitable[bool]]  # waits so many seconds; returns whether a stop was requested meanwhile


class Sweeper:
    """Cleans up the sessions of all owners in the caller's name, every `retention.every`, until `stop` is set."""

    def __init__(self, deps: Deps, caller: Caller, stop: asyncio.Event, *, pause: Pause | None = None) -> None:
        self._deps, self._caller, self._stop = deps, caller, stop
        self._pause = pause or self._is_stopped_within
        self._turn = asyncio.Lock()
        self.failures = 0  # in a row; for health checks

    async def run(self) -> None:
        """Sweep and wait, repeatedly. A failure is logged and retried; only `stop` and cancelling end it."""
        every = self._deps.settings.retention.every
        if every is None:
            log.info("no cleanup: retention.every is never")
            return
        try:
            wait = min(every, FIRST_WITHIN) * self._chance()
            log.debug("cleanup every %s, first in %s", every, wait)
            while not await self._pause(wait.total_seconds()):
                wait = await self._attempt(every)
        except Exception:
            log.critical("the cleanup has ended, and will not come back", exc_info=True)
            raise

    async def sweep(self) -> Counter[str]:
        """Clean up once, or until told to stop; return the number of deletions by reason. One call runs at a time."""
        gone: Counter[str] = Counter()
        failed: list[Exception] = []
        async with self._turn:
            for owner in await self._deps.store.owners():
                try:
                    gone += await self._sweep_of(replace(self._caller, owner=owner))
                except Exception as error:  # an error in one owner's sessions must not block the others
                    if isinstance(error, StoreError) and not isinstance(error, SessionCorrupt):
                        raise  # the next owner would get the same error
                    failed.append(error)
                if self._stop.is_set():
                    break
            await self._purge()
        if failed:
            raise failed[0]
        return gone

    async def _sweep_of(self, caller: Caller) -> Counter[str]:
        gone: Counter[str] = Counter()
        retention = retention_of(self._deps.settings, by_itself=True)
        async with aclosing(cleanup_steps(self._deps, caller, retention)) as steps:
            try:
                async for some in steps:
                    gone.update(f"{removal.reason} ({removal.limit_from})" for removal in some)
                    if self._stop.is_set():
                        break
            finally:  # deletions are reported, however it ended
                if gone:
                    reasons = ", ".join(f"{count} {reason}" for reason, count in gone.most_common())
                    total = f"{gone.total()} session{'' if gone.total() == 1 else 's'}"
                    log.warning("cleanup deleted %s of %s: %s", total, caller.owner, reasons)
        return gone

    async def _purge(self) -> None:
        """Delete expired data that belongs to no session, in small steps."""
        forgotten = PURGE_STEP
        while forgotten >= PURGE_STEP and not self._stop.is_set():
            forgotten = await self._deps.store.purge(self._deps.clock.now(), PURGE_STEP)

    async def _attempt(self, every: timedelta) -> timedelta:
        """Sweep, and return the time to wait afterwards."""
        try:
            await self.sweep()
        except Exception as error:  # any error: the next attempt may succeed
            self.failures += 1
            wait = self._about(min(every, RETRY_AFTER * 2 ** min(self.failures - 1, 20)))
            trace = None if isinstance(error, MoorageError) else error  # our own errors explain themselves
            log.error("cleanup failed (%d in a row), again in %s: %s", self.failures, wait, error, exc_info=trace)
            return wait
        if self.failures:
            log.warning("cleanup works again, after %d failures", self.failures)
        self.failures = 0
        return self._about(every)

    def _about(self, span: timedelta) -> timedelta:
        return span * (1 - SPREAD + 2 * SPREAD * self._chance())

    def _chance(self) -> float:
        return int.from_bytes(self._deps.entropy(4), "big") / 2**32

    async def _is_stopped_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._stop.wait()
        except TimeoutError:
            return False
