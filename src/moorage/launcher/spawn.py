"""Starting an agent: in its own session, with its own pipes, and only when its parent is ready.

The new process waits for a start signal until the supervisor has recorded its process id; without
the signal it never becomes the agent. If the supervisor is killed later, the agent is killed too.
"""

from __future__ import annotations

import os
import signal

from moorage.launcher import processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFSZ", "SIGHUP")  # an agent expects their default handlers


class CannotStart(Exception):
    """The agent could not be started; `is_missing` if there is no such program or folder."""

    def __init__(self, message: str, *, is_missing: bool) -> None:
        super().__init__(message)
        self.is_missing = is_missing


class SpawnedProcess:
    """A process that waits for its start signal, with our ends of its pipes."""

    def __init__(self, argv: list[str], env: dict[str, str], cwd: str) -> None:
        processes.libc()  # before the fork, so that the new process only has to become the agent
        ends = [os.pipe() for _ in range(5)]
        (self._their_input, self.input), (self.output, self._their_output) = ends[0], ends[1]
        (self.errors, self._their_errors), (self._start_signal, self._key) = ends[2], ends[3]
        self._trouble, self._their_trouble = ends[4]
        self._argv, self._env, self._cwd = argv, env, cwd
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            self._become_agent(parent)
        for end in (self._their_input, self._their_output, self._their_errors, self._start_signal, self._their_trouble):
            os.close(end)

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


def _trouble(error: BaseException, program: str, cwd: str) -> bytes:
    """Return the error for the parent process: whether a file is missing, and which one."""
    is_missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
    why = getattr(error, "strerror", None) or repr(error)
    what = f"the program {program!r}" if os.path.isdir(cwd) else f"the folder {cwd!r}"
    return f"{'missing' if is_missing else 'other'} {what} cannot be used: {why}".encode(errors="replace")
