"""The launcher as a command."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import click

from moorage import config
from moorage.core.turn import Launcher
from moorage.doors.cli.app import App, command, pass_app
from moorage.doors.cli.output import note


@command(
    "launcher",
    examples=(
        "moorage launcher",
        "moorage launcher --name build-box --slots 4",
        "moorage launcher --url http://server:8765",
    ),
)
@click.option("--name", default="default", show_default=True, metavar="NAME", help="Its folder, and what it is called.")
@click.option("--slots", type=click.IntRange(1, 1000), default=16, show_default=True, help="How many turns at once.")
@click.option("--lease", default="30s", show_default=True, metavar="DURATION", help="After which it shows as silent.")
@click.option(
    "--lost-after", default="5m", show_default=True, metavar="DURATION", help="After which a silent turn is lost."
)
@click.option("--key", metavar="KEY", help="A launcher's key, for a server.  [env: MOORAGE_KEY, MOORAGE_TOKEN]")
@pass_app
def launcher(app: App, name: str, slots: int, lease: str, lost_after: str, key: str | None) -> None:
    """Take turns and start agents, until it is told to stop (Ctrl-C, SIGTERM).

    It waits up to 30 seconds for agents at work then; told again, it does not. Agents in processes of their own
    go on when it ends, and are adopted when it comes back. `moorage drain` lets it finish them all first, and end
    then. With the URL of a server it works for that server, on whatever machine, and starts the agents that are
    defined there.
    """
    from moorage.launcher.loop import HEARTBEAT

    limits: dict[str, Any] = {
        "lease": config.duration("lease", lease),
        "lost_after": config.duration("lost_after", lost_after),
    }
    options: dict[str, Any] = {
        "name": name,
        "slots": slots,
        "folder": os.path.join(config.home(), "launcher", config.folder_name(name)),
        "environment": config.agent_environment(app.url),
        "beat_every": min(HEARTBEAT, limits["lease"].total_seconds() / 3),
    }
    work = _for_server if config.is_server(app.full_url) else _on_store
    key = config.take_key() if key is None else key
    note(f"Launcher {name}: {slots} turns at once on {app.full_url}. Ctrl-C ends it.")
    asyncio.run(work(app.full_url, key, limits, options))


async def _on_store(url: str, _: str | None, limits: dict[str, Any], options: dict[str, Any]) -> None:
    from moorage.launcher.standalone import serve
    from moorage.service.turns import TurnDesk

    deps = config.open_deps(url, threaded=True)
    looking = asyncio.create_task(deps.registered.keep_looking())
    try:
        desk, agents = TurnDesk(deps, **limits), partial(config.agents_of, deps)
        await serve(lambda _: desk, agents, on_signal=deps.store.hurry, **options)
    finally:
        looking.cancel()
        await deps.store.close()


async def _for_server(url: str, key: str | None, limits: dict[str, Any], options: dict[str, Any]) -> None:
    from moorage.launcher.standalone import serve
    from moorage.remote.definitions import ServerAgents
    from moorage.remote.desk import RemoteDesk
    from moorage.remote.line import Line

    line = Line(url, key)
    agents, desks = ServerAgents(line, config.agents), AsyncExitStack()

    def open_desk(launcher: Launcher) -> RemoteDesk:
        desk = RemoteDesk(line, launcher, **limits)
        desks.push_async_callback(desk.close)
        return desk

    async with desks:
        watching = asyncio.create_task(agents.watch())
        desks.callback(watching.cancel)
        await serve(open_desk, agents, **options)
