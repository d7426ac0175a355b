"""Running coroutines of a store that never suspends, without an event loop."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from typing import Any

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
    if _is_in_a_loop():
        from asyncio import sleep

        await sleep(seconds)
    else:
        time.sleep(seconds)  # noqa: ASYNC251  # there is no event loop to block


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Await coroutines, in an event loop side by side; return their results."""
    if not _is_in_a_loop():
        return [await each for each in work]
    from asyncio import gather

    return await gather(*work)


def _is_in_a_loop() -> bool:
    if "asyncio" not in sys.modules:
        return False
    from asyncio import get_running_loop

    try:
        get_running_loop()
    except RuntimeError:
        return False
    return True
