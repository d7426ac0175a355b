"""Waiting for a run: why it has not started, and signals that end the wait."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from moorage.core.errors import MoorageError
from moorage.core.status import Because, Reason
from moorage.doors.cli.hints import command_line, shown_id
from moorage.doors.cli.output import hint

MOMENT = 1.0  # seconds; most runs start sooner, so there is nothing to report

Look = Callable[[], Awaitable[str | None]]


def why(because: Because, session_id: str) -> str:
    """Return why a run does not start, and the command that helps."""
    approval = shown_id(because.approval_id or "")
    ways = {
        Reason.HELD: f" Free it: {command_line('release', shown_id(session_id))}",
        Reason.SUSPENDED: f" Let it go on: {command_line('agent', 'resume', shown_id(session_id))}",
        Reason.WAITING_FOR_APPROVAL: f" Look at it: {command_line('approvals', 'show', approval)}",
        Reason.NO_LAUNCHER: f" Start one: {command_line('launcher')}",
    }
    return f"The run waits {because.in_words}.{ways.get(because.reason, '')}"


def why_yet(because: Because, session_id: str, *, launches: bool) -> str | None:
    """Return why a run has not started yet; None while the launcher of this process starts."""
    return None if launches and because.reason is Reason.NO_LAUNCHER else why(because, session_id)


@asynccontextmanager
async def telling_why(look: Look, show: Callable[[str], None] = hint) -> AsyncIterator[None]:
    """Within the block, show the line of `look` after a moment, and again whenever it changes."""
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
        except MoorageError:  # the caller that waits for the answer gets the error, too
            continue
        if line is not None and line != told:
            show(line)
        told = line


# Signals ------------------------------------------------------------------------------------------

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def cancelled_by_signals() -> Iterator[None]:
    """Within the block, cancel this task on Ctrl-C, SIGTERM or a hang-up, once; later signals have no effect."""
    task, told = asyncio.current_task(), list[signal.Signals]()
    assert task is not None

    def tell(number: signal.Signals) -> None:
        if not told:
            task.cancel()
        told.append(number)

    with _handled(tell):
        yield


@contextmanager
def queued_signals() -> Iterator[asyncio.Queue[signal.Signals]]:
    """Within the block, put Ctrl-C, SIGTERM and a hang-up into a queue; they end nothing by themselves."""
    queue: asyncio.Queue[signal.Signals] = asyncio.Queue()
    with _handled(queue.put_nowait):
        yield queue


@contextmanager
def _handled(tell: Callable[[signal.Signals], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in ENDING:
        loop.add_signal_handler(number, tell, number)
    try:
        yield
    finally:
        for number in ENDING:
            loop.remove_signal_handler(number)
