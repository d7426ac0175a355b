"""Events of an interaction: messages, and whose turn it is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from moorage.core.approval import Approval
from moorage.core.entry import SESSION_DELETED, Event, Kind, problem_in, text_of
from moorage.core.session import BY_PERSON
from moorage.service.words import Transcript

MESSAGE = "message"
CHUNK = "chunk"
WAITING_FOR_INPUT = "waiting_for_input"
CUT_OFF = "cut_off"
PROBLEM = "problem"
SUSPENDED = "suspended"
COMPLETED = "completed"
FAILED = "failed"


class ExecutionEvent(Struct, frozen=True, kw_only=True):
    """An event of an interaction."""

    type: str
    data: dict[str, Any]
    timestamp: datetime
    is_last: bool = False  # whether no event follows

    @property
    def content(self) -> str:
        """Return the readable text of the event."""
        return str(self.data.get("content") or "")


def said(event: Event, transcript: Transcript | None) -> ExecutionEvent:
    """Return the event for a message of the log: its text as `content`, and its parts if it has some.

    With a transcript of earlier chunks, `rest` is the text that they do not have.
    """
    content = event.data["content"]
    text, parts = text_of(content), {"parts": content} if isinstance(content, list) else {}
    data = {**event.data, "session_id": event.session_id, "content": text, **parts}
    if transcript is not None and event.data["role"] == "assistant":
        data["rest"] = transcript.message(text)
    return ExecutionEvent(type=MESSAGE, data=data, timestamp=event.timestamp)


def chunk(session_id: str, words: str) -> ExecutionEvent:
    """Return the event for partial output; the complete message comes later."""
    return ExecutionEvent(type=CHUNK, data={"session_id": session_id, "content": words}, timestamp=datetime.now(UTC))


def waiting(session_id: str, approvals: list[Approval]) -> ExecutionEvent:
    """Return the event that it is a person's turn: to answer the agent's question, or to say the next thing."""
    questions = [
        {"approval_id": each.approval_id, "question": each.question, "options": list(each.options), "plan": each.plan}
        for each in approvals
    ]
    content = "\n".join(each.question for each in approvals)
    data = {"session_id": session_id, "content": content, "approvals": questions}
    return ExecutionEvent(type=WAITING_FOR_INPUT, data=data, timestamp=datetime.now(UTC))


def cut_off(event: Event, reason: str | None) -> ExecutionEvent:
    """Return the event for a turn that ended before its agent answered; the next one has begun (`event`)."""
    return _ending(event, CUT_OFF, reason, is_last=False)


def problem(event: Event) -> ExecutionEvent:
    """Return the event for a line of the agent that does not validate."""
    return _ending(event, PROBLEM, str(problem_in(event.data)), is_last=False)


def unanswered(event: Event) -> ExecutionEvent:
    """Return the event for a run that failed: nothing will answer its prompt. The session is unchanged."""
    return _ending(event, FAILED, f"the run is {event.data['outcome']}", is_last=False)


def ending(event: Event) -> ExecutionEvent | None:
    """Return the event for a log entry that may end a conversation; None for other entries."""
    if event.type == Kind.SUSPENDED:
        by_person = event.data.get("suspended_by") == BY_PERSON  # what its agent suspends, the next input wakes
        return _ending(event, SUSPENDED, event.data.get("reason"), is_last=by_person)
    if event.type == Kind.FINALIZED:
        kind = COMPLETED if event.data["outcome"] == "completed" else FAILED
        return _ending(event, kind, event.data.get("summary"))
    return deleted(event) if event.type == SESSION_DELETED else None


def deleted(event: Event) -> ExecutionEvent:
    """Return the event for a deleted session, whose requests are gone with it."""
    return _ending(event, FAILED, "the session was deleted")


def _ending(event: Event, kind: str, content: str | None, *, is_last: bool = True) -> ExecutionEvent:
    data = {**event.data, "session_id": event.session_id, "content": content or ""}
    return ExecutionEvent(type=kind, data=data, timestamp=event.timestamp, is_last=is_last)
