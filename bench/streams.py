"""`python -m bench.streams`: what live streams cost a server.

A thousand streams on `moorage serve`, a process of its own: what each takes of its memory, what all of
them take of a core while nothing happens, and how long after an event the last of a thousand readers of
one session has it, from the moment its sender begins to send.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

import httpx2
import uvloop

from bench.__main__ import RUNS
from bench.hooks import Figure
from bench.ours import url

STREAMS, SECONDS, ROUNDS = 1_000, 30.0, 20
SETTLED_AFTER = 12.0  # seconds until nothing is left of what was done to open them
MOST_KB, MOST_OF_A_CORE, MOST_DELAY = 50.0, 0.01, 0.250


class Use(NamedTuple):
    """The processor time and memory of a process."""

    kilobytes: int
    cpu_seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say whether the promises are kept."""
    parser = argparse.ArgumentParser(prog="python -m bench.streams", description=__doc__)
    parser.add_argument("--streams", type=int, default=STREAMS, metavar="N", help=f"open at once ({STREAMS:,})")
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="S", help=f"of silence ({SECONDS:.0f})")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"events to one session ({ROUNDS})")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    options = parser.parse_args(arguments)
    figures = uvloop.run(_measured(options.streams, options.seconds, options.rounds))
    width = max(len(each.what) for each in figures)
    for each in figures:
        print(f"{each.what:{width}}  {each.value:>16}  {each.target:16} {'' if each.kept is not False else 'MISSED'}")
    return int(options.check and any(each.kept is False for each in figures))


async def _measured(streams: int, seconds: float, rounds: int) -> list[Figure]:
    RUNS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="streams-", dir=RUNS) as folder:
        async with served(Path(folder)) as (process, address), httpx2.AsyncClient(base_url=address) as http:
            await _make(http, streams)
            idle = await _idle(process, address, streams, seconds)
            return [*idle, *await _to_all(http, address, streams, rounds)]


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[int, str]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    command = [sys.executable, "-m", "moorage", "serve", "--no-launcher", "--store", url(folder), "--port", str(port)]
    environment = {**os.environ, "MOORAGE_HOME": str(folder)}
    process = subprocess.Popen([*command, "--log-level", "error"], env=environment)  # noqa: ASYNC220  once
    try:
        await _answers(f"http://127.0.0.1:{port}")
        yield process.pid, f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


async def _answers(address: str) -> None:
    async with httpx2.AsyncClient() as http:
        for _ in range(600):
            try:
                (await http.get(f"{address}/readyz")).raise_for_status()
                return
            except httpx2.TransportError:
                await asyncio.sleep(0.05)
    raise RuntimeError("the server does not answer")


async def _make(http: httpx2.AsyncClient, count: int) -> None:
    """Sessions to follow, and a server that is warm."""
    for number in range(count):
        answer = await http.post("/sessions", json={"session_id": f"s-{number}"})
        assert answer.status_code == 201, answer.text


async def _idle(process: int, address: str, count: int, seconds: float) -> list[Figure]:
    warm = [await _Reader.open(address, "/sessions/s-0/events") for _ in range(20)]
    for reader in warm:
        reader.close()
    await asyncio.sleep(1)
    before = _use(process)
    readers = [await _Reader.open(address, f"/sessions/s-{number}/events") for number in range(count)]
    await asyncio.gather(*(reader.read_until(1) for reader in readers))
    await asyncio.sleep(SETTLED_AFTER)
    opened = _use(process)
    print(f"… {count:,} streams are open; nothing happens for {seconds:.0f} seconds", file=sys.stderr, flush=True)
    await asyncio.sleep(seconds)
    after = _use(process)
    for reader in readers:
        reader.close()
    each = (max(opened.kilobytes, after.kilobytes) - before.kilobytes) / count
    share = (after.cpu_seconds - opened.cpu_seconds) / seconds
    return [
        Figure("memory of an idle stream", f"{each:.1f} KB", f"under {MOST_KB:.0f} KB", each < MOST_KB),
        Figure(
            f"{count:,} idle streams", f"{share:.2%} of a core", f"under {MOST_OF_A_CORE:.0%}", share < MOST_OF_A_CORE
        ),
    ]


async def _to_all(http: httpx2.AsyncClient, address: str, count: int, rounds: int) -> list[Figure]:
    readers = [await _Reader.open(address, "/sessions/s-0/events") for _ in range(count)]
    await asyncio.gather(*(reader.read_until(1) for reader in readers))
    delays = []
    for number in range(2, rounds + 2):
        reading = asyncio.gather(*(reader.read_until(number) for reader in readers))
        await asyncio.sleep(0.2)
        began = perf_counter()
        await http.post("/sessions/s-0/messages", json={"content": "to everybody", "run": False})
        await reading
        delays.append(perf_counter() - began)
    for reader in readers:
        reader.close()
    typical, worst = median(delays), max(delays)
    target = f"within {MOST_DELAY * 1000:.0f} ms"
    return [
        Figure(f"the last of {count:,} has it, median", f"{typical * 1000:.0f} ms", target, typical < MOST_DELAY),
        Figure("the same, at worst", f"{worst * 1000:.0f} ms", "", None),
    ]


class _Reader:
    """A stream on a bare connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer, self._seen = reader, writer, 0

    @classmethod
    async def open(cls, address: str, path: str) -> _Reader:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
        writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head, head
        return cls(reader, writer)

    async def read_until(self, number: int) -> None:
        while self._seen < number:
            line = await self._reader.readline()
            assert line, "the stream has ended"
            if line.startswith(b"id: "):
                self._seen = int(line[4:])

    def close(self) -> None:
        self._writer.close()


def _use(process: int) -> Use:
    """Resident memory and processor time so far, as Linux counts them."""
    status = Path(f"/proc/{process}/status").read_text()
    [resident] = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")]
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return Use(int(resident), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))


if __name__ == "__main__":
    raise SystemExit(main())
