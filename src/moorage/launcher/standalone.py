"""A launcher as a process of its own: it survives servers, and adopts what its former life has started."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from moorage.core.agent import AgentDefinition
from moorage.core.errors import StoreUnavailable
from moorage.core.ids import uuid7
from moorage.core.turn import Launcher
from moorage.launcher.carriers import Carriers
from moorage.launcher.desk import Desk
from moorage.launcher.inside import inside
from moorage.launcher.loop import HEARTBEAT, Loop

SLOTS = 16


async def serve(
    open_desk: Callable[[Launcher], Desk],
    agents: Callable[[], dict[str, AgentDefinition]],
    *,
    folder: str,
    name: str,
    owners: tuple[str, ...] = ("local",),
    slots: int = SLOTS,
    environment: dict[str, str] | None = None,
    stop: asyncio.Event | None = None,
    beat_every: float = HEARTBEAT,
    on_signal: Callable[[], None] = lambda: None,
) -> None:
    """Take turns until `stop`, or SIGTERM or SIGINT; then finish what ends soon and leave the rest to the next life.

    A second signal leaves it at once. Where nobody gives it a `stop`, it also ends when it is to drain and nothing is
    at work any more.
    """
    with alone_in(folder):
        now = datetime.now(UTC)
        launcher = Launcher(
            launcher_id=uuid7(int(now.timestamp() * 1000), os.urandom(10)),
            name=name,
            registered_at=now,
            seen_at=now,
            host=os.uname().nodename,
            pid=os.getpid(),
            slots=slots,
            agents=tuple(agents()),
        )
        loop = Loop(
            open_desk(launcher),
            launcher,
            Carriers(os.path.join(folder, "turns"), inside),
            agents,
            owners=owners,
            environment=environment,
            ends_when_drained=stop is None,
            beat_every=beat_every,
        )
        await loop.run(_told_by_signals(loop, on_signal) if stop is None else stop)


def _told_by_signals(loop: Loop, on_signal: Callable[[], None]) -> asyncio.Event:
    """What a first signal sets; a second one makes the loop hurry."""
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
    """One launcher for one folder: two would adopt each other's agents."""
    os.makedirs(os.path.join(folder, "turns"), mode=0o700, exist_ok=True)
    lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise StoreUnavailable(f"another launcher uses {folder}; give this one another --name", store=folder) from None
    try:
        yield
    finally:
        os.close(lock)
