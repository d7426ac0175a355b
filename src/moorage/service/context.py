"""The context: a session's keyed memory."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from moorage.core.context import (
    ContextChange,
    ContextItem,
    check_key,
    check_ttl,
    check_values,
    drop_keys,
    merge_keys,
    put_key,
    replace_all,
)
from moorage.core.session import Session
from moorage.service.deps import Caller, Deps


class ContextWritten(Struct, frozen=True, kw_only=True):
    """What a write did: the context's version, and the paths of secrets that were not kept."""

    session_id: str
    version: int
    keys: list[str]
    redacted: tuple[str, ...] = ()


async def read_context(deps: Deps, caller: Caller, ref: str, key: str | None = None) -> Any:
    """The whole context, or one key's value; nothing there is `{}`. Reading does not extend a TTL."""
    items = await read_items(deps, caller, ref, key)
    if key is not None:
        return items[key].value if key in items else {}
    return {name: item.value for name, item in items.items()}


async def read_items(deps: Deps, caller: Caller, ref: str, key: str | None = None) -> dict[str, ContextItem]:
    """The context with versions and expiries."""
    wanted = None if key is None else check_key(key)
    return await deps.store.context(caller.owner, ref, deps.clock.now(), wanted)


async def put_context(
    deps: Deps, caller: Caller, ref: str, key: str, value: Any, *, ttl: object = None, version: int | None = None
) -> ContextWritten:
    """Remember a value under a key. `version` is that of the key: 0 if it must be new."""
    values, redacted = deps.redactor.clean(check_values({key: value}))
    lifetime, at = check_ttl(ttl), deps.clock.now()

    def decide(session: Session, present: dict[str, ContextItem]) -> ContextChange:
        return put_key(session, key, values[key], present.get(key), at=at, ttl=lifetime, expected=version)

    return _written(await deps.store.write_context(caller.owner, ref, decide, at, key), redacted)


async def merge_context(
    deps: Deps, caller: Caller, ref: str, values: dict[str, Any], *, ttl: object = None, version: int | None = None
) -> ContextWritten:
    """Remember several values; other keys stay. `version` is that of the whole context."""
    cleaned, redacted = deps.redactor.clean(check_values(values))
    lifetime, at = check_ttl(ttl), deps.clock.now()

    def decide(session: Session, _: dict[str, ContextItem]) -> ContextChange:
        return merge_keys(session, cleaned, at=at, ttl=lifetime, expected=version)

    return _written(await deps.store.write_context(caller.owner, ref, decide, at), redacted)


async def replace_context(
    deps: Deps, caller: Caller, ref: str, values: dict[str, Any], *, ttl: object = None, version: int | None = None
) -> ContextWritten:
    """Make these values the whole context."""
    cleaned, redacted = deps.redactor.clean(check_values(values))
    lifetime, at = check_ttl(ttl), deps.clock.now()

    def decide(session: Session, present: dict[str, ContextItem]) -> ContextChange:
        return replace_all(session, cleaned, present, at=at, ttl=lifetime, expected=version)

    return _written(await deps.store.write_context(caller.owner, ref, decide, at), redacted)


async def delete_context(
    deps: Deps, caller: Caller, ref: str, key: str | None = None, *, version: int | None = None
) -> ContextWritten:
    """Forget a key, or everything. Forgetting what is not there is harmless."""
    wanted, at = None if key is None else check_key(key), deps.clock.now()

    def decide(session: Session, present: dict[str, ContextItem]) -> ContextChange:
        keys = tuple(present) if wanted is None else (wanted,)
        return drop_keys(session, keys, present, at=at, expected=version, whole=wanted is None)

    return _written(await deps.store.write_context(caller.owner, ref, decide, at, wanted), ())


def _written(change: ContextChange, redacted: tuple[str, ...]) -> ContextWritten:
    return ContextWritten(
        session_id=change.session.session_id,
        version=change.session.context_version,
        keys=sorted((*change.put, *change.drop)),
        redacted=redacted,
    )
