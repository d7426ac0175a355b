"""Export and import of whole sessions, as JSON lines; as Markdown, an export is for people.

The first line is a header. For each session follow its head, its entries, context and approvals, and a line that
counts them, so that a truncated file is detected. Secrets in tool inputs are redacted.

Sessions come from our own exports or from the histories of other programs. Each is imported completely or not at all.
A session that exists already stays as it is, so importing twice changes nothing. An export of ours is refused at its
first error. Of other histories (`histories`) the valid sessions are imported; the report lists everything left out,
with its place and the reason.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from math import inf
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from moorage.core.approval import Approval, ApprovalQuery
from moorage.core.brief import brief
from moorage.core.bundle import Bundle, as_restored, check_bundle
from moorage.core.codec import NOT_JSON, check_items, encode_text
from moorage.core.context import WHOLE, ContextItem, items_in, record_of
from moorage.core.entry import Entry, Kind
from moorage.core.errors import (
    ApprovalNotFound,
    Conflict,
    InvalidImport,
    InvalidRequest,
    NotFound,
    ParentNotFound,
    SessionNotFound,
    utc_text,
)
from moorage.core.query import LogQuery
from moorage.core.record import CONTEXT, Record, RecordQuery
from moorage.core.session import Session
from moorage.service.deps import Caller, Deps
from moorage.service.family import MAX_TREE

FORMAT = 1
PAGE = 500
RECORDS_PAGE = 50  # values may be large
MAX_EMPTY = 10_000  # lines without content
TOO_LARGE = "a request; bring it in with `moorage import` where the store is"
MAX_TOLD = 100  # the report lists this many omissions and counts the rest


async def export_lines(deps: Deps, caller: Caller, ref: str, *, tree: bool = False) -> AsyncIterator[str]:
    """Yield a session (with its tree) as JSON lines; importing them gives an equal session."""
    root = await deps.store.get(caller.owner, ref)
    sessions = await deps.store.tree(caller.owner, root.session_id, MAX_TREE) if tree else [root]
    yield first_line()
    for session in sessions:
        async for line in _session_lines(deps, caller, session):
            yield line


def first_line() -> str:
    """Return the header of an export."""
    return _line("moorage", format=FORMAT)


def bundle_lines(bundle: Bundle) -> Iterator[str]:
    """Yield the lines of a session that was read from lines."""
    yield _head_line(bundle.session)
    for entry in bundle.entries:
        yield _line("entry", entry=entry)
    yield from _facts_lines(bundle)
    for record in bundle.records:
        yield _line("record", record=record)
    yield _line("end", session_id=bundle.session.session_id, entries=len(bundle.entries))


def _line(kind: str, **content: Any) -> str:
    return encode_text({"type": kind, **content})


def _head_line(session: Session) -> str:
    """Return the head for import: without what launchers do with it in this store."""
    head = replace(as_restored(session, session.owner), hold=None, redacted=())
    return _line("session", session=msgspec.to_builtins(head))


def _facts_lines(bundle: Bundle) -> Iterator[str]:
    for key, item in items_in(bundle.records).items():
        yield _line("context", key=key, item=item)
    for approval in bundle.approvals:
        yield _line("approval", approval=approval)


async def _session_lines(deps: Deps, caller: Caller, session: Session) -> AsyncIterator[str]:
    whole = await _without_entries(deps, caller, session.session_id)
    yield _head_line(whole.session)
    count = 0
    async for entry in _entries(deps, caller, whole.session):
        yield _line("entry", entry=_without_secrets(deps, entry))
        count += 1
    for line in _facts_lines(whole):
        yield line
    async for record in _records(deps, caller, session.session_id):
        yield _line("record", record=record)
    yield _line("end", session_id=whole.session.session_id, entries=count)


async def _without_entries(deps: Deps, caller: Caller, session_id: str) -> Bundle:
    """Return head, context and approvals of one instant: read them again if something changed meanwhile."""
    store, owner = deps.store, caller.owner
    head = await store.get(owner, session_id)
    while True:
        context = await store.list_records(owner, session_id, WHOLE, deps.clock.now())
        every = ApprovalQuery(session_id=session_id, pending_only=False, limit=MAX_TREE)
        approvals = await store.approvals(owner, every)
        before, head = head, await store.get(owner, session_id)
        if (head.version, head.context_version) == (before.version, before.context_version):
            return Bundle(session=head, entries=[], records=context, approvals=approvals)


async def _records(deps: Deps, caller: Caller, session_id: str) -> AsyncIterator[Record]:
    """Yield the records of a session that have not expired, except its context, a page at a time."""
    query: RecordQuery | None = RecordQuery(limit=RECORDS_PAGE)
    while query is not None:
        page = await deps.store.list_records(caller.owner, session_id, query, deps.clock.now())
        for record in page:
            if record.namespace != CONTEXT:
                yield record
        query = replace(query, after=page[-1].name) if len(page) == RECORDS_PAGE else None


async def _entries(deps: Deps, caller: Caller, session: Session) -> AsyncIterator[Entry]:
    after = 0
    while after < session.last_entry:  # the head was read first: entries appended since are left out
        query = LogQuery(after=after, before=session.last_entry + 1, limit=PAGE)
        page = await deps.store.log(caller.owner, session.session_id, query)
        if not page:
            return
        for entry in page:
            yield entry
        after = page[-1].number


def _without_secrets(deps: Deps, entry: Entry) -> Entry:
    if not isinstance(entry.content, list):
        return entry
    return replace(entry, content=deps.redactor.clean({"parts": entry.content})[0]["parts"])


# Markdown ---------------------------------------------------------------------------------------


async def export_markdown(deps: Deps, caller: Caller, ref: str, *, tree: bool = False) -> AsyncIterator[str]:
    """Yield a session (with its tree) as Markdown pages."""
    root = await deps.store.get(caller.owner, ref)
    for session in await deps.store.tree(caller.owner, root.session_id, MAX_TREE) if tree else [root]:
        yield f"# {session.session_name or session.session_id}\n"
        facts = (
            ("Session", session.session_id),
            ("Agent", session.agent_name),
            ("Task", session.task_id),
            ("State", session.state.value),
            ("Phase", session.phase.value),
            ("Created", utc_text(session.created_at)),
            ("Summary", session.summary),
        )
        yield "\n".join(f"- **{name}**: {value}" for name, value in facts if value) + "\n"
        async for entry in _entries(deps, caller, session):
            yield _markdown(_without_secrets(deps, entry))


def _markdown(entry: Entry) -> str:
    when = utc_text(entry.at.replace(microsecond=0))
    if entry.kind != Kind.MESSAGE:
        return f"*{entry.number} · {when} · {entry.kind}: {encode_text(entry.data or {})}*\n"
    parts = entry.content if isinstance(entry.content, list) else [{"type": "text", "text": entry.content}]
    return f"## {entry.number} · {entry.role} · {when}\n\n" + "\n\n".join(map(_markdown_part, parts)) + "\n"


def _markdown_part(part: dict[str, Any]) -> str:
    if part.get("type") == "text":
        return str(part["text"])
    return f"```json\n{encode_text(part)}\n```"


FORMATS = {"jsonl": export_lines, "markdown": export_markdown}


# Reports ----------------------------------------------------------------------------------------


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
    importer = Importer(deps, caller, detach=detach, dry_run=dry_run)
    for bundle in exported(check_items(lines, "lines")):
        await importer.bring_in(bundle)
    return importer.report


async def import_histories(
    deps: Deps, caller: Caller, lines: AsyncIterator[bytes], *, detach: bool = False, dry_run: bool = False
) -> ImportReport:
    """Import histories, read from files elsewhere, one a line; leave out sessions that no rule of ours allows."""
    importer, decoder, number = Importer(deps, caller, detach=detach, dry_run=dry_run), msgspec.json.Decoder(History), 0
    async for line in lines:
        number += 1
        try:
            history = decoder.decode(line)
        except NOT_JSON as error:
            raise InvalidImport(f"not the content of a file ({error})", line=number) from None
        sound = replace(history, bundles=[bundle for bundle in history.bundles if _is_sound(bundle, history)])
        await importer.bring_in_history(sound)
    return importer.report


def _is_sound(bundle: Bundle, history: History) -> bool:
    try:
        check_bundle(bundle)
    except InvalidRequest as error:
        history.leave_out(f"session {bundle.session.session_id}: {error.message}")
        return False
    return True


class Importer(Struct):
    """Imports sessions one by one, and reports them."""

    deps: Deps
    caller: Caller
    report: ImportReport = field(default_factory=ImportReport)
    detach: bool = False
    dry_run: bool = False

    async def bring_in(self, bundle: Bundle) -> bool:
        """Import one session and count it; return False if it exists already."""
        whole = self._without_secrets(bundle)[0]
        whole = replace(whole, session=await self._placed(whole.session))
        await self._check_approvals_are_its_own(whole)
        new = self._would_come(whole) if self.dry_run else self.deps.store.restore(self.caller.owner, whole)
        if not await new:
            self.report.already_there.append(whole.session.session_id)
            return False
        self.report.imported.append(whole.session.session_id)
        self.report.entries += len(whole.entries)
        return True

    async def bring_in_history(self, history: History) -> None:
        """Import the sessions of one file. The report lists refused sessions; only a failing store is an error.

        The notes of a file are dropped if all of its sessions exist already: its first import reported them.
        """
        notes, is_news = history.notes, not history.bundles
        for bundle in history.bundles:
            try:
                is_news |= await self.bring_in(await self._as_our_own(bundle, notes))
            except ParentNotFound as error:
                why = f"its parent {error.parent} is not there; detached, it can come in as a root"
                history.leave_out(f"session {bundle.session.session_id}: {why}")
                is_news = True
            except (InvalidRequest, NotFound, Conflict) as error:
                history.leave_out(f"session {bundle.session.session_id}: {error.message}")
                is_news = True
        if is_news:
            self.report.take(notes)

    async def _as_our_own(self, bundle: Bundle, notes: Notes) -> Bundle:
        """Redact a session's metadata and context and give it its parent's task, as `create` would."""
        bundle, redacted = self._without_secrets(bundle)
        notes.pass_over("secret", redacted)
        session, task_id = bundle.session, bundle.session.task_id
        if session.parent_session_id is not None:
            with suppress(NotFound):
                task_id = (await self.deps.store.get(self.caller.owner, session.parent_session_id)).task_id
        return replace(bundle, session=replace(session, task_id=task_id))

    def _without_secrets(self, bundle: Bundle) -> tuple[Bundle, int]:
        """Return a bundle with metadata and context redacted as `create` does, and the number of redactions."""
        metadata, redacted = self.deps.redactor.clean(bundle.session.metadata)
        items = items_in(bundle.records)
        values, forgotten = self.deps.redactor.clean({key: item.value for key, item in items.items()})
        context = [record_of(key, replace(item, value=values[key])) for key, item in items.items()]
        records = context + [record for record in bundle.records if record.namespace != CONTEXT]
        clean = replace(bundle, session=replace(bundle.session, metadata=metadata), records=records)
        return clean, len(redacted) + len(forgotten)

    async def _placed(self, session: Session) -> Session:
        """Return the session under its parent as it is in this store, or as a root."""
        own = replace(session, owner=self.caller.owner, hold=None)
        as_root = replace(own, root_session_id=own.session_id, depth=0)
        if session.parent_session_id is None:
            return as_root
        try:
            parent = await self.deps.store.get(self.caller.owner, session.parent_session_id)
        except NotFound:
            return replace(as_root, parent_session_id=None, parent_session_name=None) if self.detach else own
        return replace(own, root_session_id=parent.root_session_id, depth=parent.depth + 1)

    async def _check_approvals_are_its_own(self, bundle: Bundle) -> None:
        """Check that an imported session does not take over the approvals of another session."""
        for approval in bundle.approvals:
            with suppress(ApprovalNotFound):
                known = await self.deps.store.approval(self.caller.owner, approval.approval_id)
                if known.session_id != bundle.session.session_id:
                    raise InvalidImport(f"approval {approval.approval_id} belongs to session {known.session_id}")

    async def _would_come(self, bundle: Bundle) -> bool:
        """Return the result of `restore` without importing. Raises SessionGone, ParentNotFound like it."""
        new, parent = bundle.session.session_id, bundle.session.parent_session_id
        with suppress(SessionNotFound):
            if (await self.deps.store.get(self.caller.owner, new)).session_id == new:
                return False
        if parent is not None and parent not in self.report.imported:
            try:
                await self.deps.store.get(self.caller.owner, parent)
            except NotFound:
                raise ParentNotFound(parent) from None
        return True


# Our own exports ---------------------------------------------------------------------------------


class _ReadLine(Struct, kw_only=True):
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


def _parsed(lines: Iterable[str | bytes]) -> Iterator[tuple[int, _ReadLine, int]]:
    decoder = msgspec.json.Decoder(_ReadLine)
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
        if started:
            yield number, line, len(text)
            continue
        if line.type != "moorage" or line.format is None:
            raise InvalidImport("not an export of Moorage", line=number)
        if line.format > FORMAT:
            raise InvalidImport(f"format {line.format} is newer than this release knows", line=number)
        started = True
    if not started:
        raise InvalidImport("the file is empty")


def _add(bundle: Bundle, line: _ReadLine, number: int) -> None:
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


def _checked(bundle: Bundle, end: _ReadLine, number: int) -> Bundle:
    if not end.entries == len(bundle.entries) == bundle.session.last_entry:
        raise InvalidImport(f"session {bundle.session.session_id} does not have all its entries", line=number)
    try:
        check_bundle(bundle)
    except InvalidRequest as error:
        raise InvalidImport(f"session {bundle.session.session_id}: {error.message}", line=number) from error
    return bundle
