"""Clocks that are set by a file, which libfaketime reads whenever a process asks for the time; monotonic ones stay."""

from __future__ import annotations

import os
from pathlib import Path

from tests import debian

# Python's own sleep fails under libfaketime 0.9.10 (EINVAL) where the monotonic clock is not faked. The clock that goes
# on while a machine sleeps is not faked either, so it is set here.
CLOCKS = """\
import select, time
time.sleep = lambda seconds: select.select((), (), (), seconds) and None
asleep, real = {slept!r}, time.clock_gettime
time.clock_gettime = lambda which: real(which) + (float(open(asleep).read()) if which == time.CLOCK_BOOTTIME else 0)
"""
PLACES = ("lib/*", "lib", "lib64", "local/lib")


class NoFaketime(Exception):
    """libfaketime is not installed and cannot be."""


def libraries() -> list[Path]:
    """Return where libfaketime is."""
    return [path for place in PLACES for path in Path("/usr").glob(f"{place}/faketime/libfaketimeMT.so.1")]


class Faketime:
    """The clock of all processes that are started with `env`. Raises NoFaketime."""

    def __init__(self, folder: Path) -> None:
        found, problem = libraries(), ""
        if not found:
            problem = debian.install("libfaketime")
            found = libraries()
        if not found:
            raise NoFaketime(f"libfaketime is not installed, and {problem}")
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
        self._file, self._slept = folder / "faketime", folder / "slept"
        (folder / "sitecustomize.py").write_text(CLOCKS.format(slept=str(self._slept)))
        self.set("+0")
        self.env = {
            "LD_PRELOAD": str(found[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "PYTHONPATH": os.pathsep.join((str(folder), *filter(None, (os.environ.get("PYTHONPATH"),)))),
        }

    def set(self, offset: str, *, slept: float = 0) -> None:
        """Let the clock be ahead of the machine's by this much, from now on, of which it slept so many seconds."""
        for file, content in ((self._slept, str(slept)), (self._file, f"{offset}\n")):
            part = file.with_suffix(".part")
            part.write_text(content)
            part.chmod(0o644)
            part.replace(file)
