"""Agents: which there are, what they are, adding and removing them."""

from __future__ import annotations

from typing import Any

import click

from holdfast import config
from holdfast.core.agent import AgentDefinition
from holdfast.doors.cli.app import App, command, group, pass_app
from holdfast.doors.cli.arguments import STDIN, read_file
from holdfast.doors.cli.output import complain, facts, fields, hint, is_terminal, page_of, say, table


@group(
    "agents",
    places={
        "list": "agents:list_",
        "show": "agents:show",
        "add": "agents:add",
        "remove": "agents:remove",
    },
    examples=("holdfast agents list", "holdfast agents add reviewer.toml", "holdfast agents show echo-agent"),
)
def agents() -> None:
    """List, show, add and remove agents: named recipes for what `run` starts."""


@command("list", examples=("holdfast agents list", "holdfast agents list --json"))
@pass_app
def list_(app: App) -> None:
    """List agents by name; files that describe none are complained about.

    Piped, one line for each: name, kind, whether it is enabled, and its description.
    """
    if app.is_remote:
        hint("These are the agents of this machine; the server has its own.")
    registry = config.open_registry()
    found, problems = list(registry.all().values()), registry.problems()
    for problem in problems:
        complain(f"warning: {problem.message}")
    told = [problem.to_dict() for problem in problems]
    app.show({**page_of([shown(agent) for agent in found]), "problems": told}, lambda: _show_agents(found))


def shown(agent: AgentDefinition) -> dict[str, Any]:
    """An agent as a document: what its definition says, what it is, and where that stands."""
    said = {"name": agent.name, "kind": agent.kind.value, "role": agent.role.value, "enabled": agent.enabled}
    return {**said, **agent.table(), "source": agent.source}


def _show_agents(found: list[AgentDefinition]) -> None:
    rows = [(each.name, each.kind.value, "yes" if each.enabled else "no", each.description) for each in found]
    if is_terminal():
        table(("agent", "kind", "enabled", "description"), rows)
        return
    for row in rows:
        say(fields(*row))


@command("show", examples=("holdfast agents show echo-agent", "holdfast agents show reviewer --json"))
@click.argument("name", metavar="NAME")
@pass_app
def show(app: App, name: str) -> None:
    """Show one agent as it is defined."""
    agent = config.open_registry().get(name)
    app.show(shown(agent), lambda: say(facts(shown(agent).items())))


@command("add", examples=("holdfast agents add reviewer.toml", "cat reviewer.toml | holdfast agents add - --replace"))
@click.argument("file", metavar="FILE|-")
@click.option("--replace", is_flag=True, help="Put it in the place of the agent that has its name.")
@pass_app
def add(app: App, file: str, replace: bool) -> None:
    """Add the agent that a TOML file describes, and print its name.

    What is wrong in the file is told with its line, and nothing is added.
    """
    from holdfast.agents.registry import decoded

    source = "standard input" if file == STDIN else file
    text = decoded(read_file(file, "file"), source)
    agent = config.open_registry().add_text(text, source=source, replace=replace)
    app.show(shown(agent), lambda: say(f"Added {agent.name}: {agent.source}" if is_terminal() else agent.name))


@command("remove", examples=("holdfast agents remove reviewer",))
@click.argument("name", metavar="NAME")
@pass_app
def remove(app: App, name: str) -> None:
    """Remove an agent that was added; its sessions stay."""
    agent = config.open_registry().remove(name)
    app.show(shown(agent), lambda: say(f"Removed {agent.name}: {agent.source}" if is_terminal() else agent.name))
