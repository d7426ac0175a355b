"""The launcher as a command."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import Any

import click

from holdfast import config
from holdfast.doors.cli.app import App, command, pass_app
from holdfast.doors.cli.output import note
from holdfast.service.deps import Deps


@command("launcher", examples=("holdfast launcher", "holdfast launcher --name build-box --slots 4"))
@click.option("--name", default="default", show_default=True, metavar="NAME", help="Its folder, and what it is called.")
@click.option("--slots", type=click.IntRange(1, 1000), default=16, show_default=True, help="How many turns at once.")
@click.option("--lease", default="30s", show_default=True, metavar="DURATION", help="After which it shows as silent.")
@click.option(
    "--lost-after", default="5m", show_default=True, metavar="DURATION", help="After which a silent turn is lost."
)
@pass_app
def launcher(app: App, name: str, slots: int, lease: str, lost_after: str) -> None:
    """Take turns and start agents, until it is told to stop (Ctrl-C, SIGTERM).

    Agents in processes of their own go on when it ends, and are adopted when it comes back.
    """
    from holdfast.launcher.standalone import serve

    deps = config.open_deps(app.url, threaded=True)
    note(f"Launcher {name}: {slots} turns at once on {app.full_url}. Ctrl-C ends it.")
    work = serve(
        deps,
        config.agents,
        folder=os.path.join(config.home(), "launcher", config.folder_name(name)),
        name=name,
        slots=slots,
        environment=config.agent_environment(app.url),
        lease=config.duration("lease", lease),
        lost_after=config.duration("lost_after", lost_after),
    )
    asyncio.run(_closing(deps, work))


async def _closing(deps: Deps, work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    finally:
        await deps.store.close()
