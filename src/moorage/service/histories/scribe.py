"""Conversations of other programs: collected message by message, then turned into sessions.

The blocks of one reply are on several lines of a transcript, with other lines between them, so entries get their
numbers only when it is completely read. A result without its call is left out: no model accepts one without the other.
The host's own conversation is left suspended, because the host may continue it; a sub-agent's is completed if its last
message was its answer.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct, field

from moorage.core.bundle import Bundle, check_bundle
from moorage.core.entry import Entry, Kind, text_of
from moorage.core.errors import InvalidRequest
from moorage.core.session import BY_PERSON, MAX_TEXT, Phase, Session, State
from moorage.core.window import whole_upto
from moorage.service.histories.blocks import Part, cut_text, fitting
from moorage.service.transfer import History

INTERFACE = "claude-code"
MAX_COUNT = 1 << 53
MAX_WORDS = 2000  # length of a sub-agent's answer in its summary
ANSWERED = (None, "end_turn", "stop_sequence")  # stop reasons of a complete answer; older hosts wrote none


class EntryDraft(Struct, kw_only=True):
    """A future entry: a message, an error or a summary."""

    line: int | None
    at: datetime | None
    role: str | None = None
    parts: list[Part] = field(default_factory=list)
    stop: str | None = None  # why the model stopped here, if the line has it
    error: str | None = None
    summary: str | None = None
    keeps_from: int | None = None  # of a summary: the first earlier draft that it does not stand for


class SubAgentCall(Struct, frozen=True, kw_only=True):
    """A call that delegates work to a sub-agent."""

    call_id: str
    agent: str | None = None
    description: str | None = None
    prompt: str | None = None


class Conversation:
    """The messages of one agent, while they are read."""

    def __init__(self, session_id: str | None = None) -> None:
        self.session_id = session_id
        self.drafts: list[EntryDraft] = []
        self.calls: list[SubAgentCall] = []
        self.project_dir: str | None = None
        self.version: str | None = None
        self._replies: dict[str, int] = {}  # index of each reply among the drafts, by its id
        self._places: dict[str, int] = {}  # index of the draft of each line, by its uuid
        self._usage: dict[str, dict[str, int]] = {}
        self._keeps_from: int | None = None

    def add(self, draft: EntryDraft, uuid: str | None) -> None:
        """Append a draft."""
        self._remember(uuid, len(self.drafts))
        self.drafts.append(draft)

    def reply(self, draft: EntryDraft, uuid: str | None, reply_id: str | None) -> None:
        """Add blocks of a reply to those that came before under the same id."""
        end = len(self.drafts)
        place = end if reply_id is None else self._replies.setdefault(reply_id, end)
        if place == end:
            self.add(draft, uuid)
            return
        known = self.drafts[place]
        known.parts += draft.parts
        known.stop = draft.stop or known.stop
        self._remember(uuid, place)

    def count(self, reply_id: str, usage: dict[str, object]) -> None:
        """Note the usage of a reply. Each of its lines has it; the last one is right."""
        self._usage[reply_id] = {
            name: count for name, count in usage.items() if type(count) is int and 0 < count < MAX_COUNT
        }

    def keep_from(self, uuid: str | None) -> None:
        """Exclude everything from this line on from the next summary."""
        self._keeps_from = self._places.get(uuid) if uuid is not None else None

    def sum_up(self, draft: EntryDraft, uuid: str | None) -> None:
        """Add a summary of what came before."""
        draft.keeps_from, self._keeps_from = self._keeps_from, None
        self.add(draft, uuid)

    @property
    def asked(self) -> str | None:
        """Return the first question, if it is text."""
        first = self.drafts[0] if self.drafts else None
        return first.parts[0].get("text") if first is not None and first.parts else None

    @property
    def usage(self) -> dict[str, int]:
        """Return the usage of all replies."""
        total = Counter(input_tokens=0, output_tokens=0)
        for usage in self._usage.values():
            total.update(usage)
        return dict(total)

    def _remember(self, uuid: str | None, place: int) -> None:
        if uuid is not None:
            self._places[uuid] = place


class Speaker(Struct, kw_only=True):
    """The agent of a conversation, with facts that the transcript alone does not have."""

    session_id: str
    task_id: str
    parent: str | None = None
    agent: str | None = None
    purpose: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    interface: str = INTERFACE


class Ledger:
    """The entries of a future session, numbered one after another."""

    def __init__(self, interface: str) -> None:
        self._interface = interface
        self.entries: list[Entry] = []

    @property
    def last(self) -> int:
        """Return the number of the newest entry."""
        return len(self.entries)

    def note(self, kind: Kind, at: datetime, data: dict[str, Any] | None = None, **said: Any) -> None:
        """Add an event with its data, or a message with its role and content."""
        entry = Entry(number=self.last + 1, kind=kind.value, at=at, data=data, interface=self._interface, **said)
        self.entries.append(entry)


def as_utc(at: datetime) -> datetime:
    """Return the instant in UTC; a time without a zone counts as UTC."""
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


class Scribe:
    """Turns one conversation into a session."""

    def __init__(self, conversation: Conversation, speaker: Speaker, history: History) -> None:
        self._conversation, self._speaker, self._history = conversation, speaker, history
        self._ledger = Ledger(speaker.interface)
        self._numbers: list[int] = []  # the newest entry's number after each draft
        self._open_calls: set[str] = set()
        self._errors = 0
        self._last: EntryDraft | None = None  # the last draft written
        self._words: str | None = None

    def bundle(self, now: datetime) -> Bundle:
        """Return the whole session. Raises InvalidRequest. Without any time in its lines, it gets `now`."""
        drafts, speaker = self._conversation.drafts, self._speaker
        at = next((draft.at for draft in drafts if draft.at is not None), now)
        self._ledger.note(Kind.CREATED, at, {"agent_name": speaker.agent, "purpose": speaker.purpose})
        for draft in drafts:
            at = draft.at or at
            self._write(draft, at)
            self._numbers.append(self._ledger.last)
        bundle = self._ended()
        check_bundle(bundle)
        return bundle

    def _write(self, draft: EntryDraft, at: datetime) -> None:
        if draft.summary is not None:
            self._sum_up(draft, draft.summary, at)
        elif draft.error is not None:
            self._errors += 1
            self._last = draft
            self._ledger.note(Kind.ERROR, at, {"error": self._short(draft.error, draft.line)})
        else:
            self._say(draft, at)

    def _say(self, draft: EntryDraft, at: datetime) -> None:
        assert draft.role is not None
        parts = [part for part in draft.parts if self._is_paired(part, draft.line)]
        if not parts:
            return
        try:
            content, is_cut = fitting(draft.role, parts)
        except InvalidRequest as error:
            self._history.leave_out(error.message, draft.line)
            return
        if is_cut:
            self._history.leave_out("a message of more than 1 MiB; its long texts are cut", draft.line)
        self._ledger.note(Kind.MESSAGE, at, role=draft.role, content=content)
        self._last = draft
        self._open_calls.update(part["id"] for part in parts if part["type"] == "tool_call")
        self._open_calls.difference_update(part["call_id"] for part in parts if part["type"] == "tool_result")
        if draft.stop == "end_turn":
            self._errors = 0
        self._words = text_of(content) or self._words

    def _is_paired(self, part: Part, line: int | None) -> bool:
        if part["type"] != "tool_result" or part["call_id"] in self._open_calls:
            return True
        self._history.leave_out(f"a result of the call {part['call_id']!r}, which is not there", line)
        return False

    def _sum_up(self, draft: EntryDraft, summary: str, at: datetime) -> None:
        upto = self._ledger.last
        if draft.keeps_from is not None:
            upto = self._numbers[draft.keeps_from - 1] if draft.keeps_from else 1
        messages = [entry for entry in self._ledger.entries if entry.is_message]
        data = {"summary": self._short(summary, draft.line), "upto": whole_upto(messages, upto)}
        self._ledger.note(Kind.SUMMARY, at, data)

    def _short(self, text: str, line: int | None) -> str:
        if len(text) * 4 <= MAX_TEXT or len(text.encode()) <= MAX_TEXT:
            return text
        self._history.leave_out("a summary or error of more than 64 KiB; it is cut", line)
        return cut_text(text, MAX_TEXT // 5)  # fits at four bytes a character

    def _ended(self) -> Bundle:
        """Return the session with an entry for its final state."""
        times = [entry.at for entry in self._ledger.entries]
        begin, end = min(times), max(times)
        if self._is_over():
            summary = cut_text(self._words, MAX_WORDS) if self._words else None
            outcome = {"outcome": State.COMPLETED.value, "summary": summary, "from": Phase.INITIALIZING.value}
            self._ledger.note(Kind.FINALIZED, end, outcome)
            closing = {
                "state": State.COMPLETED,
                "phase": Phase.COMPLETED,
                "summary": summary,
                "finalized_at": end,
                "duration_seconds": round((end - begin).total_seconds(), 3),
            }
        else:
            self._ledger.note(Kind.SUSPENDED, end, {"reason": "imported", "suspended_by": BY_PERSON})
            closing = {"state": State.SUSPENDED, "suspended_by": BY_PERSON}
        return Bundle(session=self._head(begin, end, closing), entries=self._ledger.entries)

    def _is_over(self) -> bool:
        """Return whether a sub-agent has given its answer."""
        if self._speaker.parent is None or self._last is None or self._open_calls:
            return False
        return self._last.role == "assistant" and self._last.stop in ANSWERED

    def _head(self, begin: datetime, end: datetime, closing: dict[str, Any]) -> Session:
        speaker = self._speaker
        errors = [entry.data["error"] for entry in self._ledger.entries if entry.kind == Kind.ERROR and entry.data]
        return Session(
            session_id=speaker.session_id,
            task_id=speaker.task_id,
            root_session_id=speaker.parent or speaker.session_id,
            parent_session_id=speaker.parent,
            depth=1 if speaker.parent else 0,
            created_at=begin,
            updated_at=end,
            last_activity_at=end,
            agent_name=speaker.agent,
            purpose=speaker.purpose,
            project_dir=self._conversation.project_dir,
            interface=speaker.interface,
            version=2,  # it was created, and it ended or was suspended
            last_entry=self._ledger.last,
            error_count=self._errors,
            last_error=errors[-1] if errors else None,
            metadata=speaker.metadata,
            **closing,
        )
