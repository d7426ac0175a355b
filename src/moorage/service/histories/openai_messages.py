"""Messages of chat APIs: role, content, tool calls and their results.

Three ways of writing the same are read: chat completions (`tool_calls`, the role `tool`, and what came before them,
`function_call` and the role `function`), the items of responses (`function_call`, `function_call_output`), and blocks
of content (`tool_use`, `tool_result`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from moorage.core.codec import NOT_JSON, decode
from moorage.service.histories.blocks import NotOurs, Part, by_speaker, output_of, parts_of
from moorage.service.histories.conversations import Conversation, EntryDraft
from moorage.service.histories.ledger import as_utc
from moorage.service.importing import Notes

OpenaiMessage = dict[str, Any]

ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
}
ITEMS = ("function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output")
TEXTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
FILES = {
    "image_url": "image",
    "input_image": "image",
    "image_file": "image",
    "input_audio": "audio",
    "audio": "audio",
    "file": "document",
    "input_file": "document",
}
THOUGHTS = ("reasoning", "reasoning_content", "thinking")
TIMES = ("timestamp", "created_at", "created", "create_time", "at", "ts", "time")
KNOWN = {"role", "content", "tool_calls", "function_call", "tool_call_id", "refusal", "type", "name", "id", "status"}


class Listener:
    """Collects messages one after another as drafts of a conversation."""

    def __init__(self, conversation: Conversation, notes: Notes) -> None:
        self._conversation, self._notes = conversation, notes
        self._functions: list[tuple[str, str]] = []  # name and id of calls with neither an own id nor a result

    def hear(self, message: OpenaiMessage, line: int | None) -> None:
        """Add one message, or one item. Raises NotOurs."""
        kind = message.get("type")
        if kind in ITEMS:
            role, parts = _item(message)
        elif kind in THOUGHTS:
            self._notes.pass_over("thinking")
            return
        else:
            role, parts = _role(message), self._parts(message)
        self._count_unknown(message)
        if not parts:
            self._notes.pass_over("empty")
        for speaker, said in by_speaker(role, parts):
            self._conversation.add(EntryDraft(line=line, at=time_of(message), role=speaker, parts=said), None)

    def _parts(self, message: OpenaiMessage) -> list[Part]:
        if ROLES.get(str(message.get("role"))) == "tool":
            return [self._result(message)]
        parts = parts_of(_blocks(message.get("content")), None, self._notes)
        if isinstance(message.get("refusal"), str) and message["refusal"]:
            parts.append({"type": "text", "text": message["refusal"]})
        return parts + self._calls(message)

    def _calls(self, message: OpenaiMessage) -> list[Part]:
        calls = [_call(call) for call in _list(message, "tool_calls")]
        if isinstance(message.get("function_call"), dict):
            call_id = f"function-{len(self._conversation.drafts) + 1}"
            call = _call_part(call_id, message["function_call"], "arguments")
            self._functions.append((call["name"], call_id))
            calls.append(call)
        return calls

    def _result(self, message: OpenaiMessage) -> Part:
        output = message.get("content")
        if isinstance(output, list):
            output = output_of(_blocks(output), None, self._notes)
        return _result_part(message.get("tool_call_id") or self._called(message.get("name")), output)

    def _called(self, name: object) -> str | None:
        """Return the id of the call that this function result belongs to: the oldest without a result."""
        for index, (called, call_id) in enumerate(self._functions):
            if called == name:
                del self._functions[index]
                return call_id
        return None

    def _count_unknown(self, message: OpenaiMessage) -> None:
        for key, value in message.items():
            if value is not None and key not in KNOWN and key not in TIMES:
                known_item = message.get("type") in ITEMS and key in ("call_id", "arguments", "input", "output")
                self._notes.pass_over("thinking" if key in THOUGHTS else f"field {key}", 0 if known_item else 1)


def is_message(value: object) -> bool:
    """Return whether something looks like a message or an item of such a list."""
    if not isinstance(value, dict):
        return False
    return _word(value, "role") in ROLES or value.get("type") in ITEMS


def time_of(message: OpenaiMessage) -> datetime | None:
    """Return the time of a message, if it has one: RFC 3339, or seconds or milliseconds since 1970."""
    for name in TIMES:
        value = message.get(name)
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            return _instant(value)
    return None


def _instant(value: str | float) -> datetime | None:
    try:
        if isinstance(value, str):
            at = as_utc(datetime.fromisoformat(value))
        else:
            at = datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return at if 1970 <= at.year < 2242 else None


# Parts ------------------------------------------------------------------------------------------


def _role(message: OpenaiMessage) -> str:
    role = _word(message, "role")
    if role not in ROLES:
        raise NotOurs(f"a message whose role is {message.get('role')!r}")
    return ROLES[role]


def _word(value: dict[str, Any], name: str) -> str | None:
    word = value.get(name)
    return word if isinstance(word, str) else None


def _item(item: OpenaiMessage) -> tuple[str, list[Part]]:
    if str(item["type"]).endswith("_output"):
        return "tool", [_result_part(item.get("call_id"), item.get("output"))]
    call_id = item.get("call_id") or item.get("id")
    return "assistant", [_call_part(call_id, item, "arguments" if item["type"] == "function_call" else "input")]


def _call(call: object) -> Part:
    if not isinstance(call, dict):
        raise NotOurs("a call of a tool that is not an object")
    kind = "custom" if isinstance(call.get("custom"), dict) else "function"
    return _call_part(call.get("id"), call.get(kind), "input" if kind == "custom" else "arguments")


def _call_part(call_id: object, called: object, arguments: str) -> Part:
    if not isinstance(called, dict) or not isinstance(called.get("name"), str):
        raise NotOurs("a call that names no function")
    if not isinstance(call_id, str) or not call_id:
        raise NotOurs(f"a call of {called['name']!r} without an id")
    return {"type": "tool_call", "id": call_id, "name": called["name"], "input": _arguments(called.get(arguments))}


def _arguments(text: object) -> Any:
    """Return the arguments parsed as JSON, or as text where a model wrote something else."""
    if not isinstance(text, str):
        return {} if text is None else text
    try:
        return decode(text) if text.strip() else {}
    except NOT_JSON:
        return text


def _result_part(call_id: object, output: object) -> Part:
    if not isinstance(call_id, str) or not call_id:
        raise NotOurs("the result of a call without the id of the call")
    return {"type": "tool_result", "call_id": call_id, "output": "" if output is None else output}


def _blocks(content: object) -> str | list[dict[str, Any]] | None:
    if content is None or isinstance(content, str):
        return content or None
    if not isinstance(content, list):
        raise NotOurs("a message whose content is neither text nor a list of parts")
    return [_block(part) for part in content]


def _block(part: object) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, dict):
        raise NotOurs("a part that is not an object")
    kind = _word(part, "type")
    if kind in TEXTS:
        text = part.get(TEXTS[kind])
        return {"type": "text", "text": text.get("value") if isinstance(text, dict) else text}
    return {"type": FILES[kind], "source": _source(part)} if kind in FILES else part


def _source(part: dict[str, Any]) -> dict[str, Any]:
    """Return the source of an image or file as blocks have it: its address, its id, or its bytes."""
    said = part.get(str(part["type"])) or part
    facts = {"url": said} if isinstance(said, str) else said if isinstance(said, dict) else {}
    url = facts.get("url") or facts.get("image_url")
    data = facts.get("data") or facts.get("file_data")
    if isinstance(url, str) and url.startswith("data:"):
        kind, _, data = url.removeprefix("data:").partition(",")
        return {"media_type": kind.partition(";")[0], "data": data}
    found = {"url": url, "file_id": facts.get("file_id"), "media_type": facts.get("format"), "data": data}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _list(message: OpenaiMessage, name: str) -> list[Any]:
    value = message.get(name) or []
    if not isinstance(value, list):
        raise NotOurs(f"{name!r} is not a list")
    return value
