"""MCP on standard input and output, and its configuration for hosts.

A configuration for a host has templates that the host or a launcher fills in. With `${AGENT_SESSION_NAME}`, the host's
session becomes a child of the session it runs in. Outside of any session it is not filled in, and an unfilled template
counts as absent.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import click
from msgspec.json import format as indented

from moorage.core.codec import encode
from moorage.doors.cli.app import App, group
from moorage.doors.cli.output import note, say
from moorage.doors.mcp import stdio

FILES = {
    "claude-code": ".mcp.json of the project, or: claude mcp add-json moorage '…'",
    "cursor": ".cursor/mcp.json of the project, or ~/.cursor/mcp.json",
    "vscode": ".vscode/mcp.json of the project",
}


@group("mcp", "moorage mcp", "moorage mcp --url http://127.0.0.1:8765", "moorage mcp config claude-code")
@click.pass_context
def mcp(ctx: click.Context) -> None:
    """Speak the Model Context Protocol on standard streams.

    For hosts that start MCP servers as programs. If the URL names a server, or a server on this machine serves the
    same store, that server does the work; else this process does.
    """
    if ctx.invoked_subcommand is None:
        ctx.exit(stdio.run(ctx.ensure_object(App).url))


mcp.invoke_without_command = True


@mcp.subcommand("config", "moorage mcp config claude-code > .mcp.json", "moorage mcp config vscode --http")
@click.argument("host", type=click.Choice(list(FILES)))
@click.option("--http", is_flag=True, help="Use the address of a server: --url, or the default one.")
def config(app: App, /, host: str, http: bool) -> None:
    """Print the configuration for a host: claude-code, cursor or vscode."""
    server = _by_http(host, app.url) if http else _by_program(host, app.url)
    if not app.as_json:
        note(f"for {FILES[host]}")
    document = {"servers" if host == "vscode" else "mcpServers": {"moorage": server}}
    say(indented(encode(document), indent=2).decode())


def _by_program(host: str, url: str | None) -> dict[str, Any]:
    arguments = ["mcp"] if url is None else ["mcp", "--url", url]
    entry = {"command": _program(), "args": arguments, "env": _variables(host, url)}
    return {"type": "stdio", **entry}


def _variables(host: str, url: str | None) -> dict[str, str]:
    """Return the environment variables that name the host's session, if it has one."""
    if host != "claude-code":
        return {"AGENT_SESSION_NAME": "${env:AGENT_SESSION_NAME}"}
    named = ("AGENT_SESSION_ID", "AGENT_RUN_ID", "MOORAGE_TOKEN", *(() if url else ("MOORAGE_URL",)))
    return {"AGENT_SESSION_NAME": "${AGENT_SESSION_NAME}", **{name: f"${{{name}:-}}" for name in named}}


def _by_http(host: str, url: str | None) -> dict[str, Any]:
    address = (url or "http://127.0.0.1:8765").rstrip("/") + "/mcp"
    entry = {"url": address, "headers": {"X-Agent-Session-Name": _variables(host, url)["AGENT_SESSION_NAME"]}}
    return entry if host == "cursor" else {"type": "http", **entry}


def _program() -> str:
    """Return the path of the program: a host may start it with another PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "moorage")
    return beside if os.path.exists(beside) else "moorage"
