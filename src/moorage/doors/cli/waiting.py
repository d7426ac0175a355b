"""Why a run has not started: one line with the command that changes it, told while a command waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from moorage.core.errors import MoorageError
from moorage.core.status import Because, Reason
from moorage.doors.cli.output import hint

MOMENT = 1.0  # seconds; most runs start within one, and then there is nothing to tell

Look = Callable[[], Awaitable[str | None]]


def why(because: Because, session_id: str) -> str:
    """Return why a run does not start, and the command that changes it."""
    ways = {
        Reason.HELD: f" Free it: moorage release {session_id}",
        Reason.SUSPENDED: f" Let it go on: moorage agent resume {session_id}",
        Reason.WAITING_FOR_APPROVAL: f" Answer: moorage approve {because.approval_id}",
        Reason.NO_LAUNCHER: " Start one: moorage launcher",
    }
    return f"The run waits {because.in_words}.{ways.get(because.reason, '')}"


@asynccontextmanager
async def telling_why(look: Look, show: Callable[[str], None] = hint) -> AsyncIterator[None]:
    """Within the block, show the line that `look` finds after a moment, and whenever it has become another."""
    telling = asyncio.create_task(_tell(look, show))
    try:
        yield
    finally:
        telling.cancel()
        await asyncio.wait([telling])


async def _tell(look: Look, show: Callable[[str], None]) -> None:
    told = None
    while True:
        await asyncio.sleep(MOMENT)
        try:
            line = await look()
        except MoorageError:  # whoever waits for the answer hears of it, too
            continue
        if line is not None and line != told:
            show(line)
        told = line
