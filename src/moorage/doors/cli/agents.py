"""Agents: which there are, what they are, adding, removing and checking them."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from moorage.doors.cli.app import App, command, group, pass_app
from moorage.doors.cli.arguments import STDIN, read_file
from moorage.doors.cli.output import complain, facts, fields, is_terminal, page_of, say, table
from moorage.doors.cli.verdicts import NO

TYPE_CHECKING = False
if TYPE_CHECKING:
    from moorage.launcher.check import Checked


@group(
    "agents",
    places={
        "list": "agents:list_",
        "show": "agents:show",
        "add": "agents:add",
        "remove": "agents:remove",
        "check": "agents:check",
    },
    examples=("moorage agents list", "moorage agents add reviewer.toml", "moorage agents check reviewer"),
)
def agents() -> None:
    """List, show, add, remove and check agents: named recipes for what `run` starts."""


@command("list", examples=("moorage agents list", "moorage agents list --json"))
@pass_app
def list_(app: App) -> None:
    """List agents by name; files that describe none are complained about.

    Piped, one line for each: name, kind, whether it is enabled, and its description.
    """
    found = app.moor.agents()
    for problem in found.problems:
        complain(f"warning: {problem['detail']}")
    app.show({**page_of(found.items), "problems": found.problems}, lambda: _show_agents(found.items))


def _show_agents(found: list[dict[str, Any]]) -> None:
    rows = [
        (each["name"], each["kind"], "yes" if each["enabled"] else "no", each.get("description", "")) for each in found
    ]
    if is_terminal():
        table(("agent", "kind", "enabled", "description"), rows)
        return
    for row in rows:
        say(fields(*row))


@command("show", examples=("moorage agents show echo-agent", "moorage agents show reviewer --json"))
@click.argument("name", metavar="NAME")
@pass_app
def show(app: App, name: str) -> None:
    """Show one agent as it is defined."""
    agent = app.moor.agent(name)
    app.show(agent, lambda: say(facts(agent.items())))


@command("add", examples=("moorage agents add reviewer.toml", "cat reviewer.toml | moorage agents add - --replace"))
@click.argument("file", metavar="FILE|-")
@click.option("--replace", is_flag=True, help="Put it in the place of the agent that has its name.")
@pass_app
def add(app: App, file: str, replace: bool) -> None:
    """Add the agent that a TOML file describes, and print its name.

    What is wrong in the file is told with its line, and nothing is added.
    """
    from moorage import config
    from moorage.agents.registry import decoded

    source = "standard input" if file == STDIN else file
    text = decoded(read_file(file, "file"), source)
    config.read_definition(text, source)  # a server would not know what the file is called
    agent = app.moor.define_agent(text, source=source, replace=replace)
    app.show(agent, lambda: say(f"Added {agent['name']}: {agent['source']}" if is_terminal() else agent["name"]))


@command("remove", examples=("moorage agents remove reviewer",))
@click.argument("name", metavar="NAME")
@pass_app
def remove(app: App, name: str) -> None:
    """Remove an agent that was added; its sessions stay."""
    agent = app.moor.remove_agent(name)
    app.show(agent, lambda: say(f"Removed {agent['name']}: {agent['source']}" if is_terminal() else agent["name"]))


@command("check", examples=("moorage agents check reviewer", 'moorage agents check reviewer "Review README.md" --json'))
@click.argument("name", metavar="NAME")
@click.argument("prompt", default="Hello", metavar="[PROMPT]")
@click.option("--timeout", type=click.FloatRange(0), metavar="SECONDS", help="Stop it if it takes longer.")
@click.pass_context
def check(ctx: click.Context, name: str, prompt: str, timeout: float | None) -> None:
    """Run an agent once in a scratch session and report every line that does not validate.

    It runs here, whatever --url says, and leaves nothing behind. Its questions are rejected. Exit code 1
    if there are problems or it did not complete.
    """
    checked = asyncio.run(_checked(name, prompt, timeout))
    ctx.ensure_object(App).show(checked, lambda: _show_checked(checked))
    ctx.exit(0 if checked.is_sound else NO)


async def _checked(name: str, prompt: str, timeout: float | None) -> Checked:
    from moorage.doors.cli.patience import cancelled_by_signals
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
