"""A quick start, for processes that live for milliseconds."""

from __future__ import annotations

import gc
import sys


def start_lean() -> None:
    """To be called before anything else of ours is loaded."""
    gc.disable()  # a process that lives for milliseconds leaves no garbage worth looking for
    _load_msgspec()


def _load_msgspec() -> None:
    """Load msgspec without `typing_extensions`.

    msgspec takes it in preference to `typing` if it is installed, which costs 11 ms and, with
    the Pythons we run on, brings nothing that `typing` does not have.
    """
    if "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # the documented way to say: not there
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]
