"""Shared parts of all drivers, and the simplest one: the connection to the agent, its output, its end."""

from __future__ import annotations

import codecs
import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    AgentEvent = dict[str, Any]
    JobTable = dict[str, Any]

    class DriverChannel(Protocol):
        """A driver's connection to its agent and to the reader of its events."""

        def send(self, data: bytes) -> None:
            """Write to the agent's standard input as soon as it reads."""

        def close_input(self) -> None:
            """Close the agent's standard input after all data is sent."""

        def emit(self, event: AgentEvent) -> None:
            """Report an event."""

        def errors(self) -> str:
            """Return the end of the agent's standard error."""


MAX_MESSAGE_BYTES = 1024 * 1024  # of one message in the log
MAX_LINE = 8 * 1024 * 1024  # bytes
REFUSABLE = ("message", "phase", "metadata", "error", "checkpoint", "approval", "problem")
KEPT_PROBLEMS = 20  # problems of a turn that are reported one by one; the others are counted
PIECE = 512 * 1024  # bytes; an answer above the limit is stored in messages of this size
PART_TEXT = 32 * 1024  # characters of a text that are kept when a message with parts is too large


class Exit:
    """How the agent's process ended: with a status, or by a signal."""

    def __init__(self, status: int | None, signal_name: str | None = None) -> None:
        self.status, self.signal_name = status, signal_name

    @property
    def is_clean(self) -> bool:
        """Return whether it exited with status 0."""
        return self.status == 0

    def __str__(self) -> str:
        if self.signal_name is not None:
            return f"it was killed by {self.signal_name}"
        return f"it ended with exit status {self.status}"


class Driver:
    """Communicates with one agent; each kind of agent has its own driver."""

    grace = 0.0  # seconds that an agent asked to stop gets before it is signalled
    is_done = False  # whether the agent has answered and only has to exit

    def __init__(self, job: JobTable, line: DriverChannel) -> None:
        self.job, self.line = job, line
        self.account = Account(self.emit)
        self.line_number: int | None = None  # of the line being read, if the agent prints lines

    def emit(self, event: AgentEvent) -> None:
        """Report an event; add the line number if the event may be refused."""
        has_line = self.line_number is not None and event["type"] in REFUSABLE
        self.line.emit({**event, "line": self.line_number} if has_line else event)

    def argv(self) -> list[str]:
        """Return the program and its arguments."""
        return list(self.job["agent"]["command"])

    def env(self) -> dict[str, str]:
        """Return variables to set in addition to those of the job."""
        return {}

    def begin(self) -> None:
        """Send the first input: the agent has started."""

    def hear(self, data: bytes) -> None:
        """Take data from the agent's standard output."""

    def hear_end(self) -> None:
        """Handle the end of the agent's output."""

    def told(self, command: AgentEvent) -> None:
        """Take an answer for the agent."""

    def ask_to_stop(self) -> None:
        """Ask the agent to stop, by its own protocol."""

    def result(self, exit: Exit) -> AgentEvent:
        """Return the last event of an agent that has ended by itself."""
        raise NotImplementedError

    def last_words(self) -> str | None:
        """Return the answer of an agent that is ended early; None stands for its last message."""
        return None

    def died(self, why: str, text: str | None = None, *, cut_off: bool = True) -> AgentEvent:
        """Return the last event of an agent that ended without an answer, with the end of its standard error."""
        errors = self.line.errors()
        return self.account.failing("agent_failed", f"{why}: {errors}" if errors else why, text, cut_off=cut_off)


class TextDriver(Driver):
    """Runs a plain program: writes the prompt to its input, closes that, and takes all output as the answer."""

    def __init__(self, job: JobTable, line: DriverChannel) -> None:
        super().__init__(job, line)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def begin(self) -> None:
        parts = (self.job.get("system_prompt"), self.job["prompt"])
        self.line.send("\n\n".join(part for part in parts if part).encode("utf-8", "replace"))
        self.line.close_input()

    def hear(self, data: bytes) -> None:
        self.account.chunk(self._decoder.decode(data))

    def hear_end(self) -> None:
        self.account.chunk(self._decoder.decode(b"", final=True))

    def result(self, exit: Exit) -> AgentEvent:
        text = self.last_words()
        if not exit.is_clean:
            return self.died(str(exit), text, cut_off=exit.signal_name is not None)
        if not text.strip():
            return self.account.failing("no_answer", "it ended without output", "")
        return self.account.ending("completed", text)

    def last_words(self) -> str:
        return self.account.unsaid.rstrip("\r\n")


class LineDriver(Driver):
    """Communicates with an agent that prints lines."""

    def __init__(self, job: JobTable, line: DriverChannel) -> None:
        super().__init__(job, line)
        self._lines = LineBuffer(MAX_LINE)

    def hear(self, data: bytes) -> None:
        for line, length in self._lines.feed(data):
            self.take(line, length)

    def hear_end(self) -> None:
        for line, length in self._lines.end():
            self.take(line, length)

    def take(self, line: bytes, length: int) -> None:
        """Read a line; only its beginning if it is longer than MAX_LINE."""
        raise NotImplementedError


class Account:
    """The output of an agent, and how much of it is in the log."""

    def __init__(self, emit: Callable[[AgentEvent], None]) -> None:
        self._emit = emit
        self.problems = 0  # lines that did not validate
        self._unsaid: list[str] = []  # pieces of an unfinished message
        self._last = ""  # the last complete message of the agent
        self.has_spoken = False

    def chunk(self, text: str) -> None:
        """Take a piece of a message."""
        if text:
            self.has_spoken = True
            self._unsaid.append(text)
            self._emit({"type": "chunk", "text": text})

    def message(self, role: str, content: str | list[AgentEvent]) -> None:
        """Take a complete message; it contains the pieces before it."""
        self.has_spoken = True
        for piece in fitting(content):
            self._emit({"type": "message", "role": role, "content": piece})
        if role == "assistant":
            self._unsaid = []
            self._last = words_of(content) or self._last

    def problem(self, text: bytes, expected: str, field: str | None = None) -> None:
        """Report a line that does not validate. Only the first ones are reported; all are counted."""
        self.problems += 1
        if self.problems <= KEPT_PROBLEMS:
            self._emit({"type": "problem", "field": field, "expected": expected, "text": shown(text)})

    def end_message(self) -> None:
        """Make a message of the pieces so far."""
        if text := "".join(self._unsaid):
            self.message("assistant", text)

    @property
    def unsaid(self) -> str:
        """Return partial output that is in no message yet."""
        return "".join(self._unsaid)

    def ending(self, outcome: str, text: str | None = None, **more: Any) -> AgentEvent:
        """Return the last event. Without a text, the last message is the answer."""
        if text is None:
            text = self.unsaid or self._last
        is_said = bool(text) and text == self._last
        if not is_said and len(text.encode("utf-8", "replace")) > MAX_MESSAGE_BYTES:
            self.message("assistant", text)
            is_said = True
        facts = {key: value for key, value in more.items() if value is not None}
        facts |= {"problems": self.problems} if self.problems else {}
        return {"type": "result", "outcome": outcome, "text": text, "said": is_said, **facts}

    def failing(self, reason: str, error: str, text: str | None = None, *, cut_off: bool | None = None) -> AgentEvent:
        """Return the last event of a failed agent, with its output so far; `cut_off` if it died without a report."""
        return self.ending("failed", text, reason=reason, error=error, cut_off=cut_off or None)


def words_of(content: str | list[AgentEvent]) -> str:
    """Return the text of a message, without tool calls and results."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part.get("type") == "text")


def fitting(content: str | list[AgentEvent]) -> list[str | list[AgentEvent]]:
    """Split a message into several that each fit into the log; parts are shortened instead."""
    if isinstance(content, str):
        return list(_pieces(content))
    if len(json.dumps(content).encode()) <= MAX_MESSAGE_BYTES:  # with JSON escapes: an upper bound
        return [content]
    short = [_shortened(part) for part in content]
    if len(json.dumps(short).encode()) <= MAX_MESSAGE_BYTES:
        return [short]
    return list(_pieces(json.dumps(content, ensure_ascii=False)))


def _pieces(text: str) -> list[str]:
    data = text.encode("utf-8", "replace")
    if len(data) <= MAX_MESSAGE_BYTES:
        return [text]
    cuts = [0]
    while len(data) - cuts[-1] > PIECE:
        cut = cuts[-1] + PIECE
        while data[cut] & 0xC0 == 0x80:  # inside a character
            cut -= 1
        cuts.append(cut)
    return [data[start:end].decode() for start, end in zip(cuts, [*cuts[1:], len(data)], strict=True)]


def _shortened(value: Any) -> Any:
    if isinstance(value, str) and len(value) > PART_TEXT:
        return f"{value[:PART_TEXT]} … [{len(value) - PART_TEXT:,} of {len(value):,} characters left out]"
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    return [_shortened(item) for item in value] if isinstance(value, list) else value


class LineBuffer:
    """Splits incoming bytes into lines; of a line that is too long only the beginning is kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._length = 0  # of the line so far, with the discarded part

    def feed(self, data: bytes) -> list[tuple[bytes, int]]:
        """Return the lines that are complete now, each with its true length."""
        *ends, rest = data.split(b"\n")
        done = []
        for end in ends:
            self._add(end)
            done.append((bytes(self._rest), self._length))
            self._rest.clear()
            self._length = 0
        self._add(rest)
        return done

    def end(self) -> list[tuple[bytes, int]]:
        """Return a last line without a line end."""
        return self.feed(b"\n") if self._rest else []

    def _add(self, data: bytes) -> None:
        self._length += len(data)
        self._rest += data[: max(0, self._limit - len(self._rest))]


def read_object(line: bytes) -> AgentEvent | None:
    """Return a line as a JSON object; None if it is none."""
    try:
        value = json.loads(line.decode("utf-8", "replace"), parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def shown(line: bytes, limit: int = 200) -> str:
    """Return the beginning of a line for display."""
    text = line[: limit * 4].decode("utf-8", "replace").replace("\0", "\ufffd").strip()
    return text if len(text) <= limit else f"{text[:limit]}…"
