"""Rows of an older orchestrator as sessions and entries.

First the plan: the new key, id, name and family of each session. Then the conversion of its rows.
"""

from __future__ import annotations

import math
import os
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from msgspec import DecodeError, Struct
from msgspec.structs import replace

from moorage.core.codec import check_json, decode, encode
from moorage.core.entry import ROLES, Entry, Kind, check_message
from moorage.core.errors import MoorageError
from moorage.core.ids import check_label, looks_like_ref, uuid7
from moorage.core.session import FINAL_STATES, MAX_METADATA_BYTES, Phase, Session, State, check_text
from moorage.stores.rows import instant, micros

ORPHANED = "orphaned"  # key in a session's metadata
EVENT = "legacy_event"  # the kind of an entry that is no message

_STATUSES = {
    State.CREATED: "pending created",
    State.SUSPENDED: "suspended paused",
    State.COMPLETED: "finished completed complete",
    State.FAILED: "error failed",
    State.ABANDONED: "stopped stopping cancelled abandoned",
}
_STATES = {status: state for state, statuses in _STATUSES.items() for status in statuses.split()}
_LAST = 8_583_753_600_000_000  # microseconds until 2242; up to then a float is exact to the microsecond


# The plan --------------------------------------------------------------------------------------


class Planned(Struct, eq=False):
    """One of the old sessions: the facts from its row, and its new identity."""

    source: int  # the row
    old_id: Any
    old_name: Any
    at: int | None  # in microseconds; None until the plan is made, if the row has no time
    is_open: bool
    parent_ref: Any  # an id
    parent_name: Any
    n: int = 0  # the new key, in order of creation
    id: str = ""
    name: str | None = None
    parent: Planned | None = None
    root: Planned | None = None
    depth: int = -1  # not known yet
    is_cut: bool = False  # whether its parent link was part of a cycle

    @property
    def family(self) -> tuple[int | None, int | None]:
        """Return the keys of parent and root; None for a root."""
        return (None, None) if self.parent is None or self.root is None else (self.parent.n, self.root.n)

    @property
    def root_id(self) -> str:
        """Return the id of the root of its tree."""
        return self.id if self.root is None else self.root.id


def planned(scanned: Iterable[Planned], now: int) -> list[Planned]:
    """Sort sessions in the order of creation, and give each its key, id, name and family."""
    plan = list(scanned)
    first = min((each.at for each in plan if each.at is not None), default=now)
    for each in plan:
        each.at = first if each.at is None else each.at
    plan.sort(key=lambda each: each.at or 0)
    for number, each in enumerate(plan, 1):
        each.n = number
    by_id = _give_ids(plan)
    _find_parents(plan, by_id)
    _cut_cycles(plan)
    for each in plan:
        _place(each)
    _keep_names(plan)
    return plan


def _give_ids(plan: list[Planned]) -> dict[Any, Planned]:
    """Keep valid ids; make new ones for the others, and for the second session with the same id."""
    by_id: dict[Any, Planned] = {}
    for each in plan:
        is_first = by_id.setdefault(each.old_id, each) is each
        kept = is_first and looks_like_ref(each.old_id)
        each.id = each.old_id if kept else uuid7((each.at or 0) // 1000, os.urandom(10))
    return by_id


def _find_parents(plan: list[Planned], by_id: dict[Any, Planned]) -> None:
    """Link each session to its parent.

    An id means one session: if it was deleted, no other of the same name replaces it. A name means the newest session.
    """
    by_name: dict[Any, Planned] = {}
    for each in plan:
        if each.parent_ref is not None:
            each.parent = by_id.get(each.parent_ref)
        elif each.parent_name is not None:
            each.parent = by_name.get(each.parent_name)
        by_name[each.old_name] = each


def _cut_cycles(plan: list[Planned]) -> None:
    """Make the oldest session of each cycle a root."""
    met: dict[int, int] = {}  # a session, and the session from which the walk up reached it
    for start in plan:
        line: list[Planned] = []
        each: Planned | None = start
        while each is not None and each.n not in met:
            met[each.n] = start.n
            line.append(each)
            each = each.parent
        if each is not None and met[each.n] == start.n:
            oldest = min(line[line.index(each) :], key=lambda member: member.n)
            oldest.parent, oldest.is_cut = None, True


def _place(session: Planned) -> None:
    """Set depth and root, from the first ancestor whose depth is known."""
    line = [session]
    while (parent := line[-1].parent) is not None and parent.depth < 0:
        line.append(parent)
    for each in reversed(line):
        each.depth = 0 if each.parent is None else each.parent.depth + 1
        each.root = each if each.parent is None else each.parent.root


def _keep_names(plan: list[Planned]) -> None:
    """Keep valid names; the newest open session with a name keeps it, unless it is another session's id."""
    newest = {each.old_name: each for each in plan if each.is_open}
    by_id = {each.id: each for each in plan}
    for each in plan:
        is_free = newest.get(each.old_name) is each and by_id.get(each.old_name, each) is each
        if looks_like_ref(each.old_name) and (not each.is_open or is_free):
            each.name = each.old_name


# Sessions ------------------------------------------------------------------------------------------


def session_of(planned: Planned, old: dict[str, Any]) -> Session:
    """Return the session for a row."""
    state, at = state_of(old.get("status")), instant(planned.at or 0)
    is_final = state in FINAL_STATES
    parent = _parent_given(old) if planned.parent is None else planned.parent.old_name
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
        parent_session_name=parent if isinstance(parent, str) and looks_like_ref(parent) else None,
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
    return _STATES.get(str(status).strip().lower(), State.ACTIVE)


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
        data = {
            name: _decoded(value, "{[") if isinstance(value, str) else _plain(value)
            for name, value in event.items()
            if value is not None and name != "session_id"
        }
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
    match content:
        case [{"type": "text", "text": text, **others}] if not others:
            content = text
    try:
        message = check_message({"role": role, "content": content})
    except MoorageError:
        return None
    return message.role, message.content


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
