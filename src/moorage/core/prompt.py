"""The prompt of a turn: all waiting items, in order of arrival.

Messages of people are passed on unchanged. Answers of children are untrusted: each callback is one line of JSON,
which cannot contain another line, so a child cannot forge the callback of a sibling.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moorage.core.codec import encode_text
from moorage.core.entry import text_of
from moorage.core.inbox import Item, ItemKind

_ENDS_OF_LINES = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}  # JSON does not escape them
CALLBACKS = "Callbacks of agents you have started, a JSON object in each line:"
DECISIONS = "Answers to what you have asked, a JSON object in each line:"
CUT_OFF = (
    "Your last turn was cut off before it ended. What you have said until then is in the history; look what is done "
    "before you do it again."
)


def composed(items: Iterable[Item], *, cut_off: bool = False) -> str:
    """Return the prompt of a turn from its items."""
    parts = [CUT_OFF] if cut_off else []
    frame: str | None = None
    for item in items:
        heading, line = _said(item)
        if heading is not None and heading != frame:
            parts.append(heading)
        frame = heading
        parts.append(line)
    return "\n".join(parts)


def _said(item: Item) -> tuple[str | None, str]:
    if item.kind is ItemKind.MESSAGE:
        return None, text_of(item.body.get("content"))
    if item.kind is ItemKind.CALLBACK:
        return CALLBACKS, as_line(_callback(item.body))
    return DECISIONS, as_line(item.body)


def as_line(body: dict[str, Any]) -> str:
    """Return JSON in one line, escaping every character that a reader may take for the end of a line."""
    return encode_text(body).translate(_ENDS_OF_LINES)


def _callback(body: dict[str, Any]) -> dict[str, Any]:
    """Return a callback without empty fields; if its result was cut, add how to get the rest."""
    shown = {name: value for name, value in body.items() if value is not None and name != "is_cut"}
    if body.get("is_cut"):
        shown["rest"] = f"moorage result {body['run_id']}"
    return shown
