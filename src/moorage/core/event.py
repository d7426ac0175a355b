"""Events: entries as streams show them, and search hits.

A stream is the log after a cursor. In one session's stream an event's id is the
entry's number; in the feed over all of an owner's sessions it is the feed's own cursor.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from msgspec import Struct

from moorage.core.brief import brief
from moorage.core.entry import Entry
from moorage.core.family import Tombstone

SESSION_DELETED = "session_deleted"


@brief("id", "type", "data", "timestamp", "session_id")
class Event(Struct, frozen=True, kw_only=True):
    """Something that happened to a session."""

    id: int
    type: str
    session_id: str
    timestamp: datetime
    data: dict[str, Any]


@brief("session_id", "number", "kind", "role", "snippet")
class Hit(Struct, frozen=True, kw_only=True):
    """An entry that a search found."""

    session_id: str
    number: int
    kind: str
    role: str | None
    at: datetime
    snippet: str


def event_of(entry: Entry, session_id: str, cursor: int | None = None) -> Event:
    """Return an entry as an event; its id is the feed's cursor if given, else the entry's number."""
    data: dict[str, Any] = {"number": entry.number, "by": entry.by, "interface": entry.interface}
    if entry.is_message:
        data |= {"role": entry.role, "content": entry.content, "client_key": entry.client_key}
    else:
        data |= entry.data or {}
        data["number"] = entry.number  # streams use the entry's number, whatever its data has
    return Event(
        id=entry.number if cursor is None else cursor,
        type=entry.kind,
        session_id=session_id,
        timestamp=entry.at,
        data=data,
    )


def deletion_event(tombstone: Tombstone, cursor: int) -> Event:
    """Return the event of a session's deletion, which is its last."""
    return Event(
        id=cursor,
        type=SESSION_DELETED,
        session_id=tombstone.session_id,
        timestamp=tombstone.deleted_at,
        data={
            "session_name": tombstone.session_name,
            "root_of_deletion": tombstone.root_of_deletion,
            "deleted_by": tombstone.deleted_by,
            "reason": tombstone.reason,
        },
    )


def search_words(text: str) -> list[str]:
    """Return the words of a query: letters and digits; a `*` after a word makes it a prefix."""
    return re.findall(r"[^\W_]+\*?", text)


def snippet_of(text: str, words: list[str], width: int = 160) -> str:
    """Return the part of a text around the first word found."""
    flat = " ".join(text.split())
    lower = flat.lower()
    found = [place for place in (lower.find(word.lower()) for word in words) if place >= 0]
    start = max(0, min(found, default=0) - width // 3)
    cut = flat[start : start + width]
    return f"{'…' if start else ''}{cut}{'…' if start + width < len(flat) else ''}"
