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
from typing import TYPE_CHECKING, Any

import click

from moorage import __version__, config
from moorage.core.errors import ApprovalNotFound, Forbidden, MoorageError, NotFound, ParentNotFound, SessionNotFound
from moorage.core.session import Session
from moorage.doors.cli import edge
from moorage.doors.cli.connection import connect
from moorage.doors.cli.edge import UsageProblem
from moorage.doors.cli.output import complain, folded, is_terminal, say, show_json
from moorage.doors.cli.wording import PROGRAM, nearest, ref_of, remember_url, shown_id
from moorage.sync import Moorage

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SHORT = 60  # characters of a command's summary: it fits beside the longest name at 80 columns
LOOKED_THROUGH = 200  # newest sessions searched for a suggestion
OFFERED = 1000  # newest sessions that the shell offers after Tab
PATIENCE = 2.0  # seconds to wait for a server after Tab
COMPLETE = "_MOORAGE_COMPLETE"  # the shell's script asks for completions through this variable

# The commands by their section of `moorage help all`, each list after the name of its module.
COMMANDS = {
    "Sessions": "sessions: create list show update rename finalize fork",
    "Pause and resume": "holds: suspend resume release should-resume checkpoint",
    "Conversation and memory": "conversation: send log watch replay compact search; memory: context memory",
    "Agents": "agents: agents; runs: run attach runs result stop retry; conversation: inbox; "
    "launcher: launcher launchers drain",
    "Families": "family: tree children delete",
    "Approvals": "approvals: approvals approve reject request-approval",
    "Servers and hosts": "servers: serve keys mcp; hooks: hooks; servers: sample",
    "Maintenance": "stats: stats; family: cleanup audit; transfer: export import continue; stores: migrate; "
    "servers: encryption-key; stores: doctor; app: completion",
    "Help and aliases": "app: help; sessions: get; app: agent",
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


class Command(click.Command):
    """A command with examples in its help, which takes the shared options."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.examples = examples
        url = "The store or the server: sqlite:///FILE, http://HOST:PORT.  [env: MOORAGE_URL]"
        as_json = "Print one JSON document and nothing else."
        taken: dict[str, Any] = {"expose_value": False, "callback": _take_shared}
        self.params.append(click.Option(["--url"], metavar="URL", help=url, **taken))
        self.params.append(click.Option(["--json", "as_json"], is_flag=True, help=as_json, **taken))

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
        return [*self.places, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.places:
            return super().get_command(ctx, cmd_name)
        module, _, name = self.places[cmd_name].partition(":")
        members = vars(import_module(f"moorage.doors.cli.{module}"))
        found: click.Command = members.get(name) or members[f"{name}_"]  # `list_` is the command `list`
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
        found = [(name, command) for name in names if (command := self.get_command(ctx, name)) is not None]
        return [(name, OTHER_NAMES.get(name) or command.get_short_help_str(limit=SHORT)) for name, command in found]


def command(name: str, *examples: str) -> Callable[[Callable[..., Any]], Command]:
    """Make a function a command; it gets the App first."""
    return lambda function: click.command(name, cls=Command, examples=examples)(pass_app(function))


def group(name: str, *examples: str, **settings: Any) -> Callable[[Callable[..., Any]], Group]:
    return click.group(name, cls=Group, examples=examples, **settings)


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    if edge.asks_for_json(ctx.ensure_object(App).arguments):  # it may stand after this option
        show_json({"version": __version__})
    else:
        click.echo(f"{PROGRAM} {__version__}")
    ctx.exit()


def _places(section: str) -> dict[str, str]:
    parts = [part.partition(": ") for part in section.split("; ")]
    return {name: f"{module}:{name.replace('-', '_')}" for module, _, names in parts for name in names.split()}


@click.group(
    PROGRAM,
    cls=Root,
    places=_places("; ".join(COMMANDS.values())),
    invoke_without_command=True,
    examples=(
        "moorage run echo-agent",
        'moorage run echo-agent "hello"',
        "moorage list --active-only --json",
        "moorage resume plan-prod",
    ),
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Durable sessions for AI agents: across pauses, crashes, machines and interfaces.

    Name a session by its id, its name, or the beginning of its id.
    """
    if ctx.invoked_subcommand is None:
        if ctx.ensure_object(App).as_json:
            raise UsageProblem("say what to do: `moorage help all` lists the commands")
        click.echo(ctx.get_help())


@group(
    "agent",
    *('moorage agent run echo-agent "hello"', "moorage agent list-sessions --active-only"),
    places={
        "run": "runs:run",
        "list-sessions": "sessions:list",
        "show-session": "sessions:show",
        "resume": "holds:agent_resume",
        "suspend": "holds:suspend",
        "cleanup": "family:cleanup",
    },
)
def agent() -> None:
    """Aliases: agent run, agent list-sessions, agent resume, …

    They are run, list, show, suspend and cleanup; `resume` talks to the session's agent.
    """


# Help and completion -----------------------------------------------------------------------------


@command("help", "moorage help", "moorage help all", "moorage help approvals show")
@click.argument("words", nargs=-1, metavar="[all|COMMAND]")
def help_(app: App, words: tuple[str, ...]) -> None:
    """Show the common commands, all commands, or one command."""
    root = click.get_current_context().find_root()
    text = _all_commands(root) if words == ("all",) else _help_of(root, words)
    app.show({"help": text}, lambda: click.echo(text))


def _all_commands(root: click.Context) -> str:
    assert isinstance(root.command, Root)
    formatter = root.make_formatter()
    for section, commands in COMMANDS.items():
        with formatter.section(section):
            formatter.write_dl(root.command.texts(root, _places(commands)))
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


@command(
    "completion",
    "moorage completion bash > ~/.local/share/bash-completion/completions/moorage",
    "moorage completion zsh > ~/.zfunc/_moorage",
    "moorage completion fish > ~/.config/fish/completions/moorage.fish",
)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(app: App, shell: str) -> None:
    """Print the completion script for a shell."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(cli, {}, PROGRAM, COMPLETE).source()
    app.show({"shell": shell, "script": script}, lambda: say(script))


def sessions_like(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return the names and ids of sessions with this prefix; none if the store cannot be read."""
    from click.shell_completion import CompletionItem

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
