"""One session for a person: its status in sentences, then its facts in groups."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime

from moorage.core.approval import Approval
from moorage.core.codec import as_text
from moorage.core.session import Session, State
from moorage.core.status import Status
from moorage.core.work import LAUNCHER
from moorage.doors.cli.hints import command_line, ref_of, shown_id
from moorage.doors.cli.output import folded, groups, printable
from moorage.doors.cli.terminal import STATE_STYLES, paint
from moorage.doors.cli.wording import ago, counted, seconds_text, span


def titled(session: Session) -> str:
    """Return the name of a session with its id, or its id alone."""
    return f"{session.session_name} ({session.session_id})" if session.session_name else session.session_id


_STATUS = {Status.RUN_FAILED: "has a failed run", "failed": "has failed", "abandoned": "was abandoned"}


def described(session: Session, waiting: Sequence[Approval] = ()) -> str:
    """Return the status of a session, the next steps, and its facts; `waiting` are its open questions."""
    told = "\n".join(_circumstances(session, waiting)).splitlines()
    lines = [_headline(session), *(folded(printable(line), sys.stdout) for line in told)]
    return "\n".join(lines) + "\n" + groups(_facts(session))


def _headline(session: Session) -> str:
    title = paint(printable(session.session_name or session.session_id), "bold")
    verb, _, word = _STATUS.get(session.status, f"is {session.status}").partition(" ")
    told = f"{title} {verb} {paint(word, STATE_STYLES.get(session.status.replace('_', ' ')))}"
    return f"{told}." if session.is_final else f"{told}, in phase {session.phase}."


def _circumstances(session: Session, waiting: Sequence[Approval]) -> list[str]:
    """Return the most important facts, and the commands that go with them."""
    told = [_question(asked) for asked in waiting]
    if session.because is not None and not waiting:
        told.append(f"The request waits {session.because.in_words}.")
    if session.hold is not None and not session.hold.holder.startswith(LAUNCHER):
        told.append(f"{session.hold.holder} holds it; the hold ends {ago(session.hold.until)}.")
    if session.last_run is not None and not session.is_final:
        told.append(_last_run(session))
    if session.is_final:
        told.append(_ending(session))
    elif session.state is State.SUSPENDED and not waiting:
        told.append(f"Resume it: {command_line('resume', ref_of(session))}")
    return told


def _question(asked: Approval) -> str:
    ends = f", expires {ago(asked.expires_at)}" if asked.expires_at else ""
    look = command_line("approvals", "show", shown_id(asked.approval_id))
    return f"It asks: {asked.question} (asked {ago(asked.asked_at)}{ends})\nLook at it: {look}"


def _last_run(session: Session) -> str:
    assert session.last_run is not None
    run = session.last_run
    has_failed = session.status == Status.RUN_FAILED
    why = f" ({run.reason.replace('_', ' ')})" if run.reason else ""
    if has_failed and session.last_error:
        why = f": {session.last_error.rstrip('.')}"
    again = f" Retry it: {command_line('retry', ref_of(session))}" if has_failed else ""
    return f"Its last run {run.state} {ago(run.settled_at)}{why}.{again}"


def _ending(session: Session) -> str:
    took = "" if session.duration_seconds is None else f" after {span(session.duration_seconds)}"
    what = f": {session.summary}" if session.summary else "."
    return f"It ended {ago(session.finalized_at)}{took}{what}"


def _facts(session: Session) -> dict[str, list[tuple[str, object]]]:
    return {
        "Session": [
            ("Id", session.session_id),
            ("Agent", session.agent_name),
            ("Purpose", session.purpose),
            ("Task", session.task_id if session.task_id != session.session_id else None),
            ("Folder", session.project_dir),
            ("Labels", ", ".join(session.labels)),
            ("Owner", session.owner),
            ("Opened by", session.interface),
        ],
        "Activity": [
            ("Created", _moment(session.created_at)),
            ("Last active", _moment(session.last_activity_at)),
            ("Expires", _moment(session.expires_at)),
            ("Log", f"{counted(session.last_entry, 'entry', 'entries')}, version {session.version}"),
            ("Errors", _errors(session)),
            ("Resumable", "yes" if session.resume_ready else "no"),
        ],
        "Family": [
            ("Parent", _relative(session.parent_session_id, session.parent_session_name)),
            ("Root", session.root_session_id if session.depth > 1 else None),
            ("Forked from", session.forked_from),
        ],
        "Metadata": [(name, as_text(value)) for name, value in session.metadata.items()],
    }


def _moment(at: datetime | None) -> str | None:
    return None if at is None else f"{ago(at):<9} {seconds_text(at)}"


def _errors(session: Session) -> str | None:
    if not session.error_count:
        return None
    is_told = session.status == Status.RUN_FAILED or not session.last_error
    return str(session.error_count) if is_told else f"{session.error_count}, the last: {session.last_error}"


def _relative(session_id: str | None, name: str | None) -> str | None:
    return f"{name} ({session_id})" if session_id and name and name != session_id else session_id
