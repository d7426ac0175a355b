"""The texts of replies, for a model to read."""

from __future__ import annotations

from datetime import datetime

from msgspec import json

from moorage.core.approval import Approval
from moorage.core.session import Phase, Session
from moorage.service.hosts import Outlook

MOST = 4000  # characters
LAST_WORDS = 1000
OWN_KEYS = ("host", "host_session_id", "transcript_path", "tool_use_id", "called_by")  # of metadata: not the agent's


def resumable(session: Session, said: str, now: datetime, *, is_here: bool) -> str:
    """Describe earlier work that could be resumed, and how."""
    lines = ["Moorage: earlier work of this agent can be picked up.", _line(session, now)]
    if known := _known(session):
        lines.append(f"It knows: {known}")
    if said:
        lines.append(f"It last said: {_cut(said, LAST_WORDS)}")
    if is_here:
        lines.append(f"To go on with it, send a message to agent {session.session_id} instead of starting a new one.")
    else:
        lines.append(
            f"`moorage resume {session.session_id}` gives all of it; tell the new agent what it needs of that."
        )
    return _cut("\n".join(lines), MOST)


def what_waits(outlook: Outlook, now: datetime) -> str:
    """List open questions and work to resume in this folder; empty if nothing waits."""
    lines = [_question(approval) for approval in outlook.approvals]
    lines += [_line(session, now) for session in outlook.resumable]
    if not lines:
        return ""
    return _cut("\n".join(["Moorage: this waits in this folder.", *lines]), MOST)


def own_session(session: Session) -> str:
    """Return the facts that a sub-agent needs about its own session."""
    lines = [
        f"Your work is kept in Moorage session {session.session_id}. Before you stop to wait for a person, run "
        f"`moorage update {session.session_id} --phase {Phase.APPROVAL.value}`: it is then suspended, not closed."
    ]
    if known := _known(session):
        lines.append(f"You noted before: {known}")
    return "\n".join(lines)


def _known(session: Session) -> str:
    """Return the metadata that the agent itself stored, as JSON; empty if there is none."""
    known = {key: value for key, value in session.metadata.items() if key not in OWN_KEYS}
    return _cut(json.encode(known).decode(), LAST_WORDS) if known else ""


def _question(approval: Approval) -> str:
    return (
        f"- session {approval.session_id} asks a person: {_cut(approval.question, 300)} "
        f"(`moorage approve {approval.approval_id}`, or `moorage reject`)"
    )


def _line(session: Session, now: datetime) -> str:
    parts = [f"phase {session.phase.value}", f"last active {_ago(now, session.last_activity_at)} ago"]
    if session.task_id not in (session.session_id, session.root_session_id):
        parts.append(f"task {session.task_id}")
    if session.purpose:
        parts.append(_cut(session.purpose, 200))
    return f"- session {session.session_id} of {session.agent_name or 'an agent'}: {', '.join(parts)}"


def _ago(now: datetime, then: datetime) -> str:
    seconds = max(0, int((now - then).total_seconds()))
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= size:
            count = seconds // size
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return "less than a minute"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
