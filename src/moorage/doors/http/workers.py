"""Several processes at one address: each is a whole server on the same store; only the first has a launcher.

They share the listening socket. A worker that ends by itself is started again; all stop when told to. If the parent
process is killed, the workers notice by their standard input, and free the address for the next server.

They count together in a folder of the home, with a lock that they inherit: the folder stays until the last of them has
ended, and the next server deletes it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from prometheus_client.multiprocess import mark_process_dead

from moorage import config
from moorage.doors.http.monitoring import FOLDER
from moorage.launcher.attending import first_of
from moorage.service.presence import locked_folder, remove_unlocked

log = logging.getLogger(__name__)

COUNTS, PREFIX = "metrics", "server-"  # the folder of the home, and the prefix of servers' folders in it

START_AGAIN_AFTER = 1.0  # seconds, so that a worker that cannot start is not restarted without pause
STAYS = 5.0  # seconds after which a worker counts as started


async def serve_many(
    listening: socket.socket, workers: int, arguments: Sequence[str], greet: Callable[[], None]
) -> int:
    """Run `moorage serve` so many times on the socket until told to stop; return the exit code.

    `arguments` are the command line of a worker, without the socket. Only the first has a launcher. `greet` is called
    once signals are handled: a Ctrl-C right after the greeting ends the server in good order.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    listening.listen(4096)  # requests wait for the first worker instead of being refused
    greet()
    os.set_inheritable(listening.fileno(), True)
    own = [[*arguments] if number == 0 else [*arguments, "--no-launcher"] for number in range(workers)]
    with counting_folder() as counts:
        return max(await asyncio.gather(*(_keep(listening, each, counts, stop) for each in own)))


async def _keep(
    listening: socket.socket, arguments: Sequence[str], counts: tuple[str, int], stop: asyncio.Event
) -> int:
    """Run one worker, and restart it whenever it ends by itself; one that never starts ends all."""
    loop, (folder, lock) = asyncio.get_running_loop(), counts
    command = (sys.executable, "-m", "moorage", *arguments, "--fd", str(listening.fileno()))
    while True:
        began = loop.time()
        worker = await asyncio.create_subprocess_exec(
            *command,
            pass_fds=(listening.fileno(), lock),
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C at a terminal is for this process, which then tells its workers
            env={**os.environ, FOLDER: folder},
        )
        code = await _ended(worker, stop)
        mark_process_dead(worker.pid, folder)  # type: ignore[no-untyped-call]  # its streams are gone
        if stop.is_set():
            return max(code, 0)
        if code > 0 and loop.time() - began < STAYS:
            stop.set()  # it has printed the reason
            return code
        log.error("worker %d ended by itself (%d); another takes its place", worker.pid, code)
        await asyncio.sleep(START_AGAIN_AFTER)


async def _ended(worker: asyncio.subprocess.Process, stop: asyncio.Event) -> int:
    """Return how a worker ended; stop it when told to stop."""
    over = asyncio.create_task(worker.wait())
    await first_of(stop.wait(), over)
    if not over.done():
        worker.send_signal(signal.SIGTERM)
    return await over


@contextmanager
def counting_folder() -> Iterator[tuple[str, int]]:
    """Create a folder and its lock, a file that workers have to inherit; remove the folders of dead servers."""
    clear_up()
    every = os.path.join(config.home(), COUNTS)
    config.make_folder(every)
    folder, lock = locked_folder(PREFIX, every)
    try:
        yield folder, lock
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def clear_up() -> None:
    """Remove the folders of servers that were killed."""
    remove_unlocked(PREFIX, os.path.join(config.home(), COUNTS))
