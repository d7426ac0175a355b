"""The agent's processes: its pipes, its end, and the processes it started.

The agent leads its own session and process group. Its processes that left the group are found too, as soon
as their parents have ended: the supervisor adopts orphans.
"""

from __future__ import annotations

import os
import selectors
import signal
import time

from moorage.launcher import processes
from moorage.launcher.drivers.base import Exit
from moorage.launcher.spawn import SpawnedProcess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    HearBytes = Callable[[bytes], None]

READ_SIZE = 64 * 1024
CLOSED = -1


class AgentProcess:
    """One agent, from its start signal to the end of its last process."""

    def __init__(
        self,
        argv: list[str],
        env: dict[str, str],
        cwd: str,
        selector: selectors.BaseSelector,
        *,
        out: HearBytes,
        err: HearBytes,
    ) -> None:
        self._child = SpawnedProcess(argv, env, cwd)
        self.pid = self._child.pid
        self.exit: Exit | None = None
        self._selector = selector
        self._open = {self._child.output: out, self._child.errors: err}
        self._input, self._unsent, self._input_ends = self._child.input, bytearray(), False
        self._signalled: set[int] = set()
        os.set_blocking(self._input, False)
        for end in self._open:
            os.set_blocking(end, False)
            selector.register(end, selectors.EVENT_READ, lambda end=end: self._read(end))

    def let_in(self) -> None:
        """Let the process become the agent. Raises CannotStart."""
        self._child.let_in()

    # Pipes

    @property
    def is_silent(self) -> bool:
        """Return whether its pipes are closed, and all their output has been read."""
        return not self._open

    def hang_up(self) -> None:
        """Close its pipes."""
        for end in list(self._open):
            self._close(end)

    def send(self, data: bytes) -> None:
        """Write to its standard input as soon as it reads."""
        if not self._input_ends:
            self._unsent += data
            self._write()

    def close_input(self) -> None:
        """Close its standard input after all data is sent."""
        self._input_ends = True
        self._write()

    def _read(self, end: int) -> None:
        try:
            data = os.read(end, READ_SIZE)
        except BlockingIOError:
            return
        if data:
            self._open[end](data)
        else:
            self._close(end)

    def _close(self, end: int) -> None:
        hear = self._open.pop(end)
        self._selector.unregister(end)
        os.close(end)
        hear(b"")

    def _write(self) -> None:
        if self._input == CLOSED:
            return
        try:
            while self._unsent:
                del self._unsent[: os.write(self._input, self._unsent)]
        except BlockingIOError:
            if self._input not in self._selector.get_map():
                self._selector.register(self._input, selectors.EVENT_WRITE, self._write)
            return
        except OSError:  # the agent has closed its input, which is no error
            self._unsent.clear()
            self._input_ends = True
        if self._input in self._selector.get_map():
            self._selector.unregister(self._input)
        if self._input_ends:
            os.close(self._input)
            self._input = CLOSED

    # Its end

    def look(self) -> None:
        """Check whether it has ended. Reaping waits until its group is gone: the process id must not be reused."""
        if self.exit is not None:
            return
        if hasattr(os, "waitid"):
            found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is not None:
                self.exit = _exit(found.si_status, killed=found.si_code != os.CLD_EXITED)
        else:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self.exit = _exit(abs(code), killed=code < 0)

    def leftovers(self) -> list[int]:
        """Return the ids of processes it left running; reap the dead ones."""
        return [pid for pid in processes.children() if pid != self.pid and not _is_reaped(pid)]

    @property
    def is_gone(self) -> bool:
        """Return whether it has ended and left no process behind."""
        return self.exit is not None and not self.leftovers()

    def signal(self, number: signal.Signals) -> None:
        """Signal its group, and orphans of other groups; SIGTERM only once."""
        again = number == signal.SIGKILL
        if again or self.pid not in self._signalled:
            self._signalled.add(self.pid)
            _kill(os.killpg, self.pid, number)
        for pid in self.leftovers():
            if again or (pid not in self._signalled and _group(pid) != self.pid):
                self._signalled.add(pid)
                _kill(os.kill, pid, number)

    def reap(self) -> None:
        """End all remaining processes, including those that were started just now."""
        self.hang_up()
        self._unsent.clear()
        self.close_input()
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                for left in processes.children():
                    _kill(os.kill, left, signal.SIGKILL)
                time.sleep(0.005)


def _exit(status: int, *, killed: bool) -> Exit:
    if not killed:
        return Exit(status)
    try:
        return Exit(None, signal.Signals(status).name)
    except ValueError:
        return Exit(None, f"signal {status}")


def _is_reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _kill(how: Callable[[int, int], None], target: int, number: int) -> None:
    try:
        how(target, number)
    except (ProcessLookupError, PermissionError):
        return
