"""Sessions that other programs stored without their messages: state files of scripts, and rows with contexts.

A `state.json` has the state of the session and the history of its phases. It is imported completely or not at
all: a contradictory file may contain halves of two concurrent writes.

A row (session_id, context, updated_at; one JSON object a line) becomes a session whose context has the values of the
row, key by key. The context is an object, or the JSON text of one, because some programs store JSON in a text column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain, islice
from typing import Any

import msgspec
from msgspec import Struct

from moorage.core.bundle import Bundle, check_bundle
from moorage.core.codec import NOT_JSON, decode
from moorage.core.context import ContextItem, record_of
from moorage.core.entry import Kind
from moorage.core.errors import MoorageError
from moorage.core.ids import check_label, check_session_id
from moorage.core.session import FINAL_PHASES, RESUMABLE_PHASES, Phase, Session, State
from moorage.service.histories.blocks import decoded
from moorage.service.histories.scribe import Ledger, as_utc
from moorage.service.transfer import History

INTERFACE = "state.json"
KEPT = "imported"  # metadata key for fields that we do not have
ROW_INTERFACE = "import"
AT_ONCE = 500  # rows in memory at a time


class PhaseChange(Struct):
    """One item of the history."""

    to_phase: Phase
    timestamp: datetime
    from_phase: Phase | None = None


class StateFile(Struct):
    """The content of such a file."""

    agent_id: str
    phase: Phase
    created_at: datetime
    agent_name: str | None = None
    purpose: str | None = None
    last_updated: datetime | None = None
    metadata: dict[str, Any] | None = None
    resume_ready: bool | None = None
    history: list[PhaseChange] | None = None
    error_count: int | None = None
    last_error: str | None = None
    finalized_at: datetime | None = None
    duration_seconds: float | None = None
    summary: str | None = None

    @property
    def is_final(self) -> bool:
        """Return whether the work was over."""
        return self.phase in FINAL_PHASES


def read_state(file: str, data: bytes | str, *, folder: str | None = None) -> History:
    """Read the session of one file, or note why it cannot be read. `folder`, if given, has to be the session's id."""
    history = History(file=file)
    try:
        history.bundles.append(_read(data, folder))
    except MoorageError as error:
        history.leave_out(error.message)
    except msgspec.ValidationError as error:
        history.leave_out(f"not the state of a session ({error})")
    except NOT_JSON as error:
        history.leave_out(f"not JSON ({error})")
    except OverflowError:
        history.leave_out("has a time that no clock shows")
    return history


def _read(data: bytes | str, folder: str | None) -> Bundle:
    value = decode(data)
    state = msgspec.convert(value, StateFile)
    check_session_id(state.agent_id)
    if folder is not None and folder != state.agent_id:
        raise msgspec.ValidationError(f"the agent_id is {state.agent_id!r}, but its folder is called {folder!r}")
    bundle = _bundle(state, _unknown(value))
    check_bundle(bundle)
    return bundle


def _unknown(value: dict[str, Any]) -> dict[str, Any]:
    unknown = {key: item for key, item in value.items() if key not in StateFile.__struct_fields__}
    if value["phase"] not in FINAL_PHASES:
        ends = ("finalized_at", "duration_seconds")  # it was over and was continued anyway
        unknown |= {name: value[name] for name in ends if value.get(name) is not None}
    more = [item for item in value.get("history") or () if item.keys() - set(PhaseChange.__struct_fields__)]
    return unknown | ({"history": value["history"]} if more else {})


def _bundle(state: StateFile, unknown: dict[str, Any]) -> Bundle:
    ledger, metadata, key = _ledger(state), state.metadata or {}, KEPT
    while key in metadata:
        key += "_"
    created_at, newest = as_utc(state.created_at), _newest(state)
    end: dict[str, Any] = {}
    if state.is_final:
        finalized_at = newest if state.finalized_at is None else as_utc(state.finalized_at)
        seconds = state.duration_seconds
        if seconds is None or seconds < 0:
            seconds = round((finalized_at - created_at).total_seconds(), 3)
        end = {"finalized_at": finalized_at, "duration_seconds": seconds}
    task = metadata.get("task_id")
    session = Session(
        session_id=state.agent_id,
        task_id=check_label("task_id", task) if isinstance(task, str) and task.strip() else state.agent_id,
        root_session_id=state.agent_id,
        created_at=created_at,
        updated_at=as_utc(state.last_updated) if state.last_updated else newest,
        last_activity_at=newest,
        agent_name=state.agent_name or None,
        purpose=state.purpose,
        state=_state_of(state),
        phase=state.phase,
        resume_ready=state.resume_ready is not False and state.phase in RESUMABLE_PHASES,
        interface=INTERFACE,
        version=ledger.last,
        last_entry=ledger.last,
        error_count=state.error_count or 0,
        last_error=state.last_error,
        metadata=metadata | ({key: unknown} if unknown else {}),
        summary=state.summary,
        **end,
    )
    return Bundle(session=session, entries=ledger.entries)


def _ledger(state: StateFile) -> Ledger:
    """Return the log that this session would have: created, its phases, its last error, its end."""
    ledger = Ledger(INTERFACE)
    ledger.note(Kind.CREATED, as_utc(state.created_at), {"agent_name": state.agent_name, "purpose": state.purpose})
    before, last = list(state.history or ()), None
    if state.is_final and before and before[-1].to_phase is state.phase:
        last = before.pop()
    phase = Phase.INITIALIZING
    for change in before:
        data = {"from": (change.from_phase or phase).value, "to": change.to_phase.value}
        ledger.note(Kind.PHASE, as_utc(change.timestamp), data)
        phase = change.to_phase
    if state.last_error is not None:
        ledger.note(Kind.ERROR, as_utc(state.last_updated or state.created_at), {"error": state.last_error})
    if state.is_final:
        origin = (last.from_phase if last else None) or phase
        end = {"outcome": state.phase.value, "summary": state.summary, "from": origin.value}
        ledger.note(Kind.FINALIZED, as_utc(last.timestamp) if last else _newest(state), end)
    return ledger


def _state_of(state: StateFile) -> State:
    if state.is_final:
        return State(state.phase.value)
    is_new = state.phase is Phase.INITIALIZING and not state.history
    return State.CREATED if is_new else State.ACTIVE


def _newest(state: StateFile) -> datetime:
    """Return the time of the latest activity, rather than of the latest write."""
    times = [change.timestamp for change in state.history or ()]
    if state.is_final:
        times += [at for at in (state.finalized_at, state.last_updated) if at is not None][:1]
    return max(map(as_utc, chain([state.created_at], times)))


# Rows -------------------------------------------------------------------------------------------


class ContextRow(Struct):
    """One row. Other columns are ignored."""

    session_id: str
    context: Any = None
    updated_at: datetime | None = None


def read_rows(file: str, lines: Iterable[bytes], now: datetime) -> Iterator[History]:
    """Yield the sessions of a file in batches; a row without a time gets `now`."""
    numbered = enumerate(lines, 1)
    while some := list(islice(numbered, AT_ONCE)):
        history = History(file=file)
        for number, line in some:
            if line.strip():
                _read_row(history, line, number, now)
        yield history


def _read_row(history: History, line: bytes, number: int, now: datetime) -> None:
    try:
        bundle = _bundle_of(decoded(line, ContextRow), now)
        check_bundle(bundle)
        history.bundles.append(bundle)
    except MoorageError as error:
        history.leave_out(error.message, number)
    except (*NOT_JSON, OverflowError) as error:
        history.leave_out(f"not a row with a session_id and a context ({error})", number)


def _bundle_of(row: ContextRow, now: datetime) -> Bundle:
    context = decode(row.context) if isinstance(row.context, str) else row.context
    if context is None:
        context = {}
    if not isinstance(context, dict):
        raise msgspec.ValidationError(f"the context is not an object but a {type(context).__name__}")
    at = now if row.updated_at is None else as_utc(row.updated_at)
    ledger = Ledger(ROW_INTERFACE)
    ledger.note(Kind.CREATED, at, {"agent_name": None, "purpose": None})
    head = Session(
        session_id=row.session_id,
        task_id=row.session_id,
        root_session_id=row.session_id,
        created_at=at,
        updated_at=at,
        last_activity_at=at,
        interface=ROW_INTERFACE,
        last_entry=ledger.last,
        context_version=len(context) and 1,
    )
    records = [record_of(key, ContextItem(value=value, version=1, updated_at=at)) for key, value in context.items()]
    return Bundle(session=head, entries=ledger.entries, records=records)
