"""A bundle: one session with all its data, for export and import.

A file is untrusted: `check_bundle` refuses every session that the rules could not have produced, so an import
cannot bring in data that `create` and `append` refuse.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime

from msgspec import Struct, field
from msgspec.structs import replace

from moorage.core.approval import Approval, ApprovalState
from moorage.core.context import check_values, items_in
from moorage.core.entry import Entry, Kind, check_message
from moorage.core.errors import InvalidField, ParentNotFound
from moorage.core.ids import check_label, check_session_id, check_session_name
from moorage.core.record import PutRecord, Record, check_restored
from moorage.core.session import FINAL_PHASES, Birth, Change, Session, check_labels, check_metadata, check_text

_FIRST, _LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2242, 1, 1, tzinfo=UTC)  # stores are exact in this range
_MOST = 1 << 53
_is_kind = re.compile(r"[a-z][a-z_]{0,63}").fullmatch


class Bundle(Struct, frozen=True, kw_only=True):
    """A whole session: head, log, approvals, records (and so the context)."""

    session: Session
    entries: list[Entry]
    approvals: list[Approval] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)


def as_restored(session: Session, owner: str) -> Session:
    """Return a session for import. Its runs are not imported, so no launcher works on it here."""
    hold = None if session.live_turn is not None else session.hold  # a turn's hold ends with the turn
    without_work = {"launched": False, "live_turn": None, "turns": 0, "epoch": 0, "waits": False, "last_run": None}
    return replace(session.as_kept(), owner=owner, hold=hold, **without_work)


def restored(bundle: Bundle, birth: Birth, owner: str) -> Change:
    """Return the birth of an imported session. Raises ParentNotFound if its parent is another session of that name."""
    head, parent = as_restored(bundle.session, owner), birth.parent
    if parent is not None and parent.session_id != head.parent_session_id:
        raise ParentNotFound(str(head.parent_session_id))
    return Change(
        session=head,
        entries=tuple(bundle.entries),
        approvals=tuple(bundle.approvals),
        records=tuple(PutRecord(record, 0) for record in bundle.records),
    )


def check_bundle(bundle: Bundle) -> None:
    """Raise InvalidRequest for a session that no rule could have made."""
    session = bundle.session
    _check_head(session)
    if session.last_entry != len(bundle.entries):
        raise InvalidField("last_entry", f"is {session.last_entry}, but there are {len(bundle.entries)} entries")
    for number, entry in enumerate(bundle.entries, 1):
        _check_entry(entry, number)
    checkpoints = {None, *(entry.number for entry in bundle.entries if entry.kind == Kind.CHECKPOINT)}
    if session.last_checkpoint not in checkpoints:
        raise InvalidField("last_checkpoint", f"is {session.last_checkpoint}, which is not a checkpoint")
    _check_approvals(session, bundle.approvals)
    check_restored(bundle.records)
    check_values({key: item.value for key, item in items_in(bundle.records).items()})
    for record in bundle.records:
        _check_count("version", record.version)
        _check_instants(record, "updated_at", "expires_at")


def _check_head(session: Session) -> None:
    check_session_id(session.session_id)
    for name in (session.session_name, session.parent_session_name):
        if name is not None:
            check_session_name(name)
    for ref in (session.parent_session_id, session.root_session_id, session.forked_from):
        if ref is not None:
            check_session_id(ref)
    check_label("task_id", session.task_id)
    for label in ("agent_name", "interface", "suspended_by"):
        if (value := getattr(session, label)) is not None:
            check_label(label, value)
    for text in ("purpose", "project_dir", "last_error", "summary"):
        if (value := getattr(session, text)) is not None:
            check_text(text, value)
    check_metadata(session.metadata)
    if check_labels(session.labels) != session.labels:
        raise InvalidField("labels", "must be sorted, each once")
    for count in ("version", "last_entry", "depth", "error_count", "pending_approvals", "context_version"):
        _check_count(count, getattr(session, count))
    _check_instants(session, "created_at", "updated_at", "last_activity_at", "expires_at", "finalized_at")
    if session.is_final != (session.finalized_at is not None) or session.is_final != (session.phase in FINAL_PHASES):
        raise InvalidField("state", f"is {session.state.value}, which contradicts its phase or its end")


def _check_entry(entry: Entry, number: int) -> None:
    where = f"entry {number}"
    if entry.number != number:
        raise InvalidField("entries", f"are not numbered one after another: {entry.number} where {number} should be")
    _check_instant(where, entry.at)
    for label in (entry.by, entry.interface):
        if label is not None:
            check_label("entry", label)
    if entry.kind == Kind.MESSAGE:
        said = {"role": entry.role, "content": entry.content, "client_key": entry.client_key}
        check_message({key: value for key, value in said.items() if value is not None}, "entry")
        is_plain = entry.data is None and entry.role is not None
    else:
        is_plain = entry.role is entry.content is entry.client_key is None
        if not _is_kind(entry.kind) or entry.kind == "system":
            raise InvalidField("kind", f"is {entry.kind!r} in {where}")
    if not is_plain:
        raise InvalidField("entries", f"mix a message with an event in {where}")
    if entry.kind == Kind.SUMMARY:
        _check_summary(entry, where)


def _check_summary(entry: Entry, where: str) -> None:
    """Check the summary's `upto` and text: windows rely on them."""
    data = entry.data or {}
    if not isinstance(data.get("summary"), str) or type(data.get("upto")) is not int:
        raise InvalidField("summary", f"of {where} does not say what it stands for")
    if not 0 <= data["upto"] < entry.number:
        raise InvalidField("upto", f"is {data['upto']} in {where}: a summary stands for what came before it")


def _check_approvals(session: Session, approvals: list[Approval]) -> None:
    for approval_id, count in Counter(approval.approval_id for approval in approvals).items():
        if count > 1:
            raise InvalidField("approval_id", f"{approval_id!r} comes twice")
    pending = sum(1 for approval in approvals if approval.state is ApprovalState.PENDING)
    if pending != session.pending_approvals:
        raise InvalidField("pending_approvals", f"is {session.pending_approvals}, but {pending} wait for an answer")
    for approval in approvals:
        check_label("approval_id", approval.approval_id)
        if approval.session_id != session.session_id:
            raise InvalidField("session_id", f"of approval {approval.approval_id} is that of another session")
        _check_instants(approval, "asked_at", "expires_at", "decided_at")


def _check_count(name: str, value: int) -> None:
    if not 0 <= value < _MOST:
        raise InvalidField(name, f"is {value}")


def _check_instants(value: object, *names: str) -> None:
    for name in names:
        _check_instant(name, getattr(value, name))


def _check_instant(name: str, at: datetime | None) -> None:
    if at is not None and (at.tzinfo is None or not _FIRST <= at < _LAST):
        raise InvalidField(name.split()[0], f"{name} is {at.isoformat()}; give a time with a time zone")
