"""Runs the examples of a page, so that no page can promise what Moorage does not do.

A page is one sitting, and so are pages that continue each other. Python examples share one namespace, commands one
shell, and all of them one empty folder, in the order of the pages. Each sitting has processes and a folder of its own.
"""

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from textwrap import indent
from typing import IO

from tests.docs.page import Example, commands_of, examples_of, place

HERE = Path(__file__).parent
NOT_RUN = ("mermaid", "text")
PATIENCE = 60.0  # seconds for one command or one Python example
OURS = ("AGENT_", "MOORAGE_", "PYTEST_", "XDG_")  # variables that would lead an example out of its folder


class ExampleFailed(AssertionError):
    """An example does not do what its page says."""

    def __init__(self, where: str, problem: str, source: str, *, expected: str | None = None, got: str = "") -> None:
        parts = [f"{where}: {problem}", indent(source.rstrip(), "    ")]
        if expected is not None:
            parts += ["expected:", indent(expected, "    ")]
        super().__init__("\n".join([*parts, "got:", indent(got.rstrip() or "(nothing)", "    ")]))


def run_page(page: Path, folder: Path, *more: Path, patience: float = PATIENCE) -> None:
    """Run all examples of `page` in `folder`, from top to bottom, and those of `more` pages after them.

    Raises:
        PageError: the page cannot be read.
        ExampleFailed: an example fails; the ones after it were not run.
    """
    with Sitting(page, folder, patience) as sitting:
        for example in (example for each in (page, *more) for example in examples_of(each)):
            if example.skip_reason is None:
                sitting.run(example)


def matches(expected: str, got: str) -> bool:
    """Compare two texts line by line; `…` stands for anything within a line, alone on its line for any lines."""
    pattern = "".join(_line_pattern(line.rstrip()) for line in expected.rstrip().splitlines())
    return re.fullmatch(pattern, "".join(f"{line.rstrip()}\n" for line in got.rstrip().splitlines())) is not None


def _line_pattern(line: str) -> str:
    if line.strip() == "…":
        return r"(?:.*\n)*"
    return ".*".join(re.escape(part) for part in line.split("…")) + r"\n"


class Sitting:
    """The folder, the shell and the Python in which one page is tried out."""

    def __init__(self, page: Path, folder: Path, patience: float) -> None:
        env = sitting_environment(folder)
        self.shell = Process(["bash", "--noprofile", "--norc", str(HERE / "shell_sitting.sh")], folder, env, patience)
        python = [sys.executable, str(HERE / "python_sitting.py"), str(page)]
        self.python = Process(python, folder, env, patience)
        self._end = ExitStack()

    def __enter__(self) -> "Sitting":
        self._end.callback(self.shell.close)
        self._end.callback(self.python.close)
        return self

    def __exit__(self, *exc: object) -> None:
        self._end.close()

    def run(self, example: Example) -> None:
        """Do with the example what is done with its language."""
        ways: dict[str, Callable[[Example], None]] = {
            "python": self._run_python,
            "console": self._run_console,
            "bash": self._run_script,
            "sh": self._run_script,
            "json": lambda example: self._parse(example, json.loads),
            "toml": lambda example: self._parse(example, tomllib.loads),
        }
        if example.language in ways:
            ways[example.language](example)
        elif example.language not in NOT_RUN:
            known = ", ".join([*ways, *NOT_RUN])
            raise ExampleFailed(example.where, f"the language is none of {known}", example.source, got=example.language)

    def _run_python(self, example: Example) -> None:
        lines_before = "\n" * (example.line - 1)  # so that a traceback shows the page's own lines
        status, output = self.python.run(lines_before + example.source, example.where)
        if status != 0:
            raise ExampleFailed(example.where, "the Python example fails", example.source, got=output)

    def _run_console(self, example: Example) -> None:
        commands = commands_of(example)
        for command in commands:
            where = place(example.page, command.line)
            status, output = self.shell.run(command.source, where)
            wanted = example.exit_status if command is commands[-1] else 0
            if status != wanted:
                problem = f"the command ends with status {status}, not {wanted}"
                raise ExampleFailed(where, problem, f"$ {command.source}", got=output)
            if command.output is not None and not matches(command.output, output):
                problem = "the command prints something else"
                raise ExampleFailed(where, problem, f"$ {command.source}", expected=command.output, got=output)

    def _run_script(self, example: Example) -> None:
        # A failure ends the shell; when that is what the page says, later examples get a new one.
        status, output = self.shell.run(f"set -e\n{example.source}\nset +e", example.where)
        if status != example.exit_status:
            problem = f"the script ends with status {status}, not {example.exit_status}"
            raise ExampleFailed(example.where, problem, example.source, got=output)

    def _parse(self, example: Example, parse: Callable[[str], object]) -> None:
        try:
            parse(example.source)
        except ValueError as exc:
            problem = f"this is not valid {example.language}"
            raise ExampleFailed(example.where, problem, example.source, got=str(exc)) from exc


def sitting_environment(folder: Path) -> dict[str, str]:
    """Return variables under which everything an example writes stays in `folder`, and prints the same everywhere."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return env | {
        "COLUMNS": "120",
        "MOORAGE_HOME": str(folder / ".moorage"),
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
        "NO_COLOR": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "TERM": "dumb",
        "TZ": "UTC",
    }


class Process:
    """A process that runs one source after another and answers with its exit status; started when first needed.

    A request is two strings, where the output goes and the source; an answer one; each ends with NUL.
    """

    def __init__(self, command: list[str], folder: Path, env: dict[str, str], patience: float) -> None:
        self._command, self._folder, self._env, self._patience = command, folder, env, patience
        self._process: subprocess.Popen[bytes] | None = None
        self._output = folder.with_name(f"{folder.name}.{Path(command[0]).name}.output")

    def run(self, source: str, where: str) -> tuple[int, str]:
        """Run `source` to its end and return its exit status and all it printed."""
        process = self._started()
        self._output.unlink(missing_ok=True)  # what still runs in the background keeps writing to the old file
        self._output.touch()
        stdin, stdout = _pipes(process)
        stdin.write(f"{self._output}\0{source}\0".encode())
        stdin.flush()
        try:
            status = self._answer(stdout)
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            problem = f"this did not end within {self._patience:g} s"
            raise ExampleFailed(where, problem, source.strip("\n"), got=self._printed()) from None
        return process.wait() if status is None else status, self._printed()

    def close(self) -> None:
        """Let the process end, and end it if it does not; with it everything it left running."""
        if self._process is None:
            return
        stdin, stdout = _pipes(self._process)
        with suppress(BrokenPipeError):
            stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        stdout.close()
        self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self.close()
        if self._process is None:
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, env=self._env, stdin=pipe, stdout=pipe, start_new_session=True
            )
        return self._process

    def _answer(self, stdout: IO[bytes]) -> int | None:
        """Return the exit status, or None if the process itself has ended."""
        until = time.monotonic() + self._patience
        answer = b""
        while not answer.endswith(b"\0"):
            if not select.select([stdout], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError
            part = os.read(stdout.fileno(), 64)
            if not part:
                return None
            answer += part
        return int(answer[:-1])

    def _printed(self) -> str:
        return self._output.read_text(encoding="utf-8", errors="replace")


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout
