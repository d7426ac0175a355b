"""Records of a session, the memory that an owner's sessions share, and the context.

Memory has the same values without a session; the context is a session's keyed memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from moorage.core import context
from moorage.core.brief import brief
from moorage.core.codec import check_list
from moorage.core.duration import check_ttl
from moorage.core.entry import Entry, check_messages
from moorage.core.errors import InvalidField, VersionConflict
from moorage.core.ids import check_ref
from moorage.core.query import Page
from moorage.core.record import (
    CONTEXT,
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

ContextRule = Callable[..., Change]  # of a view and values


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
    of_owner = needs_of(memory) if memory else None
    needs = Needs(records=needs_of(requests), memory=of_owner, client_keys=keys, work=False)
    change = await deps.store.apply(caller.owner, ref, decide, expected=version, needs=needs)
    return RecordsWritten(
        session_id=change.session.session_id,
        records=_written(change.records),
        entries=as_said(said, seen, change.entries),
        memory=_written(change.memory),
    )


async def _write_memory(deps: Deps, caller: Caller, requests: Sequence[RecordRequest]) -> RecordsWritten:
    check_requests(requests)
    at = deps.clock.now()

    def decide(view: RecordsView) -> tuple[RecordWrite, ...]:
        return decide_records(requests, view, at)

    return RecordsWritten(records=_written(await deps.store.write_memory(caller.owner, needs_of(requests), decide)))


def _written(writes: Sequence[RecordWrite]) -> list[WrittenRecord]:
    puts = [each.record for each in writes if isinstance(each, PutRecord) and each.name.namespace != FLOOR]
    return [WrittenRecord(namespace=one.namespace, key=one.key, version=one.version) for one in puts]


# The context ------------------------------------------------------------------------------------


@brief("keys", "version", "redacted", "session_id")
class ContextWritten(Struct, frozen=True, kw_only=True):
    """The result of a write: the context's version, and the paths of redacted secrets."""

    session_id: str
    version: int
    keys: list[str]
    redacted: tuple[str, ...] = ()


async def read_context(deps: Deps, caller: Caller, ref: str, key: str | None = None) -> Any:
    """Return the whole context, or one key's value; `{}` if the context is empty. Reading does not extend a TTL."""
    items = await read_items(deps, caller, ref, key)
    if key is not None:
        return items[key].value if key in items else {}
    return {name: item.value for name, item in items.items()}


async def read_items(deps: Deps, caller: Caller, ref: str, key: str | None = None) -> dict[str, context.ContextItem]:
    """Return the context with versions and expiries."""
    check_ref(ref)
    at = deps.clock.now()
    if key is None:
        return context.items_in(await deps.store.list_records(caller.owner, ref, context.WHOLE, at))
    [found] = await deps.store.records(caller.owner, ref, [RecordName(CONTEXT, context.check_key(key))], at)
    return {} if found is None else {key: context.item_of(found)}


async def put_context(
    deps: Deps, caller: Caller, ref: str, key: str, value: Any, *, ttl: object = None, version: int | None = None
) -> ContextWritten:
    """Store a value under a key. `version` is that of the key: 0 if it must be new."""
    return await _write_context(deps, caller, ref, context.put_key, {context.check_key(key): value}, ttl, version)


async def merge_context(
    deps: Deps,
    caller: Caller,
    ref: str,
    values: dict[str, Any],
    *,
    key: str | None = None,
    ttl: object = None,
    version: int | None = None,
) -> ContextWritten:
    """Store several values, in the context or in the object under a key; other keys stay.

    `version` is that of the whole context, or of the key.
    """
    if key is None:
        return await _write_context(deps, caller, ref, context.merge_keys, values, ttl, version)
    context.check_values(values)
    while True:
        found = (await read_items(deps, caller, ref, key)).get(key)
        old = {} if found is None else found.value
        if not isinstance(old, dict):
            raise InvalidField("key", f"{key!r} holds no object, so nothing can be merged into it; put a value instead")
        seen = 0 if found is None else found.version
        expected = seen if version is None else version
        try:
            return await put_context(deps, caller, ref, key, {**old, **values}, ttl=ttl, version=expected)
        except VersionConflict:
            if version is not None:
                raise


async def replace_context(
    deps: Deps, caller: Caller, ref: str, values: dict[str, Any], *, ttl: object = None, version: int | None = None
) -> ContextWritten:
    """Replace the whole context by these values."""
    return await _write_context(deps, caller, ref, context.replace_all, values, ttl, version)


async def _write_context(
    deps: Deps, caller: Caller, ref: str, rule: ContextRule, values: dict[str, Any], ttl: object, version: int | None
) -> ContextWritten:
    cleaned, redacted = deps.redactor.clean(context.check_values(values))
    how = {"at": deps.clock.now(), "ttl": check_ttl(ttl), "expected": version}
    needs = Needs(records=context.EVERY_KEY if rule is context.replace_all else context.needs_keys(cleaned), work=False)
    change = await deps.store.apply(caller.owner, ref, lambda view: rule(view, cleaned, **how), needs=needs)
    return _context_written(change, redacted)


async def delete_context(
    deps: Deps, caller: Caller, ref: str, key: str | None = None, *, version: int | None = None
) -> ContextWritten:
    """Delete a key, or everything. Deleting what does not exist is harmless."""
    at = deps.clock.now()
    needs = context.EVERY_KEY if key is None else context.needs_keys([context.check_key(key)])

    def decide(view: View) -> Change:
        if key is None:
            return context.drop_all(view, at=at, expected=version)
        return context.drop_key(view, key, at=at, expected=version)

    return _context_written(await deps.store.apply(caller.owner, ref, decide, needs=Needs(records=needs, work=False)))


def _context_written(change: Change, redacted: tuple[str, ...] = ()) -> ContextWritten:
    return ContextWritten(
        session_id=change.session.session_id,
        version=change.session.context_version,
        keys=sorted(write.name.key for write in change.records),
        redacted=redacted,
    )


async def remember(deps: Deps, caller: Caller, ref: str, values: dict[str, Any]) -> None:
    """Store values of an agent in the session's context, for as long as is configured."""
    await merge_context(deps, caller, ref, values, ttl=deps.settings.memory.context_ttl)
