"""A quick start, for processes that live for milliseconds."""

from __future__ import annotations

import gc
import os
import sys
from types import ModuleType


def start_lean(*, stays: bool = False) -> None:
    """To be called before anything else of ours is loaded. `stays`: this process may live long, and do anything."""
    if not stays:
        gc.disable()  # a process that lives for milliseconds leaves no garbage worth looking for
    _load_msgspec(with_inspect=stays)


def _load_msgspec(*, with_inspect: bool) -> None:
    """Load msgspec without what it brings along and we do not use.

    `typing_extensions` (11 ms), which it takes in preference to `typing` if it is installed,
    and which has nothing that `typing` does not have with the Pythons we run on; its own
    `inspect` (3 ms), which only tools for types need; and `platform` (4 ms), which the
    standard library's `uuid` loads to learn the name of the system.
    """
    if "msgspec" in sys.modules:
        return
    absent: dict[str, ModuleType | None] = {
        "typing_extensions": None,
        "msgspec.inspect": ModuleType("msgspec.inspect"),
        "platform": _named_system(),
    }
    if with_inspect:
        del absent["msgspec.inspect"]
    hidden = {name: module for name, module in absent.items() if name not in sys.modules}
    sys.modules.update(hidden)  # type: ignore[arg-type]  # None is the documented way to say: not there
    try:
        import msgspec  # noqa: F401
    finally:
        for name in hidden:
            del sys.modules[name]  # whoever needs the real one gets it


def _named_system() -> ModuleType:
    module = ModuleType("platform")
    module.system = lambda: os.uname().sysname  # type: ignore[attr-defined]
    return module
