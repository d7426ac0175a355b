"""Events of Google's Agent Development Kit, as JSON."""

from __future__ import annotations

from typing import Any

from moorage.adapters.projection import Part, message
from moorage.core.entry import Message

FRAMEWORK = "google-adk"

AdkEvent = dict[str, Any]


def said(event: AdkEvent) -> list[Message]:
    """Convert an event to messages for the log; to none if it says nothing."""
    content = event.get("content") or {}
    words: list[Part] = []
    results: list[Part] = []
    for part in content.get("parts") or ():
        found = _part(part)
        if found is not None:
            (results if found["type"] == "tool_result" else words).append(found)
    speaker = "user" if event.get("author") == "user" else "assistant"
    key = event.get("id")
    spoken: list[tuple[str, list[Part]]] = [("tool", results), (speaker, words)]
    return [message(FRAMEWORK, role, parts, key=key) for role, parts in spoken if parts]


def _part(part: dict[str, Any]) -> Part | None:
    if isinstance(part.get("text"), str) and not part.get("thought"):
        return {"type": "text", "text": part["text"]}
    if call := part.get("function_call"):
        return {
            "type": "tool_call",
            "id": str(call.get("id")),
            "name": str(call.get("name")),
            "input": call.get("args"),
        }
    if result := part.get("function_response"):
        call_id = str(result.get("id"))
        return {"type": "tool_result", "call_id": call_id, "output": result.get("response"), "is_error": False}
    if media := part.get("inline_data") or part.get("file_data"):
        facts = {"media_type": media.get("mime_type"), "url": media.get("file_uri")}
        return {"type": "document", **{name: fact for name, fact in facts.items() if fact is not None}}
    return None
