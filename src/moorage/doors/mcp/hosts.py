"""Configurations for hosts that speak MCP: what to write where, with templates that the host or a launcher fills in.

`${AGENT_SESSION_NAME}` makes what the host starts a child of the session it runs in. Outside of any session nobody
fills it in, and what still reads like a template counts as absent.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from moorage.core.codec import encode
from moorage.core.errors import InvalidField

HOSTS = ("claude-code", "cursor", "vscode")
FILES = {
    "claude-code": ".mcp.json of the project, or: claude mcp add-json moorage '…'",
    "cursor": ".cursor/mcp.json of the project, or ~/.cursor/mcp.json",
    "vscode": ".vscode/mcp.json of the project",
}


def configuration(host: str, *, url: str | None = None, http: bool = False) -> dict[str, Any]:
    """What a host's file has to say: `moorage mcp` as a program, or with `http` the address of a server."""
    if host not in HOSTS:
        raise InvalidField("host", f"is {host!r}; use one of {', '.join(HOSTS)}")
    top = "servers" if host == "vscode" else "mcpServers"
    return {top: {"moorage": _by_http(host, url) if http else _by_program(host, url)}}


def _by_program(host: str, url: str | None) -> dict[str, Any]:
    arguments = ["mcp"] if url is None else ["mcp", "--url", url]
    entry = {"command": _program(), "args": arguments, "env": _variables(host, url)}
    return {"type": "stdio", **entry}


def _variables(host: str, url: str | None) -> dict[str, str]:
    """What the program is told of the session the host runs in, if it runs in one."""
    if host != "claude-code":
        return {"AGENT_SESSION_NAME": "${env:AGENT_SESSION_NAME}"}
    named = ("AGENT_SESSION_ID", "AGENT_RUN_ID", "MOORAGE_TOKEN", *(() if url else ("MOORAGE_URL",)))
    return {"AGENT_SESSION_NAME": "${AGENT_SESSION_NAME}", **{name: f"${{{name}:-}}" for name in named}}


def _by_http(host: str, url: str | None) -> dict[str, Any]:
    address = (url or "http://127.0.0.1:8765").rstrip("/") + "/mcp"
    entry = {"url": address, "headers": {"X-Agent-Session-Name": _variables(host, url)["AGENT_SESSION_NAME"]}}
    return entry if host == "cursor" else {"type": "http", **entry}


def _program() -> str:
    """The program itself: a host may start it with another PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "moorage")
    return beside if os.path.exists(beside) else "moorage"


def as_text(document: dict[str, Any]) -> str:
    """A configuration to be read by people."""
    from msgspec.json import format as indented

    return indented(encode(document), indent=2).decode()
