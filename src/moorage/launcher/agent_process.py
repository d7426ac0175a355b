"""The agent's processes: its start, its pipes, its end, and the processes it started.

The new process waits for a start signal until the supervisor has recorded its process id; without
the signal it never becomes the agent. If the supervisor is killed later, the agent is killed too.

The agent leads its own session and process group. Its processes that left the group are found too, as soon
as their parents have ended: the supervisor adopts orphans.
"""

from __future__ import annotations

import os
import signal
import time
from selectors import EVENT_READ, EVENT_WRITE

from moorage.launcher import processes
from moorage.launcher.drivers.base import Exit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from selectors import BaseSelector
    from typing import NoReturn

    HearBytes = Callable[[bytes], None]

READ_SIZE = 64 * 1024
CLOSED = -1
IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFSZ", "SIGHUP")  # an agent expects their default handlers


class CannotStart(Exception):
    """The agent could not be started; `is_missing` if there is no such program or folder."""

    def __init__(self, message: str, *, is_missing: bool) -> None:
        super().__init__(message)
        self.is_missing = is_missing


class AgentProcess:
    """One agent, from its start signal to the end of its last process."""

    def __init__(
        self, argv: list[str], env: dict[str, str], cwd: str, selector: BaseSelector, *, out: HearBytes, err: HearBytes
    ) -> None:
        processes.libc()  # before the fork, so that the new process only has to become the agent
        self._argv, self._env, self._cwd, self._selector = argv, env, cwd, selector
        (self._their_input, self._input), (output, self._their_output) = os.pipe(), os.pipe()
        (errors, self._their_errors), (self._start_signal, self._key) = os.pipe(), os.pipe()
        self._trouble, self._their_trouble = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            self._become_agent(parent)
        for end in (self._their_input, self._their_output, self._their_errors, self._start_signal, self._their_trouble):
            os.close(end)
        self.exit: Exit | None = None
        self._open = {output: out, errors: err}
        self._unsent, self._input_ends = bytearray(), False
        self._signalled: set[int] = set()
        os.set_blocking(self._input, False)
        for end in self._open:
            os.set_blocking(end, False)
            selector.register(end, EVENT_READ, lambda end=end: self._read(end))

    def let_in(self) -> None:
        """Send the start signal. Raises CannotStart if the program cannot be executed."""
        os.write(self._key, b"1")
        os.close(self._key)
        said = b""
        while more := os.read(self._trouble, 4096):
            said += more
        os.close(self._trouble)
        if said:
            os.waitpid(self.pid, 0)
            kind, _, message = said.decode(errors="replace").partition(" ")
            raise CannotStart(message, is_missing=kind == "missing")

    def _become_agent(self, parent: int) -> NoReturn:
        try:
            os.setsid()
            processes.die_with_parent()
            os.close(self._key)  # our copy would keep the signal pipe open
            if os.getppid() != parent or os.read(self._start_signal, 1) == b"":
                os._exit(127)
            self._exec()
        except BaseException as error:
            os.write(self._their_trouble, _trouble(error, self._argv[0], self._cwd))
        finally:
            os._exit(127)

    def _exec(self) -> NoReturn:
        os.chdir(self._cwd)
        for number, end in enumerate((self._their_input, self._their_output, self._their_errors)):
            os.dup2(end, number)
        for name in IGNORED_BY_PYTHON:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execvpe(self._argv[0], self._argv, self._env)

    # Pipes

    @property
    def is_silent(self) -> bool:
        """Return whether its pipes are closed, and all their output has been read."""
        return not self._open

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
                self._selector.register(self._input, EVENT_WRITE, self._write)
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
        for end in list(self._open):
            self._close(end)
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


def _trouble(error: BaseException, program: str, cwd: str) -> bytes:
    """Return the error for the parent process: whether a file is missing, and which one."""
    is_missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
    why = getattr(error, "strerror", None) or repr(error)
    what = f"the program {program!r}" if os.path.isdir(cwd) else f"the folder {cwd!r}"
    return f"{'missing' if is_missing else 'other'} {what} cannot be used: {why}".encode(errors="replace")


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
