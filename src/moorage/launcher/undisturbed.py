"""Work that is done to its end, whoever does not want to wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def undisturbed(work: Coroutine[Any, Any, T]) -> T:
    """Do the work to its end, whoever cancels meanwhile: a terminal that goes ends the input, and sends a signal."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    return task.result()
