"""The command line as a whole: its commands, what they share, and how one is run.

A command's module is loaded when the command is used. `--url` and `--json` may stand before or after a command's
name, so every command and group takes them. The function of a command gets the `App` first, then its options, and
returns its exit code; None means 0.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from importlib import import_module
from typing import Any

import click

from moorage import __version__, config
from moorage.core.errors import (
    ApprovalNotFound,
    Forbidden,
    MoorageError,
    NotFound,
    ParentNotFound,
    SessionNotFound,
)
from moorage.core.session import Session
from moorage.doors.cli import edge
from moorage.doors.cli.connection import connect
from moorage.doors.cli.edge import UsageProblem
from moorage.doors.cli.hints import PROGRAM, ref_of, remember_url, shown_id
from moorage.doors.cli.output import complain, folded, is_terminal, say, show_json
from moorage.doors.cli.wording import nearest
from moorage.sync import Moorage

SHORT = 60  # characters of a command's summary: it fits beside the longest name at 80 columns
LOOKED_THROUGH = 200  # newest sessions searched for a suggestion
COMPLETE = "_MOORAGE_COMPLETE"  # the shell's script asks for completions through this variable

# Where each command lives: "module:function", by the section of `moorage --help` that lists it.
COMMANDS: dict[str, dict[str, str]] = {
    "Sessions": {
        "create": "sessions:create",
        "list": "sessions:list_",
        "show": "sessions:get",
        "update": "sessions:update",
        "rename": "sessions:rename",
        "finalize": "sessions:finalize",
        "fork": "sessions:fork",
    },
    "Pause and resume": {
        "suspend": "holds:suspend",
        "resume": "holds:resume",
        "release": "holds:release",
        "should-resume": "holds:should_resume",
        "checkpoint": "checkpoints:checkpoint",
    },
    "Conversation and memory": {
        "send": "conversation:send",
        "log": "conversation:log",
        "watch": "conversation:watch",
        "replay": "conversation:replay",
        "compact": "conversation:compact",
        "search": "conversation:search",
        "context": "context:context",
        "memory": "memory:memory",
    },
    "Agents": {
        "agents": "agents:agents",
        "run": "runs:run",
        "attach": "runs:attach",
        "runs": "runs:runs",
        "result": "runs:result",
        "stop": "runs:stop",
        "retry": "runs:retry",
        "inbox": "inbox:inbox",
        "launcher": "launcher:launcher",
        "launchers": "launcher:launchers",
        "drain": "launcher:drain",
    },
    "Families": {"tree": "family:tree", "children": "family:children", "delete": "family:delete"},
    "Approvals": {
        "approvals": "approvals:approvals",
        "approve": "approvals:approve",
        "reject": "approvals:reject",
        "request-approval": "approvals:request_approval",
    },
    "Servers and hosts": {
        "serve": "serve:serve",
        "keys": "keys:keys",
        "mcp": "mcp:mcp",
        "hooks": "hooks:hooks",
        "sample": "serve:sample",
    },
    "Maintenance": {
        "stats": "stats:stats",
        "cleanup": "cleanup:cleanup",
        "audit": "cleanup:audit",
        "export": "transfer:export",
        "import": "transfer:import_",
        "continue": "transfer:continue_",
        "migrate": "migrate:migrate",
        "encryption-key": "keys:encryption_key",
        "doctor": "doctor:doctor",
        "completion": "completion:completion",
    },
    "Help and aliases": {"help": "help:help_", "get": "sessions:get", "agent": "agent:agent"},
}
COMMON = ("agents", "run", "attach", "list", "show", "log", "approvals", "approve", "resume", "serve")
OTHER_NAMES = {"get": "An alias of `show`."}


class App:
    """The shared options of a command line, and the connection its command works on."""

    def __init__(self, arguments: Sequence[str] = ()) -> None:
        self.arguments = arguments
        self.url: str | None = None
        self.as_json = False

    @cached_property
    def moor(self) -> Moorage:
        """Return the connection; open it on first use and close it after the command."""
        opened = connect(self.url)
        click.get_current_context().find_root().call_on_close(opened.close)
        return opened

    @property
    def full_url(self) -> str:
        """Return the URL of the store, from the command line, the environment or the configuration."""
        return config.pick_url(self.url)

    @property
    def is_remote(self) -> bool:
        """Return whether the URL names a server."""
        return config.is_server(self.full_url)

    def id_of(self, ref: str) -> str:
        """Return the id for an id, a name, or a prefix of at least four characters."""
        return self.moor.resolve(ref)

    def sessions(self, ids: Iterable[str]) -> dict[str, Session]:
        """Return the sessions with these ids, without deleted ones and those that this caller may not read."""
        found = {}
        for session_id in dict.fromkeys(ids):
            with suppress(Forbidden, NotFound):
                found[session_id] = self.moor.get(session_id)
        return found

    def ref_of(self, session_id: str) -> str:
        """Return the word by which hints name a session: its name, if it can be read now, else its id."""
        try:
            return ref_of(self.moor.get(session_id))
        except MoorageError:
            return shown_id(session_id)

    @property
    def is_at_terminal(self) -> bool:
        """Return whether a user sits at a terminal."""
        return sys.stdin.isatty() and is_terminal() and not self.as_json

    def show(self, answer: Any, as_text: Callable[[], None]) -> None:
        """Print an answer: as JSON if requested, else as text."""
        if self.as_json:
            show_json(answer)
        else:
            as_text()

    def tell(self, answer: Any, sentence: str, line: str) -> None:
        """Print an answer: as JSON if requested, as a sentence on a terminal, else as one line."""
        self.show(answer, lambda: say(folded(sentence, sys.stdout) if is_terminal() else line))


pass_app = click.make_pass_decorator(App, ensure=True)


# Commands and groups ----------------------------------------------------------------------------


def _take_shared(ctx: click.Context, param: click.Parameter, value: str | bool | None) -> None:
    """Keep a shared option in the App; the last one given counts."""
    if value is not None and value is not False:
        setattr(ctx.ensure_object(App), str(param.name), value)
        if param.name == "url":
            remember_url(str(value))


def _shared_options() -> list[click.Parameter]:
    url = "The store or the server: sqlite:///FILE, http://HOST:PORT.  [env: MOORAGE_URL]"
    as_json = "Print one JSON document and nothing else."
    taken: dict[str, Any] = {"expose_value": False, "callback": _take_shared}
    return [
        click.Option(["--url"], metavar="URL", help=url, **taken),
        click.Option(["--json", "as_json"], is_flag=True, help=as_json, **taken),
    ]


class Command(click.Command):
    """A command with examples in its help, which takes the shared options."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.examples = examples
        self.params += _shared_options()

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Put the examples last."""
        super().format_epilog(ctx, formatter)
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"{' ' * formatter.current_indent}{example}\n")


class Group(Command, click.Group):
    """Commands under a common name: its own, and others by their places, loaded on use."""

    def __init__(self, *args: Any, places: Mapping[str, str] | None = None, **settings: Any) -> None:
        super().__init__(*args, no_args_is_help=False, **settings)
        self.places = dict(places or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which the help lists them."""
        return [*self.places, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name."""
        if cmd_name not in self.places:
            return super().get_command(ctx, cmd_name)
        module, _, name = self.places[cmd_name].partition(":")
        found: click.Command = getattr(import_module(f"moorage.doors.cli.{module}"), name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names. Raise UsageError with the nearest one if there is none."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            meant = nearest(args[0], self.list_commands(ctx))
            guess = f"; did you mean `{ctx.command_path} {meant}`?" if meant else ""
            raise click.UsageError(f"there is no command {args[0]!r}{guess}", ctx)
        return super().resolve_command(ctx, args)

    def subcommand(self, name: str, *examples: str) -> Callable[[Callable[..., Any]], Command]:
        """Make a function a command of this group."""

        def added(function: Callable[..., Any]) -> Command:
            made = command(name, *examples)(function)
            self.add_command(made)
            return made

        return added


class Root(Group):
    """All commands. The help lists the common ones; `help all` lists all by topic."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Put the commands first, because readers look for them."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the common commands, and tell how to list the others."""
        with formatter.section("Common commands"):
            formatter.write_dl(self.texts(ctx, COMMON))
        with formatter.section("More"):
            formatter.write_dl([("moorage help all", "All commands."), ("moorage COMMAND --help", "One command.")])

    def texts(self, ctx: click.Context, names: Iterable[str]) -> list[tuple[str, str]]:
        """Return commands with a one-line summary each."""
        return [(name, OTHER_NAMES.get(name) or self._short_help(ctx, name)) for name in names]

    def _short_help(self, ctx: click.Context, name: str) -> str:
        command = self.get_command(ctx, name)
        return command.get_short_help_str(limit=SHORT) if command else ""


def command(name: str, *examples: str) -> Callable[[Callable[..., Any]], Command]:
    """Make a function a command; it gets the App first."""
    return lambda function: click.command(name, cls=Command, examples=examples)(pass_app(function))


def group(name: str, *examples: str, **settings: Any) -> Callable[[Callable[..., Any]], Group]:
    """Make a function a group of commands."""
    return click.group(name, cls=Group, examples=examples, **settings)


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
        "moorage run echo-agent",
        'moorage run echo-agent "hello"',
        "moorage list --active-only --json",
        "moorage resume plan-prod",
    ),
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Durable sessions for AI agents: across pauses, crashes, machines and interfaces.

    Name a session by its id, its name, or the beginning of its id.
    """
    if ctx.invoked_subcommand is None:
        if ctx.ensure_object(App).as_json:
            raise UsageProblem("say what to do: `moorage help all` lists the commands")
        click.echo(ctx.get_help())


# Running ----------------------------------------------------------------------------------------


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code."""
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
    remember_url(None)
    app = App(arguments)
    try:
        with cli.make_context(PROGRAM, list(arguments), obj=app) as ctx:
            try:
                return cli.invoke(ctx) or 0
            except (SessionNotFound, ParentNotFound, ApprovalNotFound) as error:
                _suggest(app, error)
                raise
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None
    except click.ClickException as error:
        raise UsageProblem(_in_one_line(error)) from None


def _suggest(app: App, error: NotFound) -> None:
    """Add the session whose name or id is nearest to the given one. A session may stand for its open approval."""
    given = next(str(error.facts[fact]) for fact in ("session_id", "parent", "approval_id") if fact in error.facts)
    with suppress(MoorageError):  # if the store fails now, there is no suggestion
        sessions = app.moor.list(limit=LOOKED_THROUGH).items
        names = [name for session in sessions for name in (session.session_name, session.session_id) if name]
        if given not in names and (meant := nearest(given, names)):
            error.add_note(f"Did you mean {meant}?")


def _in_one_line(error: click.ClickException) -> str:
    message = " ".join(error.format_message().split()).rstrip(".")
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    joint = " See" if message.endswith("?") else "; see"
    return f"{message}{joint} `{ctx.command_path if ctx else PROGRAM} --help`"
