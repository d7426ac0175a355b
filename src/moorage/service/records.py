"""Records of a session, and the memory that an owner's sessions share: the same values without a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from moorage.core.codec import check_list
from moorage.core.entry import Entry, check_messages
from moorage.core.errors import InvalidField
from moorage.core.query import Page
from moorage.core.record import (
    FLOOR,
    MAX_MESSAGES,
    MAX_WRITES,
    PutRecord,
    Record,
    RecordName,
    RecordQuery,
    RecordRequest,
    RecordsView,
    RecordWrite,
    check_namespace,
    check_record_key,
    check_record_limit,
    check_requests,
    decide_records,
    needs_of,
    write_with_messages,
)
from moorage.core.session import Change, Needs, View, as_said
from moorage.service.deps import Caller, Deps, stamp_of


class WrittenRecord(Struct, frozen=True, kw_only=True):
    """The name and the new version of a record."""

    namespace: str
    key: str
    version: int


class RecordsWritten(Struct, frozen=True, kw_only=True):
    """The results of one write: records that were put, in order, and the entries of its messages."""

    session_id: str | None = None
    records: list[WrittenRecord]
    entries: list[Entry] = []
    memory: list[WrittenRecord] = []  # of the owner, written together with those of a session


async def read_records(
    deps: Deps, caller: Caller, ref: str | None, namespace: str, keys: Sequence[str]
) -> list[Record | None]:
    """Return records of a session, or of the owner without a ref, by their keys; None for a missing one."""
    keys = check_list(keys, "keys")
    if len(keys) > MAX_WRITES:
        raise InvalidField("keys", f"has {len(keys)} items, at most {MAX_WRITES} are allowed")
    where = check_namespace(namespace, parts=True)
    names = [RecordName(where, check_record_key(key)) for key in keys]
    return await deps.store.records(caller.owner, ref, names, deps.clock.now())


async def records_of(
    deps: Deps, caller: Caller, session_ids: Sequence[str], namespace: str, key: str
) -> list[Record | None]:
    """Return the record with one key of each session; None for a missing one."""
    session_ids = check_list(session_ids, "session_ids")
    if len(session_ids) > MAX_WRITES:
        raise InvalidField("session_ids", f"has {len(session_ids)} items, at most {MAX_WRITES} are allowed")
    name = RecordName(check_namespace(namespace), check_record_key(key))
    return await deps.store.records_of(caller.owner, session_ids, name, deps.clock.now())


async def list_records(
    deps: Deps,
    caller: Caller,
    ref: str | None,
    namespace: str,
    *,
    prefix: str = "",
    after: str | None = None,
    limit: int = 100,
    descending: bool = False,
    values: bool = True,
) -> Page[Record]:
    """Return a page of the records of a namespace, in the order of their keys; pass `next` as `after` for more."""
    where = check_namespace(namespace, parts=True)
    query = RecordQuery(
        namespace=where,
        prefix=check_record_key(prefix, "prefix", empty=True),
        after=None if after is None else RecordName(where, check_record_key(after, "after")),
        limit=check_record_limit(limit) + 1,
        descending=descending,
        values=values,
    )
    found = await deps.store.list_records(caller.owner, ref, query, deps.clock.now())
    page = found[:limit]
    return Page(page, page[-1].key if len(found) > limit else None)


async def write_records(
    deps: Deps,
    caller: Caller,
    ref: str | None,
    requests: Sequence[RecordRequest],
    *,
    messages: Sequence[Any] = (),
    token: str | None = None,
    version: int | None = None,
    memory: Sequence[RecordRequest] = (),
) -> RecordsWritten:
    """Write records of a session and of its owner and append messages, in one commit; without a ref, of the owner."""
    if ref is None:
        return await _write_memory(deps, caller, requests)
    check_requests(requests, memory)
    said, stamp = check_messages(list(messages), MAX_MESSAGES) if messages else [], stamp_of(deps, caller)
    seen: dict[str, Entry] = {}

    def decide(view: View) -> Change:
        seen.clear()
        seen.update(view.seen)
        return write_with_messages(view, said, requests, stamp, token, memory)

    keys = tuple(message.client_key for message in said if message.client_key is not None)
    change = await deps.store.apply(
        caller.owner,
        ref,
        decide,
        expected=version,
        needs=Needs(
            records=needs_of(requests), memory=needs_of(memory) if memory else None, client_keys=keys, work=False
        ),
    )
    return RecordsWritten(
        session_id=change.session.session_id,
        records=_written(change.records),
        entries=as_said(said, seen, change.entries),
        memory=_written(change.memory),
    )


async def _write_memory(deps: Deps, caller: Caller, requests: Sequence[RecordRequest]) -> RecordsWritten:
    """Write records of the owner, in one commit."""
    check_requests(requests)
    at = deps.clock.now()

    def decide(view: RecordsView) -> tuple[RecordWrite, ...]:
        return decide_records(requests, view, at)

    return RecordsWritten(records=_written(await deps.store.write_memory(caller.owner, needs_of(requests), decide)))


def _written(writes: Sequence[RecordWrite]) -> list[WrittenRecord]:
    puts = [each.record for each in writes if isinstance(each, PutRecord) and each.name.namespace != FLOOR]
    return [WrittenRecord(namespace=one.namespace, key=one.key, version=one.version) for one in puts]
