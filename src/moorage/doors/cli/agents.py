"""Agents: which there are, what they are, adding and removing them."""

from __future__ import annotations

from typing import Any

import click

from moorage.doors.cli.app import App, command, group, pass_app
from moorage.doors.cli.arguments import STDIN, read_file
from moorage.doors.cli.output import complain, facts, fields, is_terminal, page_of, say, table


@group(
    "agents",
    places={
        "list": "agents:list_",
        "show": "agents:show",
        "add": "agents:add",
        "remove": "agents:remove",
    },
    examples=("moorage agents list", "moorage agents add reviewer.toml", "moorage agents show echo-agent"),
)
def agents() -> None:
    """List, show, add and remove agents: named recipes for what `run` starts."""


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
