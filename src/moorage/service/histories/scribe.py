"""Turn a completely read conversation into a session.

A result without its call is left out: no model accepts one without the other. The
host's own conversation is left suspended, because the host may continue it; a sub-agent's is completed if
its last message was its answer.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct, field

from moorage.core.bundle import Bundle, check_bundle
from moorage.core.entry import Kind, text_of
from moorage.core.errors import InvalidRequest
from moorage.core.session import BY_PERSON, MAX_TEXT, Phase, Session, State
from moorage.core.window import whole_upto
from moorage.service.histories.blocks import Part, cut_text, fitting
from moorage.service.histories.conversations import Conversation, EntryDraft
from moorage.service.histories.ledger import Ledger
from moorage.service.importing import History

INTERFACE = "claude-code"
REASON = "imported"
MAX_WORDS = 2000  # length of a sub-agent's answer in its summary
ANSWERED = (None, "end_turn", "stop_sequence")  # stop reasons of a complete answer; older hosts wrote none


class Speaker(Struct, kw_only=True):
    """The agent of a conversation, with facts that the transcript alone does not have."""

    session_id: str
    task_id: str
    parent: str | None = None
    agent: str | None = None
    purpose: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    interface: str = INTERFACE


class Scribe:
    """Turns one conversation into a session."""

    def __init__(self, conversation: Conversation, birth: Speaker, history: History) -> None:
        self._conversation, self._birth, self._history = conversation, birth, history
        self._ledger = Ledger(birth.interface)
        self._numbers: list[int] = []  # the newest entry's number after each draft
        self._open_calls: set[str] = set()
        self._errors = 0
        self._last: EntryDraft | None = None  # the last draft written
        self._words: str | None = None

    def bundle(self, now: datetime) -> Bundle:
        """Return the whole session. Raises InvalidRequest. Without any time in its lines, it gets `now`."""
        drafts = self._conversation.drafts
        begin = next((draft.at for draft in drafts if draft.at is not None), now)
        self._ledger.note(Kind.CREATED, begin, {"agent_name": self._birth.agent, "purpose": self._birth.purpose})
        at = begin
        for draft in drafts:
            at = draft.at or at
            self._write(draft, at)
            self._numbers.append(self._ledger.last)
        bundle = self._ended()
        check_bundle(bundle)
        return bundle

    # Entries ------------------------------------------------------------------------------------

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
        self._follow(draft, parts)
        self._words = text_of(content) or self._words

    def _is_paired(self, part: Part, line: int | None) -> bool:
        if part["type"] != "tool_result" or part["call_id"] in self._open_calls:
            return True
        self._history.leave_out(f"a result of the call {part['call_id']!r}, which is not there", line)
        return False

    def _follow(self, draft: EntryDraft, parts: list[Part]) -> None:
        """Track the calls that this message opens and closes."""
        self._last = draft
        self._open_calls.update(part["id"] for part in parts if part["type"] == "tool_call")
        self._open_calls.difference_update(part["call_id"] for part in parts if part["type"] == "tool_result")
        if draft.stop == "end_turn":
            self._errors = 0

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

    # The head -----------------------------------------------------------------------------------

    def _ended(self) -> Bundle:
        """Return the session with an entry for its final state."""
        times = [entry.at for entry in self._ledger.entries]
        begin, end = min(times), max(times)
        is_over = self._is_over()
        if is_over:
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
            self._ledger.note(Kind.SUSPENDED, end, {"reason": REASON, "suspended_by": BY_PERSON})
            closing = {"state": State.SUSPENDED, "suspended_by": BY_PERSON}
        return Bundle(session=self._head(begin, end, closing), entries=self._ledger.entries)

    def _is_over(self) -> bool:
        """Return whether a sub-agent has given its answer."""
        if self._birth.parent is None or self._last is None or self._open_calls:
            return False
        return self._last.role == "assistant" and self._last.stop in ANSWERED

    def _head(self, begin: datetime, end: datetime, closing: dict[str, Any]) -> Session:
        birth, conversation = self._birth, self._conversation
        errors = [entry.data["error"] for entry in self._ledger.entries if entry.kind == Kind.ERROR and entry.data]
        return Session(
            session_id=birth.session_id,
            task_id=birth.task_id,
            root_session_id=birth.parent or birth.session_id,
            parent_session_id=birth.parent,
            depth=1 if birth.parent else 0,
            created_at=begin,
            updated_at=end,
            last_activity_at=end,
            agent_name=birth.agent,
            purpose=birth.purpose,
            project_dir=conversation.project_dir,
            interface=birth.interface,
            version=2,  # it was created, and it ended or was suspended
            last_entry=self._ledger.last,
            error_count=self._errors,
            last_error=errors[-1] if errors else None,
            metadata=birth.metadata,
            **closing,
        )
