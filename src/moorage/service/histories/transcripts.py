"""Transcripts of Claude Code: the conversations of the host and of its sub-agents.

A conversation is a file named after its session, with one JSON object a line. Most fields of a line are internal to the
host and are not decoded; fields that other versions of the host add are ignored the same way. Each sub-agent has a file
beside it (`SESSION/subagents/agent-ID.jsonl`, with `agent-ID.meta.json`). Older hosts wrote the messages of sub-agents
into the session's file, as sidechains. In both cases the host's session becomes a session, and every sub-agent a child
of the session that called it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from moorage.core.codec import NOT_JSON, decode
from moorage.core.entry import text_of
from moorage.core.errors import InvalidField, InvalidRequest
from moorage.core.ids import check_label
from moorage.service.histories.blocks import Block, NotOurs, Part, by_speaker, cut_text, decoded, parts_of
from moorage.service.histories.scribe import INTERFACE, Conversation, EntryDraft, Scribe, Speaker, SubAgentCall, as_utc
from moorage.service.transfer import History

T = TypeVar("T", bound=Struct)

AGENT = INTERFACE  # agent name of the host's own sessions
DEFAULT_AGENT = "general-purpose"  # the host's default kind of sub-agent
MAX_PURPOSE = 1000
MAX_VERSION = 64
MAX_LINE = 64 * 1024 * 1024
TALK = ("user", "assistant")
TITLES = {"summary": "summary", "ai-title": "ai_title", "custom-title": "custom_title"}  # a later one wins
DELEGATING = ("Agent", "Task")  # the tool that starts sub-agents, and its former name
CALL_FIELDS = {"agent": "subagent_type", "description": "description", "prompt": "prompt"}
USAGE = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
UNREADABLE = (*NOT_JSON, OverflowError, NotOurs)


class About(Struct, rename="camel"):
    """The host's notes beside a sub-agent's transcript."""

    agent_type: str | None = None
    description: str | None = None
    tool_use_id: str | None = None
    spawn_depth: int | None = None


class Transcripts:
    """Reads transcripts; the host's must come before those of its sub-agents, because it names their callers."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._calls: dict[tuple[str, str | None], tuple[str, SubAgentCall]] = {}  # with the caller, by host and call id
        self._launched: dict[tuple[str, str], str] = {}  # the call, by host and sub-agent
        self._asked: dict[tuple[str, str], list[str]] = {}  # calls, by host and prompt

    def read(
        self,
        file: str,
        lines: Iterable[str | bytes],
        *,
        session_id: str | None = None,
        agent_id: str | None = None,
        about: bytes | None = None,
    ) -> History:
        """Return the sessions of one file.

        Its name and place give the host's `session_id` and, for a sub-agent, its `agent_id`;
        `about` is the content of the file beside it.
        """
        history = History(file=file)
        reading = Reading(history, agent_id)
        reading.read(lines)
        host = reading.host(session_id)
        if host is not None:
            self._learn(reading, host)
            for speaker, conversation in self._speakers(reading, host, _about(about, history)):
                try:
                    history.bundles.append(Scribe(conversation, speaker, history).bundle(self._now))
                except InvalidRequest as error:
                    history.leave_out(f"session {speaker.session_id}: {error.message}")
        return history

    def _learn(self, reading: Reading, host: str) -> None:
        """Remember which agent called which."""
        for conversation in (reading.main, *reading.sides.values()):
            for call in conversation.calls:
                self._calls[host, call.call_id] = (conversation.session_id or host, call)
                if call.prompt is not None and call.call_id not in reading.launched.values():
                    self._asked.setdefault((host, call.prompt), []).append(call.call_id)
        for agent, call_id in reading.launched.items():
            self._launched[host, agent] = call_id

    def _speakers(self, reading: Reading, host: str, about: About) -> Iterator[tuple[Speaker, Conversation]]:
        """Yield the speakers of a file: the host, then its sub-agents."""
        if reading.main.drafts:
            purpose = None if reading.title is None else cut_text(reading.title, MAX_PURPOSE)
            yield _speaker(reading.main, host, host, agent=AGENT, purpose=purpose), reading.main
        for session_id, side in reading.sides.items():
            if side.drafts:
                yield self._child(session_id, side, host, about), side

    def _child(self, session_id: str, side: Conversation, host: str, about: About) -> Speaker:
        call_id = about.tool_use_id or self._launched.get((host, session_id)) or self._call_for(side, host)
        caller, call = self._calls.get((host, call_id), (host, None))
        parent = caller if caller != session_id else host
        agent = _label(about.agent_type) or (_label(call.agent) or DEFAULT_AGENT if call else None)
        description = about.description or (call.description if call else None)
        purpose = None if description is None else cut_text(description, MAX_PURPOSE)
        child = _speaker(side, session_id, host, parent=parent, agent=agent, purpose=purpose)
        known = {"host_session_id": host, "tool_use_id": call_id, "description": purpose}
        child.metadata |= {name: value for name, value in known.items() if value is not None}
        return child

    def _call_for(self, side: Conversation, host: str) -> str | None:
        """Return the call with exactly this prompt, if nothing names the call: older hosts did not write it."""
        same = self._asked.get((host, side.asked)) if side.asked is not None else None
        return same.pop(0) if same else None


def _about(data: bytes | None, history: History) -> About:
    if data is None:
        return About()
    try:
        return msgspec.json.decode(data, type=About)
    except NOT_JSON as error:
        history.leave_out(f"what is noted about it cannot be read ({error})")
        return About()


def spawn_depth(about: bytes | None) -> int:
    """Return how many sub-agents are above this one; files of callers must be read first."""
    return _about(about, History(file="")).spawn_depth or 0


def _speaker(conversation: Conversation, session_id: str, host: str, **fields: Any) -> Speaker:
    metadata: dict[str, Any] = {"host": INTERFACE, "usage": conversation.usage}
    if conversation.version is not None:
        metadata["host_version"] = cut_text(conversation.version, MAX_VERSION)
    return Speaker(session_id=session_id, task_id=host, metadata=metadata, **fields)


def _label(text: str | None) -> str | None:
    try:
        return None if text is None else check_label("agent_name", text)
    except InvalidField:
        return None


# One transcript ---------------------------------------------------------------------------------


class Reading:
    """The content of one file: the host's conversation, and sidechains of sub-agents.

    With an `agent_id` it is the file of that sub-agent, and has no line of the host.
    """

    def __init__(self, history: History, agent_id: str | None = None) -> None:
        self._history, self._notes, self._agent_id = history, history.notes, agent_id
        self.main = Conversation()
        self.sides: dict[str, Conversation] = {}
        self.launched: dict[str, str] = {}  # sub-agents, and the calls that started them
        self._titles: dict[str, str] = {}
        self._session_ids: set[str] = set()
        self._seen: set[str] = set()
        self._side_of: dict[str, str] = {}  # of lines that do not name their sub-agent
        self._last_side: str | None = None

    def read(self, lines: Iterable[str | bytes]) -> None:
        """Read all lines; note unreadable ones as left out."""
        for number, line in read_lines(lines, self._history):
            if line.uuid is not None and line.uuid in self._seen:
                self._notes.pass_over("repeated")
                continue
            try:
                self._take(number, line)
            except UNREADABLE as error:
                self._history.leave_out(f"not a line of a transcript ({error})", number)
                continue
            if line.uuid is not None:
                self._seen.add(line.uuid)

    @property
    def title(self) -> str | None:
        """Return the title of the conversation: the user's, else the host's."""
        return next((self._titles[kind] for kind in reversed(TITLES) if kind in self._titles), None)

    def host(self, promised: str | None) -> str | None:
        """Return the host's session: the one in the file's name, or the only one there is."""
        if promised in self._session_ids:
            return promised
        if len(self._session_ids) == 1:
            return next(iter(self._session_ids))
        if self._session_ids:
            named = ", ".join(sorted(self._session_ids)[:3])
            self._history.leave_out(f"its lines belong to several sessions ({named} …) and its name to none")
        elif self.main.drafts or self.sides:
            self._history.leave_out("no line says which session it belongs to")
        else:
            self._notes.pass_over("empty")
        return None

    def _take(self, number: int, line: TranscriptLine) -> None:
        side = self._side(number, line)
        if (title := line.title) is not None and line.type is not None:
            self._titles[line.type] = title
        elif line.type == "system" and line.subtype == "compact_boundary":
            segment = _lenient(line.compact_metadata, _Compaction).preserved_segment
            self._conversation(side).keep_from(None if segment is None else segment.head_uuid)
        elif line.type in TALK and not (line.is_meta and not line.is_compact_summary):
            self._hear(number, line, side)
        else:
            self._notes.pass_over("attachment" if line.type == "attachment" else "host")

    def _side(self, number: int, line: TranscriptLine) -> str | None:
        """Return the sidechain of a line; None for the host's own conversation."""
        if (agent_id := line.agent_id or self._agent_id) is not None:
            return agent_id
        if not line.is_sidechain:
            return None
        side = line.uuid or f"{line.session_id}:{number}"
        if line.parent_uuid is not None:
            side = self._side_of.get(line.parent_uuid) or self._last_side or side  # the line before it may be missing
        if line.uuid is not None:
            self._side_of[line.uuid] = side
        self._last_side = side
        return side

    def _conversation(self, side: str | None) -> Conversation:
        return self.main if side is None else self.sides.setdefault(side, Conversation(side))

    def _hear(self, number: int, line: TranscriptLine, side: str | None) -> None:
        message = message_of(line)
        parts = parts_of(message.content, line.uuid, self._notes)
        conversation = self._conversation(side)
        draft = EntryDraft(line=number, at=line.timestamp)
        if line.is_compact_summary:
            draft.summary = text_of(parts)
            conversation.sum_up(draft, line.uuid)
        elif line.is_api_error_message:
            draft.error = text_of(parts) or "the model could not be reached"
            conversation.add(draft, line.uuid)
        elif line.type == "assistant":
            draft.role, draft.parts, draft.stop = "assistant", parts, message.stop_reason
            conversation.reply(draft, line.uuid, message.id)
            _note_work(conversation, parts, message, line.uuid)
        else:
            for role, said in by_speaker("user", parts):  # one line may have tool results and the user's text
                conversation.add(EntryDraft(line=number, at=line.timestamp, role=role, parts=said), line.uuid)
                if role == "tool" and b'"agentId"' in bytes(line.tool_use_result):
                    agent = _lenient(line.tool_use_result, _Launch).agent_id
                    if agent is not None:
                        self.launched[agent] = said[0]["call_id"]
        if line.session_id is not None:
            self._session_ids.add(line.session_id)
        if conversation.project_dir is None and line.cwd and line.cwd.isprintable() and len(line.cwd) <= 4096:
            conversation.project_dir = line.cwd
        conversation.version = line.version or conversation.version


def _note_work(conversation: Conversation, parts: list[Part], message: LineMessage, uuid: str | None) -> None:
    """Note the sub-agents that a reply calls, and its tokens."""
    for part in parts:
        if part["type"] == "tool_call" and part["name"] in DELEGATING and isinstance(part["input"], dict):
            asked = {name: part["input"].get(key) for name, key in CALL_FIELDS.items()}
            known = {name: text for name, text in asked.items() if isinstance(text, str)}
            conversation.calls.append(SubAgentCall(call_id=part["id"], **known))
    if message.usage is not None and (counted := message.id or uuid) is not None:
        conversation.count(counted, {name: message.usage.get(name) for name in USAGE})


# Lines ------------------------------------------------------------------------------------------


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
    preserved_segment: _Segment | None = None  # from where the host kept everything


class _Launch(Struct, rename="camel"):
    agent_id: str | None = None  # the sub-agent that a tool has started


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
        value = decode(data)
        kind = value.get("type") if isinstance(value, dict) else None
        if isinstance(kind, str) and kind not in (*TALK, "system"):  # it would be ignored anyway
            return TranscriptLine()
        raise
    if line.timestamp is not None:
        line.timestamp = as_utc(line.timestamp)
        if not 1970 <= line.timestamp.year < 2242:
            raise NotOurs(f"its time is {line.timestamp.isoformat()}")
    return line


def message_of(line: TranscriptLine) -> LineMessage:
    """Return the message of a line. Raises one of UNREADABLE."""
    said = bytes(line.message)
    if not said:
        raise NotOurs("it has no message")
    message: LineMessage = decoded(said, LineMessage)
    return message


def _lenient(content: Raw, kind: type[T]) -> T:
    """Return a part of a line that is useful, but not necessary; an empty one if it cannot be read."""
    try:
        return msgspec.json.decode(content, type=kind)
    except UNREADABLE:
        return kind()
