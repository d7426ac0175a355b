"""A launcher as a separate process: it outlives servers, and adopts the agents of its former process."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from moorage.core.agent import AgentDefinition
from moorage.core.errors import StoreUnavailable
from moorage.core.ids import uuid7
from moorage.core.turn import Launcher
from moorage.launcher.dispatcher import Dispatcher
from moorage.launcher.handles import StarterByKind
from moorage.launcher.loop import HEARTBEAT, Loop, this_process
from moorage.launcher.turn_file import locked

SLOTS = 16


async def serve(
    open_dispatcher: Callable[[Launcher], Dispatcher],
    agents: Callable[[], dict[str, AgentDefinition]],
    *,
    folder: str,
    name: str,
    slots: int = SLOTS,
    environment: dict[str, str] | None = None,
    stop: asyncio.Event | None = None,
    beat_every: float = HEARTBEAT,
    on_signal: Callable[[], None] = lambda: None,
) -> None:
    """Take turns until `stop`, or SIGTERM or SIGINT; then finish short turns and leave the rest to the next start.

    A second signal ends it at once. Without a `stop`, it also ends when it is draining and no agent runs any more.
    """
    with alone_in(folder):
        now = datetime.now(UTC)
        launcher_id = uuid7(int(now.timestamp() * 1000), os.urandom(10))
        launcher = this_process(launcher_id, now, name=name, slots=slots, agents=tuple(agents()))
        loop = Loop(
            open_dispatcher(launcher),
            launcher,
            StarterByKind(os.path.join(folder, "turns")),
            agents,
            environment=environment,
            ends_when_drained=stop is None,
            beat_every=beat_every,
        )
        await loop.run(_told_by_signals(loop, on_signal) if stop is None else stop)


def _told_by_signals(loop: Loop, on_signal: Callable[[], None]) -> asyncio.Event:
    """Return an event that the first signal sets; a second signal ends the loop at once."""
    stop = asyncio.Event()

    def tell() -> None:
        if stop.is_set():
            loop.hurry()
        stop.set()
        on_signal()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, tell)
    return stop


@contextmanager
def alone_in(folder: str) -> Iterator[None]:
    """Hold the folder's lock: two launchers with one folder would adopt each other's agents."""
    os.makedirs(os.path.join(folder, "turns"), mode=0o700, exist_ok=True)
    lock = locked(os.path.join(folder, "lock"))
    if lock is None:
        raise StoreUnavailable(f"another launcher uses {folder}; give this one another --name", store=folder)
    try:
        yield
    finally:
        os.close(lock)
