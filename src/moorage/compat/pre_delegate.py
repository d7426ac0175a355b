"""The request before a delegation and its answer, as JSON.

::

    {agent_name, task_id, agent_id?, task_description, metadata}
    → {should_resume, reason, agent_id, resume_metadata, original_context}
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from moorage.core.entry import Entry, Kind
from moorage.core.errors import InvalidField, utc_text
from moorage.core.ids import check_label
from moorage.service.delegation import Delegated, DelegationQuestion, WorkPlace

Json = dict[str, Any]

PHASE_KINDS = (Kind.PHASE.value, Kind.FINALIZED.value)
MAX_PURPOSE = 1000  # characters of a task's description stored in the session opened for it


def read_question(context: object) -> DelegationQuestion:
    """Return the question in a JSON object; without a folder, it is about the working folder. Raises InvalidField."""
    if not isinstance(context, dict):
        raise InvalidField("context", "must be a JSON object")
    texts = {name: text_in(context, name) for name in ("agent_name", "agent_id", "task_id", "project_dir")}
    metadata, purpose = context.get("metadata"), context.get("task_description")
    if metadata is not None and not isinstance(metadata, dict):
        raise InvalidField("metadata", "must be a JSON object")
    if purpose is not None and not isinstance(purpose, str):
        raise InvalidField("task_description", "must be text")
    folder = texts["project_dir"] or working_folder()
    return DelegationQuestion(
        place=WorkPlace(agent=texts["agent_name"], task_id=texts["task_id"], project_dir=folder),
        session_id=texts["agent_id"],
        create=bool(context.get("create")),
        purpose=(purpose or "").strip()[:MAX_PURPOSE] or None,
        metadata=metadata or {},
    )


def text_in(context: Json, name: str) -> str | None:
    """Return a text field of the request; missing, null and empty are the same."""
    value = context.get(name)
    return None if value is None or value == "" else check_label(name, value, 4096)


def working_folder() -> str | None:
    """Return the working folder; None if it was deleted, or its name is not printable."""
    try:
        folder = os.getcwd()
    except OSError:
        return None
    return folder if folder.isprintable() else None


def no_answer(context: object, reason: str) -> Json:
    """Return the answer after an error: continue without earlier work."""
    told = {"should_resume": False, "reason": reason, "agent_id": None, "resume_metadata": None}
    return told | {"original_context": context}


def as_answer(done: Delegated, history: list[dict[str, str]]) -> Json:
    """Return the outcome of a delegation; `history` are the phases of the resumed session."""
    answer: Json = {
        "should_resume": done.verdict.decision,
        "reason": done.verdict.reason,
        "agent_id": done.delegation.session_id,
        "resume_metadata": None,
    }
    if done.created:
        answer["created"] = True
    if done.verdict.decision and (session := done.session) is not None:
        answer["resume_metadata"] = {
            "previous_phase": session.phase.value,
            "created_at": utc_text(session.created_at),
            "last_updated": utc_text(session.updated_at),
            "history": history,
            "session_metadata": session.metadata,
        }
    return answer


def phase_changes(entries: Iterable[Entry]) -> Iterator[dict[str, str]]:
    """Yield the phase changes in these entries, as JSON."""
    for entry in entries:
        data = entry.data or {}
        if "from" in data:
            to_phase = data["to"] if entry.kind == Kind.PHASE else data["outcome"]
            yield {"from_phase": data["from"], "to_phase": to_phase, "timestamp": utc_text(entry.at)}
