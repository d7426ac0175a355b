"""The server as a command, and sample agents to serve alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from moorage.doors.cli.app import App, command
from moorage.doors.cli.arguments import host_option, number_option, slots_option
from moorage.doors.cli.output import hint

if TYPE_CHECKING:
    from moorage.doors.http.serve import ServeOptions


@command(
    "serve",
    "moorage serve",
    "moorage serve --port 0 --store sqlite:///team.db",
    "moorage serve --log-format json --no-launcher",
    "moorage serve --grpc-port 50051 --grpc-cert server.pem --grpc-key server.key",
)
@host_option
@number_option("--port", 0, 65535, 8765, "Port; 0 picks a free one.")
@number_option("--grpc-port", 0, 65535, 50051, "Port for gRPC, which needs the extra `grpc`.")
@click.option("--grpc/--no-grpc", default=True, show_default=True, help="Also serve gRPC.")
@click.option("--grpc-cert", metavar="FILE", help="A certificate, for gRPC with TLS.")
@click.option("--grpc-key", metavar="FILE", help="The certificate's key.")
@click.option("--grpc-client-ca", metavar="FILE", help="The authority that signs the certificates of clients.")
@click.option("--store", metavar="URL", help="The store to serve, as --url.")
@click.option("--context-url", metavar="URL", help="A Redis or Valkey server that keeps contexts.")
@click.option("--launcher/--no-launcher", "launches", default=True, show_default=True, help="Start agents here.")
@click.option("--name", default="serve", show_default=True, metavar="NAME", help="Name of its launcher.")
@slots_option
@number_option("--workers", 1, 64, 1, "Number of processes.")
@click.option(
    *("--insecure-no-keys", "open_to_all"),
    is_flag=True,
    help="Accept all clients without a key, on any address.",
)
@click.option(
    *("--allow-eviction", "allows_eviction"),
    is_flag=True,
    help="Serve a Redis store that deletes sessions when it is full.",
)
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

    place = grpc_place(options)  # the port is reserved until all workers have ended
    grpc_port = None if place is None else place.getsockname()[1]
    differing = ["--no-grpc"] if grpc_port is None else [f"--grpc-port={grpc_port}", "--grpc-shared"]
    listening = listen(options.host, options.port)

    def say_hello() -> None:
        if options.greets:
            greet(options, listening, grpc_port)

    return uvloop.run(serve_many(listening, workers, [*arguments, "--workers=1", *differing], say_hello))


SAMPLES = ("echo-agent", "hello-world", "itinerary-worker", "weather-tool")


@command("sample", "moorage sample echo-agent --port 50052", "moorage sample weather-tool --port 0")
@click.argument("name", type=click.Choice(SAMPLES))
@host_option
@number_option("--port", 0, 65535, 50052, "Port; 0 picks a free one.")
def sample(_: App, name: str, host: str, port: int) -> None:
    """Serve one of the sample agents or tools by gRPC.

    Use it to try remote agents: `kind = "grpc"` and `endpoint = "127.0.0.1:50052"` in the definition of an agent.
    """
    import asyncio

    from moorage.agents.router import load_grpc
    from moorage.doors import logs

    load_grpc()
    logs.set_up("text", "info")
    from moorage.doors.grpc.sample import serve_sample

    asyncio.run(serve_sample(name, host, port))
