"""Items of OpenAI's Responses API, as the OpenAI Agents SDK stores them."""

from __future__ import annotations

from typing import Any

from moorage.adapters.payload import json_or_text
from moorage.adapters.projection import Part, message
from moorage.core.entry import Message

FRAMEWORK = "openai-agents"

OpenaiItem = dict[str, Any]

_TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}  # types, and their fields
_MEDIA = {"input_image": "image", "input_file": "document", "input_audio": "audio"}
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}  # types, and the fields of their arguments
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_SAID = {"type", "id", "status", "role", "content", "call_id", "name", "arguments", "input", "output"}
_SAID_OF_A_PART = {"type", "text", "refusal"}


def said(item: Any) -> Message:
    """Return an item as a message for the log."""
    item = item if isinstance(item, dict) else {"type": "unknown", "value": item}
    role, parts = _role_and_parts(item)
    key = item.get("id") or item.get("call_id")
    native = None if parts and _is_all_said(item) else item
    return message(FRAMEWORK, role, parts, native, key=key if isinstance(key, str) else None)


def answered_calls(items: list[Any]) -> set[str]:
    """Return the ids of the calls whose results or approvals are among these items."""
    kinds = [(item, str(item.get("type"))) for item in items if isinstance(item, dict)]
    ids = [item.get("call_id") for item, kind in kinds if kind.endswith("_output")]
    ids += [item.get("approval_request_id") for item, kind in kinds if kind == "mcp_approval_response"]
    return {one for one in ids if isinstance(one, str)}


def _role_and_parts(item: OpenaiItem) -> tuple[str, list[Part]]:
    kind = item.get("type", "message")
    if kind == "message":
        role = {"developer": "system"}.get(item.get("role", ""), item.get("role"))
        return role if role in ("user", "system") else "assistant", _parts(item.get("content"))
    if kind in _CALLS:
        call = {"id": str(item.get("call_id")), "name": str(item.get("name"))}
        return "assistant", [{"type": "tool_call", **call, "input": json_or_text(item.get(_CALLS[kind]))}]
    if kind in _OUTPUTS:
        output = {"call_id": str(item.get("call_id")), "output": _output(item.get("output")), "is_error": False}
        return "tool", [{"type": "tool_result", **output}]
    return "assistant", []  # reasoning, a hosted tool: stored for this framework only


def _parts(content: Any) -> list[Part]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    parts = [_part(part) for part in content or () if isinstance(part, dict)]
    return [part for part in parts if part is not None]


def _part(part: OpenaiItem) -> Part | None:
    kind = part.get("type")
    if kind in _TEXTS:
        text = part.get(_TEXTS[kind])
        return {"type": "text", "text": text} if isinstance(text, str) else None
    if kind in _MEDIA:
        names = ("file_id", "filename", "detail", "image_url", "file_url")
        facts = {name: part[name] for name in names if isinstance(part.get(name), str)}
        return {"type": _MEDIA[kind], **{name: fact for name, fact in facts.items() if not fact.startswith("data:")}}
    return None


def _output(output: Any) -> Any:
    if not isinstance(output, list):
        return "" if output is None else output
    parts = _parts(output)
    return "\n".join(part["text"] for part in parts) if all(part["type"] == "text" for part in parts) else parts


def _is_all_said(item: OpenaiItem) -> bool:
    """Return whether the text contains everything except ids and states of the provider."""
    if any(value for name, value in item.items() if name not in _SAID):
        return False
    return all(_is_plain(item.get(name)) for name in ("content", "output"))


def _is_plain(content: Any) -> bool:
    if not isinstance(content, list):
        return content is None or isinstance(content, str)
    return all(
        isinstance(part, dict)
        and part.get("type") in _TEXTS
        and not any(value for name, value in part.items() if name not in _SAID_OF_A_PART)
        for part in content
    )
