"""Import: whole sessions, from our own exports or from the histories of other programs.

Each session is imported completely or not at all. A session that exists already stays as it is, so importing twice
changes nothing. An export of ours is refused at its first error. Of other histories (`histories`) the valid sessions
are imported; the report lists everything left out, with its place and the reason.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from math import inf

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from moorage.core.approval import Approval
from moorage.core.brief import brief
from moorage.core.bundle import Bundle, check_bundle
from moorage.core.codec import NOT_JSON, check_items
from moorage.core.context import ContextItem, items_in, record_of
from moorage.core.entry import Entry
from moorage.core.errors import (
    ApprovalNotFound,
    Conflict,
    InvalidImport,
    InvalidRequest,
    NotFound,
    ParentNotFound,
    SessionNotFound,
)
from moorage.core.record import CONTEXT, Record
from moorage.core.session import Session
from moorage.service.deps import Caller, Deps
from moorage.service.transfer import FORMAT

MAX_EMPTY = 10_000  # lines without content
TOO_LARGE = "a request; bring it in with `moorage import` where the store is"
MAX_TOLD = 100  # the report lists this many omissions and counts the rest


class LeftOut(Struct, frozen=True, kw_only=True):
    """Something that was not imported, or not completely."""

    file: str
    line: int | None = None
    reason: str


class Notes(Struct, kw_only=True):
    """The omissions of one file, and counts of ignored lines that belong to no session."""

    left_out: list[LeftOut] = field(default_factory=list)
    left_out_total: int = 0
    passed_over: dict[str, int] = field(default_factory=dict)

    def pass_over(self, kind: str, count: int = 1) -> None:
        """Count lines of a kind that is ignored on purpose."""
        if count:
            self.passed_over[kind] = self.passed_over.get(kind, 0) + count


@brief("imported", "already_there", "entries", "left_out_total")
class ImportReport(Struct, kw_only=True):
    """The result of an import."""

    imported: list[str] = field(default_factory=list)
    already_there: list[str] = field(default_factory=list)
    entries: int = 0
    left_out: list[LeftOut] = field(default_factory=list)
    left_out_total: int = 0
    passed_over: dict[str, int] = field(default_factory=dict)

    def take(self, notes: Notes | ImportReport) -> None:
        """Add the notes of one file, or of another import."""
        self.left_out += notes.left_out[: MAX_TOLD - len(self.left_out)]
        self.left_out_total += notes.left_out_total
        for kind, count in notes.passed_over.items():
            self.passed_over[kind] = self.passed_over.get(kind, 0) + count

    def add(self, other: ImportReport) -> None:
        """Add the report of another import."""
        self.imported += other.imported
        self.already_there += other.already_there
        self.entries += other.entries
        self.take(other)


class History(Struct, kw_only=True):
    """The sessions of one file of another program, parents first, and notes."""

    file: str
    bundles: list[Bundle] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)

    def leave_out(self, reason: str, line: int | None = None) -> None:
        """Note an omission."""
        self.notes.left_out_total += 1
        if len(self.notes.left_out) < MAX_TOLD:
            self.notes.left_out.append(LeftOut(file=self.file, line=line, reason=reason))


# Importing --------------------------------------------------------------------------------------


async def import_lines(
    deps: Deps, caller: Caller, lines: Iterable[str | bytes], *, detach: bool = False, dry_run: bool = False
) -> ImportReport:
    """Import exported sessions, each completely or not at all. Importing twice changes nothing.

    With `detach`, sessions whose parent does not exist here become roots instead of being refused.
    """
    report = ImportReport()
    for bundle in exported(check_items(lines, "lines")):
        await bring_in(deps, caller, bundle, report, detach=detach, dry_run=dry_run)
    return report


async def bring_in(
    deps: Deps, caller: Caller, bundle: Bundle, report: ImportReport, *, detach: bool = False, dry_run: bool = False
) -> bool:
    """Import one session and count it; return False if it exists already."""
    whole = _without_secrets(deps, bundle)[0]
    whole = replace(whole, session=await _placed(deps, caller, whole.session, detach=detach))
    await _check_approvals_are_its_own(deps, caller, whole)
    new = _would_come(deps, caller, whole, report) if dry_run else deps.store.restore(caller.owner, whole)
    if not await new:
        report.already_there.append(whole.session.session_id)
        return False
    report.imported.append(whole.session.session_id)
    report.entries += len(whole.entries)
    return True


async def bring_in_history(
    deps: Deps, caller: Caller, history: History, report: ImportReport, *, detach: bool = False, dry_run: bool = False
) -> None:
    """Import the sessions of one file. The report lists refused sessions; only a failing store is an error.

    The notes of a file are dropped if all of its sessions exist already: its first import reported them.
    """
    notes, is_news = history.notes, not history.bundles
    for bundle in history.bundles:
        try:
            own = await _as_our_own(deps, caller, bundle, notes)
            is_news |= await bring_in(deps, caller, own, report, detach=detach, dry_run=dry_run)
        except ParentNotFound as error:
            why = f"its parent {error.parent} is not there; detached, it can come in as a root"
            history.leave_out(f"session {bundle.session.session_id}: {why}")
            is_news = True
        except (InvalidRequest, NotFound, Conflict) as error:
            history.leave_out(f"session {bundle.session.session_id}: {error.message}")
            is_news = True
    if is_news:
        report.take(notes)


async def import_histories(
    deps: Deps, caller: Caller, lines: AsyncIterator[bytes], *, detach: bool = False, dry_run: bool = False
) -> ImportReport:
    """Import histories, read from files elsewhere, one a line; leave out sessions that no rule of ours allows."""
    report, decoder, number = ImportReport(), msgspec.json.Decoder(History), 0
    async for line in lines:
        number += 1
        try:
            history = decoder.decode(line)
        except NOT_JSON as error:
            raise InvalidImport(f"not the content of a file ({error})", line=number) from None
        sound = replace(history, bundles=[bundle for bundle in history.bundles if _is_sound(bundle, history)])
        await bring_in_history(deps, caller, sound, report, detach=detach, dry_run=dry_run)
    return report


def _is_sound(bundle: Bundle, history: History) -> bool:
    try:
        check_bundle(bundle)
    except InvalidRequest as error:
        history.leave_out(f"session {bundle.session.session_id}: {error.message}")
        return False
    return True


async def _as_our_own(deps: Deps, caller: Caller, bundle: Bundle, notes: Notes) -> Bundle:
    """Redact a session's metadata and context and give it its parent's task, as `create` would."""
    bundle, redacted = _without_secrets(deps, bundle)
    notes.pass_over("secret", redacted)
    session, task_id = bundle.session, bundle.session.task_id
    if session.parent_session_id is not None:
        with suppress(NotFound):
            task_id = (await deps.store.get(caller.owner, session.parent_session_id)).task_id
    return replace(bundle, session=replace(session, task_id=task_id))


def _without_secrets(deps: Deps, bundle: Bundle) -> tuple[Bundle, int]:
    """Return a bundle with metadata and context redacted as `create` does, and the number of redactions."""
    metadata, redacted = deps.redactor.clean(bundle.session.metadata)
    items = items_in(bundle.records)
    values, forgotten = deps.redactor.clean({key: item.value for key, item in items.items()})
    context = [record_of(key, replace(item, value=values[key])) for key, item in items.items()]
    records = context + [record for record in bundle.records if record.namespace != CONTEXT]
    clean = replace(bundle, session=replace(bundle.session, metadata=metadata), records=records)
    return clean, len(redacted) + len(forgotten)


async def _placed(deps: Deps, caller: Caller, session: Session, *, detach: bool) -> Session:
    """Return the session under its parent as it is in this store, or as a root."""
    own = replace(session, owner=caller.owner, hold=None)
    if session.parent_session_id is None:
        return replace(own, root_session_id=own.session_id, depth=0)
    try:
        parent = await deps.store.get(caller.owner, session.parent_session_id)
    except NotFound:
        if detach:
            return replace(
                own, parent_session_id=None, parent_session_name=None, root_session_id=own.session_id, depth=0
            )
        return own
    return replace(own, root_session_id=parent.root_session_id, depth=parent.depth + 1)


async def _check_approvals_are_its_own(deps: Deps, caller: Caller, bundle: Bundle) -> None:
    """Check that an imported session does not take over the approvals of another session."""
    for approval in bundle.approvals:
        with suppress(ApprovalNotFound):
            known = await deps.store.approval(caller.owner, approval.approval_id)
            if known.session_id != bundle.session.session_id:
                raise InvalidImport(f"approval {approval.approval_id} belongs to session {known.session_id}")


async def _would_come(deps: Deps, caller: Caller, bundle: Bundle, report: ImportReport) -> bool:
    """Return the result of `restore` without importing. Raises SessionGone, ParentNotFound like it."""
    new, parent = bundle.session.session_id, bundle.session.parent_session_id
    with suppress(SessionNotFound):
        if (await deps.store.get(caller.owner, new)).session_id == new:
            return False
    if parent is not None and parent not in report.imported:
        try:
            await deps.store.get(caller.owner, parent)
        except NotFound:
            raise ParentNotFound(parent) from None
    return True


# Our own exports ---------------------------------------------------------------------------------


class _Line(Struct, kw_only=True):
    type: str
    format: int | None = None
    session: Session | None = None
    entry: Entry | None = None
    key: str | None = None
    item: ContextItem | None = None
    approval: Approval | None = None
    record: Record | None = None
    entries: int | None = None


def exported(lines: Iterable[str | bytes], *, max_bytes: float = inf, max_entries: float = inf) -> Iterator[Bundle]:
    """Yield exported sessions one by one. InvalidImport names the line that is invalid or makes a session too large."""
    current: Bundle | None = None
    number = size = 0
    for number, line, length in _parsed(lines):
        size = length if current is None else size + length
        if current is not None and (size > max_bytes or len(current.entries) > max_entries):
            raise InvalidImport(f"session {current.session.session_id} is too large for {TOO_LARGE}", line=number)
        if line.type == "session" and line.session is not None and current is None:
            current = Bundle(session=line.session, entries=[])
        elif current is None:
            raise InvalidImport(f"a line of type {line.type!r} outside a session", line=number)
        elif line.type == "end":
            yield _checked(current, line, number)
            current = None
        else:
            _add(current, line, number)
    if current is not None:
        raise InvalidImport(f"the file ends within session {current.session.session_id}: it was cut short", line=number)


def _parsed(lines: Iterable[str | bytes]) -> Iterator[tuple[int, _Line, int]]:
    decoder = msgspec.json.Decoder(_Line)
    started, empty = False, 0
    for number, text in enumerate(lines, 1):
        if not isinstance(text, (str, bytes)):
            raise InvalidImport("a line is no text", line=number)
        if not text.strip():
            empty += 1
            if empty > MAX_EMPTY:
                raise InvalidImport(f"more than {MAX_EMPTY:,} lines are empty", line=number)
            continue
        try:
            line = decoder.decode(text)
        except NOT_JSON as error:
            raise InvalidImport(f"not a line of an export ({error})", line=number) from None
        if not started:
            _check_header(line, number)
            started = True
        else:
            yield number, line, len(text)
    if not started:
        raise InvalidImport("the file is empty")


def _check_header(line: _Line, number: int) -> None:
    if line.type != "moorage" or line.format is None:
        raise InvalidImport("not an export of Moorage", line=number)
    if line.format > FORMAT:
        raise InvalidImport(f"format {line.format} is newer than this release knows", line=number)


def _add(bundle: Bundle, line: _Line, number: int) -> None:
    if line.type == "entry" and line.entry is not None:
        bundle.entries.append(line.entry)
    elif line.type == "context" and line.key is not None and line.item is not None:
        bundle.records.append(record_of(line.key, line.item))
    elif line.type == "approval" and line.approval is not None:
        bundle.approvals.append(line.approval)
    elif line.type == "record" and line.record is not None:
        bundle.records.append(line.record)
    else:
        raise InvalidImport(f"a line of type {line.type!r} is not expected here", line=number)


def _checked(bundle: Bundle, end: _Line, number: int) -> Bundle:
    if not end.entries == len(bundle.entries) == bundle.session.last_entry:
        raise InvalidImport(f"session {bundle.session.session_id} does not have all its entries", line=number)
    try:
        check_bundle(bundle)
    except InvalidRequest as error:
        raise InvalidImport(f"session {bundle.session.session_id}: {error.message}", line=number) from error
    return bundle
