"""Completion: the suggestions of the shell when a user presses Tab."""

from __future__ import annotations

import os

import click
from click.shell_completion import CompletionItem, get_completion_class

from moorage import config
from moorage.core.errors import MoorageError
from moorage.doors.cli.app import COMPLETE, App, cli, command
from moorage.doors.cli.connection import connect
from moorage.doors.cli.hints import PROGRAM
from moorage.doors.cli.output import say

SHELLS = ("bash", "zsh", "fish")
OFFERED = 1000  # of the newest sessions
PATIENCE = 2.0  # seconds to wait for a server after Tab


@command(
    "completion",
    "moorage completion bash > ~/.local/share/bash-completion/completions/moorage",
    "moorage completion zsh > ~/.zfunc/_moorage",
    "moorage completion fish > ~/.config/fish/completions/moorage.fish",
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(app: App, shell: str) -> None:
    """Print the completion script for a shell."""
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(cli, {}, PROGRAM, COMPLETE).source()
    app.show({"shell": shell, "script": script}, lambda: say(script))


def sessions_like(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return the names and ids of sessions with this prefix; none if the store cannot be read."""
    app = ctx.find_object(App) or App()
    try:
        if not _is_there(app.full_url):
            return []
        with connect(app.url, deadline=PATIENCE) as moor:
            found = moor.list(limit=OFFERED).items
    except (MoorageError, OSError):
        return []
    offered = {session.session_id: session.session_name or session.agent_name for session in found}
    offered |= {session.session_name: session.agent_name for session in found if session.session_name}
    return [CompletionItem(word, help=about) for word, about in offered.items() if word.startswith(incomplete)]


def _is_there(url: str) -> bool:
    """Return whether the store exists: pressing Tab must not create a database."""
    return not url.startswith("sqlite://") or os.path.exists(config.sqlite_path(url))
