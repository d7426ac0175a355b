"""Lines of a transcript, as the host writes them.

One JSON object each. Most fields of a line are internal to the host and are not decoded; fields that other
versions of the host add are ignored the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from moorage.core.codec import NOT_JSON, decode
from moorage.service.histories.blocks import Block, NotOurs
from moorage.service.histories.ledger import as_utc
from moorage.service.histories.letters import decoded
from moorage.service.importing import History

MAX_LINE = 64 * 1024 * 1024
TALK = ("user", "assistant")
BOUNDARY = "compact_boundary"
TITLES = {"summary": "summary", "ai-title": "ai_title", "custom-title": "custom_title"}  # a later one wins


class TranscriptLine(Struct, rename="camel"):
    """The fields of a line that we use."""

    type: str | None = None
    subtype: str | None = None
    uuid: str | None = None
    parent_uuid: str | None = None
    session_id: str | None = None
    agent_id: str | None = None
    timestamp: datetime | None = None
    is_sidechain: bool | None = None
    is_meta: bool | None = None
    is_compact_summary: bool | None = None
    is_api_error_message: bool | None = None
    cwd: str | None = None
    version: str | None = None
    summary: Any = None
    ai_title: Any = None
    custom_title: Any = None
    message: Raw = field(default_factory=Raw)
    tool_use_result: Raw = field(default_factory=Raw)
    compact_metadata: Raw = field(default_factory=Raw)

    @property
    def is_talk(self) -> bool:
        """Return whether the line has a message of the conversation."""
        return self.type in TALK and not (self.is_meta and not self.is_compact_summary)

    @property
    def is_boundary(self) -> bool:
        """Return whether the host compacted the conversation here."""
        return self.type == "system" and self.subtype == BOUNDARY

    @property
    def title(self) -> str | None:
        """Return the title of the conversation, if the line has one."""
        name = TITLES.get(self.type or "")
        title = getattr(self, name) if name else None
        return title if isinstance(title, str) and title.strip() else None


class LineMessage(Struct):
    """A message of a line."""

    content: str | list[Block] | None = None
    id: str | None = None
    stop_reason: str | None = None
    usage: dict[str, Any] | None = None


class _Segment(Struct, rename="camel"):
    head_uuid: str | None = None


class _Compaction(Struct, rename="camel"):
    preserved_segment: _Segment | None = None


class _Launch(Struct, rename="camel"):
    agent_id: str | None = None


UNREADABLE = (*NOT_JSON, OverflowError, NotOurs)


def read_lines(lines: Iterable[str | bytes], history: History) -> Iterator[tuple[int, TranscriptLine]]:
    """Yield the readable lines with their numbers; note the others as left out."""
    broken: tuple[int, str] | None = None
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        if broken is not None:
            history.leave_out(broken[1], broken[0])
            broken = None
        try:
            yield number, _line(text)
        except UNREADABLE as error:
            broken = number, f"not a line of a transcript ({error})"
    if broken is not None:
        history.leave_out(f"the last line was cut short: {broken[1]}", broken[0])


def _line(text: str | bytes) -> TranscriptLine:
    data = text.encode() if isinstance(text, str) else text
    if len(data) > MAX_LINE:
        raise NotOurs(f"longer than {MAX_LINE >> 20} MiB")
    try:
        line: TranscriptLine = decoded(data, TranscriptLine)
    except msgspec.ValidationError:
        if _is_of_no_use(data):
            return TranscriptLine()
        raise
    if line.timestamp is not None:
        line.timestamp = as_utc(line.timestamp)
        if not 1970 <= line.timestamp.year < 2242:
            raise NotOurs(f"its time is {line.timestamp.isoformat()}")
    return line


def _is_of_no_use(data: bytes) -> bool:
    """Return whether an unreadable line is of a kind that we would ignore."""
    value = decode(data)
    kind = value.get("type") if isinstance(value, dict) else None
    return isinstance(kind, str) and kind not in TALK and kind != "system"


def message_of(line: TranscriptLine) -> LineMessage:
    """Return the message of a line. Raises one of UNREADABLE."""
    said = bytes(line.message)
    if not said:
        raise NotOurs("it has no message")
    message: LineMessage = decoded(said, LineMessage)
    return message


def preserved_from(line: TranscriptLine) -> str | None:
    """Return the line from which a compaction kept everything, if it names one."""
    try:
        segment = msgspec.json.decode(line.compact_metadata, type=_Compaction).preserved_segment
    except UNREADABLE:
        return None
    return segment.head_uuid if segment is not None else None


def launched_agent(line: TranscriptLine) -> str | None:
    """Return the sub-agent that a tool has started, from the line with the tool's result."""
    if b'"agentId"' not in bytes(line.tool_use_result):
        return None
    try:
        return msgspec.json.decode(line.tool_use_result, type=_Launch).agent_id
    except UNREADABLE:
        return None
