"""Convert rows of an older orchestrator to sessions, entries and instants."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from msgspec import DecodeError
from msgspec.structs import replace

from moorage.core.codec import check_json, decode, encode
from moorage.core.entry import ROLES, Entry, Kind, check_message
from moorage.core.errors import MoorageError
from moorage.core.ids import check_label, looks_like_ref
from moorage.core.session import FINAL_STATES, MAX_METADATA_BYTES, Phase, Session, State, check_text
from moorage.legacy.plan import Planned
from moorage.stores.rows import instant, micros

ORPHANED = "orphaned"  # key in a session's metadata
EVENT = "legacy_event"  # the kind of an entry that is no message

_STATES = {
    "pending": State.CREATED,
    "created": State.CREATED,
    "suspended": State.SUSPENDED,
    "paused": State.SUSPENDED,
    "finished": State.COMPLETED,
    "completed": State.COMPLETED,
    "complete": State.COMPLETED,
    "error": State.FAILED,
    "failed": State.FAILED,
    "stopped": State.ABANDONED,
    "stopping": State.ABANDONED,
    "cancelled": State.ABANDONED,
    "abandoned": State.ABANDONED,
}
_LAST = 8_583_753_600_000_000  # microseconds until 2242; up to then a float is exact to the microsecond


# Sessions ------------------------------------------------------------------------------------------


def session_of(planned: Planned, old: dict[str, Any]) -> Session:
    """Return the session for a row."""
    state, at = state_of(old.get("status")), instant(planned.at or 0)
    is_final = state in FINAL_STATES
    session = Session(
        session_id=planned.id,
        task_id=planned.id,
        root_session_id=planned.root_id,
        created_at=at,
        updated_at=at,
        last_activity_at=at,
        session_name=planned.name,
        agent_name=_passing(lambda text: check_label("agent_name", text), old.get("agent_name")),
        project_dir=_passing(lambda text: check_text("project_dir", text), old.get("project_dir")),
        state=state,
        phase=Phase(state.value) if is_final else Phase.INITIALIZING,
        parent_session_id=None if planned.parent is None else planned.parent.id,
        parent_session_name=_name_of_parent(planned, old),
        depth=planned.depth,
        version=2 if is_final else 1,
        finalized_at=at if is_final else None,
    )
    return replace(session, metadata=_metadata(session, old))


def _passing(check: Callable[[str], str], value: object) -> str | None:
    """Return the value if it is a text that passes the check."""
    try:
        return check(value) if isinstance(value, str) else None
    except MoorageError:
        return None


def _parent_given(old: dict[str, Any]) -> object:
    """Return the parent given in the row: its name, or else its id."""
    return given(old.get("parent_session_name")) or given(old.get("parent_session_id"))


def _name_of_parent(planned: Planned, old: dict[str, Any]) -> str | None:
    name = _parent_given(old) if planned.parent is None else planned.parent.old_name
    return name if isinstance(name, str) and looks_like_ref(name) else None


_SHOWN = ("session_id", "session_name", "agent_name", "project_dir", "parent_session_id", "parent_session_name")


def _metadata(session: Session, old: dict[str, Any]) -> dict[str, Any]:
    """Return every column that the session itself has no field for, and whether its parent is missing."""
    rest = {name: _plain(value) for name, value in old.items() if given(value) is not None}
    for name in _SHOWN:
        if name in rest and rest[name] == getattr(session, name):
            del rest[name]
    if micros_of(old.get("created_at")) is not None:
        del rest["created_at"]
    metadata: dict[str, Any] = {"legacy": _within_limit(rest)}
    if session.parent_session_id is None and _parent_given(old) is not None:
        metadata[ORPHANED] = True
    return metadata


def _within_limit(values: dict[str, Any]) -> dict[str, Any]:
    """Return as much as metadata may hold, short values first, with a mark if something is missing."""
    kept: dict[str, Any] = {}
    room = MAX_METADATA_BYTES // 2
    for name, value in sorted(values.items(), key=lambda item: len(encode(item[1]))):
        room -= len(encode({name: value}))
        if room < 0:
            return {**kept, "too_long": True}
        kept[name] = value
    return kept


def _plain(value: Any) -> Any:
    """Return a value of SQLite as a JSON value."""
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def given(value: object) -> object:
    """Return the value, or None if it is empty."""
    return None if value in ("", b"") else value


def state_of(status: object) -> State:
    """Return the state for a status; an unknown status means an open session."""
    return _STATES.get(status.strip().lower(), State.ACTIVE) if isinstance(status, str) else State.ACTIVE


# Logs -------------------------------------------------------------------------------------------


class LegacyLog:
    """A session's log; it numbers entries as it yields them."""

    def __init__(self, session: Session, old: dict[str, Any]) -> None:
        self.old_id = old["session_id"]
        self.number = self.messages = self.events = 0
        self._session = session
        self._at = micros(session.created_at)
        self.last_at = max(self._at, micros_of(old.get("last_resumed_at")) or 0)

    def entries(self, events: Iterator[dict[str, Any]]) -> Iterator[Entry]:
        """Yield the first entry, one for each event, and the last one."""
        yield self._entry(Kind.CREATED, data={"agent_name": self._session.agent_name, "purpose": None})
        for event in events:
            self._at = micros_of(event.get("timestamp")) or self._at  # without a time: the last one's
            self.last_at = max(self.last_at, self._at)
            yield self._entry_of(event)
        if self._session.is_final:
            self._at = self.last_at
            outcome = self._session.state.value
            yield self._entry(Kind.FINALIZED, data={"outcome": outcome, "summary": None})

    def _entry_of(self, event: dict[str, Any]) -> Entry:
        if (said := _message(event)) is not None:
            self.messages += 1
            return self._entry(Kind.MESSAGE, role=said[0], content=said[1])
        self.events += 1
        data = {name: _readable(value) for name, value in event.items() if value is not None and name != "session_id"}
        return self._entry(EVENT, data=data)

    def _entry(self, kind: str, **what: Any) -> Entry:
        self.number += 1
        return Entry(self.number, str(kind), instant(self._at), **what)


def _message(event: dict[str, Any]) -> tuple[str, str | list[dict[str, Any]]] | None:
    """Return role and content of an event that is a message; None for any other."""
    role, content = event.get("role"), event.get("content")
    if role not in ROLES or not isinstance(content, str):
        return None
    content = _decoded(content, '["')
    if isinstance(content, list) and len(content) == 1 and _is_plain_text(content[0]):
        content = content[0]["text"]
    try:
        message = check_message({"role": role, "content": content})
    except MoorageError:
        return None
    return message.role, message.content


def _is_plain_text(part: object) -> bool:
    return isinstance(part, dict) and part.keys() == {"type", "text"} and part["type"] == "text"


def _readable(value: Any) -> Any:
    """Return a column of an event, decoded if it is a JSON object or list."""
    return _decoded(value, "{[") if isinstance(value, str) else _plain(value)


def _decoded(text: str, begins: str) -> Any:
    """Return decoded JSON with this first character; the text itself if it is invalid, or exceeds our limits."""
    if not text or text[0] not in begins:
        return text
    try:
        value = decode(text)
        check_json(value, "content")
    except (DecodeError, MoorageError, RecursionError):
        return text
    return value


# Times ------------------------------------------------------------------------------------------

_SCALES = ((1e11, 1_000_000), (1e14, 1_000), (1e17, 1))  # limits below which a number is seconds, milli-, microseconds


def micros_of(value: object) -> int | None:
    """Return an instant from the formats in use: any ISO 8601, UTC without a zone, or a number since 1970."""
    try:
        found = _from_text(value.strip()) if isinstance(value, str) else _from_number(value)
    except (ValueError, OverflowError):
        return None
    return found if found is not None and 0 < found < _LAST else None


def _from_text(text: str) -> int:
    if "-" not in text[1:] and "/" not in text:
        return _from_number(float(text)) or 0
    at = datetime.fromisoformat(text.replace("/", "-").replace(" UTC", "+00:00").replace(" +", "+"))
    return micros(at if at.tzinfo is not None else at.replace(tzinfo=UTC))


def _from_number(number: object) -> int | None:
    if not isinstance(number, (int, float)):
        return None
    return int(number * next((scale for below, scale in _SCALES if number < below), 1e-3))
