"""Servers: over HTTP and gRPC, their access keys, MCP on standard streams, and sample agents.

A configuration for an MCP host has templates that the host or a launcher fills in. With `${AGENT_SESSION_NAME}`, the
host's session becomes a child of the session it runs in. Outside of any session it is not filled in, and an unfilled
template counts as absent.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import msgspec
from click.core import ParameterSource
from msgspec.json import format as indented

from moorage.config import entropy, launcher_folder
from moorage.core.codec import encode
from moorage.core.key import Key, Scope
from moorage.doors.cli import arguments
from moorage.doors.cli.app import App, command, group
from moorage.doors.cli.output import hint, is_terminal, note, page_of, say
from moorage.doors.cli.tables import show_rows, wide_option
from moorage.doors.cli.wording import ago, seconds_text

if TYPE_CHECKING:
    from moorage.doors.http.serve import ServeOptions


@command(
    "serve",
    "moorage serve",
    "moorage serve --port 0 --store sqlite:///team.db",
    "moorage serve --log-format json --no-launcher",
    "moorage serve --grpc-port 50051 --grpc-cert server.pem --grpc-key server.key",
)
@arguments.host
@arguments.number("--port", 0, 65535, 8765, "Port; 0 picks a free one.")
@arguments.number("--grpc-port", 0, 65535, 50051, "Port for gRPC, which needs the extra `grpc`.")
@click.option("--grpc/--no-grpc", default=True, show_default=True, help="Also serve gRPC.")
@click.option("--grpc-cert", metavar="FILE", help="A certificate, for gRPC with TLS.")
@click.option("--grpc-key", metavar="FILE", help="The certificate's key.")
@click.option("--grpc-client-ca", metavar="FILE", help="The authority that signs the certificates of clients.")
@click.option("--store", metavar="URL", help="The store to serve, as --url.")
@click.option("--context-url", metavar="URL", help="A Redis or Valkey server that keeps contexts.")
@click.option("--launcher/--no-launcher", "launches", default=True, show_default=True, help="Start agents here.")
@click.option("--name", default="serve", show_default=True, metavar="NAME", help="Name of its launcher.")
@arguments.slots
@arguments.number("--workers", 1, 64, 1, "Number of processes.")
@arguments.flag("--insecure-no-keys", "open_to_all", "Accept all clients without a key, on any address.")
@arguments.flag("--allow-eviction", "allows_eviction", "Serve a Redis store that deletes sessions when it is full.")
@click.option("--log-format", type=click.Choice(("text", "json")), help="Text on a terminal, else JSON.")
@click.option(
    "--log-level", default="info", show_default=True, type=click.Choice(("debug", "info", "warning", "error"))
)
@click.option("--fd", type=int, hidden=True)
@click.option("--grpc-shared", is_flag=True, hidden=True)
def serve(app: App, /, grpc: bool, workers: int, log_format: str | None, log_level: str, **given: Any) -> int:
    """Serve sessions and start agents, until Ctrl-C.

    REST, live streams, GraphQL, MCP and the web page over HTTP, and gRPC. The REST reference is at /docs. The server
    starts agents itself, except with --no-launcher. SIGTERM ends it, too.
    """
    from moorage.core.extras import provided_by

    with provided_by("server", "the server"):
        import uvloop

        from moorage.doors.http.serve import ServeOptions
        from moorage.doors.http.serve import serve as run

    given["url"] = given.pop("store") or app.url
    source = click.get_current_context().get_parameter_source("grpc_port")
    given["grpc_given"] = given["grpc_shared"] or source is ParameterSource.COMMANDLINE
    given["grpc_port"] = given["grpc_port"] if grpc else None
    options = ServeOptions(**given, greets=_set_up_logs(log_format, log_level))
    if workers > 1:
        return _serve_many(options, workers, app.arguments)
    uvloop.run(run(options))
    if options.greets:
        hint("  The server has stopped; sessions stay.")
    return 0


def _set_up_logs(log_format: str | None, level: str) -> bool:
    """Start logging; return whether to greet a user at a terminal."""
    import logging

    from moorage.doors import logs

    is_terminal = sys.stderr.isatty()
    chosen = log_format or ("text" if is_terminal else "json")
    greets = is_terminal and chosen == "text"
    logs.set_up(chosen, level)
    if greets and level == "info":  # the greeting already reports the start
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    return greets


def _serve_many(options: ServeOptions, workers: int, arguments: Sequence[str]) -> int:
    """Serve with several processes at one address; each gets the command line of this one, then what differs."""
    import uvloop

    from moorage.doors.http.serve import greet, grpc_place, listen
    from moorage.doors.http.workers import serve_many
    from moorage.launcher.loop import alone_in

    if options.launches:
        with alone_in(launcher_folder(options.name)):
            pass  # refused before any worker answers; the first worker takes the folder
    place = grpc_place(options)  # the port is reserved until all workers have ended
    grpc_port = None if place is None else place.getsockname()[1]
    differing = ["--no-grpc"] if grpc_port is None else [f"--grpc-port={grpc_port}", "--grpc-shared"]
    listening = listen(options.host, options.port)

    say_hello = partial(greet, options, listening, grpc_port) if options.greets else lambda: None
    return uvloop.run(serve_many(listening, workers, [*arguments, "--workers=1", *differing], say_hello))


@command("sample", "moorage sample echo-agent --port 50052", "moorage sample weather-tool --port 0")
@click.argument("name", type=click.Choice(("echo-agent", "hello-world", "itinerary-worker", "weather-tool")))
@arguments.host
@arguments.number("--port", 0, 65535, 50052, "Port; 0 picks a free one.")
def sample(_: App, name: str, host: str, port: int) -> None:
    """Serve one of the sample agents or tools by gRPC.

    Use it to try remote agents: `kind = "grpc"` and `endpoint = "127.0.0.1:50052"` in the definition of an agent.
    """
    from moorage.agents.grpc import load_grpc
    from moorage.doors import logs

    load_grpc()
    logs.set_up("text", "info")
    from moorage.doors.grpc.server import serve_sample

    asyncio.run(serve_sample(name, host, port))


# Keys -------------------------------------------------------------------------------------------


SCOPE = click.Choice([scope.value for scope in Scope])


@group("keys", "moorage keys create --name laptop", "moorage keys list", "moorage keys revoke 3f9a1c0b7d2e")
def keys() -> None:
    """Create, list and revoke the access keys of a server."""


@keys.subcommand(
    "create",
    "moorage keys create --name laptop --expires 90d",
    "moorage keys create --owner ann --scope read --scope approve",
    "moorage keys create --name build-box --scope launch --owners ann --owners bob",
)
@click.option("--owner", metavar="OWNER", help="The owner whose sessions it opens.  [default: local]")
@click.option(
    "--scope", "scopes", multiple=True, type=SCOPE, help="A right of the key. Can be repeated.  [default: read, write]"
)
@click.option("--name", metavar="NAME", help="A name for the key.")
@arguments.many("--owners", told="With scope launch: an owner whose turns it takes.", metavar="OWNER")
@click.option("--expires", type=arguments.DURATION, help="Expire after, such as 90d.")
def create(app: App, /, scopes: tuple[str, ...], owners: tuple[str, ...], expires: object, **known: Any) -> None:
    """Create a key and print it. It is shown once; the store keeps a hash."""
    known |= {"scopes": scopes or (Scope.READ, Scope.WRITE), "owners": owners or None, "expires_in": expires}
    made = app.moor.create_key(**known)
    if is_terminal() and not app.as_json:
        note(
            f"Key {made.key.key_id} of {made.key.owner} ({', '.join(made.key.scopes)}). Keep it: it is not shown again."
        )
    app.show({**shown(made.key), "text": made.text}, lambda: say(made.text))


def shown(key: Key) -> dict[str, Any]:
    return {**msgspec.to_builtins(key), "state": state_of(key)}


def state_of(key: Key) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "valid" if key.counts(datetime.now(UTC)) else "expired"


@keys.subcommand("list", "moorage keys list", "moorage keys list --owner ann --json")
@click.option("--owner", metavar="OWNER", help="Only keys of this owner.")
@wide_option
def list_(app: App, owner: str | None) -> None:
    """List keys, oldest first; also revoked and expired ones.

    The secrets are not stored. Piped, one line for each: id, state, owner, scopes, name, when it ends, when it was
    last used.
    """
    found = app.moor.keys(owner=owner).items
    columns, spare = ("name", "key", "state", "owner", "scopes", "expires", "last used"), ("last used", "expires")
    rows = [(key.name, *_about(key), ago(key.expires_at), ago(key.last_used_at)) for key in found]
    lines = [(*_about(key), key.name, seconds_text(key.expires_at), seconds_text(key.last_used_at)) for key in found]
    app.show(
        page_of([shown(key) for key in found]),
        lambda: show_rows(columns, rows, lines=lines, spare=spare, nothing="No keys."),
    )


def _about(key: Key) -> tuple[str, ...]:
    return key.key_id, state_of(key), key.owner, ",".join(key.scopes)


@keys.subcommand("revoke", "moorage keys revoke 3f9a1c0b7d2e", "moorage keys revoke 3f9a1c0b7d2e --json")
@click.argument("key_id", metavar="KEY")
def revoke(app: App, key_id: str) -> None:
    """Revoke a key. Other servers follow within a second. Repeating it is harmless."""
    key = app.moor.revoke_key(key_id)
    name = f"{key.name} ({key.key_id})" if key.name else key.key_id
    app.tell(shown(key), f"Revoked key {name} of {key.owner}.", key.key_id)


@command("encryption-key", "moorage encryption-key", "moorage encryption-key 2026-01")
@click.argument("key_id", metavar="[ID]", required=False)
def encryption_key(app: App, key_id: str | None) -> None:
    """Create a key for encryption at rest and print it.

    It is printed as ID:BASE64 and stored nowhere. Put it into MOORAGE_ENCRYPTION_KEYS or the key file. Without ID,
    it gets a random one.
    """
    from moorage.stores.sealing import KEY_BYTES, written_key

    name = f"k{entropy(4).hex()}" if key_id is None else key_id
    line = written_key(name, entropy(KEY_BYTES))
    app.show({"key_id": name, "key": line}, lambda: say(line))


# MCP --------------------------------------------------------------------------------------------

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
        from moorage.doors.mcp import stdio

        ctx.exit(stdio.run(ctx.ensure_object(App).url))


mcp.invoke_without_command = True


@mcp.subcommand("config", "moorage mcp config claude-code > .mcp.json", "moorage mcp config vscode --http")
@click.argument("host", type=click.Choice(list(FILES)))
@arguments.flag("--http", "Use the address of a server: --url, or the default one.")
def config(app: App, /, host: str, http: bool) -> None:
    """Print the configuration for a host: claude-code, cursor or vscode."""
    server = _by_http(host, app.url) if http else _by_program(host, app.url)
    if not app.as_json:
        note(f"for {FILES[host]}")
    document = {"servers" if host == "vscode" else "mcpServers": {"moorage": server}}
    say(indented(encode(document), indent=2).decode())


def _by_program(host: str, url: str | None) -> dict[str, Any]:
    beside = os.path.join(os.path.dirname(sys.executable), "moorage")  # a host may start it with another PATH
    program = beside if os.path.exists(beside) else "moorage"
    words = ["mcp"] if url is None else ["mcp", "--url", url]
    return {"type": "stdio", "command": program, "args": words, "env": _variables(host, url)}


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
