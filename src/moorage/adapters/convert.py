"""Continue elsewhere: convert the messages of a session for another framework.

::

    carried = convert(moor.messages("support-42").items, "openai-agents")
    await MoorageSession("support-43").add_items(carried.messages)

`moorage.adapters.continuing` does both. Text, tool calls with their results, and system prompts are converted.
Content without a place in the other framework is left out and listed: pictures and files, and parts that only one
framework understands. A call without a result gets a result that says so, because no model accepts an unanswered call.
A result without its call is left out.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct, field

from moorage.core.entry import NATIVE, Entry
from moorage.core.errors import InvalidField

__all__ = ["TARGETS", "Carried", "convert"]

NO_RESULT = "[no result was recorded]"

Part = dict[str, Any]
PlainMessage = dict[str, Any]


class SpeakerTurn(Struct, frozen=True):
    """The messages of one speaker, without content that cannot be converted."""

    role: str
    parts: list[Part]

    @property
    def text(self) -> str:
        """Return all its texts."""
        return "\n".join(part["text"] for part in self.parts if part["type"] == "text")

    def all_of(self, kind: str) -> list[Part]:
        """Return the parts of a kind."""
        return [part for part in self.parts if part["type"] == kind]


class Carried(Struct, frozen=True, kw_only=True):
    """Messages in a framework's format, and the content that could not be converted, each with its entry's number."""

    messages: list[PlainMessage]
    system_prompt: str | None = None  # for a framework whose history has no place for it
    left_out: list[str] = field(default_factory=list)


def convert(entries: Iterable[Entry], to: str) -> Carried:
    """Return the messages of a log in the format of a framework, as plain values."""
    if to not in TARGETS:
        raise InvalidField("to", f"is {to!r}; use one of {', '.join(TARGETS)}")
    left_out: list[str] = []
    turns = [_turn(entry, left_out) for entry in entries if entry.role is not None]
    paired = _paired([turn for turn in turns if turn.parts], left_out)
    prompts = [turn for turn in paired if turn.role == "system" and to in APART]
    messages = [said for turn in paired if turn not in prompts for said in TARGETS[to](turn)]
    prompt = "\n\n".join(turn.text for turn in prompts) or None
    return Carried(messages=messages, system_prompt=prompt, left_out=left_out)


def _turn(entry: Entry, left_out: list[str]) -> SpeakerTurn:
    content = entry.content
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    known = [part for part in parts if part["type"] in ("text", "tool_call", "tool_result")]
    silent = (NATIVE,) if known else ()  # the text beside it has the same content
    others = [_kind(part) for part in parts if part not in known and part["type"] not in silent]
    left_out += [f"entry {entry.number}: {kind}" for kind in others]
    return SpeakerTurn(str(entry.role), [part for part in known if part.get("text") != ""])


def _kind(part: Part) -> str:
    value = part.get("value")
    if part["type"] != NATIVE or not isinstance(value, dict):
        return str(part["type"])
    return f"{value.get('type', 'message')} of {part['framework']}"


def _paired(turns: list[SpeakerTurn], left_out: list[str]) -> list[SpeakerTurn]:
    """Return turns in which every call is followed by its result, and no result lacks its call."""
    results = _results_by_call(turns)
    paired = []
    for turn in turns:
        spoken = [part for part in turn.parts if part["type"] != "tool_result"]
        if spoken:
            paired.append(SpeakerTurn(turn.role, spoken))
        for call in turn.all_of("tool_call"):
            found = results.get(call["id"])
            if not found:
                left_out.append(f"call {call['id']} of {call['name']}: it has no result")
            missing = {"type": "tool_result", "call_id": call["id"], "output": NO_RESULT, "is_error": True}
            paired.append(SpeakerTurn("tool", [{**(found.popleft() if found else missing), "name": call["name"]}]))
    left_out += [f"result of {call_id}: its call is not there" for call_id, rest in results.items() for _ in rest]
    return paired


def _results_by_call(turns: list[SpeakerTurn]) -> dict[str, deque[Part]]:
    """Return the results by the ids of their calls, oldest first: some models give several calls one id."""
    results: dict[str, deque[Part]] = {}
    for turn in turns:
        for part in turn.all_of("tool_result"):
            results.setdefault(part["call_id"], deque()).append(part)
    return results


def _text_of(output: Any) -> str:
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)


def _openai(turn: SpeakerTurn) -> list[PlainMessage]:
    items: list[PlainMessage] = [{"role": turn.role, "content": turn.text}] if turn.text else []
    for call in turn.all_of("tool_call"):
        named = {"call_id": call["id"], "name": call["name"]}
        items.append({"type": "function_call", **named, "arguments": json.dumps(call.get("input") or {})})
    for result in turn.all_of("tool_result"):
        output = {"call_id": result["call_id"], "output": _text_of(result.get("output"))}
        items.append({"type": "function_call_output", **output})
    return items


def _langgraph(turn: SpeakerTurn) -> list[PlainMessage]:
    if results := turn.all_of("tool_result"):
        return [
            {
                "role": "tool",
                "tool_call_id": one["call_id"],
                "name": one["name"],
                "content": _text_of(one.get("output")),
                "status": "error" if one.get("is_error") else "success",
            }
            for one in results
        ]
    calls = [
        {"type": "tool_call", "id": call["id"], "name": call["name"], "args": _arguments(call)}
        for call in turn.all_of("tool_call")
    ]
    return [{"role": turn.role, "content": turn.text, **({"tool_calls": calls} if calls else {})}]


def _claude(turn: SpeakerTurn) -> list[PlainMessage]:
    blocks: list[Part] = [{"type": "text", "text": turn.text}] if turn.text else []
    blocks += [
        {"type": "tool_use", "id": call["id"], "name": call["name"], "input": _arguments(call)}
        for call in turn.all_of("tool_call")
    ]
    for one in turn.all_of("tool_result"):
        result = {"tool_use_id": one["call_id"], "content": _text_of(one.get("output"))}
        blocks.append({"type": "tool_result", **result, "is_error": bool(one.get("is_error"))})
    return [{"role": {"tool": "user"}.get(turn.role, turn.role), "content": blocks}]


def _pydantic_ai(turn: SpeakerTurn) -> list[PlainMessage]:
    if turn.role == "assistant":
        parts: list[Part] = [{"part_kind": "text", "content": turn.text}] if turn.text else []
        for call in turn.all_of("tool_call"):
            named = {"tool_name": call["name"], "tool_call_id": call["id"]}
            parts.append({"part_kind": "tool-call", **named, "args": _arguments(call)})
        return [{"kind": "response", "parts": parts}]
    kind = {"system": "system-prompt"}.get(turn.role, "user-prompt")
    asked: list[Part] = [{"part_kind": kind, "content": turn.text}] if turn.text else []
    for one in turn.all_of("tool_result"):
        named = {"tool_name": one["name"], "tool_call_id": one["call_id"]}
        asked.append({"part_kind": "tool-return", **named, "content": one.get("output")})
    return [{"kind": "request", "parts": asked}]


def _arguments(call: Part) -> Any:
    found = call.get("input")
    return found if isinstance(found, dict) else {} if found is None else {"input": found}


APART = ("claude",)  # frameworks that store the system prompt outside the messages
TARGETS: dict[str, Callable[[SpeakerTurn], list[PlainMessage]]] = {
    "openai-agents": _openai,
    "langgraph": _langgraph,
    "claude": _claude,
    "pydantic-ai": _pydantic_ai,
}
