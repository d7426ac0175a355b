"""Export: whole sessions as JSON lines, and as Markdown for people.

The first line is a header. For each session follow its head, its entries, context and approvals, and a line that
counts them, so that a truncated file is detected. Secrets in tool inputs are redacted. `importing` reads these lines.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from moorage.core.approval import ApprovalQuery
from moorage.core.bundle import Bundle, as_restored
from moorage.core.codec import encode_text
from moorage.core.context import WHOLE, items_in
from moorage.core.entry import Entry, Kind
from moorage.core.errors import utc_text
from moorage.core.query import LogQuery
from moorage.core.record import CONTEXT, Record, RecordQuery
from moorage.core.session import Session
from moorage.service.deps import Caller, Deps
from moorage.service.family import MAX_TREE

FORMAT = 1
PAGE = 500
RECORDS_PAGE = 50  # values may be large


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
    return encode_text({"type": "moorage", "format": FORMAT})


def bundle_lines(bundle: Bundle) -> Iterator[str]:
    """Yield the lines of a session that was read from lines."""
    yield _head_line(bundle.session)
    for entry in bundle.entries:
        yield encode_text({"type": "entry", "entry": entry})
    yield from _facts_lines(bundle)
    for record in bundle.records:
        yield _record_line(record)
    yield _end_line(bundle.session, len(bundle.entries))


def _head_line(session: Session) -> str:
    """Return the head for import: without what launchers do with it in this store."""
    head = replace(as_restored(session, session.owner), hold=None, redacted=())
    return encode_text({"type": "session", "session": msgspec.to_builtins(head)})


def _facts_lines(bundle: Bundle) -> Iterator[str]:
    for key, item in items_in(bundle.records).items():
        yield encode_text({"type": "context", "key": key, "item": item})
    for approval in bundle.approvals:
        yield encode_text({"type": "approval", "approval": approval})


def _record_line(record: Record) -> str:
    return encode_text({"type": "record", "record": record})


def _end_line(session: Session, entries: int) -> str:
    return encode_text({"type": "end", "session_id": session.session_id, "entries": entries})


async def _session_lines(deps: Deps, caller: Caller, session: Session) -> AsyncIterator[str]:
    whole = await _without_entries(deps, caller, session.session_id)
    yield _head_line(whole.session)
    count = 0
    async for entry in _entries(deps, caller, whole.session):
        yield encode_text({"type": "entry", "entry": _without_secrets(deps, entry)})
        count += 1
    for line in _facts_lines(whole):
        yield line
    async for record in _records(deps, caller, session.session_id):
        yield _record_line(record)
    yield _end_line(whole.session, count)


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
        page = await deps.store.log(
            caller.owner, session.session_id, LogQuery(after=after, before=session.last_entry + 1, limit=PAGE)
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


# Markdown ---------------------------------------------------------------------------------------


async def export_markdown(deps: Deps, caller: Caller, ref: str, *, tree: bool = False) -> AsyncIterator[str]:
    """Yield a session (with its tree) as Markdown pages."""
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
