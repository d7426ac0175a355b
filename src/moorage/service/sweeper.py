"""The sweeper: cleanup by policy, again and again, for as long as a server runs.

A module of its own, because it needs an event loop: commands and hooks never load it. Every
server on a store may have one. A step of a cleanup judges what is there when it has the lock,
so what one has deleted another no longer finds.
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
SPREAD = 0.1  # servers that were started together drift apart

Pause = Callable[[float], Awaitable[bool]]  # wait so many seconds; whether it was told to stop meanwhile


class Sweeper:
    """Cleans up the sessions of all owners every so often (`retention.every`), until `stop` is set.

    Tombstones name the caller. The store tells whose sessions it cleans up.
    """

    def __init__(self, deps: Deps, caller: Caller, stop: asyncio.Event, *, pause: Pause | None = None) -> None:
        self._deps, self._caller, self._stop = deps, caller, stop
        self._pause = pause or self._is_stopped_within
        self._turn = asyncio.Lock()
        self.failures = 0  # in a row; for health checks

    async def run(self) -> None:
        """Sweep, wait, sweep again. A failure is logged and tried again; only `stop` and cancelling end it."""
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
        """Clean up once, or as far as it gets until it is told to stop; how many went, by reason. One at a time."""
        gone: Counter[str] = Counter()
        failed: list[Exception] = []
        async with self._turn:
            for owner in await self._deps.store.owners():
                try:
                    gone += await self._sweep_of(replace(self._caller, owner=owner))
                except Exception as error:  # what is wrong with one owner's sessions must not keep others' for ever
                    if _is_about_the_store(error):
                        raise
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
            finally:  # however it ended: what went is told
                if gone:
                    reasons = ", ".join(f"{count} {reason}" for reason, count in gone.most_common())
                    log.warning("cleanup deleted %d sessions of %s: %s", gone.total(), caller.owner, reasons)
        return gone

    async def _purge(self) -> None:
        """Forget what belongs to no session and no longer counts, a little at a time."""
        forgotten = PURGE_STEP
        while forgotten >= PURGE_STEP and not self._stop.is_set():
            forgotten = await self._deps.store.purge(self._deps.clock.now(), PURGE_STEP)

    async def _attempt(self, every: timedelta) -> timedelta:
        """Sweep; how long to wait then."""
        try:
            await self.sweep()
        except Exception as error:  # whatever it was, the next attempt may go well
            self.failures += 1
            wait = self._about(min(every, RETRY_AFTER * 2 ** min(self.failures - 1, 20)))
            self._complain(error, wait)
            return wait
        if self.failures:
            log.warning("cleanup works again, after %d failures", self.failures)
        self.failures = 0
        return self._about(every)

    def _complain(self, error: Exception, wait: timedelta) -> None:
        log.error(
            "cleanup failed (%d in a row), again in %s: %s",
            self.failures,
            wait,
            error,
            exc_info=None if isinstance(error, MoorageError) else error,  # ours say what is wrong without it
        )

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


def _is_about_the_store(error: Exception) -> bool:
    """Whether it would be the same with the next owner."""
    return isinstance(error, StoreError) and not isinstance(error, SessionCorrupt)
