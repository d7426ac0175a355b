"""Launchers: run one, list them, and drain one."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from typing import Any

import click

from moorage import config
from moorage.core.errors import utc_text
from moorage.core.status import SILENT_AFTER
from moorage.core.turn import Launcher
from moorage.doors.cli import arguments
from moorage.doors.cli.app import App, command
from moorage.doors.cli.output import facts, hint, is_terminal, note, page_of, say
from moorage.doors.cli.tables import TableRow, table, wide_option
from moorage.doors.cli.wording import ago, command_line, counted

_silence_option = partial(click.option, show_default=True, metavar="DURATION")


@command(
    "launcher",
    "moorage launcher",
    "moorage launcher --name build-box --slots 4",
    "moorage launcher --url http://server:8765",
)
@click.option("--name", default="default", show_default=True, metavar="NAME", help="Its name, and that of its folder.")
@arguments.slots
@_silence_option("--lease", default="30s", help="Silence after which it shows as unresponsive.")
@_silence_option("--lost-after", default="5m", help="Silence after which its turns are lost.")
@click.option("--key", metavar="KEY", help="A key of a server, with scope launch.  [env: MOORAGE_KEY, MOORAGE_TOKEN]")
def launcher(app: App, name: str, slots: int, lease: str, lost_after: str, key: str | None) -> None:
    """Take turns and start agents, until Ctrl-C.

    On Ctrl-C or SIGTERM, it waits up to 30 seconds for its agents; a second one ends the wait. Agents in processes of
    their own keep running, and a launcher of the same name adopts them at its next start. `moorage drain` lets it
    finish all turns first. With the URL of a server, it takes turns of that server, from any machine, and starts the
    agents that are defined there.
    """
    from moorage.launcher.loop import HEARTBEAT, alone_in

    limits = {name: config.duration(name, text) for name, text in (("lease", lease), ("lost_after", lost_after))}
    options: dict[str, Any] = {
        "name": name,
        "slots": slots,
        "folder": config.launcher_folder(name),
        "environment": config.agent_environment(app.url),
        "beat_every": min(HEARTBEAT, limits["lease"].total_seconds() / 3),
    }
    work = _for_server if config.is_server(app.full_url) else _on_store
    key = config.take_key() if key is None else key
    turns = f"up to {counted(slots, 'turn')} at once"
    with alone_in(options["folder"]):
        note(f"Launcher {name}: {turns} on {config.without_password(app.full_url)}. Ctrl-C ends it.")
        asyncio.run(work(app.full_url, key, limits, options))


async def _on_store(url: str, _: str | None, limits: dict[str, Any], options: dict[str, Any]) -> None:
    from moorage.launcher.loop import serve
    from moorage.service.turns import TurnDispatcher

    deps = config.open_deps(url, threaded=True, is_known=True)  # it may start before its store
    looking = asyncio.create_task(deps.registered.keep_looking())
    try:
        dispatcher, agents = TurnDispatcher(deps, **limits), partial(config.agents_of, deps)
        await serve(lambda _: dispatcher, agents, on_signal=deps.store.hurry, **options)
    finally:
        looking.cancel()
        await deps.store.close()


async def _for_server(url: str, key: str | None, limits: dict[str, Any], options: dict[str, Any]) -> None:
    from moorage.launcher.loop import serve
    from moorage.remote.dispatcher import RemoteDispatcher, ServerAgents
    from moorage.remote.transport import Requester

    line = Requester(url, key)
    agents, dispatchers = ServerAgents(line, config.agents), AsyncExitStack()

    def open_dispatcher(launcher: Launcher) -> RemoteDispatcher:
        dispatcher = RemoteDispatcher(line, launcher, **limits)
        dispatchers.push_async_callback(dispatcher.close)
        return dispatcher

    async with dispatchers:
        watching = asyncio.create_task(agents.watch())
        dispatchers.callback(watching.cancel)
        await serve(open_dispatcher, agents, **options)


# Other launchers ----------------------------------------------------------------------------------


@command("launchers", "moorage launchers")
@wide_option
def launchers(app: App) -> None:
    """List launchers, newest first."""
    found = app.moor.launchers().items
    app.show(page_of(found), lambda: _show(found))


def _show(found: list[Launcher]) -> None:
    if not is_terminal():
        for each in found:
            slots = ", ".join(filter(None, (f"{each.slots}, {each.running} at work", _ending(each))))
            about = {"launcher": each.launcher_id, "name": each.name, "slots": slots, "seen": utc_text(each.seen_at)}
            say(facts(about.items()))
    elif found:
        table(("name", "launcher", "state", "turns", "seen"), map(_row, found))
    else:
        hint(f"No launchers. Start one: {command_line('launcher')}")


def _row(launcher: Launcher) -> TableRow:
    turns = f"{launcher.running} of {launcher.slots}"
    return launcher.name, launcher.launcher_id, _ending(launcher) or "ready", turns, ago(launcher.seen_at)


def _ending(launcher: Launcher) -> str:
    if datetime.now(UTC) - launcher.seen_at >= SILENT_AFTER:
        return "lost"
    return "ending" if launcher.draining else "takes no more turns" if launcher.drain else ""


@command("drain", "moorage drain default", "moorage drain 01JC5B2V", "moorage drain default --undo")
@click.argument("launcher", metavar="LAUNCHER")
@arguments.flag("--undo", "Let it take turns again.")
def drain(app: App, launcher: str, undo: bool) -> None:
    """Let a launcher finish its turns and take no new ones.

    LAUNCHER is its name, its id, or the beginning of it. Its agents run to their end. Then a launcher that is a
    process of its own exits; the launcher of a server takes no turns until --undo or a restart.
    """
    found = app.moor.drain_launcher(launcher, drain=not undo)
    ending = f"takes no more turns; {found.running} at work as of {utc_text(found.seen_at)}"
    app.show(found, lambda: say(f"{found.name} {ending if found.drain else 'takes turns again'}"))
