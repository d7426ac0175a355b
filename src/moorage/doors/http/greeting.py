"""The greeting of a server at a terminal: its addresses, and a command to try."""

from __future__ import annotations

import os
import shlex
import shutil
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
    return "\n".join(
        (
            "",
            f"  Moorage is ready. Its sessions are in {store}",
            *(f"    {name:<8}  {place}" for name, place in places.items() if place),
            f"    try       {_program()} --url {address} run echo-agent hello",
            "  Ctrl-C ends the server; sessions stay.",
            "",
        )
    )


def _program() -> str:
    """Return `moorage` if a shell finds this installation by that name, else its path."""
    program = os.path.join(os.path.dirname(sys.executable), "moorage")
    return "moorage" if shutil.which("moorage") == program else shlex.quote(program)
