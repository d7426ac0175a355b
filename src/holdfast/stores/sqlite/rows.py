"""Rows to values and back. Instants are microseconds since 1970; JSON is decoded by type."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.core.approval import Approval
from holdfast.core.context import ContextItem
from holdfast.core.entry import Entry, Kind
from holdfast.core.errors import SessionCorrupt
from holdfast.core.family import Tombstone
from holdfast.core.session import Hold, Phase, Session, State

Row = tuple[Any, ...]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SYSTEM = "system"
_CURSOR_BITS = 40

# In the order of Session's fields, so that rows become sessions by position.
HEAD = (
    "id, task, root_id, created_at, updated_at, last_activity_at, name, agent, purpose, project_dir, owner, state, "
    "phase, resume_ready, interface, parent_id, parent_name, depth, forked_from, version, last_entry, error_count, "
    "last_error, metadata, expires_at, finalized_at, duration_seconds, summary, holder, hold_until, hold_token, "
    "pending_approvals, suspended_by, phase_before, last_checkpoint, context_version, launched, live_turn, turns, epoch"
)
HEAD_WITH_PK = f"{HEAD}, pk"
HEAD_OF_S = ", ".join(f"s.{column}" for column in HEAD_WITH_PK.split(", "))
ENTRY = "number, kind, at, role, content, data, by, interface, client_key"
ENTRY_OF_E = ", ".join(f"e.{column}" for column in ENTRY.split(", "))
RARE = "kind <> 'message' AND kind <> 'created'"  # as the partial index on kinds says it
TOMBSTONE = "n, id, name, agent, task, state, root_of_deletion, deleted_at, deleted_by, reason"
TOMBSTONE_OF_T = ", ".join(f"t.{column}" for column in TOMBSTONE.split(", ")[1:])

_STATES = {state.value: state for state in State}
_PHASES = {phase.value: phase for phase in Phase}
_from_timestamp = datetime.fromtimestamp
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_decode_parts = msgspec.json.Decoder(list[dict[str, Any]]).decode
_decode_any = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


_decode_approval = msgspec.json.Decoder(Approval).decode


def micros(at: datetime) -> int:
    """An instant as stored."""
    delta = at - _EPOCH
    return (delta.days * 86400 + delta.seconds) * 1_000_000 + delta.microseconds


def micros_or_none(at: datetime | None) -> int | None:
    """An instant that may be missing, as stored."""
    return None if at is None else micros(at)


def instant(stored: int) -> datetime:
    """A stored instant. A float of this size still tells microseconds apart until the year 2242."""
    return _from_timestamp(stored / 1e6, UTC)


def instant_or_none(stored: int | None) -> datetime | None:
    """A stored instant that may be missing."""
    return None if stored is None else _from_timestamp(stored / 1e6, UTC)


def session_of(row: Row) -> Session:
    """A session from the columns of HEAD_WITH_PK; SessionCorrupt if they make none."""
    (
        id_, task, root_id, created_at, updated_at, last_activity_at, name, agent, purpose, project_dir, owner, state,
        phase, resume_ready, interface, parent_id, parent_name, depth, forked_from, version, last_entry, error_count,
        last_error, metadata, expires_at, finalized_at, duration_seconds, summary, holder, hold_until, hold_token,
        pending_approvals, suspended_by, phase_before, last_checkpoint, context_version, launched, live_turn, turns,
        epoch, _,
    ) = row  # fmt: skip
    try:
        updated = _from_timestamp(updated_at / 1e6, UTC)
        active = updated if last_activity_at == updated_at else _from_timestamp(last_activity_at / 1e6, UTC)
        return Session(
            id_, task, root_id or id_, _from_timestamp(created_at / 1e6, UTC), updated, active, name, agent, purpose,
            project_dir, owner, _STATES[state], _PHASES[phase], resume_ready == 1, interface, parent_id, parent_name,
            depth, forked_from, version, last_entry, error_count, last_error,
            {} if metadata == "{}" else _decode_object(metadata),
            None if expires_at is None else instant(expires_at),
            None if finalized_at is None else instant(finalized_at), duration_seconds, summary,
            None if holder is None else Hold(holder, instant(hold_until), hold_token), pending_approvals, suspended_by,
            None if phase_before is None else _PHASES[phase_before], last_checkpoint, context_version, launched == 1,
            live_turn, turns, epoch,
        )  # fmt: skip
    except (KeyError, ValueError, TypeError, OverflowError) as error:  # DecodeError is a ValueError
        raise SessionCorrupt(id_, f"{type(error).__name__}: {error}") from error


def metadata_text(session: Session) -> str:
    """Metadata as stored."""
    return _encode(session.metadata).decode() if session.metadata else "{}"


# Entries ----------------------------------------------------------------------------------------


def feed_base(owner_no: int) -> int:
    """Where an owner's part of the feed begins; cursor c has this id plus c."""
    return owner_no << _CURSOR_BITS


def feed_end_id(owner_no: int) -> int:
    """Where it ends: above all of that owner's ids."""
    return (owner_no + 1) << _CURSOR_BITS


def entry_row(entry: Entry, segment: int, at: int) -> Row:
    """An entry as its segment and the columns of ENTRY; `at` is its time, as stored."""
    kind, content, data = entry.kind, entry.content, entry.data
    if kind == "message":
        if entry.role == "system":
            kind = _SYSTEM
        if type(content) is str:
            text, json = content, None
        else:
            text, json = None, _encode(content).decode()
    else:
        text, json = None, None if data is None else _encode(data).decode()
    return (
        segment, entry.number, kind, at, entry.role, text, json, entry.by, entry.interface, entry.client_key,
    )  # fmt: skip


def entry_of(row: Row, session_id: str, task_id: str) -> Entry:
    """An entry from the columns of ENTRY; SessionCorrupt if they make none."""
    return entries_of([row], session_id, task_id)[0]


def entries_of(rows: list[Row], session_id: str, task_id: str) -> list[Entry]:
    """Entries from the columns of ENTRY, one loop for all: this is what reading a history costs."""
    entries, last_at, when = [], None, _EPOCH
    for number, kind, at, role, content, data, by, interface, client_key in rows:
        if data is not None:
            content, data = _decoded(session_id, number, role, content, data)
        if at != last_at:  # what was said together has one time
            last_at, when = at, _from_timestamp(at / 1e6, UTC)
        shown = "message" if kind == _SYSTEM else kind
        entries.append(Entry(number, shown, when, role, content, data, by, interface, client_key, session_id, task_id))
    return entries


def _decoded(session_id: str, number: int, role: str | None, content: Any, data: str) -> tuple[Any, Any]:
    """Content and data of an entry that is more than text."""
    try:
        return (content, _decode_object(data)) if role is None else (_decode_parts(data), None)
    except msgspec.DecodeError as error:
        raise SessionCorrupt(session_id, f"entry {number}: {error}") from error


def stored_kinds(kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Kinds as the column has them: messages are of two."""
    known = tuple(kind for kind in kinds if kind != _SYSTEM)
    return (*known, _SYSTEM) if Kind.MESSAGE in known else known


# The rest ---------------------------------------------------------------------------------------


def item_of(row: Row) -> tuple[str, ContextItem]:
    """A context item from key, value, version, updated_at, expires_at."""
    key, value, version, updated_at, expires_at = row
    return key, ContextItem(
        value=_decode_any(value),
        version=version,
        updated_at=instant(updated_at),
        expires_at=instant_or_none(expires_at),
    )


def json_text(value: Any) -> str:
    """A JSON value as stored."""
    return _encode(value).decode()


def approval_of(body: str) -> Approval:
    """An approval from its body."""
    return _decode_approval(body)


def tombstone_of(row: Row) -> Tombstone:
    """A tombstone from the columns of TOMBSTONE, without the first."""
    id_, name, agent, task, state, root, deleted_at, deleted_by, reason = row
    return Tombstone(
        session_id=id_,
        session_name=name,
        agent_name=agent,
        task_id=task,
        state=state,
        root_of_deletion=root,
        deleted_at=instant(deleted_at),
        deleted_by=deleted_by,
        reason=reason,
    )
