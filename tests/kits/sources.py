"""Sources of frameworks, for the tests in them. They are fetched once for each environment and version."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from importlib import metadata
from pathlib import Path

import pytest


def source_of(package: str) -> Path:
    """Return the folder with the source of the installed version; skip the test if the index does not answer."""
    wanted = f"{package}=={metadata.version(package)}"
    folder = Path(sys.prefix) / "sources" / wanted
    if not any(folder.glob("*/")):
        _fetch(wanted, folder)
    return next(path for path in folder.iterdir() if path.is_dir())


def _fetch(wanted: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", str(folder)]
    done = subprocess.run([*command, wanted], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"the source of {wanted} could not be fetched: {done.stderr[-200:]}")
    for archive in folder.glob("*.tar.gz"):
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
