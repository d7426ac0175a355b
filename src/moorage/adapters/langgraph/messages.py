"""Messages of LangChain as messages of the log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage, message_to_dict

from moorage.adapters.projection import message, with_distinct_keys
from moorage.core.entry import Message
from moorage.service.histories.blocks import Part

FRAMEWORK = "langgraph"
ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "tool"}
SAID = {"content", "type", "id", "tool_calls", "tool_call_id", "status"}  # fields that the log's message contains


def said_by(channel: str, items: Iterable[tuple[int, Any]]) -> list[Message]:
    """Return the messages among the items of a channel, each with its index, for the log."""
    found = ((index, item) for index, item in items if isinstance(item, BaseMessage))
    return with_distinct_keys(_said(item, item.id or f"{channel}.{index}") for index, item in found)


def _said(item: BaseMessage, key: str) -> Message:
    kind = item.type.removesuffix("MessageChunk").lower()
    role = ROLES.get(kind, "user")
    is_said = not any(value for name, value in item.__dict__.items() if name not in SAID) and _is_text(item.content)
    native = None if is_said else message_to_dict(item)
    return message(FRAMEWORK, role, _parts(item), native, key=key)


def _parts(item: BaseMessage) -> list[Part]:
    if isinstance(item, ToolMessage):
        failed = item.status == "error"
        return [{"type": "tool_result", "call_id": item.tool_call_id, "output": item.content, "is_error": failed}]
    parts = _texts(item.content)
    if isinstance(item, AIMessage):
        calls = [call for call in item.tool_calls if call.get("id")]
        parts += [{"type": "tool_call", "id": it["id"], "name": it["name"], "input": it["args"]} for it in calls]
    return parts


def _texts(content: Any) -> list[Part]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    texts = [it if isinstance(it, str) else it.get("text") for it in content if isinstance(it, (str, dict))]
    return [{"type": "text", "text": text} for text in texts if isinstance(text, str) and text]


def _is_text(content: Any) -> bool:
    return isinstance(content, str)
