"""A server with its launcher as a process, for tests in which programs come and go beside it."""

from __future__ import annotations

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

PATIENCE = 60.0
LOOK = 0.05  # seconds between two looks
T = TypeVar("T")


def until(look: Callable[[], T | None], what: str) -> T:
    """Call `look` until it finds a value, and return that."""
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what} does not come"
        time.sleep(LOOK)
    return found


@contextmanager
def served(folder: Path, store: str, port: int = 0) -> Iterator[str]:
    """`moorage serve` on a store; where it listens."""
    log = folder / "serve.log"
    command = [sys.executable, "-m", "moorage", "serve", "--port", str(port), "--grpc-port", "0", "--store", store]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        found = until(lambda: re.search(r" at (http://[^\"\s]+)", log.read_text()), "the server")
        until(lambda: _answers(found[1]), "its answer")
        yield str(found[1])
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(PATIENCE)


def _answers(url: str) -> bool:
    with suppress(httpx2.TransportError):
        return httpx2.get(f"{url}/readyz").status_code == 200
    return False
