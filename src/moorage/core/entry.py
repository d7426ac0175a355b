"""The log: numbered entries, the authoritative record of a session.

An entry is written once and never rewritten. Its `kind` says what happened;
messages have `role` and `content`, all other entries have `data`. Streams show entries as events.
"""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct, convert

from moorage.core.brief import brief
from moorage.core.codec import check_json, encode, encode_text, is_text
from moorage.core.errors import InvalidField, InvalidRequest, TooLarge
from moorage.core.ids import check_label

MAX_MESSAGE_BYTES = 1024 * 1024
MAX_MESSAGES_PER_APPEND = 1000
ROLES = ("user", "assistant", "system", "tool")
MAX_LINE = 200  # characters of a line with a problem
_OURS = ("line", "key", "doubtful")  # added to an event by a launcher
SESSION_DELETED = "session_deleted"  # the type of the last event of a session, which is no entry
NATIVE = "native"  # the type of a part with what a framework stored, beside the same content in our format


class Kind(StrEnum):
    """The kind of a log entry."""

    CREATED = "created"
    FORKED = "forked"
    MESSAGE = "message"
    SUMMARY = "summary"
    PHASE = "phase"
    READINESS = "readiness"
    METADATA = "metadata"
    LABELS = "labels"
    RENAMED = "renamed"
    ERROR = "error"
    PROBLEM = "problem"
    TURN_STARTED = "turn_started"
    TURN_ENDED = "turn_ended"
    RUN_SETTLED = "run_settled"
    RUN_RETRIED = "run_retried"
    CALLBACK = "callback"
    SUSPENDED = "suspended"
    RESUMED = "resumed"
    RELEASED = "released"
    CHECKPOINT = "checkpoint"
    APPROVAL_REQUESTED = "approval_requested"
    APPROVAL_DECIDED = "approval_decided"
    APPROVAL_EXPIRED = "approval_expired"
    APPROVAL_WITHDRAWN = "approval_withdrawn"
    APPROVAL_REPLAYED = "approval_replayed"
    FINALIZED = "finalized"


@brief("number", "kind", "role", "text", "data", "at")
class Entry(Struct, frozen=True, gc=False):  # JSON has no cycles to collect
    """One line of the log."""

    number: int
    kind: str
    at: datetime
    role: str | None = None
    content: str | list[dict[str, Any]] | None = None
    data: dict[str, Any] | None = None
    by: str | None = None
    interface: str | None = None
    client_key: str | None = None
    session_id: str | None = None
    task_id: str | None = None

    @property
    def is_message(self) -> bool:
        """Return whether this is a message rather than an event."""
        return self.kind == Kind.MESSAGE

    @property
    def text(self) -> str:
        """Return the text of the message without tool calls and results."""
        return text_of(self.content)


class Message(Struct, frozen=True, gc=False):
    """A message to append: checked, not yet numbered."""

    role: str
    content: str | list[dict[str, Any]]
    client_key: str | None = None

    @property
    def size(self) -> int:
        """Return the size of its content as stored, in bytes."""
        return len(self.content) if isinstance(self.content, str) else len(encode(self.content))


def check_messages(messages: object, most: int = MAX_MESSAGES_PER_APPEND) -> list[Message]:
    """Return the messages of a caller as values. Raises InvalidField, InvalidJson, TooLarge."""
    if isinstance(messages, (str, dict)):
        messages = [messages]
    if not isinstance(messages, (list, tuple)) or not messages:
        raise InvalidField("messages", "must be a list with at least one message")
    if len(messages) > most:
        raise InvalidField("messages", f"has {len(messages)} items, at most {most} at once")
    checked = [
        _plain_message(message) or check_message(message, f"messages[{index}]")
        for index, message in enumerate(messages)
    ]
    keys = [message.client_key for message in checked if message.client_key is not None]
    if len(keys) != len(set(keys)):
        raise InvalidField("messages", "uses one client_key twice")
    return checked


def _plain_message(message: object) -> Message | None:
    """Return a message with only a role and a short text, quickly; None if it needs a full check."""
    if type(message) is dict and len(message) == 2:
        role, content = message.get("role"), message.get("content")
        if type(content) is str and role in ROLES and len(content) <= MAX_MESSAGE_BYTES // 4 and is_text(content):
            return Message(role, content)
    return None


def check_message(message: object, where: str = "message") -> Message:
    """Return one message from a text (of the user) or `{role, content, client_key?}`."""
    if isinstance(message, Message):
        return message
    if isinstance(message, str):
        message = {"role": "user", "content": message}
    if not isinstance(message, dict):
        raise InvalidField(where, "must be a text or an object with role and content")
    unknown = message.keys() - {"role", "content", "client_key"}
    if unknown:
        raise InvalidField(where, f"has unknown fields {', '.join(sorted(map(str, unknown)))}")
    role = message.get("role", "user")
    if role not in ROLES:
        raise InvalidField(f"{where}.role", f"is {role!r}; use one of {', '.join(ROLES)}")
    key = message.get("client_key")
    if key is not None:
        check_label(f"{where}.client_key", key)
    return Message(role=role, content=_check_content(message.get("content"), f"{where}.content"), client_key=key)


def _check_content(content: object, where: str) -> str | list[dict[str, Any]]:
    if not isinstance(content, (str, list)) or content == []:
        raise InvalidField(where, "must be a text or a list of parts")
    check_json(content, where)
    if isinstance(content, str):
        size = len(content) if content.isascii() else len(content.encode())
    else:
        for index, part in enumerate(content):
            _check_part(part, f"{where}[{index}]")
        size = len(encode(content))
    if size > MAX_MESSAGE_BYTES:
        raise TooLarge("message", size, MAX_MESSAGE_BYTES)
    return content


# Required fields of each known type of part. Parts of other types are kept verbatim.
_PART_TEXTS = {"text": ("text",), "tool_call": ("id", "name"), "tool_result": ("call_id",)}


def _check_part(part: object, where: str) -> None:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise InvalidField(where, "must be an object with a type: text, tool_call, tool_result")
    for name in _PART_TEXTS.get(part["type"], ()):
        if not isinstance(part.get(name), str):
            raise InvalidField(where, f"of type {part['type']} needs {name!r} as text")


def text_of(content: str | list[dict[str, Any]] | None) -> str:
    """Return the text of a content, without tool calls and results."""
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if part.get("type") == "text")
    return content or ""


def searchable_text(entry: Entry) -> str:
    """Return all text of an entry that a search covers: text, tool names, inputs and results."""
    if isinstance(entry.content, list):
        return "\n".join(_part_words(part) for part in entry.content)
    if entry.content is not None:
        return entry.content
    return "\n".join(_strings_in(entry.data))


def _part_words(part: dict[str, Any]) -> str:
    if part.get("type") == NATIVE:
        return ""
    return "\n".join(_strings_in({key: value for key, value in part.items() if key not in ("type", "id", "call_id")}))


def _strings_in(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.values() for text in _strings_in(item)]
    if isinstance(value, list):
        return [text for item in value for text in _strings_in(item)]
    return []


def tool_calls(entry: Entry) -> list[str]:
    """Return the ids of the tool calls in this message."""
    return _part_values(entry, "tool_call", "id")


def tool_results(entry: Entry) -> list[str]:
    """Return the ids of the calls whose results are in this message."""
    return _part_values(entry, "tool_result", "call_id")


def _part_values(entry: Entry, kind: str, name: str) -> list[str]:
    if not isinstance(entry.content, list):
        return []
    return [part[name] for part in entry.content if part.get("type") == kind]


# Events and hits --------------------------------------------------------------------------------
# A stream is the log after a cursor. In the stream of one session, the id of an event is the number of the entry; in
# the feed over all sessions of an owner, it is the cursor of the feed.


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


# Problems: lines of an agent that violate its protocol -------------------------------------------
# A problem is an entry, shown to all followers of the session and counted in the run. It never ends a turn. The first
# problems of each turn are kept as entries; all of them are counted.


class Problem(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line that does not validate."""

    expected: str
    field: str | None = None  # where in the line; None for the line as a whole
    line: int | None = None  # the line's number in the turn's output; None if the agent prints no lines
    text: str | None = None  # the beginning of the line

    def __str__(self) -> str:
        named = (("line", self.line), ("field", self.field))
        place = ", ".join(f"{name} {value}" for name, value in named if value is not None)
        got = f"; got {self.text}" if self.text else ""
        return f"{place or 'event'}: expected {self.expected}{got}"


def problem_in(data: dict[str, Any]) -> Problem:
    """Return the problem in the data of an entry or an event, without its other fields."""
    return convert({name: data.get(name) for name in Problem.__struct_fields__}, Problem)


def problem_of(event: dict[str, Any], error: InvalidRequest) -> Problem:
    """Return the problem of an event that a rule refused."""
    kind, facts = event["type"], error.facts
    field = str(facts.get("field", "content" if kind == "message" else kind)).removeprefix("messages[0].")
    expected = error.message
    if "allowed" in facts:
        expected = f"one of {', '.join(facts['allowed'])}"
    elif "limit" in facts:
        expected = f"at most {facts['limit']:,} bytes"
    told = encode_text({name: value for name, value in event.items() if name not in _OURS})
    text = told if len(told) <= MAX_LINE else f"{told[:MAX_LINE]}…"
    return Problem(expected=expected, field=field, line=event.get("line"), text=text)
