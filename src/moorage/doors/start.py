"""Fast start for processes that live for milliseconds."""

from __future__ import annotations

import gc
import sys


def load_msgspec() -> None:
    """Import msgspec without `typing_extensions`, which it prefers to `typing` and which takes 4 ms of 37 to load."""
    if "msgspec" in sys.modules or "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # the documented way to say: not installed
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]


def start_short_lived() -> None:
    """Prepare a process that answers once and ends; call it before anything else of ours is imported."""
    gc.disable()  # saves 2 ms: so short a process leaves no garbage worth collecting
    load_msgspec()
