"""Virtual time: an event loop whose clock jumps to the next timer, and a wall clock that can step."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from moorage.testing.builders import NOON


class Deadlock(RuntimeError):
    """Nothing is ready and no timer is set, so the simulation cannot continue."""


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop that never waits: when nothing is ready, its time jumps to the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self._passed = 0.0
        self._selector = self  # the base class asks it how long to wait

    def time(self) -> float:
        return self._passed

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            raise Deadlock
        self._passed += timeout
        return []

    def _process_events(self, event_list: list[object]) -> None:
        """Do nothing: there are no files to read."""

    def _write_to_self(self) -> None:
        """Do nothing: there are no other threads to wake this one."""


class WallClock:
    """The time that servers read. It steps on request; its monotonic side does not."""

    boot = "simulated"

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop, self._ahead = loop, timedelta(0)

    def now(self) -> datetime:
        return NOON + timedelta(seconds=self._loop.time()) + self._ahead

    def monotonic(self) -> float:
        return self._loop.time()

    def step(self, by: timedelta) -> None:
        """Set the clock, as NTP or a person does."""
        self._ahead += by
