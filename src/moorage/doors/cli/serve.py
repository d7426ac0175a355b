"""The server as a command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from moorage.doors.cli.app import App, command

if TYPE_CHECKING:
    from moorage.doors.http.serve import Options


@command(
    "serve",
    examples=(
        "moorage serve",
        "moorage serve --port 0 --store sqlite:///team.db",
        "moorage serve --log-format json --no-launcher",
        "moorage serve --grpc-port 50051 --grpc-cert server.pem --grpc-key server.key",
    ),
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
@click.option("--launcher/--no-launcher", default=True, show_default=True, help="Start agents here.")
@click.option("--name", default="serve", show_default=True, metavar="NAME", help="What its launcher is called.")
@click.option("--slots", type=click.IntRange(1, 1000), default=16, show_default=True, help="How many turns at once.")
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="How many processes.")
@click.option("--insecure-no-keys", is_flag=True, help="Let in whoever can reach it, on any address, without a key.")
@click.option("--log-format", type=click.Choice(("text", "json")), help="Text on a terminal, else JSON.")
@click.option(
    "--log-level", default="info", show_default=True, type=click.Choice(("debug", "info", "warning", "error"))
)
@click.option("--fd", type=int, hidden=True)
@click.option("--grpc-shared", is_flag=True, hidden=True)
@click.pass_context
def serve(
    ctx: click.Context,
    /,
    host: str,
    port: int,
    grpc_port: int,
    grpc: bool,
    grpc_cert: str | None,
    grpc_key: str | None,
    grpc_client_ca: str | None,
    store: str | None,
    launcher: bool,
    name: str,
    slots: int,
    workers: int,
    insecure_no_keys: bool,
    log_format: str | None,
    log_level: str,
    fd: int | None,
    grpc_shared: bool,
) -> None:
    """Serve sessions over HTTP and gRPC to other processes and machines, until it is told to stop (Ctrl-C, SIGTERM).

    REST and live streams, with a page to read at /docs; agents are started here, unless told otherwise.
    """
    import logging
    import sys

    from moorage.core.extras import provided_by
    from moorage.doors import logs

    with provided_by("server", "the server"):
        import uvloop

        from moorage.doors.http.serve import Options
        from moorage.doors.http.serve import serve as run

    at_terminal = sys.stderr.isatty()
    chosen = log_format or ("text" if at_terminal else "json")
    greets = at_terminal and chosen == "text"
    logs.set_up(chosen, log_level)
    if greets and log_level == "info":  # the greeting says that it has started
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    options = Options(
        url=store or ctx.ensure_object(App).url,
        host=host,
        port=port,
        launches=launcher,
        name=name,
        slots=slots,
        greets=greets,
        open_to_all=insecure_no_keys,
        fd=fd,
        grpc_port=grpc_port if grpc else None,
        grpc_given=grpc_shared or ctx.get_parameter_source("grpc_port") is ParameterSource.COMMANDLINE,
        grpc_shared=grpc_shared,
        grpc_cert=grpc_cert,
        grpc_key=grpc_key,
        grpc_client_ca=grpc_client_ca,
    )
    if workers == 1:
        uvloop.run(run(options))
    else:
        ctx.exit(_serve_many(options, workers, log_format, log_level))


def _serve_many(options: Options, workers: int, log_format: str | None, log_level: str) -> int:
    """Several processes at one address: what each of them is told."""
    import uvloop

    from moorage.doors.http.serve import greet, grpc_place, listen
    from moorage.doors.http.workers import serve_many

    told = ["--host", options.host, "--name", options.name, "--slots", str(options.slots), "--log-level", log_level]
    told += [] if options.url is None else ["--store", options.url]
    told += [] if options.launches else ["--no-launcher"]
    told += ["--insecure-no-keys"] if options.open_to_all else []
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
