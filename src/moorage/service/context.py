"""The context: a session's keyed memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from moorage.core.brief import brief
from moorage.core.context import (
    EVERY_KEY,
    WHOLE,
    ContextItem,
    check_key,
    check_values,
    drop_all,
    drop_key,
    item_of,
    items_in,
    merge_keys,
    needs_keys,
    put_key,
    replace_all,
)
from moorage.core.duration import check_ttl
from moorage.core.errors import InvalidField, VersionConflict
from moorage.core.ids import check_ref
from moorage.core.record import CONTEXT, RecordName
from moorage.core.session import Change, Needs, View
from moorage.service.deps import Caller, Deps

ContextRule = Callable[..., Change]  # of a view and values


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


async def read_items(deps: Deps, caller: Caller, ref: str, key: str | None = None) -> dict[str, ContextItem]:
    """Return the context with versions and expiries."""
    check_ref(ref)
    at = deps.clock.now()
    if key is None:
        return items_in(await deps.store.list_records(caller.owner, ref, WHOLE, at))
    [found] = await deps.store.records(caller.owner, ref, [RecordName(CONTEXT, check_key(key))], at)
    return {} if found is None else {key: item_of(found)}


async def put_context(
    deps: Deps, caller: Caller, ref: str, key: str, value: Any, *, ttl: object = None, version: int | None = None
) -> ContextWritten:
    """Store a value under a key. `version` is that of the key: 0 if it must be new."""
    return await _write(deps, caller, ref, put_key, {check_key(key): value}, ttl, version)


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
        return await _write(deps, caller, ref, merge_keys, values, ttl, version)
    check_values(values)
    while True:
        found = (await read_items(deps, caller, ref, key)).get(key)
        old = {} if found is None else found.value
        if not isinstance(old, dict):
            raise InvalidField("key", f"{key!r} holds no object, so nothing can be merged into it; put a value instead")
        seen = 0 if found is None else found.version
        try:
            return await put_context(
                deps, caller, ref, key, {**old, **values}, ttl=ttl, version=seen if version is None else version
            )
        except VersionConflict:
            if version is not None:
                raise


async def replace_context(
    deps: Deps, caller: Caller, ref: str, values: dict[str, Any], *, ttl: object = None, version: int | None = None
) -> ContextWritten:
    """Replace the whole context by these values."""
    return await _write(deps, caller, ref, replace_all, values, ttl, version)


async def _write(
    deps: Deps, caller: Caller, ref: str, rule: ContextRule, values: dict[str, Any], ttl: object, version: int | None
) -> ContextWritten:
    cleaned, redacted = deps.redactor.clean(check_values(values))
    lifetime, at = check_ttl(ttl), deps.clock.now()
    needs = Needs(records=EVERY_KEY if rule is replace_all else needs_keys(cleaned), work=False)
    change = await deps.store.apply(
        caller.owner, ref, lambda view: rule(view, cleaned, at=at, ttl=lifetime, expected=version), needs=needs
    )
    return _written(change, redacted)


async def delete_context(
    deps: Deps, caller: Caller, ref: str, key: str | None = None, *, version: int | None = None
) -> ContextWritten:
    """Delete a key, or everything. Deleting what does not exist is harmless."""
    at = deps.clock.now()
    needs = EVERY_KEY if key is None else needs_keys([check_key(key)])

    def decide(view: View) -> Change:
        if key is None:
            return drop_all(view, at=at, expected=version)
        return drop_key(view, key, at=at, expected=version)

    return _written(await deps.store.apply(caller.owner, ref, decide, needs=Needs(records=needs, work=False)))


def _written(change: Change, redacted: tuple[str, ...] = ()) -> ContextWritten:
    return ContextWritten(
        session_id=change.session.session_id,
        version=change.session.context_version,
        keys=sorted(write.name.key for write in change.records),
        redacted=redacted,
    )


async def remember(deps: Deps, caller: Caller, ref: str, values: dict[str, Any]) -> None:
    """Store values of an agent in the session's context, for as long as is configured."""
    await merge_context(deps, caller, ref, values, ttl=deps.settings.memory.context_ttl)
