"""Earlier names for operations of Moorage, as thin wrappers.

    AgentSessionManager     sessions of one connection: create, get, list, suspend, resume, complete
    AgentPluginExecutor     `moorage.executor.AgentExecutor`
    get_child_sessions      the children of a session, as dictionaries
    count_child_sessions    the number of a session's children

They are loaded at their first use: hooks import this package and must start fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moorage.compat.agent_session import count_child_sessions, get_child_sessions
    from moorage.compat.session_manager import AgentSessionManager
    from moorage.executor import AgentExecutor as AgentPluginExecutor

__all__ = ["AgentPluginExecutor", "AgentSessionManager", "count_child_sessions", "get_child_sessions"]

_PLACES = {
    "AgentPluginExecutor": ("moorage.executor", "AgentExecutor"),
    "AgentSessionManager": ("moorage.compat.session_manager", "AgentSessionManager"),
    "count_child_sessions": ("moorage.compat.agent_session", "count_child_sessions"),
    "get_child_sessions": ("moorage.compat.agent_session", "get_child_sessions"),
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    return getattr(import_module(module), attribute)
