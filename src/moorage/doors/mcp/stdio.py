"""`moorage mcp`: the Model Context Protocol on this process's own input and output.

It works through a server, if there is one: the one that the URL names, or one on this machine that serves the same
store. Then it is only a bridge. Without a server it opens the store itself, and starts agents itself.
"""

from __future__ import annotations

import os
import signal
import sys

from moorage import config

LOOK_WITHIN = 2.0  # seconds for a server on this machine to answer
GOODBYE_WITHIN = 10.0  # seconds to answer open requests after the input has ended


def run(url: str | None = None) -> int:
    """Speak the protocol until the input ends; return the exit code."""
    picked = config.pick_url(url)
    if config.is_server(picked):
        return _bridge(picked)
    address = config.known_server(picked)
    if address is not None and _answers(address):
        return _bridge(address)
    return _embedded(picked)


def _answers(address: str) -> bool:
    from moorage.doors.mcp.bridge import Bridge

    return Bridge(address, headers()).is_welcome(LOOK_WITHIN)


def _bridge(url: str) -> int:
    from moorage.doors.mcp.bridge import Bridge

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the server is informed
    try:
        Bridge(url, headers()).run(sys.stdin.buffer, GOODBYE_WITHIN)
    except SystemExit:
        os._exit(128 + signal.SIGTERM)
    os._exit(0)  # threads may still wait for answers that are not needed any more


def headers() -> dict[str, str]:
    """Return the headers of every request: the key, and the session of this process."""
    told = {
        "X-Moorage-Interface": "mcp",
        "X-Moorage-By": config.user(),
        "X-Moorage-Holder": config.unique_holder(),
        "X-Agent-Session-Id": os.environ.get("AGENT_SESSION_ID", ""),
        "X-Agent-Session-Name": os.environ.get("AGENT_SESSION_NAME", ""),
        "X-Agent-Run-Id": os.environ.get("AGENT_RUN_ID", ""),
    }
    key = config.server_key()
    if key is not None:
        told["Authorization"] = f"Bearer {key}"
    found = {name: value.strip() for name, value in told.items()}
    return {
        name: value for name, value in found.items() if value.isprintable() and value and _is_filled_in(name, value)
    }


def _is_filled_in(name: str, value: str) -> bool:
    if value.startswith("${"):
        print(
            f"moorage: {name} still reads {value}: the variable was not filled in; it counts as absent", file=sys.stderr
        )
        return False
    return True


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
