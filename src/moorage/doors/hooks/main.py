"""`moorage-hook`: one event on standard input, one answer on standard output, exit code 0.

A hook must not break its host. Any failure is one line on standard error and a safe answer; an event that could not be
stored goes to the spool. Only a denial that the configuration asks for ends with exit code 2.

Nothing heavy is loaded before the event is read, because most of a hook's time is its start.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from moorage.doors.hooks.context import HookReply
    from moorage.doors.hooks.work import HookWork

MAX_INPUT = 16 * 1024 * 1024
MAX_LINE = 500  # characters of a complaint
CEILING = 1.9  # seconds, from waiting for the first byte to the answer
TIME_TO_GIVE_UP = 0.2  # seconds of those: for the spool, when the work hangs
QUIET = 0.5  # seconds without another byte: the host may have sent everything and forgotten to close
TEST = "--test"

USAGE = """\
usage: moorage-hook [pre-delegate | subagent-stop] [--create] [--url URL] < EVENT.json

  pre-delegate    may earlier work be picked up? Reads {agent_name, task_id, agent_id?, task_description, metadata}
  subagent-stop   close a session. Reads {task_id, agent, agent_id?, exit_code?, output?, tier?, tags?}
  (neither)       an event of Claude Code, told apart by its hook_event_name

  --create        pre-delegate opens a session if there is none to pick up
  --url URL       the store; otherwise MOORAGE_URL, else the file in the data folder
  --test          try it on a store of its own and say what happened
  --version, --help

examples:
  echo '{"agent_name": "terraform-architect", "task_id": "T001"}' | moorage-hook pre-delegate
  echo '{"agent": "terraform-architect", "task_id": "T001", "exit_code": 0}' | moorage-hook subagent-stop
  moorage-hook pre-delegate --test
  moorage hooks install        # for Claude Code
"""


class HookArguments:
    """The arguments of the command line."""

    __slots__ = ("command", "create", "problems", "url", "wants")

    def __init__(self, arguments: Sequence[str]) -> None:
        self.command, self.url, self.create, self.wants = "", None, False, ""
        self.problems: list[str] = []  # reported in one line with the answer
        rest = iter(arguments)
        for argument in rest:
            if argument == "--url":
                if (url := next(rest, None)) is None:
                    self.problems.append("--url without a value is ignored; write --url sqlite:///FILE")
                self.url = url
            elif argument.startswith("--url="):
                self.url = argument.removeprefix("--url=")
            elif argument == "--create":
                self.create = True
            elif argument in (TEST, "--version", "--help", "-h"):
                self.wants = argument
            elif argument in COMMANDS and not self.command:
                self.command = argument
            else:
                self.problems.append(f"unknown argument {argument!r} is ignored; see moorage-hook --help")


COMMANDS = ("pre-delegate", "subagent-stop")


def main() -> None:
    """Answer one event and end the process."""
    _fill_gaps()
    try:
        code = _main(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    os._exit(code)  # everything is closed and flushed: shutting the interpreter down would cost another 8 ms


def _fill_gaps() -> None:
    """Open closed standard streams; otherwise the next file that is opened would take their place."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        continue
    os.close(number)


def _main(arguments: Sequence[str]) -> int:
    call = HookArguments(arguments)
    if call.wants:
        complain(*call.problems)
    if call.wants == TEST:
        from moorage.doors.hooks.selftest import run

        return run()
    if call.wants:
        from moorage import __version__

        sys.stdout.write(f"moorage-hook {__version__}\n" if call.wants == "--version" else USAGE)
        sys.stdout.flush()
        return 0
    try:
        return _answer(call)
    except Exception as error:  # the host continues after any error
        complain(f"unexpected error ({type(error).__name__}: {error}); nothing was done", *call.problems)
        return write(b"{}\n")


def _answer(call: HookArguments) -> int:
    from moorage.doors.start import start_short_lived

    start_short_lived()
    deadline, is_typed = time.monotonic() + CEILING, os.isatty(0)
    if is_typed:
        complain("reading an event from the terminal; Ctrl-D ends it")
    raw = read_input(float("inf") if is_typed else deadline - TIME_TO_GIVE_UP, call.problems)
    if is_typed:
        deadline = time.monotonic() + CEILING
    from moorage.doors.hooks.work import HookWork

    work = HookWork(call.command, raw, url=call.url, create=call.create, deadline=deadline)
    return say_in_time(work, call.problems)


def read_input(deadline: float, problems: list[str]) -> bytes | None:
    """Return all of standard input; None, and the reason in `problems`, if it is too long or does not end in time."""
    from select import select

    parts: list[bytes] = []
    size = 0
    try:
        while (left := deadline - time.monotonic()) > 0:
            if not select([0], [], [], min(left, QUIET))[0]:
                if _is_whole(parts):
                    return b"".join(parts)
                continue
            part = os.read(0, 1 << 16)
            if not part:
                if size <= MAX_INPUT:
                    return b"".join(parts)
                problems.append(f"standard input is longer than {MAX_INPUT} bytes; nothing was done")
                return None
            size += len(part)
            if size <= MAX_INPUT:  # read and drop the rest, so that the writer is not blocked
                parts.append(part)
    except OSError as error:
        problems.append(f"standard input cannot be read ({error.strerror}); nothing was done")
        return None
    problems.append("standard input did not end in time; nothing was done")
    return None


def _is_whole(parts: list[bytes]) -> bool:
    """Return whether this may be all input: no JSON object is a prefix of another."""
    if not parts or not parts[-1].rstrip().endswith(b"}"):
        return False
    from msgspec import DecodeError, json

    try:
        return isinstance(json.decode(b"".join(parts)), dict)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return False


def say_in_time(work: HookWork, problems: list[str]) -> int:
    """Write the reply and return the exit code. If the work hangs (a dead disk), another thread writes a reply."""
    from _thread import allocate_lock, start_new_thread

    turn = allocate_lock()  # its owner prints the answer

    def speak(give: Callable[[], HookReply]) -> None:
        answer = give()
        if turn.acquire(blocking=False):
            os._exit(say(answer, problems))

    def speak_at_last() -> None:
        time.sleep(TIME_TO_GIVE_UP)
        speak(work.last_word)

    def watch() -> None:
        time.sleep(max(0.0, work.deadline - TIME_TO_GIVE_UP - time.monotonic()))
        if not turn.locked():
            start_new_thread(speak_at_last, ())
            speak(work.give_up)

    with suppress(RuntimeError):  # no threads available: most likely the work ends in time
        start_new_thread(watch, ())
    answer = work.answer()
    while not turn.acquire(blocking=False):
        time.sleep(1)  # the other thread is about to end this process
    return say(answer, problems)


def say(answer: HookReply, problems: list[str]) -> int:
    """Write the reply and return the exit code."""
    complain(answer.complaint, *problems, most=len(answer.complaint) if answer.code else MAX_LINE)
    return write(answer.encoded(), answer.code)


def write(line: bytes, code: int = 0) -> int:
    """Write a line to standard output and return the exit code."""
    view = memoryview(line)
    try:
        while view:
            view = view[os.write(1, view) :]
    except OSError:
        pass  # the host is gone and does not need it
    return code


def complain(*messages: str, most: int = MAX_LINE) -> None:
    """Write one line with the messages to standard error; nothing if all are empty."""
    if not (message := "; ".join(filter(None, messages))):
        return
    line = " ".join(f"moorage-hook: {message}".split())
    try:
        sys.stderr.write(line[: most + len("moorage-hook: ")] + "\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):  # the output is closed
        return
