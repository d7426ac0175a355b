"""The connection a command works on, and the name under which it holds sessions."""

from __future__ import annotations

import os
import sys

from moorage import config, connecting, sync
from moorage.connection import Connection
from moorage.core.ids import check_label

HOLDER = "MOORAGE_HOLDER"  # the variable by which the commands of a script share a hold


def connect(url: str | None, *, deadline: float | None = None) -> sync.Moorage:
    """Return a connection to the store or the server at `url`; no event loop is needed."""
    return sync.connect(url, interface="cli", holder=holder(), deadline=deadline)


def connect_for_a_loop(url: str | None) -> Connection:
    """Connect for a command that waits for agents: all its requests come from one holder."""
    return connecting.connect(url, interface="cli", holder=holder())


def holder() -> str | None:
    """Return a holder name that the next command has, too, so that it keeps the hold; None in a script without one."""
    named = os.environ.get(HOLDER, "").strip()
    return check_label(HOLDER, named) if named else terminal_holder()


def terminal_holder() -> str | None:
    """Return a holder name for the user at this terminal; None without one. Input or output may be a pipe."""
    terminal = next(filter(None, map(_terminal_of, (sys.stdin, sys.stderr, sys.stdout))), None)
    return terminal and f"{config.user()}@{os.uname().nodename}:{terminal}"


def _terminal_of(stream: object) -> str | None:
    try:
        return os.ttyname(stream.fileno())  # type: ignore[attr-defined]
    except (OSError, ValueError, AttributeError):  # no stream, or a stream that is no terminal
        return None
