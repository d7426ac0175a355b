"""Without an event loop: coroutines of a store that never suspends, driven to their end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
NEEDS_A_LOOP = "this store needs an event loop; use holdfast.connect"


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError(NEEDS_A_LOOP)


def drive_each(stream: AsyncIterator[T]) -> Iterator[T]:
    """Walk an asynchronous stream that never suspends."""
    while True:
        try:
            yield drive(stream.__anext__())  # type: ignore[arg-type]  # an async generator's step is a coroutine to us
        except StopAsyncIteration:
            return
