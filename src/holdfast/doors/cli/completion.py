"""Completion: what the shell offers when a person presses Tab."""

from __future__ import annotations

import os

import click
from click.shell_completion import CompletionItem, get_completion_class

from holdfast import config
from holdfast.core.errors import HoldfastError
from holdfast.doors.cli.app import COMPLETE, PROGRAM, App, cli, command, pass_app
from holdfast.doors.cli.connection import connect
from holdfast.doors.cli.output import say

SHELLS = ("bash", "zsh", "fish")
OFFERED = 1000  # of the newest sessions
PATIENCE = 2.0  # seconds that a person who pressed Tab waits for a server


@command(
    "completion",
    examples=(
        "holdfast completion bash > ~/.local/share/bash-completion/completions/holdfast",
        "holdfast completion zsh > ~/.zfunc/_holdfast",
        "holdfast completion fish > ~/.config/fish/completions/holdfast.fish",
    ),
)
@click.argument("shell", type=click.Choice(SHELLS))
@pass_app
def completion(app: App, shell: str) -> None:
    """Print the script that teaches a shell our commands, options and sessions."""
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(cli, {}, PROGRAM, COMPLETE).source()
    app.show({"shell": shell, "script": script}, lambda: say(script))


def sessions_like(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Names and ids of sessions that begin so; nothing where there is nothing to ask."""
    app = ctx.find_object(App) or App()
    try:
        if not _is_there(app.full_url):
            return []
        with connect(app.url, deadline=PATIENCE) as hf:
            found = hf.list(limit=OFFERED).items
    except (HoldfastError, OSError):
        return []
    offered = {session.session_id: session.session_name or session.agent_name for session in found}
    offered |= {session.session_name: session.agent_name for session in found if session.session_name}
    return [CompletionItem(word, help=about) for word, about in offered.items() if word.startswith(incomplete)]


def _is_there(url: str) -> bool:
    """Pressing Tab must not create a database."""
    return not url.startswith("sqlite://") or os.path.exists(config.sqlite_path(url))
