"""`moorage serve` as a process of its own: what it says, how it ends, and waiting for either."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import httpx2

from moorage.testing.faults import PATIENCE

T = TypeVar("T")
LOOK = 0.05  # seconds between two looks


class Process:
    """A server as a process, and what it says."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.log = folder / f"log-{time.monotonic_ns()}.txt"
        environment = {**os.environ, "MOORAGE_HOME": str(folder / "home")}
        ports = ["--port", "0", "--grpc-port", "0"]  # the usual one is taken as soon as two tests run at once
        command = [sys.executable, "-m", "moorage", "serve", *ports, "--log-format", "json", *arguments]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        self.pid = self._process.pid

    @property
    def url(self) -> str:
        """Where it serves, once it does."""
        found = until(lambda: re.search(r" at (http://[^\"\s]+)", self.log.read_text()))
        until(lambda: answers(found[1]))
        return str(found[1])

    def workers(self) -> list[int]:
        """The processes that it has started."""
        listed = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(pid) for pid in listed.split()]

    def end(self, number: int = signal.SIGTERM) -> int:
        """How it ends when told so."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)
        return self._process.wait(PATIENCE)

    def ended(self) -> int:
        """How it ends by itself."""
        return self._process.wait(PATIENCE)


@contextmanager
def starting(folder: Path) -> Iterator[Callable[..., Process]]:
    """Start servers on one home; they are ended afterwards."""
    processes: list[Process] = []

    def begin(*arguments: str) -> Process:
        processes.append(Process(folder, *arguments))
        return processes[-1]

    try:
        yield begin
    finally:
        for process in processes:
            process.end(signal.SIGKILL)


def until(look: Callable[[], T | None]) -> T:
    """Call `look` until it finds a value, and return that."""
    deadline = time.monotonic() + PATIENCE
    while True:
        if found := look():
            return found
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(LOOK)


def answers(url: str) -> bool:
    """Whether a server is ready there."""
    with suppress(httpx2.TransportError):
        return httpx2.get(f"{url}/readyz").status_code == 200
    return False
