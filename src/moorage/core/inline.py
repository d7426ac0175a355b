"""Running coroutines that never suspend, without an event loop."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
NEEDS_A_LOOP = "this store needs an event loop; use moorage.connect"


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError(NEEDS_A_LOOP)
