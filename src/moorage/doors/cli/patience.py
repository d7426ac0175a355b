"""Ending early: what a person or the system does to a command that waits."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def cancelled_by_signals() -> Iterator[None]:
    """Within the block, Ctrl-C, SIGTERM and a hang-up cancel this task, once; later ones change nothing."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    was_told = False

    def tell() -> None:
        nonlocal was_told
        if not was_told:
            was_told = True
            task.cancel()

    for number in ENDING:
        loop.add_signal_handler(number, tell)
    try:
        yield
    finally:
        for number in ENDING:
            loop.remove_signal_handler(number)


@contextmanager
def queued_signals() -> Iterator[asyncio.Queue[signal.Signals]]:
    """Within the block, put Ctrl-C, SIGTERM and a hang-up into a queue; they end nothing by themselves."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[signal.Signals] = asyncio.Queue()
    for number in ENDING:
        loop.add_signal_handler(number, queue.put_nowait, number)
    try:
        yield queue
    finally:
        for number in ENDING:
            loop.remove_signal_handler(number)
