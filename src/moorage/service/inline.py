"""Running coroutines of a store that never suspends, without an event loop."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Iterator

from moorage.core.inline import T
from moorage.core.inline import drive as drive


def drive_each(stream: AsyncIterator[T]) -> Iterator[T]:
    """Iterate over an asynchronous stream that never suspends."""
    while True:
        try:
            yield drive(stream.__anext__())  # type: ignore[arg-type]  # an async generator's step is a coroutine to us
        except StopAsyncIteration:
            return


async def pause(seconds: float) -> None:
    """Sleep: in an event loop, let other tasks run meanwhile; without one, block the thread."""
    if "asyncio" in sys.modules:
        from asyncio import get_running_loop, sleep

        try:
            get_running_loop()
        except RuntimeError:
            pass
        else:
            await sleep(seconds)
            return
    time.sleep(seconds)  # noqa: ASYNC251  # there is no event loop to block
