"""Lines of a Claude transcript, as the Claude Agent SDK mirrors them."""

from __future__ import annotations

from typing import Any

from moorage.adapters.projection import Part, message
from moorage.core.entry import Message
from moorage.service.histories.blocks import NotOurs, parts_of
from moorage.service.transfer import Notes

FRAMEWORK = "claude-agent-sdk"


def said(entry: Any) -> list[Message]:
    """Convert a line to messages for the log; to none if it says nothing."""
    if not isinstance(entry, dict) or entry.get("isSidechain") or entry.get("isMeta"):
        return []
    spoken = entry.get("message")
    if entry.get("type") not in ("user", "assistant") or not isinstance(spoken, dict):
        return []
    uuid = entry.get("uuid")
    try:
        parts = parts_of(spoken.get("content"), uuid, Notes())
    except (NotOurs, KeyError, AttributeError, TypeError):
        parts = []
    results = [part for part in parts if part["type"] == "tool_result"]
    words = [part for part in parts if part["type"] != "tool_result"]
    speakers: list[tuple[str, list[Part]]] = [("tool", results), (entry["type"], words)]
    key = uuid if isinstance(uuid, str) else None
    return [message(FRAMEWORK, role, some, key=key) for role, some in speakers if some]
