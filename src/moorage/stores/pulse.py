"""The pulse of a store: a number that changes with every commit, and the threads and event loops that wait for it."""

from __future__ import annotations

import sys
from _thread import allocate_lock  # `threading` takes milliseconds to import
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


class Pulse:
    """Counts commits, and wakes its waiters."""

    def __init__(self) -> None:
        self._pulse = 0
        self._wakers: set[Callable[[], object]] = set()
        self._guard = allocate_lock()

    def listen(self) -> None:
        """Begin to listen for other processes' commits, if not done yet. Do nothing if there are no other processes."""

    def pulse(self) -> int:
        """Return a number that changes with every commit."""
        self.listen()
        return self._pulse

    async def wait(self, seen: int, timeout: float) -> int:
        """Return the pulse once it differs from `seen` or time is up. Blocks a thread only if it runs no loop."""
        self.listen()
        if (loop := _running_loop()) is not None:
            await self._wait_on(loop, seen, timeout)
            return self._pulse
        woken = allocate_lock()
        woken.acquire()
        with self._woken_by(woken.release):
            if self._pulse == seen:
                woken.acquire(timeout=max(timeout, 0))
        return self._pulse

    async def _wait_on(self, loop: AbstractEventLoop, seen: int, timeout: float) -> None:
        from asyncio import Event
        from asyncio import timeout as ends_after

        woken = Event()
        with self._woken_by(partial(call_on, loop, woken.set)), suppress(TimeoutError):
            if self._pulse == seen:
                async with ends_after(timeout):
                    await woken.wait()

    @contextmanager
    def _woken_by(self, wake: Callable[[], object]) -> Iterator[None]:
        with self._guard:
            self._wakers.add(wake)
        try:
            yield
        finally:
            with self._guard:
                self._wakers.discard(wake)

    def beat(self) -> None:
        """Wake all waiters, from any thread."""
        with self._guard:
            self._pulse += 1
            wakers, self._wakers = self._wakers, set()
        for wake in wakers:
            wake()


def call_on(loop: AbstractEventLoop, function: Callable[..., object], *args: object) -> bool:
    """Call a function on a loop, from any thread; return False if the loop has ended."""
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        return False
    return True


def _running_loop() -> AbstractEventLoop | None:
    """Return the event loop of this thread; without one, asyncio need not be imported."""
    if "asyncio" not in sys.modules:
        return None
    from asyncio import get_running_loop

    try:
        return get_running_loop()
    except RuntimeError:
        return None
