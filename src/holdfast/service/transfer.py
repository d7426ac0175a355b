"""Export and import: whole sessions as JSON lines, and as Markdown for people.

One line says what the file is, then for each session its head, its entries, context and
approvals, and a line that counts them: a file that was cut short is noticed. Secrets in
tool inputs are redacted on the way out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.approval import Approval
from holdfast.core.bundle import Bundle, check_bundle
from holdfast.core.codec import encode_text
from holdfast.core.context import ContextItem
from holdfast.core.entry import Entry, Kind
from holdfast.core.errors import (
    ApprovalNotFound,
    InvalidImport,
    InvalidRequest,
    NotFound,
    ParentNotFound,
    SessionNotFound,
    utc_text,
)
from holdfast.core.session import Session
from holdfast.service.deps import Caller, Deps
from holdfast.service.family import MAX_TREE

FORMAT = 1
PAGE = 500


async def export_lines(deps: Deps, caller: Caller, ref: str, *, tree: bool = False) -> AsyncIterator[str]:
    """A session (with its tree) as JSON lines; importing them gives the same again."""
    root = await deps.store.get(caller.owner, ref)
    sessions = await deps.store.tree(caller.owner, root.session_id, MAX_TREE) if tree else [root]
    yield encode_text({"type": "holdfast", "format": FORMAT})
    for session in sessions:
        async for line in _session_lines(deps, caller, session):
            yield line


async def _session_lines(deps: Deps, caller: Caller, session: Session) -> AsyncIterator[str]:
    whole = await _without_entries(deps, caller, session.session_id)
    head = msgspec.to_builtins(replace(whole.session, hold=None, redacted=()))
    yield encode_text({"type": "session", "session": head})
    count = 0
    async for entry in _entries(deps, caller, whole.session):
        yield encode_text({"type": "entry", "entry": _without_secrets(deps, entry)})
        count += 1
    for key, item in whole.context.items():
        yield encode_text({"type": "context", "key": key, "item": item})
    for approval in whole.approvals:
        yield encode_text({"type": "approval", "approval": approval})
    yield encode_text({"type": "end", "session_id": session.session_id, "entries": count})


async def _without_entries(deps: Deps, caller: Caller, session_id: str) -> Bundle:
    """Head, context and approvals of one instant: read again if something changed meanwhile."""
    store, owner = deps.store, caller.owner
    head = await store.get(owner, session_id)
    while True:
        context = await store.context(owner, session_id, deps.clock.now())
        approvals = await store.approvals(owner, ref=session_id, pending_only=False, limit=MAX_TREE)
        before, head = head, await store.get(owner, session_id)
        if (head.version, head.context_version) == (before.version, before.context_version):
            return Bundle(session=head, entries=[], context=context, approvals=approvals)


async def _entries(deps: Deps, caller: Caller, session: Session) -> AsyncIterator[Entry]:
    after = 0
    while after < session.last_entry:  # the head was read first: what is appended meanwhile is left out
        page = await deps.store.log(
            caller.owner, session.session_id, after=after, before=session.last_entry + 1, limit=PAGE
        )
        if not page:
            return
        for entry in page:
            yield entry
        after = page[-1].number


def _without_secrets(deps: Deps, entry: Entry) -> Entry:
    if not isinstance(entry.content, list):
        return entry
    return replace(entry, content=deps.redactor.clean({"parts": entry.content})[0]["parts"])


class ImportReport(Struct, kw_only=True):
    """What an import did."""

    imported: list[str] = msgspec.field(default_factory=list)
    already_there: list[str] = msgspec.field(default_factory=list)
    entries: int = 0


async def import_lines(
    deps: Deps, caller: Caller, lines: Iterable[str | bytes], *, detach: bool = False, dry_run: bool = False
) -> ImportReport:
    """Bring exported sessions in, each whole or not at all. Importing twice changes nothing.

    With `detach`, sessions whose parent is not there become roots instead of being refused.
    """
    report = ImportReport()
    for bundle in _bundles(lines):
        whole = replace(bundle, session=await _placed(deps, caller, bundle.session, detach=detach))
        await _check_approvals_are_its_own(deps, caller, whole)
        new = _would_come(deps, caller, whole, report) if dry_run else deps.store.restore(caller.owner, whole)
        if await new:
            report.imported.append(whole.session.session_id)
            report.entries += len(whole.entries)
        else:
            report.already_there.append(whole.session.session_id)
    return report


async def _placed(deps: Deps, caller: Caller, session: Session, *, detach: bool) -> Session:
    """The session under its parent as that stands here, or as a root."""
    own = replace(session, owner=caller.owner, hold=None)
    if session.parent_session_id is None:
        return own
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
    """A session that comes in does not take over what another one has asked."""
    for approval in bundle.approvals:
        with suppress(ApprovalNotFound):
            known = await deps.store.approval(caller.owner, approval.approval_id)
            if known.session_id != bundle.session.session_id:
                raise InvalidImport(f"approval {approval.approval_id} belongs to session {known.session_id}")


async def _would_come(deps: Deps, caller: Caller, bundle: Bundle, report: ImportReport) -> bool:
    """What `restore` would answer, given what came before. Raises SessionGone, ParentNotFound as it would."""
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


class _Line(Struct, kw_only=True):
    type: str
    format: int | None = None
    session: Session | None = None
    entry: Entry | None = None
    key: str | None = None
    item: ContextItem | None = None
    approval: Approval | None = None
    entries: int | None = None


def _bundles(lines: Iterable[str | bytes]) -> Iterator[Bundle]:
    """Sessions one after another; InvalidImport names the line where the file is not ours."""
    current: Bundle | None = None
    number = 0
    for number, line in _parsed(lines):
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


def _parsed(lines: Iterable[str | bytes]) -> Iterator[tuple[int, _Line]]:
    decoder = msgspec.json.Decoder(_Line)
    started = False
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            line = decoder.decode(text)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise InvalidImport(f"not a line of an export ({error})", line=number) from None
        if not started:
            _check_header(line, number)
            started = True
        else:
            yield number, line
    if not started:
        raise InvalidImport("the file is empty")


def _check_header(line: _Line, number: int) -> None:
    if line.type != "holdfast" or line.format is None:
        raise InvalidImport("not an export of Holdfast", line=number)
    if line.format > FORMAT:
        raise InvalidImport(f"format {line.format} is newer than this release knows", line=number)


def _add(bundle: Bundle, line: _Line, number: int) -> None:
    if line.type == "entry" and line.entry is not None:
        bundle.entries.append(line.entry)
    elif line.type == "context" and line.key is not None and line.item is not None:
        bundle.context[line.key] = line.item
    elif line.type == "approval" and line.approval is not None:
        bundle.approvals.append(line.approval)
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


# Markdown ---------------------------------------------------------------------------------------


async def export_markdown(deps: Deps, caller: Caller, ref: str, *, tree: bool = False) -> AsyncIterator[str]:
    """A session (with its tree) as pages to read."""
    root = await deps.store.get(caller.owner, ref)
    for session in await deps.store.tree(caller.owner, root.session_id, MAX_TREE) if tree else [root]:
        async for part in _page(deps, caller, session):
            yield part


async def _page(deps: Deps, caller: Caller, session: Session) -> AsyncIterator[str]:
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
    when = _minutes(entry.at)
    if entry.kind != Kind.MESSAGE:
        return f"*{entry.number} · {when} · {entry.kind}: {encode_text(entry.data or {})}*\n"
    parts = entry.content if isinstance(entry.content, list) else [{"type": "text", "text": entry.content}]
    return f"## {entry.number} · {entry.role} · {when}\n\n" + "\n\n".join(map(_markdown_part, parts)) + "\n"


def _markdown_part(part: dict[str, Any]) -> str:
    if part.get("type") == "text":
        return str(part["text"])
    return f"```json\n{encode_text(part)}\n```"


def _minutes(at: datetime) -> str:
    return utc_text(at.replace(microsecond=0))


FORMATS = {"jsonl": export_lines, "markdown": export_markdown}
