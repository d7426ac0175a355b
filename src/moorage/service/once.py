"""Requests that are done once: what a repeated one gets is what the first became."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from moorage.core.errors import KeyReused
from moorage.core.once import AlreadyDone, OnceKey
from moorage.service.deps import Caller, Deps

T = TypeVar("T")


async def done_once(
    deps: Deps, caller: Caller, once: OnceKey, act: Callable[[], Awaitable[T]], recall: Callable[[str], Awaitable[T]]
) -> T:
    """Act, unless the same request was made before: then recall what it became.

    Looked for first, because what was possible then may be impossible now: the session is closed, the
    id is taken (by what the first one made), the family is full. Of two at the same time the store lets one through.
    Raises KeyReused if the key came with another request.
    """
    kept = await deps.store.once(caller.owner, once.operation, once.key, deps.clock.now())
    if kept is not None:
        if kept.digest != once.digest:
            raise KeyReused(once.key)
        return await recall(kept.ref)
    try:
        return await act()
    except AlreadyDone as done:
        return await recall(done.ref)
