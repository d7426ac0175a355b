"""Writers in processes of their own, which say what was acknowledged to them, and may be killed.

A writer is a function of a URL and of the writer's name that yields each item once it is acknowledged.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

Writer = Callable[[str, str], Iterator[str]]
Contents = Callable[[str], list[str]]  # what a session holds, by the URL of its store

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 240  # seconds


def race(writer: Writer, url: str, writers: int = 4) -> list[list[str]]:
    """Run writers side by side; return what was acknowledged to each."""
    started = [_start(writer, url, f"w{number}") for number in range(writers)]
    outputs = [process.communicate(timeout=PATIENCE)[0] for process in started]
    assert [process.returncode for process in started] == [0] * writers
    return [output.split() for output in outputs]


def killed(writer: Writer, url: str, after: int) -> list[str]:
    """Kill a writer (-9) after so many acknowledged items, in the middle of the next; return what was acknowledged."""
    process = _start(writer, url, "w")
    assert process.stdout is not None
    heard = [process.stdout.readline().strip() for _ in range(after)]
    process.kill()
    rest = process.stdout.read()  # `communicate` would lose lines that are buffered
    process.wait(PATIENCE)
    process.stdout.close()
    whole = rest.split("\n")[:-1]  # a line that is cut off says nothing
    return heard + whole


def check_race_of_pairs(writer: Writer, url: str, contents: Contents, pairs: int) -> None:
    """Race writers that add items in pairs and yield the second of each: all are there, in their order."""
    acknowledged, found = race(writer, url), contents(url)
    assert len(found) == 4 * pairs * 2
    for said in acknowledged:
        assert [text for text in found if text in said] == said
    assert all(two == f"{one[:-1]}b" for one, two in zip(found[::2], found[1::2], strict=True))


def check_killed_amid_pairs(writer: Writer, url: str, contents: Contents) -> None:
    """Kill such a writer: whole pairs are left, and all that were acknowledged."""
    said, found = killed(writer, url, 3), contents(url)
    assert said == found[1::2][: len(said)]
    assert len(found) % 2 == 0


def _start(writer: Writer, url: str, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.kits.races", f"{writer.__module__}:{writer.__name__}", url, name]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def main(place: str, url: str, name: str) -> None:
    """Run one writer."""
    module, _, function = place.partition(":")
    for item in getattr(import_module(module), function)(url, name):
        print(item, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
