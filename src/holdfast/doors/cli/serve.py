"""The server as a command."""

from __future__ import annotations

import click

from holdfast.doors.cli.app import App, command, pass_app


@command(
    "serve",
    examples=(
        "holdfast serve",
        "holdfast serve --port 0 --store sqlite:///team.db",
        "holdfast serve --log-format json --no-launcher",
    ),
)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0 takes any free one.")
@click.option("--store", metavar="URL", help="The store to serve; like --url.")
@click.option("--launcher/--no-launcher", default=True, show_default=True, help="Start agents here.")
@click.option("--name", default="serve", show_default=True, metavar="NAME", help="What its launcher is called.")
@click.option("--slots", type=click.IntRange(1, 1000), default=16, show_default=True, help="How many turns at once.")
@click.option("--insecure-no-keys", is_flag=True, help="Let in whoever can reach it, on any address, without a key.")
@click.option("--log-format", type=click.Choice(("text", "json")), help="Text on a terminal, else JSON.")
@click.option(
    "--log-level", default="info", show_default=True, type=click.Choice(("debug", "info", "warning", "error"))
)
@pass_app
def serve(
    app: App,
    host: str,
    port: int,
    store: str | None,
    launcher: bool,
    name: str,
    slots: int,
    insecure_no_keys: bool,
    log_format: str | None,
    log_level: str,
) -> None:
    """Serve sessions over HTTP to other processes and machines, until it is told to stop (Ctrl-C, SIGTERM).

    REST and live streams, with a page to read at /docs; agents are started here, unless told otherwise.
    """
    import sys

    import uvloop

    from holdfast.doors import logs
    from holdfast.doors.http.serve import Options
    from holdfast.doors.http.serve import serve as run

    logs.set_up(log_format or ("text" if sys.stderr.isatty() else "json"), log_level)
    options = Options(
        url=store or app.url,
        host=host,
        port=port,
        launches=launcher,
        name=name,
        slots=slots,
        open_to_all=insecure_no_keys,
    )
    uvloop.run(run(options))
