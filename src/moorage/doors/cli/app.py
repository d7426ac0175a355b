"""The command line as a whole: its commands, what they share, and how one is run.

A command's module is loaded when the command is used. `--url` and `--json` may stand before
or after a command's name, so every command and group takes them.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from importlib import import_module
from typing import Any

import click

from moorage import __version__, config
from moorage.doors.cli import edge
from moorage.doors.cli.connection import connect
from moorage.doors.cli.edge import UsageProblem
from moorage.doors.cli.output import complain, show_json
from moorage.sync import Moorage

PROGRAM = "moorage"
COMPLETE = "_MOORAGE_COMPLETE"  # by this variable the shell's script asks for completions

# Where each command lives: "module:function", by the section of `moorage --help` that lists it.
COMMANDS: dict[str, dict[str, str]] = {
    "Sessions": {
        "create": "sessions:create",
        "get": "sessions:get",
        "show": "sessions:get",
        "list": "sessions:list_",
        "update": "sessions:update",
        "finalize": "sessions:finalize",
        "fork": "sessions:fork",
    },
    "Pausing and picking up": {
        "suspend": "holds:suspend",
        "resume": "holds:resume",
        "release": "holds:release",
        "should-resume": "holds:should_resume",
        "checkpoint": "checkpoints:checkpoint",
    },
    "Conversation and memory": {
        "send": "conversation:send",
        "log": "conversation:log",
        "watch": "watch:watch",
        "replay": "watch:replay",
        "compact": "conversation:compact",
        "search": "conversation:search",
        "context": "context:context",
    },
    "Agents": {
        "agents": "agents:agents",
        "run": "runs:run",
        "attach": "runs:attach",
        "runs": "runs:runs",
        "result": "runs:result",
        "stop": "runs:stop",
        "retry": "retry:retry",
        "inbox": "runs:inbox",
        "launcher": "launcher:launcher",
        "launchers": "launchers:launchers",
        "drain": "launchers:drain",
    },
    "Families": {
        "tree": "family:tree",
        "children": "family:children",
        "delete": "family:delete",
    },
    "Approvals": {
        "approvals": "approvals:approvals",
        "approve": "approvals:approve",
        "reject": "approvals:reject",
        "request-approval": "approvals:request_approval",
    },
    "Server": {
        "serve": "serve:serve",
        "sample": "sample:sample",
    },
    "Care": {
        "stats": "stats:stats",
        "cleanup": "care:cleanup",
        "audit": "audit:audit",
        "export": "transfer:export",
        "import": "transfer:import_",
        "migrate": "care:migrate",
        "encryption-key": "encryption:encryption_key",
        "doctor": "doctor:doctor",
        "completion": "completion:completion",
    },
    "Servers": {
        "keys": "keys:keys",
    },
    "Hosts": {
        "hooks": "hooks:hooks",
        "mcp": "mcp:mcp",
    },
    "Other names": {
        "agent": "agent:agent",
    },
}


class App:
    """What a command line asked for, and the connection its command works on."""

    def __init__(self, arguments: Sequence[str] = ()) -> None:
        self.arguments = arguments
        self.url: str | None = None
        self.as_json = False

    @cached_property
    def moor(self) -> Moorage:
        """The connection, opened when it is first needed and closed after the command."""
        opened = connect(self.url)
        click.get_current_context().find_root().call_on_close(opened.close)
        return opened

    @property
    def full_url(self) -> str:
        """The store's URL, wherever it was given."""
        return config.pick_url(self.url)

    @property
    def is_remote(self) -> bool:
        """Whether it is a server's."""
        return config.is_server(self.full_url)

    def id_of(self, ref: str) -> str:
        """The id behind an id, a name, or a prefix of four characters and more."""
        return self.moor.resolve(ref)

    def show(self, answer: Any, as_text: Callable[[], None]) -> None:
        """Print an answer: as a document for a program, else as text."""
        if self.as_json:
            show_json(answer)
        else:
            as_text()


pass_app = click.make_pass_decorator(App, ensure=True)


# Commands and groups ----------------------------------------------------------------------------


def _take_url(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(App).url = value


def _take_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(App).as_json = True


def _shared_options() -> list[click.Parameter]:
    """What every command takes; the last one given counts."""
    return [
        click.Option(
            ["--url"],
            metavar="URL",
            expose_value=False,
            callback=_take_url,
            help="The store or the server: sqlite:///FILE, http://HOST:PORT.  [env: MOORAGE_URL]",
        ),
        click.Option(
            ["--json"],
            is_flag=True,
            expose_value=False,
            callback=_take_json,
            help="Print one JSON document and nothing else.",
        ),
    ]


class _Exemplary(click.Command):
    """A command that shows how it is used, and takes the shared options."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.examples = examples
        self.params += _shared_options()

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Put the examples after everything else."""
        super().format_epilog(ctx, formatter)
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"{' ' * formatter.current_indent}{example}\n")


class Command(_Exemplary):
    """One thing a person or program can ask."""


class Group(_Exemplary, click.Group):
    """Commands under a common name, each loaded when it is used."""

    command_class = Command

    def __init__(self, *args: Any, places: Mapping[str, str] | None = None, **settings: Any) -> None:
        super().__init__(*args, no_args_is_help=False, **settings)
        self.places = dict(places or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order in which they are best read."""
        return [*self.places, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        if cmd_name not in self.places:
            return super().get_command(ctx, cmd_name)
        module, _, name = self.places[cmd_name].partition(":")
        found: click.Command = getattr(import_module(f"moorage.doors.cli.{module}"), name)
        return found


class Root(Group):
    """All commands, listed by what they are about."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One section after another."""
        for section, places in COMMANDS.items():
            with formatter.section(section):
                formatter.write_dl([(name, self._short_help(ctx, name)) for name in places])

    def _short_help(self, ctx: click.Context, name: str) -> str:
        command = self.get_command(ctx, name)
        return command.get_short_help_str(limit=90) if command else ""


def command(name: str, *, examples: Sequence[str]) -> Callable[[Callable[..., Any]], Command]:
    """Make a function a command."""
    return click.command(name, cls=Command, examples=examples)


def group(
    name: str, *, examples: Sequence[str], places: Mapping[str, str] | None = None
) -> Callable[[Callable[..., Any]], Group]:
    """Make a function a group of commands."""
    return click.group(name, cls=Group, examples=examples, places=places)


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    if edge.asks_for_json(ctx.ensure_object(App).arguments):  # it may stand after this option
        show_json({"version": __version__})
    else:
        click.echo(f"{PROGRAM} {__version__}")
    ctx.exit()


@click.group(
    PROGRAM,
    cls=Root,
    places={name: place for places in COMMANDS.values() for name, place in places.items()},
    invoke_without_command=True,
    examples=(
        "moorage create --agent terraform-architect --name plan-prod",
        'moorage send plan-prod "Plan the change"',
        "moorage --json list --active-only",
        "moorage resume plan-prod",
    ),
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Keep an agent's session alive: across pauses, crashes, machines and interfaces.

    A session is named by its id, its name, or the first four and more characters of its id.

    Exit codes: 0 done, 1 a "no", 2 usage, 3 not found, 4 refused, 5 unreachable.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        raise UsageProblem("say what to do: one of the commands above")


# Running ----------------------------------------------------------------------------------------


def run(arguments: Sequence[str]) -> int:
    """Run a command line; its exit code."""
    return edge.run(partial(_run, arguments), arguments)


def _run(arguments: Sequence[str]) -> int:
    if instruction := os.environ.get(COMPLETE):
        from click.shell_completion import shell_complete

        return shell_complete(cli, {}, PROGRAM, COMPLETE, instruction)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without all letters still shows the rest
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: complain(f"warning: {message}")
        return _invoke(arguments)


def _invoke(arguments: Sequence[str]) -> int:
    try:
        with cli.make_context(PROGRAM, list(arguments), obj=App(arguments)) as ctx:
            cli.invoke(ctx)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None
    except click.ClickException as error:
        raise UsageProblem(_in_one_line(error)) from None
    return 0


def _in_one_line(error: click.ClickException) -> str:
    message = " ".join(error.format_message().split()).rstrip(".")
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    return f"{message}; see `{ctx.command_path if ctx else PROGRAM} --help`"
