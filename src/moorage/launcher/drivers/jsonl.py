"""Programs that speak JSON lines: one line with the turn in, events out, decisions in between.

A function is such a program too: a Python process calls it, and speaks JSON lines for it.
"""

from __future__ import annotations

import json
import os
import sys

from moorage.launcher.drivers.base import Exit, LineDriver, read_object, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from moorage.launcher.drivers.base import AgentEvent, DriverChannel, JobTable

EVENTS = ("message", "chunk", "phase", "metadata", "error", "checkpoint", "usage", "note", "approval", "result")
ROLES = ("user", "assistant", "system", "tool")
TOKENS = ("input_tokens", "output_tokens", "total_tokens")
OUTCOMES = ("completed", "failed", "stopped")


class Invalid(ValueError):
    """A field of an event is invalid."""

    def __init__(self, field: str, expected: str) -> None:
        super().__init__(expected)
        self.field, self.expected = field, expected


class JsonlDriver(LineDriver):
    """Validates the agent's events and passes them on."""

    numbers_lines = True  # whether the author of the agent prints its lines

    def __init__(self, job: JobTable, line: DriverChannel) -> None:
        super().__init__(job, line)
        self._final: AgentEvent | None = None
        self._events = self._questions = 0
        self._first_problem = ""
        self._leaves_question = self._leaves_checkpoint = False

    def begin(self) -> None:
        self.line.send(self.job["turn_line"])

    def told(self, command: AgentEvent) -> None:
        answer = {key: command.get(key) for key in ("type", "id", "decision", "note")}
        self.line.send(json.dumps(answer).encode() + b"\n")

    def ask_to_stop(self) -> None:
        self.line.send(b'{"type": "stop"}\n')
        self.line.close_input()

    def result(self, exit: Exit) -> AgentEvent:
        if self._final is not None:
            return self.account.ending(**self._final)
        if not exit.is_clean:
            return self.died(str(exit))
        if self.account.has_spoken or self._leaves_question or self._leaves_checkpoint:
            return self.account.ending("completed")
        if self.account.problems and not self._events:
            why = f"none of its {self.account.problems} lines is an event; the first: {self._first_problem}"
            return self.account.failing("bad_output", why)
        return self.account.failing("no_answer", "it ended without a result and without output")

    def last_words(self) -> str | None:
        return None if self._final is None else self._final.get("text")

    def take(self, line: bytes, length: int) -> None:
        if self.numbers_lines:
            self.line_number = (self.line_number or 0) + 1
        if not line.strip() or self._final is not None:
            return
        if length > len(line):
            self._refuse(line, f"a line of at most {len(line):,} bytes; this one has {length:,}")
            return
        event = read_object(line)
        if event is None:
            self._refuse(line, "a JSON object")
            return
        try:
            self._pass_on(event)
        except Invalid as problem:
            self._refuse(line, problem.expected, problem.field)

    def _refuse(self, line: bytes, expected: str, field: str | None = None) -> None:
        self._first_problem = self._first_problem or shown(line)
        self.account.problem(line, expected, field)

    def _pass_on(self, event: AgentEvent) -> None:
        kind = event.get("type")
        if kind not in EVENTS:
            raise Invalid("type", f"one of {', '.join(EVENTS)}")
        getattr(self, f"_{kind}")(event)
        self._events += 1

    # One for each of EVENTS

    def _message(self, event: AgentEvent) -> None:
        role, content = event.get("role", "assistant"), event.get("content")
        if role not in ROLES:
            raise Invalid("role", f"one of {', '.join(ROLES)}")
        self.account.message(role, _content(content))

    def _chunk(self, event: AgentEvent) -> None:
        self.account.chunk(_text(event, "text"))

    def _phase(self, event: AgentEvent) -> None:
        more = {"metadata": _table(event, "metadata")} if event.get("metadata") is not None else {}
        self.emit({"type": "phase", "phase": _text(event, "phase"), **more})

    def _metadata(self, event: AgentEvent) -> None:
        self.emit({"type": "metadata", "metadata": _table(event, "metadata")})

    def _error(self, event: AgentEvent) -> None:
        self.emit({"type": "error", "error": _text(event, "error")})

    def _checkpoint(self, event: AgentEvent) -> None:
        self._leaves_checkpoint = True
        self.emit({"type": "checkpoint", "checkpoint": _table(event, "checkpoint")})

    def _usage(self, event: AgentEvent) -> None:
        for key in TOKENS:
            if event.get(key) is not None and not _is_number(event[key]):
                raise Invalid(key, "a number")
        self.emit({key: value for key, value in event.items() if key == "type" or _is_number(value)})

    def _note(self, event: AgentEvent) -> None:
        more = {"data": event["data"]} if "data" in event else {}
        self.emit({"type": "note", "note": _text(event, "note"), **more})

    def _approval(self, event: AgentEvent) -> None:
        self._questions += 1
        options, waits = event.get("options") or [], event.get("wait", True)
        if not isinstance(options, list) or not all(isinstance(option, str) for option in options):
            raise Invalid("options", "a list of texts")
        if event.get("expires_in") is not None and not _is_number(event["expires_in"]):
            raise Invalid("expires_in", "a number of seconds")
        asked: AgentEvent = {
            "type": "approval",
            "id": str(event.get("id") or f"question-{self._questions}"),
            "question": _text(event, "question"),
            "options": options,
            "wait": waits is not False,
        }
        self._leaves_question = self._leaves_question or not asked["wait"]
        self.emit(asked | {key: event[key] for key in ("plan", "expires_in") if event.get(key) is not None})

    def _result(self, event: AgentEvent) -> None:
        outcome = event.get("outcome", "completed")
        if outcome not in OUTCOMES:
            raise Invalid("outcome", f"one of {', '.join(OUTCOMES)}")
        final: AgentEvent = {"outcome": outcome}
        if outcome == "failed":
            final |= {"error": "it reported a failure", "reason": "agent_failed"}
        for key in ("text", "error", "reason"):
            if event.get(key) is not None:
                final[key] = _text(event, key)
        if event.get("metadata") is not None:
            final["metadata"] = _table(event, "metadata")
        self._final, self.is_done = final, True


def _text(event: AgentEvent, key: str) -> str:
    if not isinstance(event.get(key), str):
        raise Invalid(key, f"a text, in an event of type {event['type']}")
    return str(event[key])


def _table(event: AgentEvent, key: str) -> AgentEvent:
    table = event.get(key)
    if not isinstance(table, dict):
        raise Invalid(key, f"a JSON object, in an event of type {event['type']}")
    return table


_PART_TEXTS = {"text": ("text",), "tool_call": ("id", "name"), "tool_result": ("call_id",)}


def _content(content: Any) -> str | list[AgentEvent]:
    """Return the content of a message after checking its parts."""
    if not isinstance(content, str) and not (isinstance(content, list) and content):
        raise Invalid("content", "a text or a list of parts")
    for index, part in enumerate(content if isinstance(content, list) else ()):
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(kind, str):
            raise Invalid(f"content[{index}].type", "the type of a part: text, tool_call, tool_result")
        for key in _PART_TEXTS.get(kind, ()):
            if not isinstance(part.get(key), str):
                raise Invalid(f"content[{index}].{key}", f"a text, in a part of type {kind}")
    return content


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class PythonDriver(JsonlDriver):
    """Starts `moorage.agents.python`, which runs the function."""

    numbers_lines = False

    def argv(self) -> list[str]:
        agent = self.job["agent"]
        beside = [os.path.dirname(agent["source"])] if agent.get("source") else []
        # -P: the working folder must not shadow our modules; it is added to the path later
        return [sys.executable, "-P", "-m", "moorage.agents.python", agent["function"], *beside]

    def env(self) -> dict[str, str]:
        return {"PYTHONUNBUFFERED": "1"}
