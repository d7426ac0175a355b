"""Messages of Pydantic AI, as JSON: a request or a response with several parts."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from moorage.adapters.payload import json_or_text
from moorage.adapters.projection import Part, message
from moorage.core.entry import Message

FRAMEWORK = "pydantic-ai"

PydanticMessage = dict[str, Any]

_MEDIA = {"image-url": "image", "audio-url": "audio", "document-url": "document", "video-url": "video"}


def said(spoken: PydanticMessage, key: str) -> list[Message]:
    """Convert a message of the framework to messages for the log: one per consecutive speaker."""
    parts = [found for part in spoken.get("parts") or () for found in _parts(part)]
    rows = groupby(parts, key=lambda found: found[0])
    return [message(FRAMEWORK, role, [part for _, part in some], key=key) for role, some in rows]


def _parts(part: PydanticMessage) -> list[tuple[str, Part]]:
    content = part.get("content")
    match part.get("part_kind"):
        case "system-prompt":
            return [("system", _text(content))]
        case "user-prompt":
            spoken = content if isinstance(content, list) else [content]
            return [("user", _prompt(one)) for one in spoken]
        case "tool-return" | "retry-prompt" if part.get("tool_name"):
            is_error = part["part_kind"] == "retry-prompt"
            result = {"call_id": str(part.get("tool_call_id")), "output": content, "is_error": is_error}
            return [("tool", {"type": "tool_result", **result})]
        case "retry-prompt":
            return [("user", _text(content))]
        case "text":
            return [("assistant", _text(content))]
        case "tool-call" | "builtin-tool-call":
            call = {"id": str(part.get("tool_call_id")), "name": str(part.get("tool_name"))}
            return [("assistant", {"type": "tool_call", **call, "input": json_or_text(part.get("args"))})]
    return []  # thoughts, files: stored for this framework only


def _text(content: Any) -> Part:
    return {"type": "text", "text": content if isinstance(content, str) else str(content)}


def _prompt(content: Any) -> Part:
    if not isinstance(content, dict):
        return _text(content)
    if content.get("kind") in _MEDIA:
        return {"type": _MEDIA[content["kind"]], "url": str(content.get("url"))}
    if isinstance(content.get("content"), str):
        return _text(content["content"])
    return {"type": "document", "media_type": str(content.get("media_type"))}
