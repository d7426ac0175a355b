"""The connection a command works on, and the name under which it holds sessions."""

from __future__ import annotations

import os
import sys

from moorage import config, sync


def connect(url: str | None, *, deadline: float | None = None) -> sync.Moorage:
    """Sessions on the store or the server that `url` names; nothing here needs an event loop."""
    return sync.connect(url, interface="cli", holder=terminal_holder(), deadline=deadline)


def terminal_holder() -> str | None:
    """A name for the person at this terminal, so that the next command keeps the hold; None without a terminal."""
    try:
        terminal = os.ttyname(sys.stdin.fileno()) if sys.stdin.isatty() else None
    except (OSError, ValueError, AttributeError):  # no standard input, or none with a name
        return None
    return terminal and f"{config.user()}@{os.uname().nodename}:{terminal}"
