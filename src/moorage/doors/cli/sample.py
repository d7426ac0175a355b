"""What comes with Moorage, each alone behind gRPC, as a command."""

from __future__ import annotations

import click

from moorage.doors.cli.app import command

SAMPLES = ("echo-agent", "hello-world", "itinerary-worker", "weather-tool")


@command(
    "sample",
    examples=(
        "moorage sample echo-agent --port 50052",
        "moorage sample weather-tool --port 0",
    ),
)
@click.argument("name", type=click.Choice(SAMPLES))
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen.")
@click.option("--port", type=click.IntRange(0, 65535), default=50052, show_default=True, help="0 takes any free one.")
def sample(name: str, host: str, port: int) -> None:
    """Serve one of the agents, workers or tools that come along by gRPC, alone, until it is told to stop.

    An endpoint to try a router with: `kind = "grpc"` and `endpoint = "127.0.0.1:50052"` in an agent's file.
    """
    import asyncio

    from moorage.agents.router import load_grpc
    from moorage.doors import logs

    load_grpc()
    logs.set_up("text", "info")
    from moorage.doors.grpc.sample import serve_sample

    asyncio.run(serve_sample(name, host, port))
