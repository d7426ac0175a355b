"""Agents over HTTP, beyond the table of operations: storing one, and listing all for launchers."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from moorage import config
from moorage.core.codec import encode
from moorage.core.errors import InvalidField
from moorage.core.key import Scope
from moorage.doors.http.answers import document
from moorage.doors.http.app import Door
from moorage.doors.http.exchange import Exchange
from moorage.doors.http.visit import Visitor
from moorage.remote.definitions import Defined, Definitions


class Definition(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A definition: the text of a TOML file, or its table."""

    definition: str | dict[str, Any]
    dry_run: bool = False


class DefinitionsRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The form of the requested definitions."""

    text: Annotated[bool, Meta(description="with their files as they were written")] = False


def add_to(door: Door) -> None:
    """Add the routes of agents."""

    @door.route("PUT", "/agents/{name}", Scope.ADMIN, body=Definition, answer=dict[str, Any])
    async def put_agent(exchange: Exchange, visitor: Visitor, told: Definition) -> None:
        """Create or replace an agent."""
        name, moor = exchange.params["name"], door.visit(exchange, visitor)
        agent = config.read_definition(told.definition)
        if agent.name != name:
            raise InvalidField("name", f"is {agent.name!r} in the definition and {name!r} in the path; make them agree")
        await exchange.answer(document(await moor.define_agent(told.definition, replace=True, dry_run=told.dry_run)))

    @door.route("GET", "/definitions", Scope.LAUNCH, to_token=False, query=DefinitionsRequest, answer=Definitions)
    async def definitions(exchange: Exchange, _: Visitor, asked: DefinitionsRequest) -> None:
        """Return all definitions, for launchers."""
        await door.deps.registered.look()
        texts = config.open_registry().texts() if asked.text else {}
        items = [
            Defined(role=agent.role, definition=agent.table(), text=texts.get(agent.name))
            for agent in config.agents_of(door.deps).values()
        ]
        await exchange.answer(encode(Definitions(items=items)))
