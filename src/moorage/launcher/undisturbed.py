"""Ways to wait: for work that finishes even if its caller is cancelled, and for the first of several things."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def undisturbed(work: Coroutine[Any, Any, T]) -> T:
    """Finish the work even if the caller is cancelled: a closing terminal both ends the input and sends a signal."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    return task.result()


async def first_of(*waits: Any) -> None:
    """Wait until one of these has ended; cancel the others, except for the futures among them."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    own = [task for task, each in zip(tasks, waits, strict=True) if task is not each]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in own:
            task.cancel()
        await asyncio.gather(*own, return_exceptions=True)
