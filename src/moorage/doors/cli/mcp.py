"""MCP on standard input and output, and how to tell hosts of it."""

from __future__ import annotations

import click

from moorage.doors.cli.app import App, group, pass_app
from moorage.doors.cli.output import note, say
from moorage.doors.mcp import hosts, stdio


@group("mcp", examples=("moorage mcp", "moorage mcp --url http://127.0.0.1:8765", "moorage mcp config claude-code"))
@click.pass_context
def mcp(ctx: click.Context) -> None:
    """Speak the Model Context Protocol on standard input and output, for hosts that start programs.

    A server that the URL names, or one on this machine that serves the same store, does the work; without one,
    this process does.
    """
    if ctx.invoked_subcommand is None:
        ctx.exit(stdio.run(ctx.ensure_object(App).url))


mcp.invoke_without_command = True


@mcp.command(
    "config",
    examples=("moorage mcp config claude-code > .mcp.json", "moorage mcp config vscode --http"),
)
@click.argument("host", type=click.Choice(hosts.HOSTS))
@click.option("--http", is_flag=True, help="The address of a server instead of a program: --url, or the usual one.")
@pass_app
def config(app: App, /, host: str, http: bool) -> None:
    """Print what a host's configuration has to say: claude-code, cursor or vscode."""
    document = hosts.configuration(host, url=app.url, http=http)
    if not app.as_json:
        note(f"for {hosts.FILES[host]}")
    say(hosts.as_text(document))
