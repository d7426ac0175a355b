"""Holdfast keeps an agent's session alive: across pauses, crashes, machines and interfaces.

::

    import holdfast

    async with holdfast.connect("sqlite:///holdfast.db") as hf:
        session = await hf.create(agent="terraform-architect", purpose="approval_workflow")

`holdfast.sync.connect` gives the same without `await`. Everything is loaded when it is
first used: importing this package costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast import agent_session, sync
    from holdfast.client import Holdfast
    from holdfast.connecting import connect
    from holdfast.core.errors import AccessError, Conflict, HoldfastError, InvalidRequest, NotFound, StoreError

__version__ = "0.1.0"
__all__ = [
    "AccessError",
    "Conflict",
    "Holdfast",
    "HoldfastError",
    "InvalidRequest",
    "NotFound",
    "StoreError",
    "__version__",
    "agent_session",
    "connect",
    "sync",
]

_HOME = {
    "AccessError": "holdfast.core.errors",
    "Conflict": "holdfast.core.errors",
    "Holdfast": "holdfast.client",
    "HoldfastError": "holdfast.core.errors",
    "InvalidRequest": "holdfast.core.errors",
    "NotFound": "holdfast.core.errors",
    "StoreError": "holdfast.core.errors",
    "connect": "holdfast.connecting",
}
_MODULES = ("agent_session", "sync")


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _HOME:
        value: object = getattr(import_module(_HOME[name]), name)
    elif name in _MODULES:
        value = import_module(f"holdfast.{name}")
    else:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
