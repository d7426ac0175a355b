"""Tools of the npm registry for tests, fetched once into the environment that this Python runs in."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LONGEST = 300  # seconds to fetch a tool


def buf() -> str:
    """Return the program `buf`, for protocol buffers; skip the test where it cannot be had."""
    return str(fetched("buf", "@bufbuild/buf@1.74.0") / ".bin" / "buf")


def fetched(name: str, *packages: str) -> Path:
    """Return the folder `node_modules` that has these packages; skip the test where they cannot be had."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip(f"there is no npm on this machine, so {name} cannot be fetched")
    folder = Path(sys.prefix) / "npm" / name
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / "fetched.txt"
    with (folder / "lock").open("w") as file:  # of several test processes one fetches it
        fcntl.flock(file, fcntl.LOCK_EX)
        if not done.exists() or done.read_text() != " ".join(packages):
            _fetch(npm, folder, packages)
            done.write_text(" ".join(packages))
    return folder / "node_modules"


def _fetch(npm: str, folder: Path, packages: tuple[str, ...]) -> None:
    quiet = ("--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=0", "--fetch-timeout=20000")
    command = [npm, "install", *quiet, "--prefix", str(folder), *packages]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm did not fetch {', '.join(packages)} within {LONGEST} seconds")
    if told.returncode != 0:
        pytest.skip(f"npm could not fetch {', '.join(packages)}")
