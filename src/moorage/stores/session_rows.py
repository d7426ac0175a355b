"""Convert rows of sessions to values and back.

COLUMNS maps each field of a session to its column. The statements for heads are built from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from moorage.core.errors import SessionCorrupt
from moorage.core.query import SessionQuery
from moorage.core.session import FINAL_STATES, Hold, Phase, Session, State
from moorage.core.status import Child, LastRun
from moorage.stores.rows import TILDE, Row, head_text, instant, json_text, micros, micros_or_none, opened_head_text

if TYPE_CHECKING:
    from moorage.stores.sealing import Sealer

_STATES = {state.value: state for state in State}
_PHASES = {phase.value: phase for phase in Phase}
_from_timestamp = datetime.fromtimestamp
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_decode_labels = msgspec.json.Decoder(list[str]).decode
_decode_last_run = msgspec.json.Decoder(LastRun).decode


class ColumnPart(Enum):
    """When a column is written again after the session was created."""

    FIXED = "never"
    MOVING = "with every change of the head"
    STATE = "when the state changes"  # otherwise its indexes are not touched
    TURNS = "when a run or a turn changes"  # likewise


class Column(NamedTuple):
    """A column of the table of sessions, and the field it stores."""

    name: str
    field: str
    part: ColumnPart
    encode: Callable[[Any], Any] | None = None  # converts the field's value, unless it is stored unchanged
    is_sealed: bool = False  # whether the text is sealed if bodies are
    is_read: bool = True  # False if it is there only for an index


_F, _M, _S, _T = ColumnPart.FIXED, ColumnPart.MOVING, ColumnPart.STATE, ColumnPart.TURNS
# In the order of Session's fields, so that rows become sessions by position.
COLUMNS = (
    Column("id", "session_id", _F),
    Column("task", "task_id", _F),
    Column("created_at", "created_at", _F, micros),
    Column("updated_at", "updated_at", _M, micros),
    Column("last_activity_at", "last_activity_at", _M, micros),
    Column("name", "session_name", _F),
    Column("agent", "agent_name", _F),
    Column("purpose", "purpose", _F, is_sealed=True),
    Column("project_dir", "project_dir", _F),
    Column("owner", "owner", _F),
    Column("state", "state", _S),
    Column("phase", "phase", _M),
    Column("resume_ready", "resume_ready", _M),
    Column("interface", "interface", _F),
    Column("parent_id", "parent_session_id", _F),
    Column("parent_name", "parent_session_name", _F),
    Column("depth", "depth", _F),
    Column("forked_from", "forked_from", _F),
    Column("version", "version", _M),
    Column("last_entry", "last_entry", _M),
    Column("error_count", "error_count", _M),
    Column("last_error", "last_error", _M, is_sealed=True),
    Column("metadata", "metadata", _M, lambda values: json_text(values) if values else "{}"),
    Column("labels", "labels", _M, lambda labels: json_text(labels) if labels else "[]"),
    Column("expires_at", "expires_at", _F, micros_or_none),
    Column("finalized_at", "finalized_at", _S, micros_or_none),
    Column("duration_seconds", "duration_seconds", _M),
    Column("summary", "summary", _M, is_sealed=True),
    Column("holder", "hold", _M, lambda hold: hold and hold.holder),
    Column("hold_until", "hold", _M, lambda hold: hold and micros(hold.until)),
    Column("hold_token", "hold", _M, lambda hold: hold and str(hold.token)),
    Column("pending_approvals", "pending_approvals", _M),
    Column("suspended_by", "suspended_by", _M),
    Column("phase_before", "phase_before", _M),
    Column("last_checkpoint", "last_checkpoint", _M),
    Column("context_version", "context_version", _M),
    Column("launched", "launched", _T),
    Column("live_turn", "live_turn", _T),
    Column("turns", "turns", _T),
    Column("epoch", "epoch", _T),
    Column("waits", "waits", _T),
    Column("run_failed", "last_run", _T, lambda last: last is not None and last.state == "failed", is_read=False),
    Column("last_run", "last_run", _T, lambda last: last and json_text(last)),
)


class Columns:
    """Some of the columns: their names, and their values for a session."""

    def __init__(self, *parts: ColumnPart) -> None:
        columns = [column for column in COLUMNS if column.part in parts]
        self.names = [column.name for column in columns]
        self.assignments = ", ".join(f"{name} = ?" for name in self.names)  # of an UPDATE
        self.fields: Callable[[Session], Row] = attrgetter(*[column.field for column in columns])
        self._encoded = [(place, column.encode) for place, column in enumerate(columns) if column.encode]
        self._sealed = [(place, column.name) for place, column in enumerate(columns) if column.is_sealed]

    def values(self, session: Session, sealer: Sealer | None) -> list[Any]:
        """Return the values of a session as stored."""
        values = list(self.fields(session))
        for place, encode in self._encoded:
            values[place] = encode(values[place])
        for place, name in self._sealed:
            if values[place] is not None:
                values[place] = head_text(sealer, values[place], session.session_id, name)
        return values


ALL = Columns(*ColumnPart)
CHANGING = Columns(_M, _S, _T)
# Columns that the store adds at creation: the place in the family, and the shared part of the log.
PLACE = ("parent", "root", "root_id", "shared_upto")


def place_of(new: Session, family: tuple[int | None, int | None], shared_upto: int) -> Sequence[Any]:
    """Return the values of PLACE, from the keys of the parent and the root."""
    parent, root = family
    return parent, root, None if root is None else new.root_session_id, shared_upto


def new_fields(
    new: Session, sealer: Sealer | None, family: tuple[int | None, int | None], shared_upto: int
) -> dict[str, Any]:
    """Return all columns of a new session, by their names."""
    place = zip(PLACE, place_of(new, family, shared_upto), strict=True)
    return {**dict(zip(ALL.names, ALL.values(new, sealer), strict=True)), **dict(place)}


# Reading ----------------------------------------------------------------------------------------

_READ = [column.name for column in COLUMNS if column.is_read]
_STORED = [*_READ[:2], "root_id", *_READ[2:]]
# The oldest child that still has to call back, as `session run`. Children of a stopped run do not count.
_CHILD = """
    SELECT (SELECT c.id FROM {schema}sessions c WHERE c.owner = r.owner AND c.pk = r.session) || ' ' || r.id
    FROM {schema}runs r WHERE r.owner = {head}.owner AND r.parent = {head}.id AND r.state IN ('queued', 'running')
        AND r.mode = 'async_callback' AND NOT EXISTS (
            SELECT 1 FROM {schema}runs p WHERE p.owner = r.owner AND p.id = r.parent_run AND p.state = 'stopped'
        )
    ORDER BY r.n LIMIT 1
"""
_APPROVAL = """
    SELECT a.id FROM {schema}approvals a WHERE a.owner = {head}.owner AND a.session = {head}.pk AND a.state = 'pending'
    ORDER BY a.n LIMIT 1
"""


def head_columns(alias: str = "", schema: str = "") -> str:
    """Return the columns that `session_of` reads, of the table `sessions` or its alias; the key comes last."""
    prefix, names = f"{alias}." if alias else "", {"head": alias or "sessions", "schema": schema}
    stored = ", ".join(prefix + column for column in _STORED)
    approval = f"CASE WHEN {prefix}pending_approvals > 0 THEN ({_APPROVAL.format(**names)}) END"
    child = f"CASE WHEN {prefix}finalized_at IS NULL THEN ({_CHILD.format(**names)}) END"
    return f"{stored}, {approval}, {child}, {prefix}pk"


def status_conditions(schema: str = "", yes: str = "") -> dict[str, str]:
    """Return the conditions of the statuses that are more than a state; `yes` is the form that partial indexes use."""
    child = f"EXISTS ({_CHILD.format(head='sessions', schema=schema)})"
    free = "finalized_at IS NULL AND pending_approvals = 0 AND live_turn IS NULL"
    awake = f"{free} AND state IN ('created', 'active')"
    quiet = f"NOT waits AND NOT {child}"
    return {
        "waiting": f"finalized_at IS NULL AND (pending_approvals > 0 OR {awake} AND {child})",
        "running": "finalized_at IS NULL AND pending_approvals = 0 AND live_turn IS NOT NULL",
        "suspended": f"{free} AND state = 'suspended'",
        "queued": f"{awake} AND waits{yes} AND NOT {child}",
        "run_failed": f"{awake} AND run_failed{yes} AND {quiet}",
        "created": f"{free} AND state = 'created' AND {quiet} AND NOT run_failed",
        "idle": f"{free} AND state = 'active' AND {quiet} AND NOT run_failed",
    }


def session_of(row: Row, sealer: Sealer | None) -> Session:
    """Return a session from the columns of `head_columns`. Raises SessionCorrupt if they are invalid."""
    (
        id_, task, root_id, created_at, updated_at, last_activity_at, name, agent, purpose, project_dir, owner, state,
        phase, resume_ready, interface, parent_id, parent_name, depth, forked_from, version, last_entry, error_count,
        last_error, metadata, labels, expires_at, finalized_at, duration_seconds, summary, holder, hold_until,
        hold_token, pending_approvals, suspended_by, phase_before, last_checkpoint, context_version, launched,
        live_turn, turns, epoch, waits, last_run, awaited_approval, awaited_child, _,
    ) = row  # fmt: skip
    try:
        if purpose is not None and purpose[:1] == TILDE:
            purpose = opened_head_text(sealer, purpose, id_, "purpose")
        if last_error is not None and last_error[:1] == TILDE:
            last_error = opened_head_text(sealer, last_error, id_, "last_error")
        if summary is not None and summary[:1] == TILDE:
            summary = opened_head_text(sealer, summary, id_, "summary")
        updated = _from_timestamp(updated_at / 1e6, UTC)
        active = updated if last_activity_at == updated_at else _from_timestamp(last_activity_at / 1e6, UTC)
        return Session(
            id_, task, root_id or id_, _from_timestamp(created_at / 1e6, UTC), updated, active, name, agent, purpose,
            project_dir, owner, _STATES[state], _PHASES[phase], resume_ready == 1, interface, parent_id, parent_name,
            depth, forked_from, version, last_entry, error_count, last_error,
            {} if metadata == "{}" else _decode_object(metadata),
            [] if labels == "[]" else _decode_labels(labels),
            None if expires_at is None else instant(expires_at),
            None if finalized_at is None else instant(finalized_at), duration_seconds, summary,
            None if holder is None else Hold(holder, instant(hold_until), hold_token), pending_approvals, suspended_by,
            None if phase_before is None else _PHASES[phase_before], last_checkpoint, context_version, launched == 1,
            live_turn, turns, epoch, waits == 1, None if last_run is None else _decode_last_run(last_run),
            awaited_approval, None if awaited_child is None else Child(*awaited_child.split(" ")),
        )  # fmt: skip
    except (KeyError, ValueError, TypeError, OverflowError) as error:  # DecodeError is a ValueError
        raise SessionCorrupt(id_, f"{type(error).__name__}: {error}") from error


def sessions_of(rows: list[Row], sealer: Sealer | None) -> list[Session]:
    """Return the sessions that can be read. A damaged one must not hide the others; `check` names it."""
    try:
        return [session_of(row, sealer) for row in rows]
    except SessionCorrupt:
        sessions = []
        for row in rows:
            with suppress(SessionCorrupt):
                sessions.append(session_of(row, sealer))
        return sessions


# Lists ------------------------------------------------------------------------------------------

TIMES = (  # filters of a query, and their conditions
    ("created_after", "created_at > ?"),
    ("created_before", "created_at < ?"),
    ("updated_after", "updated_at > ?"),
    ("updated_before", "updated_at < ?"),
)


def states_of(query: SessionQuery) -> list[str]:
    """Return the states that a query includes."""
    states = [state.value for state in State if not (query.active_only and state in FINAL_STATES)]
    return states if query.state is None else [state for state in states if state == query.state]
