"""A conversation with a command on a terminal that is its own: it can be interrupted, and hung up on."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 30.0
CTRL_C, CTRL_D = "\x03", "\x04"


class Talk:
    """One command, and the person in front of it."""

    def __init__(self, *args: str) -> None:
        self._leader, follower = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "moorage", *args],
            env={**os.environ, "COLUMNS": "160", "TERM": "dumb", "NO_COLOR": "1"},
            preexec_fn=lambda: os.login_tty(follower),
        )
        os.close(follower)
        self.shown = ""
        self._heard = 0  # up to where `wait_for` has listened

    def wait_for(self, words: str) -> str:
        """Everything up to these words; they have to come after what was waited for before."""
        until = time.monotonic() + PATIENCE
        while words not in self.shown[self._heard :]:
            assert self._read(), f"it ended without {words!r}: {self.shown}"
            assert time.monotonic() < until, f"{words!r} did not come: {self.shown}"
        end = self.shown.index(words, self._heard) + len(words)
        said, self._heard = self.shown[self._heard : end], end
        return said

    def type(self, keys: str) -> None:
        os.write(self._leader, keys.encode())

    def say(self, line: str) -> None:
        self.wait_for("You: ")
        self.type(f"{line}\n")

    def hang_up(self) -> int:
        """Take the terminal away; the exit code."""
        os.close(self._leader)
        self._leader = -1
        return self.process.wait(PATIENCE)

    def end(self) -> int:
        """Listen until it ends; the exit code."""
        until = time.monotonic() + PATIENCE
        while self._read():
            assert time.monotonic() < until, f"it does not end: {self.shown}"
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE)
        if self._leader >= 0:
            os.close(self._leader)

    def _read(self) -> bool:
        """Take what has come; False if nothing will come any more."""
        if not select.select([self._leader], [], [], 0.1)[0]:
            return True
        try:
            data = os.read(self._leader, 65536)
        except OSError:  # the other side has closed it
            return False
        self.shown += data.decode().replace("\r\n", "\n")
        return bool(data)


@contextmanager
def a_talk(*args: str) -> Iterator[Talk]:
    talk = Talk(*args)
    try:
        yield talk
    finally:
        talk.close()
