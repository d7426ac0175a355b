"""Messages of the Microsoft Agent Framework, as `Message.to_dict` writes them."""

from __future__ import annotations

from typing import Any

from moorage.adapters.payload import json_or_text
from moorage.adapters.projection import Part, message
from moorage.core.entry import Message

FRAMEWORK = "agent-framework"
ROLES = ("user", "assistant", "system", "tool")
SAID = {"type", "role", "contents", "message_id"}  # fields that the log's message contains
SAID_OF_A_CONTENT = {"type", "text", "call_id", "name", "arguments", "result", "items", "hosted"}

FrameworkItem = dict[str, Any]


def said(item: FrameworkItem) -> Message:
    """Return a message for the log."""
    contents = [it for it in item.get("contents", []) if isinstance(it, dict)]
    parts = [part for it in contents if (part := _part(it)) is not None]
    is_said = len(parts) == len(contents) and not _more(item, SAID)
    native = None if is_said and not any(_more(it, SAID_OF_A_CONTENT) for it in contents) else item
    role = item.get("role")
    return message(FRAMEWORK, role if role in ROLES else "user", parts, native, key=item.get("message_id"))


def _part(content: FrameworkItem) -> Part | None:
    match content.get("type"):
        case "text":
            return {"type": "text", "text": str(content.get("text") or "")}
        case "function_call":
            call = {"id": str(content.get("call_id")), "name": str(content.get("name"))}
            return {"type": "tool_call", **call, "input": json_or_text(content.get("arguments"))}
        case "function_result":
            failed = content.get("exception") is not None
            result = {"call_id": str(content.get("call_id")), "output": content.get("result"), "is_error": failed}
            return {"type": "tool_result", **result}
    return None


def _more(value: FrameworkItem, known: set[str]) -> bool:
    return any(each for name, each in value.items() if name not in known)
