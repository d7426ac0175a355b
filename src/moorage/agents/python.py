"""Functions as agents: the process that calls one, and the `Turn` it gets.

    def plan(turn):
        turn.phase("planning")
        if turn.ask("Shall I?").approved:
            return f"Done: {turn.prompt}"
        return "Not done."

An `async` function gets an `AsyncTurn`, which has `await turn.ask(…)`. The return value is the answer; an exception
fails the turn. `print` writes to stderr.

The supervisor starts `python -m moorage.agents.python module:function`, which communicates in JSON lines.
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from queue import SimpleQueue
from typing import IO, Any, NamedTuple, NoReturn

TomlTable = dict[str, Any]


class Decision(NamedTuple):
    """A person's answer."""

    decision: str  # approve, reject, or one of the options; expired or withdrawn without an answer
    note: str | None = None

    @property
    def approved(self) -> bool:
        """Return whether the answer was approval."""
        return self.decision == "approve"


class Wire:
    """The JSON lines between this process and its supervisor."""

    def __init__(self, lines_in: Iterator[bytes], lines_out: IO[bytes]) -> None:
        self._in, self._out = lines_in, lines_out
        self._lock = threading.Lock()
        self._answers: dict[str, SimpleQueue[Decision]] = {}
        self._asked = 0

    def read_turn(self) -> TomlTable:
        """Read the first line: the turn."""
        turn: TomlTable = json.loads(next(self._in))
        threading.Thread(target=self._listen, daemon=True).start()
        return turn

    def emit(self, event: TomlTable) -> None:
        """Write an event."""
        line = json.dumps(event, default=str).encode() + b"\n"
        with self._lock:
            self._out.write(line)
            self._out.flush()

    def ask(self, event: TomlTable) -> SimpleQueue[Decision]:
        """Send a question; return the queue that its answer arrives in."""
        with self._lock:
            self._asked += 1
            question_id = f"question-{self._asked}"
            answer = self._answers[question_id] = SimpleQueue()
        self.emit({"type": "approval", "id": question_id, "wait": True, **event})
        return answer

    def _listen(self) -> None:
        for line in self._in:
            command = json.loads(line)
            waiting = self._answers.get(command.get("id"))
            if command.get("type") == "decision" and waiting is not None:
                waiting.put(Decision(command["decision"], command.get("note")))


class BaseTurn:
    """The turn of a function: its input, and methods to send output."""

    def __init__(self, turn: TomlTable, wire: Wire) -> None:
        self._wire = wire
        self.prompt: str = turn["prompt"]  # everything new for this turn
        self.items: list[TomlTable] = turn["items"]  # the same as separate items: messages, callbacks, decisions
        self.history: list[TomlTable] = turn["history"]  # role and content of earlier messages
        self.parameters: TomlTable = turn["parameters"]
        self.system_prompt: str | None = turn["system_prompt"]
        self.session_id: str = turn["session_id"]
        self.session_name: str | None = turn["session_name"]
        self.task_id: str | None = turn["task_id"]
        self.run_id: str | None = turn["run_id"]
        self.turn_id: str = turn["turn_id"]
        self.agent_name: str = turn["agent_name"]
        self.checkpoint: TomlTable | None = turn["checkpoint"]  # what an earlier turn saved
        self.context: TomlTable = turn["context"]  # the session's keyed memory
        self.cut_off: bool = turn["cut_off"]  # whether the turn before was lost during its work
        self.mcp_servers: dict[str, TomlTable] = turn["mcp_servers"]

    def say(self, content: str | list[TomlTable], role: str = "assistant") -> None:
        """Add a message to the log."""
        self._wire.emit({"type": "message", "role": role, "content": content})

    def chunk(self, text: str) -> None:
        """Stream a piece of a message; `say` or the answer must follow with the whole message."""
        self._wire.emit({"type": "chunk", "text": text})

    def phase(self, phase: str, **metadata: Any) -> None:
        """Report the current phase: investigating, planning, executing, validating …"""
        self._wire.emit({"type": "phase", "phase": phase, **({"metadata": metadata} if metadata else {})})

    def metadata(self, **metadata: Any) -> None:
        """Add metadata to the session."""
        self._wire.emit({"type": "metadata", "metadata": metadata})

    def error(self, error: str) -> None:
        """Report an error and continue."""
        self._wire.emit({"type": "error", "error": error})

    def save(self, checkpoint: TomlTable) -> None:
        """Save state for the next turn, which gets it as `checkpoint`."""
        self._wire.emit({"type": "checkpoint", "checkpoint": checkpoint})

    def usage(self, **numbers: float) -> None:
        """Report usage: input_tokens, output_tokens …"""
        self._wire.emit({"type": "usage", **numbers})

    def _ask(self, question: str, plan: Any, options: Any, expires_in: float | None) -> SimpleQueue[Decision]:
        event: TomlTable = {"question": question, "options": list(options)}
        event |= {"plan": plan} if plan is not None else {}
        return self._wire.ask(event | ({"expires_in": expires_in} if expires_in is not None else {}))


class Turn(BaseTurn):
    """The turn of a plain function."""

    def ask(self, question: str, *, plan: Any = None, options: Any = (), expires_in: float | None = None) -> Decision:
        """Ask a person and wait for the answer, without a limit."""
        return self._ask(question, plan, options, expires_in).get()


class AsyncTurn(BaseTurn):
    """The turn of an async function."""

    async def ask(
        self, question: str, *, plan: Any = None, options: Any = (), expires_in: float | None = None
    ) -> Decision:
        """Ask a person and wait for the answer, without a limit."""
        import asyncio

        answer = self._ask(question, plan, options, expires_in)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Decision] = loop.create_future()

        def settle(decision: Decision) -> None:
            if not future.done():
                future.set_result(decision)

        def wait() -> None:  # in a thread that does not delay the end of a stopped turn
            loop.call_soon_threadsafe(settle, answer.get())

        threading.Thread(target=wait, daemon=True).start()
        return await future


# The process ------------------------------------------------------------------------------------


class Missing(Exception):
    """The function does not exist."""


def main(name: str, *folders: str) -> int:
    """Call the function for the turn on standard input; its module may be in one of the folders."""
    wire = Wire(_own_input(), _own_output())
    turn = wire.read_turn()
    signal.signal(signal.SIGTERM, _leave)
    try:
        answer = _call(_function(name, folders), turn, wire)
    except Missing as error:
        wire.emit({"type": "result", "outcome": "failed", "reason": "not_found", "error": str(error)})
        return 1
    except Exception as error:
        import traceback

        traceback.print_exc()
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        wire.emit({"type": "result", "outcome": "failed", "error": what})
        return 1
    text = answer if isinstance(answer, str) else json.dumps(answer, default=str)
    wire.emit({"type": "result", "outcome": "completed", **({} if answer is None else {"text": text})})
    return 0


def _own_input() -> Iterator[bytes]:
    """Yield the lines of standard input; the function gets an empty one."""
    ours = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return _lines(ours)


def _lines(end: int) -> Iterator[bytes]:
    """Yield the lines of a pipe. No file object: a thread that waits in one keeps Python from ending."""
    rest = b""
    while data := os.read(end, 1024 * 1024):
        *lines, rest = (rest + data).split(b"\n")
        yield from lines


def _own_output() -> IO[bytes]:
    """Take over standard output; the function's output goes to standard error."""
    ours = os.dup(1)
    os.dup2(2, 1)
    return open(ours, "wb")


def _leave(*_: object) -> NoReturn:
    """Raise SystemExit when asked to end, so that cleanup code runs."""
    raise SystemExit(128 + signal.SIGTERM)


def _function(name: str, folders: tuple[str, ...]) -> Callable[[Any], Any]:
    module_name, _, attributes = name.partition(":")
    sys.path[:0] = [os.getcwd(), *folders]
    try:
        found: Any = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        places = " or ".join((os.getcwd(), *folders))
        raise Missing(f"there is no module {module_name!r} in {places}, nor on Python's path") from None
    for attribute in attributes.split("."):
        found = getattr(found, attribute, None)
    if not callable(found):
        raise Missing(f"module {module_name!r} has no function {attributes!r}")
    return found  # type: ignore[no-any-return]  # whatever it is, it can be called


def _call(function: Callable[[Any], Any], turn: TomlTable, wire: Wire) -> Any:
    if not inspect.iscoroutinefunction(function):
        return function(Turn(turn, wire))
    import asyncio

    async def cancellable() -> Any:
        task = asyncio.ensure_future(function(AsyncTurn(turn, wire)))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await task

    try:
        return asyncio.run(cancellable())
    except asyncio.CancelledError:
        _leave()


if __name__ == "__main__":
    from moorage.agents import python  # under its own name, where the function's module finds it too

    sys.exit(python.main(*sys.argv[1:]))
