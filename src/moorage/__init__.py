"""Moorage keeps an agent's session alive: across pauses, crashes, machines and interfaces.

::

    import moorage

    async with moorage.connect("sqlite:///moorage.db") as moor:
        session = await moor.create(agent="travel-planner", purpose="three days in Genoa")

`moorage.sync.connect` has the same methods without `await`. Modules are loaded on first use, so importing this
package is fast.
"""

from __future__ import annotations

TYPE_CHECKING = False  # of `typing`, which takes 3.6 ms to load
if TYPE_CHECKING:
    from moorage import agent_session, sync
    from moorage.api import Moorage
    from moorage.connecting import connect
    from moorage.core.errors import AccessError, Conflict, InvalidRequest, MoorageError, NotFound, StoreError

__version__ = "0.1.0"
__all__ = [
    "AccessError",
    "Conflict",
    "InvalidRequest",
    "Moorage",
    "MoorageError",
    "NotFound",
    "StoreError",
    "__version__",
    "agent_session",
    "connect",
    "sync",
]

_HOME = {
    "AccessError": "moorage.core.errors",
    "Conflict": "moorage.core.errors",
    "Moorage": "moorage.api",
    "MoorageError": "moorage.core.errors",
    "InvalidRequest": "moorage.core.errors",
    "NotFound": "moorage.core.errors",
    "StoreError": "moorage.core.errors",
    "connect": "moorage.connecting",
}
_MODULES = ("agent_session", "sync")


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _HOME:
        value: object = getattr(import_module(_HOME[name]), name)
    elif name in _MODULES:
        value = import_module(f"moorage.{name}")
    else:
        raise AttributeError(f"module 'moorage' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
