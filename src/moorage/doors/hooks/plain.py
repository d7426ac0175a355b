"""Hooks with Moorage's own JSON: before a delegation, and when an agent has stopped."""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec.structs import replace

from moorage.compat.pre_delegate import PHASE_KINDS, as_answer, no_answer, phase_changes, read_question, text_in
from moorage.core.errors import InvalidField, utc_text
from moorage.core.ids import dated_id
from moorage.core.query import every
from moorage.core.session import Session
from moorage.doors.hooks.context import HookContext, HookReply, Json
from moorage.service.delegation import decide
from moorage.service.inline import drive

PRE_DELEGATE, SUBAGENT_STOP = "pre-delegate", "subagent-stop"
MAX_EXIT_CODE = 1 << 31


def safe_answer(command: str, event: Json | None, reason: str) -> Json:
    """Return the answer when nothing could be read or stored."""
    if command == PRE_DELEGATE:
        return no_answer(event, reason)
    known = event or {}
    return _stopped(known.get("agent_id"), known, None, reason)


# Before delegating ------------------------------------------------------------------------------


def pre_delegate(context: HookContext, event: Json, create: bool) -> HookReply:
    """Return whether earlier work may be resumed; every call is recorded as a delegation."""
    asked, deps = read_question(event), context.deps
    create = create or asked.create
    new_id = dated_id(deps.clock.now(), deps.entropy(4))
    question = replace(asked, create=create, parent=context.parent if create else None, new_id=new_id)
    decided = context.run(decide, question)
    complaint = context.record(decided.delegation)
    history: list[dict[str, str]] = []
    if decided.verdict.decision and decided.session:
        from moorage.service.conversation import read_log

        log = partial(context.run, read_log, decided.session.session_id, kinds=PHASE_KINDS)
        history = list(phase_changes(every(log, by="after")))
    return HookReply(as_answer(decided, history) | {"original_context": event}, complaint)


# When an agent has stopped ----------------------------------------------------------------------


def subagent_stop(context: HookContext, event: Json) -> HookReply:
    """Store the agent's output and close its session; suspend it if a question to a person is open."""
    from moorage.service.hosts import Ending, end_session, only_open_session

    agent_id, agent, task_id = (text_in(event, name) for name in ("agent_id", "agent", "task_id"))
    key = f"{utc_text(context.deps.clock.now())}:stop"
    ending = Ending(outcome=_outcome(event), said=_output(event), key=key, metadata=_labels(event))
    if agent_id is None and agent is not None and task_id is not None:
        found = context.run(only_open_session, agent=agent, task_id=task_id)
        agent_id = None if found is None else found.session_id
    if agent_id is None:
        return HookReply(_stopped(None, event, None, "no_existing_session"))
    before = drive(context.deps.store.get(context.caller.owner, agent_id))
    session = context.run(end_session, before.session_id, ending)
    reason = "session_closed" if before.is_final else "finalized" if session.is_final else "awaiting_approval"
    return HookReply(_stopped(session.session_id, event, session, reason))


def _stopped(agent_id: object, event: Json, session: Session | None, reason: str) -> Json:
    duration = None if session is None else session.duration_seconds
    if session is not None and duration is None:
        duration = round((session.updated_at - session.created_at).total_seconds(), 3)
    return {
        "finalized": session is not None and session.is_final,
        "outcome": None if session is None else session.state.value,
        "reason": reason,
        "agent_id": agent_id,
        "task_id": event.get("task_id"),
        "agent": event.get("agent"),
        "duration_seconds": duration,
    }


def _outcome(event: Json) -> str:
    """Return the outcome by the exit code alone: the output of an agent does not tell it."""
    code = event.get("exit_code")
    if isinstance(code, str) and code.lstrip("-").isdecimal() and len(code) < 12:
        code = int(code)
    if code is None or (type(code) is int and code == 0):
        return "completed"
    if type(code) is not int or abs(code) > MAX_EXIT_CODE:
        raise InvalidField("exit_code", f"is {str(code)[:40]!r}; give a whole number, 0 for success")
    return "failed"


def _output(event: Json) -> str:
    output = event.get("output")
    if output is not None and not isinstance(output, str):
        raise InvalidField("output", "must be text")
    return output or ""


def _labels(event: Json) -> dict[str, Any]:
    """Return the metadata for the session."""
    tier, tags = event.get("tier"), event.get("tags")
    if tier is not None and not isinstance(tier, (str, int)):
        raise InvalidField("tier", "must be a text or a number")
    if tags is not None and not (isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)):
        raise InvalidField("tags", "must be a list of texts")
    return {name: value for name, value in (("tier", tier), ("tags", tags)) if value is not None}
