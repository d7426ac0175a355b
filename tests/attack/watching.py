"""How long others wait while a server is under attack, and how much memory that takes.

A process of its own measures it. Time that the server and that process spend waiting for a
processor does not count, so the limit holds on a busy machine too.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import pytest

from moorage.testing.faults import PATIENCE
from tests.doors.web.stage import Stage

T = TypeVar("T")
MIB = 1024 * 1024
ATTEMPTS = 3
SLOWEST_ANSWER = 0.1  # seconds for /healthz, without those that processes wait for a processor
MOST_MEMORY = 200 * MIB  # that a server may need more than before
WATCH = """\
import http.client, json, os, sys, threading, time

def kept_waiting():
    waited = 0
    for pid in (sys.argv[1], str(os.getpid())):
        for task in os.listdir(f"/proc/{pid}/task"):
            try:
                with open(f"/proc/{pid}/task/{task}/schedstat") as file:
                    waited += int(file.read().split()[1])
            except OSError:
                continue
    return waited / 1e9

place = http.client.HTTPConnection("127.0.0.1", int(sys.argv[2]), timeout=60)
slowest, most, looks, done = 0.0, 0, 0, threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
print("ready", flush=True)
while not done.is_set():
    waited, began = kept_waiting(), time.monotonic()
    place.request("GET", "/healthz")
    assert place.getresponse().read()
    took = time.monotonic() - began
    slowest = max(slowest, took - (kept_waiting() - waited))
    with open(f"/proc/{sys.argv[1]}/status") as status:
        most = max(most, *(int(line.split()[1]) for line in status if line.startswith("VmRSS")))
    looks += 1
    time.sleep(0.005)
print(json.dumps({"slowest": slowest, "most": most * 1024, "looks": looks}))
"""


def resident(process_id: int) -> int:
    """Return the bytes of memory that a process has."""
    status = Path(f"/proc/{process_id}/status")
    if not status.exists():
        pytest.skip("this system has no /proc to read a process's memory from")
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


class Watch:
    """A process that asks a server how it does, again and again, and looks at its memory."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.told: dict[str, Any] = {}

    async def __aenter__(self) -> Watch:
        pid, pipe = self._stage.process.pid, asyncio.subprocess.PIPE
        self.before = resident(pid)
        command = [sys.executable, "-c", WATCH, str(pid), str(self._stage.port)]
        self._process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        assert self._process.stdout is not None
        assert await self._process.stdout.readline() == b"ready\n"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.told = json.loads((await self._process.communicate(b""))[0])

    @property
    def is_well(self) -> bool:
        """Whether no caller had to wait."""
        return bool(self.told["looks"] > 0 and self.told["slowest"] < SLOWEST_ANSWER)


async def attacked(stage: Stage, attack: Callable[[httpx2.AsyncClient], Awaitable[T]]) -> T:
    """Return what an attack is answered with. Fail if others had to wait, or the memory grew.

    A machine may stop for a moment by itself; what an attack does to a server it does every time.
    """
    for _ in range(ATTEMPTS):
        async with Watch(stage) as watch, httpx2.AsyncClient(base_url=stage.url, timeout=PATIENCE) as http:
            answer = await attack(http)
        assert watch.told["most"] - watch.before < MOST_MEMORY, watch.told
        if watch.is_well:
            return answer
    raise AssertionError(f"others had to wait: {watch.told}")
