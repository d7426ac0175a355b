"""Programs that speak JSON lines: the turn in one line, events back, decisions in between."""

from __future__ import annotations

import json

from moorage.launcher.drivers.base import Driver, Exit, Lines, read_object, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from moorage.launcher.drivers.base import Event, Job, Line

MAX_LINE = 8 * 1024 * 1024
SHOWN = 20  # lines that make no sense and are shown; the others are counted
ROLES = ("user", "assistant", "system", "tool")
OUTCOMES = ("completed", "failed", "stopped")


class Unclear(ValueError):
    """An event that lacks what it needs."""


class JsonlDriver(Driver):
    """Checks what the agent says and passes it on."""

    def __init__(self, job: Job, line: Line) -> None:
        super().__init__(job, line)
        self._lines = Lines(MAX_LINE)
        self._final: Event | None = None
        self._events = self._unclear = self._questions = 0
        self._first_unclear = ""
        self._leaves_question = self._leaves_checkpoint = False

    def begin(self) -> None:
        self.line.send(self.job["turn_line"])

    def hear(self, data: bytes) -> None:
        for line, length in self._lines.feed(data):
            self._take(line, length)

    def hear_end(self) -> None:
        for line, length in self._lines.end():
            self._take(line, length)

    def told(self, command: Event) -> None:
        answer = {key: command.get(key) for key in ("type", "id", "decision", "note")}
        self.line.send(json.dumps(answer).encode() + b"\n")

    def ask_to_stop(self) -> None:
        self.line.send(b'{"type": "stop"}\n')
        self.line.close_input()

    def result(self, exit: Exit) -> Event:
        ending = self._judge(exit)
        return ending | {"unclear_lines": self._unclear} if self._unclear else ending

    def last_words(self) -> str | None:
        return None if self._final is None else self._final.get("text")

    def _judge(self, exit: Exit) -> Event:
        if self._final is not None:
            return self._concluded(self._final)
        if not exit.is_clean:
            errors = self.line.errors()
            return self.account.failing("agent_failed", f"{exit}: {errors}" if errors else str(exit))
        if self.account.has_spoken or self._leaves_question or self._leaves_checkpoint:
            return self.account.ending("completed")
        if self._unclear and not self._events:
            why = f"none of its {self._unclear} lines is an event; the first: {self._first_unclear}"
            return self.account.failing("bad_output", why)
        return self.account.failing("no_answer", "it ended without a result and without a word")

    def _concluded(self, final: Event) -> Event:
        text = final.get("text")
        facts = {key: final.get(key) for key in ("error", "reason", "metadata")}
        if final["outcome"] == "failed":
            facts = {"error": "it says that it failed", "reason": "agent_failed"} | {
                key: value for key, value in facts.items() if value is not None
            }
        return self.account.ending(final["outcome"], text, **facts)

    def _take(self, line: bytes, length: int) -> None:
        if not line.strip() or self._final is not None:
            return
        if length > len(line):
            self._puzzle(line, f"a line of {length:,} bytes, of which only the first {len(line):,} were read")
            return
        event = read_object(line)
        if event is None:
            self._puzzle(line, "a line that is no JSON object")
            return
        try:
            self._pass_on(event)
        except Unclear as problem:
            self._puzzle(line, str(problem))

    def _puzzle(self, line: bytes, why: str) -> None:
        self._unclear += 1
        self._first_unclear = self._first_unclear or shown(line)
        if self._unclear <= SHOWN:
            self.line.emit({"type": "note", "note": f"{why}: {shown(line)}"})

    def _pass_on(self, event: Event) -> None:
        kind = event.get("type")
        handler = _HANDLERS.get(kind) if isinstance(kind, str) else None
        if handler is None:
            if not isinstance(kind, str):
                raise Unclear("an event without a type")
            note = f"an event of the unknown type {shown(kind.encode(errors='replace'))}"
            self.line.emit({"type": "note", "note": note, "data": event})
        else:
            handler(self, event)
        self._events += 1

    # One for each type of event

    def _message(self, event: Event) -> None:
        role, content = event.get("role", "assistant"), event.get("content")
        if role not in ROLES:
            raise Unclear(f"a message whose role is none of {', '.join(ROLES)}")
        if not _is_content(content):
            raise Unclear("a message whose content is neither text nor a list of parts")
        self.account.message(role, content)  # type: ignore[arg-type]  # it was looked at just now

    def _chunk(self, event: Event) -> None:
        self.account.chunk(_text(event, "text"))

    def _phase(self, event: Event) -> None:
        more = {"metadata": _table(event, "metadata")} if event.get("metadata") is not None else {}
        self.line.emit({"type": "phase", "phase": _text(event, "phase"), **more})

    def _metadata(self, event: Event) -> None:
        self.line.emit({"type": "metadata", "metadata": _table(event, "metadata")})

    def _error(self, event: Event) -> None:
        self.line.emit({"type": "error", "error": _text(event, "error")})

    def _checkpoint(self, event: Event) -> None:
        self._leaves_checkpoint = True
        self.line.emit({"type": "checkpoint", "checkpoint": _table(event, "checkpoint")})

    def _usage(self, event: Event) -> None:
        self.line.emit({key: value for key, value in event.items() if key == "type" or _is_number(value)})

    def _note(self, event: Event) -> None:
        more = {"data": event["data"]} if "data" in event else {}
        self.line.emit({"type": "note", "note": _text(event, "note"), **more})

    def _approval(self, event: Event) -> None:
        self._questions += 1
        options, waits = event.get("options") or [], event.get("wait", True)
        if not isinstance(options, list) or not all(isinstance(option, str) for option in options):
            raise Unclear("an approval whose options are no list of texts")
        if event.get("expires_in") is not None and not _is_number(event["expires_in"]):
            raise Unclear("an approval whose expires_in is no number of seconds")
        asked: Event = {
            "type": "approval",
            "id": str(event.get("id") or f"question-{self._questions}"),
            "question": _text(event, "question"),
            "options": options,
            "wait": waits is not False,
        }
        self._leaves_question = self._leaves_question or not asked["wait"]
        self.line.emit(asked | {key: event[key] for key in ("plan", "expires_in") if event.get(key) is not None})

    def _result(self, event: Event) -> None:
        outcome = event.get("outcome", "completed")
        if outcome not in OUTCOMES:
            raise Unclear(f"a result whose outcome is none of {', '.join(OUTCOMES)}")
        final: Event = {"outcome": outcome}
        for key in ("text", "error", "reason"):
            if event.get(key) is not None:
                final[key] = _text(event, key)
        if isinstance(event.get("metadata"), dict):
            final["metadata"] = event["metadata"]
        self._final, self.is_done = final, True


_HANDLERS: dict[str, Any] = {
    "message": JsonlDriver._message,
    "chunk": JsonlDriver._chunk,
    "phase": JsonlDriver._phase,
    "metadata": JsonlDriver._metadata,
    "error": JsonlDriver._error,
    "checkpoint": JsonlDriver._checkpoint,
    "usage": JsonlDriver._usage,
    "note": JsonlDriver._note,
    "approval": JsonlDriver._approval,
    "result": JsonlDriver._result,
}


def _text(event: Event, key: str) -> str:
    if not isinstance(event.get(key), str):
        raise Unclear(f"an event of type {event['type']} without the text {key!r}")
    return str(event[key])


def _table(event: Event, key: str) -> Event:
    table = event.get(key)
    if not isinstance(table, dict):
        raise Unclear(f"an event of type {event['type']} whose {key} is no JSON object")
    return table


def _is_content(content: object) -> bool:
    if isinstance(content, str):
        return True
    if not isinstance(content, list) or not content:
        return False
    return all(isinstance(part, dict) and _is_part(part) for part in content)


_PART_TEXTS = {"text": ("text",), "tool_call": ("id", "name"), "tool_result": ("call_id",)}


def _is_part(part: Event) -> bool:
    kind = part.get("type")
    if not isinstance(kind, str):
        return False
    return all(isinstance(part.get(key), str) for key in _PART_TEXTS.get(kind, ()))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
