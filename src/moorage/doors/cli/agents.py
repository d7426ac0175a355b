"""Agents: which there are, what they are, adding, removing and checking them."""

from __future__ import annotations

import asyncio
import filecmp
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from moorage import config
from moorage.core.agent import AgentDefinition, AgentKind
from moorage.core.codec import encode_text
from moorage.core.errors import ProgramExists
from moorage.doors.cli import arguments
from moorage.doors.cli.app import App, group
from moorage.doors.cli.edge import NO
from moorage.doors.cli.output import complain, facts, groups, is_terminal, page_of, say
from moorage.doors.cli.tables import show_rows, wide_option

if TYPE_CHECKING:
    from moorage.launcher.check import Checked

WITH_COMMAND = (AgentKind.COMMAND, AgentKind.ACP)
SCRIPTS = (".py", ".sh", ".js", ".mjs", ".ts", ".rb", ".pl")  # an argument with such an ending names a program


@group("agents", "moorage agents list", "moorage agents add reviewer.toml", "moorage agents check reviewer")
def agents() -> None:
    """List, show, add, remove and check agents.

    An agent is a definition of what `run` starts: a program, a function, a model.
    """


@agents.subcommand("list", "moorage agents list", "moorage agents list --json")
@wide_option
def list_(app: App) -> None:
    """List agents by name.

    Definition files with errors are reported as warnings.

    Piped, one line for each: name, kind, whether it is enabled, and its description.
    """
    found = app.moor.agents()
    for problem in found.problems:
        complain(f"warning: {problem['detail']}")
    columns = ("agent", "kind", "enabled", "description")
    rows = [
        (one["name"], one["kind"], ("no", "yes")[one["enabled"]], one.get("description", "")) for one in found.items
    ]
    app.show({**page_of(found.items), "problems": found.problems}, lambda: show_rows(columns, rows, spare=("enabled",)))


@agents.subcommand("show", "moorage agents show echo-agent", "moorage agents show reviewer --json")
@click.argument("name", metavar="NAME")
def show(app: App, name: str) -> None:
    """Show the definition of an agent."""
    agent = app.moor.agent(name)
    app.show(agent, lambda: _show_one(agent))


def _show_one(agent: dict[str, Any]) -> None:
    if not is_terminal():
        say(facts(agent.items()))
        return
    shown = {name: value for name, value in agent.items() if name not in ("name", "description", "enabled")}
    says = f": {agent['description']}" if agent.get("description") else ""
    say(f"{agent['name']}{says}{'' if agent['enabled'] else ' (switched off)'}")
    print(groups({"Definition": [(name.replace("_", " ").capitalize(), value) for name, value in shown.items()]}))


@agents.subcommand("add", "moorage agents add reviewer.toml", "cat reviewer.toml | moorage agents add - --replace")
@click.argument("file", metavar="FILE|-")
@arguments.flag("--replace", "Replace an existing agent of this name.")
def add(app: App, file: str, replace: bool) -> None:
    """Add an agent from a TOML file and print its name.

    A program beside the file is copied too. If the file has an error, the line is reported and nothing is added.
    """
    from moorage.agents.registry import decoded, read_definition

    source = "standard input" if file == arguments.STDIN else file
    text = decoded(arguments.read_file(file, "file"), source)
    definition = read_definition(text, source)  # a server would not know what the file is called
    folder, target = os.path.dirname(os.path.abspath(file)), os.path.join(config.home(), config.AGENTS_NAME)
    program = None if file == arguments.STDIN else _program_beside(definition, folder)
    copied = None if app.is_remote else program
    if copied is not None:
        _check_free(copied, folder, target, replace=replace)
    agent = app.moor.define_agent(text, source=source, replace=replace)
    if copied is not None:
        _copy(copied, folder, target)
    for warning in _warnings(app, definition, program, folder, target):
        complain(f"warning: {warning}")
    along = "" if copied is None else f", with {copied}"
    app.tell(agent, f"Added {agent['name']}: {agent['source']}{along}", agent["name"])


def _program_of(agent: AgentDefinition) -> str | None:
    """Return the file that an agent's definition names: its program, or the module of its function."""
    if agent.kind in WITH_COMMAND:
        return agent.command[0]
    if agent.kind is AgentKind.PYTHON and agent.function:
        return agent.function.partition(":")[0].replace(".", os.sep) + ".py"
    return None


def _program_beside(agent: AgentDefinition, folder: str) -> str | None:
    """Return the agent's program if it stands beside its file, as a path below that folder."""
    program = _program_of(agent)
    if program is None or os.path.isabs(program) or os.pardir in program.split(os.sep):
        return None
    return program if os.path.isfile(os.path.join(folder, program)) else None


def _check_free(program: str, source: str, target: str, *, replace: bool) -> None:
    """Raise ProgramExists if another file would be overwritten."""
    ours, theirs = os.path.join(source, program), os.path.join(target, program)
    if not replace and os.path.exists(theirs) and not filecmp.cmp(ours, theirs, shallow=False):
        raise ProgramExists(program, target, theirs)


def _copy(program: str, source: str, target: str) -> None:
    """Copy a program with its permissions, whole or not at all."""
    ours, theirs = os.path.join(source, program), os.path.join(target, program)
    if os.path.exists(theirs) and os.path.samefile(ours, theirs):
        return
    os.makedirs(os.path.dirname(theirs), exist_ok=True)
    part = f"{theirs}.{os.getpid()}.part"
    shutil.copy2(ours, part)
    os.replace(part, theirs)


def _warnings(app: App, agent: AgentDefinition, program: str | None, folder: str, target: str) -> Iterator[str]:
    """Yield the files that will be missing when the agent starts, where they are looked up, and a remedy."""
    if app.is_remote and program is not None:
        yield (
            f"the server looks for {program!r} in its PATH and beside its own definition files; "
            "copy it there, or write an absolute path in `command`"
        )
    if app.is_remote or agent.kind not in WITH_COMMAND:
        return
    program, *words = agent.command
    places = [*os.environ.get("PATH", "").split(os.pathsep), target, os.path.dirname(sys.executable)]
    if shutil.which(os.path.expanduser(program), path=os.pathsep.join(places)) is None:
        told = f"looked in PATH, {folder}, {target} and {os.path.dirname(sys.executable)}"
        yield f"there is no program {program!r} that can be executed ({told}); write its absolute path in `command`"
    if agent.cwd is None:
        for word in words:
            yield from _warnings_about(word, agent.command, folder)


def _warnings_about(argument: str, command: Sequence[str], folder: str) -> Iterator[str]:
    """Yield a warning if an argument is a file that the agent will not find in the folder it works in."""
    path = os.path.abspath(os.path.join(folder, argument))
    if os.path.isabs(argument):
        return
    if os.path.isfile(path):
        absolute = encode_text([path if word == argument else word for word in command])
        yield (
            f"{argument!r} is looked for in the folder that the agent works in, not beside its file; "
            f"write: command = {absolute}"
        )
    elif argument.endswith(SCRIPTS) and not os.path.exists(argument):
        yield (
            f"there is no {argument!r} (looked in {os.path.dirname(path)} and {os.getcwd()}); the agent looks for it "
            "in the folder that it works in, so write its absolute path in `command`"
        )


@agents.subcommand("remove", "moorage agents remove reviewer")
@click.argument("name", metavar="NAME")
def remove(app: App, name: str) -> None:
    """Remove an added agent. Its sessions stay."""
    agent = app.moor.remove_agent(name)
    app.tell(agent, f"Removed {agent['name']}: {agent['source']}", agent["name"])


@agents.subcommand("check", "moorage agents check reviewer", 'moorage agents check reviewer "Review README.md" --json')
@click.argument("name", metavar="NAME")
@click.argument("prompt", default="Hello", metavar="[PROMPT]")
@click.option("--timeout", type=click.FloatRange(0), metavar="SECONDS", help="Stop the run after this long.")
def check(app: App, name: str, prompt: str, timeout: float | None) -> int:
    """Run an agent once and report its invalid output.

    It runs on this machine, even with --url, in a scratch session that is deleted afterwards. Approvals are rejected.
    Exit code 1 if there are problems or the run did not complete.
    """
    checked = asyncio.run(_checked(name, prompt, timeout))
    app.show(checked, lambda: _show_checked(checked))
    return 0 if checked.is_sound else NO


async def _checked(name: str, prompt: str, timeout: float | None) -> Checked:
    from moorage.doors.cli.waiting import cancelled_by_signals
    from moorage.launcher.check import check_agent

    with cancelled_by_signals():
        try:
            return await check_agent(name, prompt, timeout=timeout)
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


def _show_checked(checked: Checked) -> None:
    for problem in checked.items:
        say(str(problem))
    if more := checked.problems - len(checked.items):
        say(f"and {more:,} more")
    if checked.outcome != "completed":
        complain(f"agent {checked.agent_name} {checked.outcome}: {checked.error or checked.reason}")
    elif not checked.problems:
        say(f"{checked.agent_name}: no problems")
