"""Several processes at one address: each a whole server on the same store, none of them special but for its launcher.

They share the listening socket. One that ends by itself is started again; told to stop, all are. Should whoever
started them be killed, they hear of it by their standard input, and leave the address to the next one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence

from prometheus_client.multiprocess import mark_process_dead

from moorage.doors.http.counting import counting_folder
from moorage.doors.http.metrics import FOLDER

log = logging.getLogger(__name__)

START_AGAIN_AFTER = 1.0  # seconds, so that one that cannot start does not try without pause
STAYS = 5.0  # seconds after which a worker counts as well started


async def serve_many(
    listening: socket.socket, workers: int, arguments: Sequence[str], greet: Callable[[], None]
) -> int:
    """Run `moorage serve` so many times on the socket until told to stop; the exit code.

    `arguments` are those of a worker besides the socket. Only the first has a launcher. `greet` is called once signals
    are heard: whoever answers the greeting with Ctrl-C ends the server in good order.
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
    """One worker, started again whenever it ends by itself; one that never comes up ends all."""
    loop, (folder, lock) = asyncio.get_running_loop(), counts
    while True:
        began = loop.time()
        worker = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "moorage",
            "serve",
            "--fd",
            str(listening.fileno()),
            *arguments,
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
            stop.set()  # it has said why
            return code
        log.error("worker %d ended by itself (%d); another takes its place", worker.pid, code)
        await asyncio.sleep(START_AGAIN_AFTER)


async def _ended(worker: asyncio.subprocess.Process, stop: asyncio.Event) -> int:
    """How a worker ended; when told to stop, it is told so too."""
    told = asyncio.create_task(stop.wait())
    over = asyncio.create_task(worker.wait())
    await asyncio.wait((told, over), return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if not over.done():
        worker.send_signal(signal.SIGTERM)
    return await over
