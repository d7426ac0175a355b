"""A faulty network: a proxy between two processes that delays, resets and drops their traffic.

It runs in a thread of its own, so that any test can use it: `Proxy(address)` stands between its own `port` and the
address. The faults of the two directions are set while it runs and apply to later bytes: `up` from clients, `down` to
clients.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from contextlib import suppress
from types import TracebackType
from typing import Literal

Direction = Literal["up", "down"]
Address = tuple[str, int] | str  # a host and a port, or the path of a socket
_AT_ONCE = 65536
_RESET = struct.pack("ii", 1, 0)  # closing such a connection resets it


class Proxy:
    """Forwards traffic between its own port and an address, with the faults that are set."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._delays: dict[Direction, float] = {"up": 0.0, "down": 0.0}
        self._swallows: set[Direction] = set()
        self._refuses = False
        self._pipes: set[_Pipe] = set()
        self._loop = asyncio.new_event_loop()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="proxy")
        self._thread.start()
        self._ready.wait()

    # Faults ------------------------------------------------------------------------------------

    def delay(self, seconds: float, *directions: Direction) -> None:
        """Delay everything by this time, in these directions or in both."""
        for direction in directions or ("up", "down"):
            self._delays[direction] = seconds

    def swallow(self, *directions: Direction) -> None:
        """Read everything and forward nothing; connections stay open without an error."""
        self._swallows |= set(directions or ("up", "down"))

    def refuse(self) -> None:
        """Refuse new connections; the present ones stay."""
        self._refuses = True

    def reset(self) -> int:
        """Reset every connection, as a restarted machine does; return their number."""
        return asyncio.run_coroutine_threadsafe(self._reset(), self._loop).result()

    def mend(self) -> None:
        """Forward everything again. Dropped bytes stay lost: connections that miss some are reset."""
        torn = bool(self._swallows)
        self._delays = {"up": 0.0, "down": 0.0}
        self._swallows, self._refuses = set(), False
        if torn:
            self.reset()

    def lead_to(self, address: Address) -> None:
        """Forward to another address from now on, as after a change of DNS; reset the present connections."""
        self._address = address
        self.reset()

    @property
    def connections(self) -> int:
        """Return the number of open connections."""
        return len(self._pipes)

    def close(self) -> None:
        """Close all connections and the port."""
        if self._loop.is_running():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._listening.close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # In its own thread --------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._pass_on, sock=self._listening))
        self._ready.set()
        try:
            self._loop.run_forever()
        finally:
            server.close()
            self._loop.run_until_complete(self._reset())
            self._loop.run_until_complete(self._end_all())
            self._loop.close()

    async def _end_all(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _reset(self) -> int:
        pipes = list(self._pipes)
        for pipe in pipes:
            pipe.reset()
        return len(pipes)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            _cut(writer)
            return
        try:
            if isinstance(self._address, str):
                far_reader, far_writer = await asyncio.open_unix_connection(self._address)
            else:
                far_reader, far_writer = await asyncio.open_connection(*self._address)
        except OSError:
            _cut(writer)
            return
        pipe = _Pipe(writer, far_writer)
        self._pipes.add(pipe)
        try:
            with suppress(asyncio.CancelledError):  # at the end; asyncio would log it
                await asyncio.gather(self._carry("up", reader, far_writer), self._carry("down", far_reader, writer))
        finally:
            self._pipes.discard(pipe)
            pipe.close()

    async def _carry(self, direction: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, OSError):
            while data := await reader.read(_AT_ONCE):
                if self._delays[direction]:
                    await asyncio.sleep(self._delays[direction])
                if direction in self._swallows:
                    continue
                writer.write(data)
                await writer.drain()
            if direction not in self._swallows and writer.can_write_eof():
                writer.write_eof()


class _Pipe:
    """Both ends of one connection."""

    def __init__(self, *writers: asyncio.StreamWriter) -> None:
        self._writers = writers

    def reset(self) -> None:
        for writer in self._writers:
            _cut(writer)

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


def _cut(writer: asyncio.StreamWriter) -> None:
    """Reset a connection, so that its readers and writers get an error."""
    end: socket.socket = writer.get_extra_info("socket")
    with suppress(OSError):
        if end.family != socket.AF_UNIX:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
