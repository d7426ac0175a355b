"""Rounds of tests with other seeds until the time is up, for `./dev prove` and `./dev fuzz`.

A round that fails prints its seed and ends the run. The sums of what its tests counted are printed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
COUNTS = "MOORAGE_COUNTS"  # names the file to which tests/counting.py writes


def main(command: str, about: str, short: Callable[[], int], long: Callable[[int], int]) -> int:
    """Read the arguments; run `short`, or `long` with one seed after another. Return the exit code."""
    parser = argparse.ArgumentParser(prog=f"./dev {command}", description=about)
    parser.add_argument("--long", action="store_true", help="rounds with other seeds until the time is up")
    parser.add_argument("--minutes", type=float, default=60.0, help="after which no new round of --long begins")
    parser.add_argument("--seed", type=int, help="one round of the long run")
    given = parser.parse_args()
    seed = int(time.time()) if given.seed is None else given.seed
    began = time.monotonic()
    end = began + (60 * given.minutes if given.seed is None else 0)
    with tempfile.NamedTemporaryFile(prefix="moorage-counts-") as counts:
        os.environ[COUNTS] = counts.name
        code = _rounds(command, long, seed, end) if given.long or given.seed is not None else short()
        for name, number in sorted(_sums(Path(counts.name)).items()):
            print(f"== {name}: {number}")
    print(f"== {command}: {'ok' if code == 0 else f'FAILED ({code})'}, {time.monotonic() - began:.0f} s", flush=True)
    return code


def _rounds(command: str, long: Callable[[int], int], first: int, end: float) -> int:
    """Take round after round; return the exit code of the first that fails."""
    seed = first
    while True:
        print(f"== round with seed {seed}", flush=True)
        if code := long(seed):
            print(f"== failed; again: ./dev {command} --seed {seed}", flush=True)
            return code
        if time.monotonic() >= end:
            print(f"== {seed - first + 1} rounds, seeds {first} to {seed}", flush=True)
            return 0
        seed += 1


def _sums(counts: Path) -> Counter[str]:
    sums: Counter[str] = Counter()
    for line in counts.read_text().splitlines():
        name, number = json.loads(line)
        sums[name] += number
    return sums


def pytest(arguments: list[str], environment: dict[str, str] | None = None) -> int:
    """Run tests in several processes: one more than there are processors, because many tests wait."""
    workers = ["-n", str(min(os.cpu_count() or 2, 8) + 1), "--dist", "worksteal"]
    return run(["-m", "pytest", "-q", *workers, *arguments], environment)


def run(arguments: list[str], environment: dict[str, str] | None = None) -> int:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **(environment or {})}, check=False).returncode
