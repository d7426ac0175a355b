"""Launchers: which there are, and that one takes no more turns."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from moorage.core.errors import utc_text
from moorage.core.status import SILENT_AFTER
from moorage.core.turn import Launcher
from moorage.doors.cli.app import App, command, pass_app
from moorage.doors.cli.output import facts, page_of, say


@command("launchers", examples=("moorage launchers",))
@pass_app
def launchers(app: App) -> None:
    """List launchers, newest first."""
    found = app.moor.launchers().items
    app.show(page_of(found), lambda: _show(found))


def _show(found: list[Launcher]) -> None:
    for each in found:
        say(
            facts(
                (
                    ("launcher", each.launcher_id),
                    ("name", each.name),
                    ("slots", f"{each.slots}, {each.running} at work{_ending(each)}"),
                    ("seen", utc_text(each.seen_at)),
                )
            )
        )


def _ending(launcher: Launcher) -> str:
    if datetime.now(UTC) - launcher.seen_at >= SILENT_AFTER:
        return ", lost"
    if launcher.draining:
        return ", ending"
    return ", takes no more turns" if launcher.drain else ""


@command(
    "drain",
    examples=("moorage drain default", "moorage drain 01JC5B2V", "moorage drain default --undo"),
)
@click.argument("launcher", metavar="LAUNCHER")
@click.option("--undo", is_flag=True, help="Let it take turns again.")
@pass_app
def drain(app: App, launcher: str, undo: bool) -> None:
    """Let a launcher take no more turns: by its name, its id, or the beginning of it.

    What it has at work goes on to its end, however long that takes. A launcher that is a process of its own ends
    then; a server's own takes nothing until --undo, or until the server starts again.
    """
    found = app.moor.drain_launcher(launcher, drain=not undo)
    app.show(found, lambda: say(_told(found)))


def _told(launcher: Launcher) -> str:
    if not launcher.drain:
        return f"{launcher.name} takes turns again"
    return f"{launcher.name} takes no more turns; {launcher.running} at work as of {utc_text(launcher.seen_at)}"
