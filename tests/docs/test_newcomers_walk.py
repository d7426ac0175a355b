"""A newcomer's walk: the commands of the README and the tutorial, typed at a terminal of 80 and of 120 columns.

The screens are compared with those in `recordings/`, in which ids, times and tokens are masked. After a change that is
meant, look at the new screens and commit them:

    MOORAGE_RECORD=1 pytest tests/docs/test_newcomers_walk.py
"""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.page import ROOT, SHELL_LANGUAGES, Example, commands_of, examples_of
from tests.docs.runner import OURS, sitting_environment

PAGES = {"readme": ROOT / "README.md", "tutorial": ROOT / "docs" / "tutorial.md"}
RECORDINGS = Path(__file__).parent / "recordings"
RECORDS = bool(os.environ.get("MOORAGE_RECORD"))
PATIENCE = 60.0  # seconds for one command
MASKS = (
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "01234567-89ab-7cde-8123-456789abcdef"),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}\b(?!-)", "01234567-89ab"),
    (r"\b[0-9a-f]{32}\b", "0" * 32),
    (r"\b20\d\d-\d\d-\d\d", "2026-01-31"),
    (r"(?<!\d)\d\d:\d\d:\d\d(\.\d+)?", "12:00:00"),
    (r"(idle seconds +ok +)\d+", r"\g<1>0"),
)
KEEP_VARIABLES = "set -a; [ -e .variables ] && . ./.variables; {command}\ncode=$?; export -p > .variables; exit $code"


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("page", PAGES)
def test_screens_of_a_newcomer_are_the_recorded_ones(
    page: str, columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = Walk(tmp_path, columns)
    monkeypatch.chdir(tmp_path)  # for blocks of Python, which run here
    for name in [name for name in os.environ if name.startswith(OURS)]:
        monkeypatch.delenv(name)
    screens = "".join(walk.screens(example) for example in examples_of(PAGES[page]) if example.skip_reason is None)
    recording = RECORDINGS / f"{page}-{columns}.txt"
    if RECORDS:
        recording.write_text(screens, encoding="utf-8")
    assert screens == recording.read_text(encoding="utf-8"), f"see {__doc__}"


@pytest.mark.parametrize("recording", sorted(RECORDINGS.glob("*.txt")), ids=lambda path: path.stem)
def test_no_recorded_id_is_broken_across_lines(recording: Path) -> None:
    columns = int(recording.stem.rpartition("-")[2])
    for line in recording.read_text(encoding="utf-8").splitlines():
        assert len(line) <= columns or line.startswith("$ ") or " " not in line.strip()[:columns], line


class Walk:
    """One newcomer with a folder, a terminal of so many columns, and the shell's variables."""

    def __init__(self, folder: Path, columns: int) -> None:
        self._folder, self._columns = folder, columns
        program = folder / "bin" / "moorage"
        program.parent.mkdir()
        script = ROOT / "tests/docs/newcomer.py"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
        program.chmod(0o755)
        kept = sitting_environment(folder)
        path = f"{program.parent}{os.pathsep}{kept['PATH']}"
        self._environment = {**kept, "COLUMNS": str(columns), "PATH": path, "PYTHONPATH": str(ROOT / "src")}
        self._names: dict[str, Any] = {}  # of Python: its blocks share them

    def screens(self, example: Example) -> str:
        """Run an example and return what the terminal shows; Python shows nothing here."""
        if example.language == "python":
            exec(compile(example.source, example.where, "exec"), self._names)
            return ""
        if example.language == "console":
            return "".join(self._screen(command.source) for command in commands_of(example))
        if example.language in SHELL_LANGUAGES:
            self._screen(example.source)
        return ""

    def _screen(self, command: str) -> str:
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, self._columns, 0, 0))
        process = subprocess.Popen(
            ["bash", "-c", KEEP_VARIABLES.format(command=command)],
            cwd=self._folder,
            env=self._environment,
            stdin=follower,
            stdout=follower,
            stderr=follower,
        )
        os.close(follower)
        shown = b"".join(_read(leader, process))
        os.close(leader)
        text = shown.decode().replace("\r\n", "\n")
        return f"$ {command.strip()}\n{masked(text)}"


def _read(leader: int, process: "subprocess.Popen[bytes]") -> Iterator[bytes]:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        ended = process.poll() is not None
        if select.select([leader], [], [], 0 if ended else 0.05)[0]:
            try:
                yield os.read(leader, 65536)
            except OSError:  # every process of the terminal has ended
                process.wait(PATIENCE)
                return
        elif ended:
            return
    process.kill()
    raise TimeoutError("the command does not end")


def masked(text: str) -> str:
    """Return a screen without what differs from run to run; everything keeps its width."""
    for pattern, instead in MASKS:
        text = re.sub(pattern, instead, text)
    return text
