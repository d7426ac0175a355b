"""Messages of Strands, in the form of Bedrock's Converse API."""

from __future__ import annotations

from typing import Any

from moorage.adapters.projection import Part, message
from moorage.core.entry import Message

FRAMEWORK = "strands"

_MEDIA = ("image", "document", "video")


def said(spoken: dict[str, Any], key: str) -> list[Message]:
    """Convert a message to messages for the log: tool results and text separately."""
    parts = [part for block in spoken.get("content") or () if (part := _part(block)) is not None]
    results = [part for part in parts if part["type"] == "tool_result"]
    words = [part for part in parts if part["type"] != "tool_result"]
    speaker = "assistant" if spoken.get("role") == "assistant" else "user"
    rows: list[tuple[str, list[Part]]] = [("tool", results), (speaker, words)]
    return [message(FRAMEWORK, role, some, key=key) for role, some in rows if some]


def _part(block: dict[str, Any]) -> Part | None:
    if isinstance(block.get("text"), str):
        return {"type": "text", "text": block["text"]}
    if call := block.get("toolUse"):
        return {"type": "tool_call", "id": call["toolUseId"], "name": call["name"], "input": call.get("input")}
    if result := block.get("toolResult"):
        is_error = result.get("status") == "error"
        return {"type": "tool_result", "call_id": result["toolUseId"], "output": _output(result), "is_error": is_error}
    kind = next((name for name in _MEDIA if name in block), None)
    return None if kind is None else {"type": kind, "media_type": str(block[kind].get("format"))}


def _output(result: dict[str, Any]) -> Any:
    content = result.get("content") or []
    if all(isinstance(block.get("text"), str) for block in content):
        return "\n".join(block["text"] for block in content)
    return [block["json"] if "json" in block else _part(block) for block in content]
