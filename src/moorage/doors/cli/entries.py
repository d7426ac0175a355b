"""Entries of the log and events: a line with tabs for pipes, sentences for people.

Each line for people has a time, a subject and a sentence. A line with the date comes first, and again whenever the day
changes. Times are UTC.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any

import msgspec

from moorage.core.codec import encode, encode_text
from moorage.core.entry import NATIVE, SESSION_DELETED, Entry, Event, Kind, problem_in, text_of
from moorage.core.errors import utc_text
from moorage.doors.cli.output import fields, printable
from moorage.doors.cli.terminal import paint, width_of, wrapped
from moorage.doors.cli.wording import counted, short_id

_SUBJECTS: dict[str, str] = {
    **dict.fromkeys((Kind.CREATED, Kind.FORKED, Kind.RENAMED, Kind.READINESS, Kind.FINALIZED), "session"),
    **dict.fromkeys((Kind.SUSPENDED, Kind.RESUMED, Kind.RELEASED, SESSION_DELETED), "session"),
    Kind.CALLBACK: "child",
}
_PREFIXES = ("turn", "run", "approval")  # of kinds such as `turn_started`: their subject
_COLOURS = {"user": "cyan", "assistant": "green", "tool": "magenta", "error": "red", "problem": "red"}
_COLOURS |= {"approval": "yellow", "child": "magenta"}
SUBJECT_WIDTH = 10
PLAN_LINES = 30  # of a plan beside a question; `approvals show` has all of them
_NOT_TOLD = ("number", "by", "interface")  # fields of an event that are shown elsewhere, or of no use to a reader


# Lines for pipes ----------------------------------------------------------------------------------


def entry_text(entry: Entry) -> str:
    """Return the text of a message, the data of any other entry."""
    if not entry.is_message:
        return encode_text(entry.data or {})
    if isinstance(entry.content, list):
        return " ".join(text_of([part]) if part.get("type") == "text" else encode_text(part) for part in entry.content)
    return entry.content or ""


def entry_line(entry: Entry) -> str:
    return fields(entry.number, utc_text(entry.at), entry.kind, entry.role, entry_text(entry))


def event_line(event: Event) -> str:
    data = event.data
    told = {key: value for key, value in data.items() if key not in _NOT_TOLD}
    said = text_of(data["content"]) if "content" in data else encode_text(told)
    return fields(event.id, utc_text(event.timestamp), event.session_id, event.type, data.get("role") or "-", said)


# Sentences for people -----------------------------------------------------------------------------


class Reader:
    """Prints entries and events for a person, in order."""

    def __init__(self) -> None:
        self._day = ""

    def show_entry(self, entry: Entry) -> None:
        what = said(entry.content) if entry.is_message else sentence(entry.kind, entry.data or {}, entry.by)
        self._show(f"{entry.number:>4}", entry.at, _subject(entry.kind, entry.role), what)

    def show_event(self, event: Event, label: str) -> None:
        """Print an event of the session that is called `label`."""
        data = event.data
        what = said(data["content"]) if "content" in data else sentence(event.type, data, data.get("by"))
        self._show(label, event.timestamp, _subject(event.type, data.get("role")), what)

    def _show(self, label: str, at: datetime, subject: str, what: str) -> None:
        day = f"{at:%Y-%m-%d}"
        if day != self._day:
            self._day = day
            sys.stdout.write(paint(f"{day} UTC", "bold") + "\n")
        label, clock = printable(label), f"{at:%H:%M:%S}"
        indent = width_of(label) + len(clock) + SUBJECT_WIDTH + 5
        who = paint(f"{subject:<{SUBJECT_WIDTH}}", _COLOURS.get(subject, "blue"))
        head = f"{paint(label, 'dim')}  {paint(clock, 'dim')}  {who}"
        sys.stdout.write(f"{head} {wrapped(printable(what), indent)}\n")
        sys.stdout.flush()


def _subject(kind: str, role: str | None) -> str:
    prefix = kind.partition("_")[0]
    return role or _SUBJECTS.get(kind) or (prefix if prefix in _PREFIXES else kind)


def said(content: str | list[dict[str, Any]] | None) -> str:
    """Return a message as text: its text, tool calls with names and arguments, and their results."""
    if not isinstance(content, list):
        return content or ""
    return "\n".join(_part(part) for part in content if part.get("type") != NATIVE)


def _part(part: dict[str, Any]) -> str:
    kind = part.get("type")
    if kind == "text":
        return str(part["text"])
    if kind == "tool_call":
        return f"→ {part['name']}({_arguments(part.get('input', part.get('arguments')))})"
    if kind == "tool_result":
        failed = "failed: " if part.get("is_error") or part.get("error") is True else ""
        return f"← {failed}{_plain(part.get('content', part.get('result', part.get('output'))))}"
    return f"[{kind}] {_json({name: value for name, value in part.items() if name != 'type'})}"


def _arguments(given: Any) -> str:
    if isinstance(given, dict):
        return ", ".join(f"{name}={_json(value)}" for name, value in given.items())
    return "" if given is None else _plain(given)


def _plain(value: Any) -> str:
    """Return a value as text: strings as they are, parts as their text, others as JSON."""
    if isinstance(value, list) and all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in value):
        return said(value)
    return value if isinstance(value, str) else "" if value is None else _json(value)


def sentence(kind: str, data: dict[str, Any], by: str | None = None) -> str:
    """Return an entry other than a message as a sentence."""
    match kind:
        case Kind.CREATED:
            agent = f" for {data['agent_name']}" if data.get("agent_name") else ""
            return _joined(f"created{agent}", about=data.get("purpose"), by=by)
        case Kind.FORKED:
            return _joined(f"forked from {short_id(str(data.get('forked_from')))} at entry {data.get('at')}", by=by)
        case Kind.SUMMARY:
            return f"up to entry {data.get('upto')}: {data.get('summary')}"
        case Kind.PHASE:
            return _joined(f"{data.get('from')} → {data.get('to')}", by=by)
        case Kind.READINESS:
            return "may be resumed" if data.get("resume_ready") else "may not be resumed"
        case Kind.METADATA:
            return "set " + _pairs(data.get("metadata") or {})
        case Kind.LABELS:
            return ", ".join(data.get("labels") or []) or "none"
        case Kind.RENAMED:
            return _joined(f"renamed from {data.get('from') or 'no name'} to {data.get('to') or 'no name'}", by=by)
        case Kind.ERROR:
            return str(data.get("error"))
        case Kind.PROBLEM:
            return str(problem_in(data))
        case Kind.SUSPENDED:
            return _joined("suspended", about=data.get("reason"), by=by)
        case Kind.RESUMED:
            return f"resumed; held by {data['holder']}" if data.get("holder") else _joined("resumed", by=by)
        case Kind.RELEASED:
            return f"released by {data.get('holder')}"
        case Kind.CHECKPOINT:
            return _json(data.get("checkpoint"))
        case Kind.FINALIZED:
            return _joined(str(data.get("outcome")), about=data.get("summary"), by=by)
    return _of_work(kind, data)


def _of_work(kind: str, data: dict[str, Any]) -> str:
    match kind:
        case Kind.TURN_STARTED:
            attempt = data.get("attempt") or 1
            return "started" if attempt == 1 else f"started again, attempt {attempt}"
        case Kind.TURN_ENDED:
            return _joined(str(data.get("outcome")), about=data.get("error") or _reason(data)) + _tokens(data)
        case Kind.RUN_SETTLED:
            return _joined(str(data.get("outcome")), about=_reason(data))
        case Kind.RUN_RETRIED:
            return f"asked again; it repeats run {short_id(str(data.get('retry_of')))}"
        case Kind.CALLBACK:
            child = f"{data.get('agent_name')} in {short_id(str(data.get('child_session_id')))}"
            return _joined(f"{child} {data.get('outcome')}", about=data.get("result") or data.get("error"))
        case Kind.APPROVAL_REQUESTED:
            options = f" ({', '.join(data['options'])})" if data.get("options") else ""
            plan = "" if data.get("plan") is None else f"\nplan: {_json(data['plan'])}"
            return f"asks: {data.get('question')}{options}{plan}"
        case Kind.APPROVAL_DECIDED:
            return _joined(_decision(data), about=data.get("note"), by=data.get("decided_by"))
        case Kind.APPROVAL_REPLAYED:
            return f"answered as before: {_decision(data)}"
        case Kind.APPROVAL_EXPIRED:
            return "expired without an answer"
        case Kind.APPROVAL_WITHDRAWN:
            return "withdrawn"
        case "session_deleted":
            return _joined("deleted", about=data.get("reason"), by=data.get("deleted_by"))
    return _pairs({name: value for name, value in data.items() if name not in _NOT_TOLD})


def _reason(data: dict[str, Any]) -> str:
    return str(data.get("reason") or "").replace("_", " ")


def _json(value: Any) -> str:
    """Return JSON with blanks between items, so that long lines can be wrapped."""
    return json.dumps(value, ensure_ascii=False)


def _joined(what: str, *, about: object = None, by: str | None = None) -> str:
    return what + (f" by {by}" if by else "") + (f": {about}" if about else "")


def _decision(data: dict[str, Any]) -> str:
    return f"answered {data['decision']!r}" if data.get("state") == "answered" else str(data.get("state"))


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {_json(value)}" for name, value in values.items())


def _tokens(data: dict[str, Any]) -> str:
    usage = data.get("usage") or {}
    tokens = sum(value for name, value in usage.items() if name in ("input_tokens", "output_tokens"))
    return f", {counted(tokens, 'token')}" if tokens else ""


# Plans of approvals -------------------------------------------------------------------------------


def plan_lines(plan: Any) -> list[str]:
    """Return the lines of a plan: a text as it is, anything else as indented JSON."""
    if plan is None:
        return []
    text = plan if isinstance(plan, str) else msgspec.json.format(encode(plan), indent=2).decode()
    return printable(text).splitlines()


def short_plan(plan: Any) -> list[str]:
    """Return the first lines of a plan, indented; a last line tells how many are missing."""
    lines = plan_lines(plan)
    missing = [f"  … {len(lines) - PLAN_LINES} more lines"] if len(lines) > PLAN_LINES + 1 else []
    return [f"  {line}" for line in (lines[:PLAN_LINES] if missing else lines)] + missing
