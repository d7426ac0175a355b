"""`moorage mcp`: the Model Context Protocol on this process's own input and output.

It works through a server, if there is one: the one that the URL names, or one on this machine that serves the same
store. Then it is only a bridge. Without a server it opens the store itself, and starts agents itself.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from moorage import config

if TYPE_CHECKING:
    from moorage.doors.mcp.bridge import Bridge

LOOK_WITHIN = 2.0  # seconds for a server on this machine to answer
GOODBYE_WITHIN = 10.0  # seconds to answer open requests after the input has ended


def run(url: str | None = None) -> int:
    """Speak the protocol until the input ends; return the exit code."""
    picked = config.pick_url(url)
    is_named = config.is_server(picked)
    address = picked if is_named else config.known_server(picked)
    if address is None:
        return _embedded(picked)
    from moorage.doors.mcp.bridge import Bridge

    bridge = Bridge(address, headers())
    return _forward(bridge) if is_named or bridge.is_welcome(LOOK_WITHIN) else _embedded(picked)


def _forward(bridge: Bridge) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the server is informed
    try:
        bridge.run(sys.stdin.buffer, GOODBYE_WITHIN)
    except SystemExit:
        os._exit(128 + signal.SIGTERM)
    os._exit(0)  # threads may still wait for answers that are not needed any more


def headers() -> dict[str, str]:
    """Return the headers of every request: the key, and the session of this process."""
    key = config.server_key()
    told = {
        "X-Moorage-Interface": "mcp",
        "X-Moorage-By": config.user(),
        "X-Moorage-Holder": config.unique_holder(),
        "X-Agent-Session-Id": config.parent_from_environment(),
        "X-Agent-Run-Id": config.run_from_environment(),
        "Authorization": None if key is None else f"Bearer {key}",
    }
    return {name: value for name, value in told.items() if value and value.isprintable()}


def _embedded(url: str) -> int:
    """Serve without a server: the store, and a launcher, in this process."""
    import asyncio
    import gc

    from moorage.core.extras import provided_by
    from moorage.doors import logs

    logs.set_up("text", "info")
    gc.disable()  # saves 0.03 of 0.52 s: the library creates hundreds of classes
    with provided_by("mcp", "MCP"):
        from moorage.doors.mcp.embedded import serve
    gc.freeze()
    gc.enable()

    asyncio.run(serve(url))
    return 0
