"""The greeting of a server at a terminal: its addresses, and three commands to try."""

from __future__ import annotations

import os
import shlex
import sys
from importlib.util import find_spec


def greeting(address: str, store: str, *, grpc: str | None) -> str:
    """Return the text; `grpc` is the address of that door, or None if it is closed."""
    mcp = f"{address}/mcp" if find_spec("mcp") else None
    places = {
        "page": f"{address}/",
        "REST": f"{address}/docs",
        "GraphQL": f"{address}/graphql",
        "gRPC": grpc,
        "MCP": mcp,
    }
    program = shlex.quote(os.path.join(os.path.dirname(sys.executable), "moorage"))
    commands = ("run echo-agent hello", "list", "watch")
    return "\n".join(
        (
            "",
            f"  Moorage is ready. Its sessions are in {store}",
            "",
            *(f"    {name:<8}  {place}" for name, place in places.items() if place),
            "",
            "  Try in another terminal:",
            "",
            *(f"    {program} --url {address} {command}" for command in commands),
            "",
            "  Ctrl-C ends the server; sessions stay.",
            "",
        )
    )
