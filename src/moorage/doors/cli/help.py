"""`moorage help`: the common commands, all of them, or one."""

from __future__ import annotations

import click

from moorage.doors.cli.app import COMMANDS, App, Root, command
from moorage.doors.cli.edge import UsageProblem

ALL = "all"


@command("help", "moorage help", "moorage help all", "moorage help approvals show")
@click.argument("words", nargs=-1, metavar="[all|COMMAND]")
def help_(app: App, words: tuple[str, ...]) -> None:
    """Show the common commands, all commands, or one command."""
    root = click.get_current_context().find_root()
    text = all_commands(root) if words == (ALL,) else _help_of(root, words)
    app.show({"help": text}, lambda: click.echo(text))


def all_commands(root: click.Context) -> str:
    """Return every command with a one-line summary, grouped by topic."""
    assert isinstance(root.command, Root)
    formatter = root.make_formatter()
    for section, places in COMMANDS.items():
        with formatter.section(section):
            formatter.write_dl(root.command.texts(root, places))
    with formatter.section("Exit codes"):
        formatter.write_text("0 done, 1 no or a failed run, 2 usage, 3 not found, 4 refused, 5 unreachable")
    return formatter.getvalue().strip("\n")


def _help_of(root: click.Context, words: tuple[str, ...]) -> str:
    """Return the help of a command, or of the program without words."""
    context = root
    for word in words:
        group = context.command
        if not isinstance(group, click.Group):
            raise UsageProblem(f"`{context.command_path}` has no commands of its own")
        _, found, _ = group.resolve_command(context, [word])
        assert found is not None
        context = click.Context(found, info_name=word, parent=context)
    return context.get_help()
