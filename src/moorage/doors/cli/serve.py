"""The server as a command, and samples of agents to serve alone."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from moorage.doors.cli.app import App, command
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
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0 takes any free one.")
@click.option(
    "--grpc-port",
    type=click.IntRange(0, 65535),
    default=50051,
    show_default=True,
    help="For gRPC. Without the extra `grpc`, gRPC is off, and giving a port is refused.",
)
@click.option("--grpc/--no-grpc", default=True, show_default=True, help="Serve gRPC, too.")
@click.option("--grpc-cert", metavar="FILE", help="A certificate: gRPC with TLS.")
@click.option("--grpc-key", metavar="FILE", help="The certificate's key.")
@click.option("--grpc-client-ca", metavar="FILE", help="Who signs the certificates that clients have to show.")
@click.option("--store", metavar="URL", help="The store to serve; like --url.")
@click.option("--context-url", metavar="URL", help="A Redis or Valkey server for the context of sessions.")
@click.option("--launcher/--no-launcher", "launches", default=True, show_default=True, help="Start agents here.")
@click.option("--name", default="serve", show_default=True, metavar="NAME", help="What its launcher is called.")
@click.option("--slots", type=click.IntRange(1, 1000), default=16, show_default=True, help="How many turns at once.")
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="How many processes.")
@click.option(
    *("--insecure-no-keys", "open_to_all"),
    is_flag=True,
    help="Let in all clients that can reach it, on any address, without a key.",
)
@click.option(
    *("--allow-eviction", "allows_eviction"),
    is_flag=True,
    help="Serve a Redis store whose server deletes sessions when it is full.",
)
@click.option("--log-format", type=click.Choice(("text", "json")), help="Text on a terminal, else JSON.")
@click.option(
    "--log-level", default="info", show_default=True, type=click.Choice(("debug", "info", "warning", "error"))
)
@click.option("--fd", type=int, hidden=True)
@click.option("--grpc-shared", is_flag=True, hidden=True)
def serve(app: App, /, grpc: bool, workers: int, log_format: str | None, log_level: str, **given: Any) -> int:
    """Serve sessions and start agents, until Ctrl-C.

    Over HTTP and gRPC, to other processes and machines; SIGTERM ends it, too. REST and live streams, with a page to
    read at /docs; agents are started here, unless told otherwise.
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
        return _serve_many(options, workers, log_format, log_level)
    uvloop.run(run(options))
    if options.greets:
        hint("  The server has stopped; sessions stay.")
    return 0


def _set_up_logs(log_format: str | None, level: str) -> bool:
    """Start logging; return whether to greet a person at a terminal."""
    import logging

    from moorage.doors import logs

    is_terminal = sys.stderr.isatty()
    chosen = log_format or ("text" if is_terminal else "json")
    greets = is_terminal and chosen == "text"
    logs.set_up(chosen, level)
    if greets and level == "info":  # the greeting says that it has started
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    return greets


def _serve_many(options: ServeOptions, workers: int, log_format: str | None, log_level: str) -> int:
    """Serve with several processes at one address; each gets the options of this one."""
    import uvloop

    from moorage.doors.http.serve import greet, grpc_place, listen
    from moorage.doors.http.workers import serve_many

    told = ["--host", options.host, "--name", options.name, "--slots", str(options.slots), "--log-level", log_level]
    told += [] if options.url is None else ["--store", options.url]
    told += [] if options.context_url is None else ["--context-url", options.context_url]
    told += [] if options.launches else ["--no-launcher"]
    told += ["--insecure-no-keys"] if options.open_to_all else []
    told += ["--allow-eviction"] if options.allows_eviction else []
    told += [] if log_format is None else ["--log-format", log_format]
    place = grpc_place(options)  # kept until all of them have ended
    told += ["--no-grpc"] if place is None else ["--grpc-shared", "--grpc-port", str(place.getsockname()[1])]
    for option in ("grpc_cert", "grpc_key", "grpc_client_ca"):
        if (value := getattr(options, option)) is not None:
            told += [f"--{option.replace('_', '-')}", value]
    listening = listen(options.host, options.port)

    def say_hello() -> None:
        if options.greets:
            greet(options, listening, None if place is None else place.getsockname()[1])

    return uvloop.run(serve_many(listening, workers, told, say_hello))


SAMPLES = ("echo-agent", "hello-world", "itinerary-worker", "weather-tool")


@command("sample", "moorage sample echo-agent --port 50052", "moorage sample weather-tool --port 0")
@click.argument("name", type=click.Choice(SAMPLES))
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen.")
@click.option("--port", type=click.IntRange(0, 65535), default=50052, show_default=True, help="0 takes any free one.")
def sample(_: App, name: str, host: str, port: int) -> None:
    """Serve one of the sample agents or tools by gRPC.

    Alone, until it is told to stop.

    An endpoint to try a router with: `kind = "grpc"` and `endpoint = "127.0.0.1:50052"` in an agent's file.
    """
    import asyncio

    from moorage.agents.router import load_grpc
    from moorage.doors import logs

    load_grpc()
    logs.set_up("text", "info")
    from moorage.doors.grpc.sample import serve_sample

    asyncio.run(serve_sample(name, host, port))
