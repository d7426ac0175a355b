"""Copying whole stores with `moorage migrate --from … --to …`, and a copy that is killed half way."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from moorage.config import open_store
from moorage.ports import Store
from moorage.testing.builders import OWNER, a_stamp, said
from moorage.testing.contract.dump import a_full_store

Migrate = Callable[..., dict[str, Any]]

# Copies argv[1] into argv[2] and kills itself after argv[3] commits of the store that argv[4] and argv[5] name.
COPIER = """
import importlib, os, signal, sys
from moorage.doors.cli.app import run
kind = getattr(importlib.import_module(sys.argv[4]), sys.argv[5])
real, left = kind.load, int(sys.argv[3])

async def load(self, records, mark):
    global left
    await real(self, records, mark)
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

kind.load = load
sys.exit(run(["migrate", "--from", sys.argv[1], "--to", sys.argv[2], "--force"]))
"""


def on(url: str, work: Callable[[Store], Coroutine[Any, Any, Any]]) -> Any:
    """Run some work on a store and return its result."""

    async def run() -> Any:
        store = open_store(url, threaded=True)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def migrating(home: Path) -> Migrate:
    """Return the command, with a home of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MOORAGE_", "AGENT_"))}
    environment = {**kept, "MOORAGE_HOME": str(home)}

    def run(source: str, target: str, *flags: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "moorage", "migrate", "--from", source, "--to", target, *flags, "--json"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    return run


def filled(path: Path) -> str:
    """Return the URL of a file with something of everything in it."""
    url = f"sqlite:///{path}"
    on(url, a_full_store)
    on(url, lambda store: store.append(OWNER, "s-1", said("binary \0 output"), a_stamp()))
    return url
