"""Agents at the door, beyond the table of operations: putting one in place, and all of them for launchers."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from msgspec import Meta, Struct

from moorage import config
from moorage.core.codec import encode
from moorage.core.errors import Forbidden, InvalidField
from moorage.core.key import Scope
from moorage.doors.http.answers import document
from moorage.doors.http.app import Door, Route
from moorage.doors.http.described import Described
from moorage.doors.http.exchange import Exchange
from moorage.doors.http.reading import read_body, read_fields_of
from moorage.doors.http.visit import Visitor
from moorage.remote.definitions import Defined, Definitions
from moorage.service.deps import Deps


class Definition(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A definition: the text of a TOML file, or its table."""

    definition: str | dict[str, Any]
    dry_run: bool = False


class DefinitionsRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How definitions are wanted."""

    text: Annotated[bool, Meta(description="with their files as they were written")] = False


def add_to(door: Door) -> None:
    """Answer what concerns agents."""

    async def put_agent(exchange: Exchange, visitor: Visitor) -> None:
        """An agent of that name from now on, whatever was there before."""
        told = read_body(await exchange.body(), Definition)
        name, moor = exchange.params["name"], door.visit(exchange, visitor)
        agent = config.read_definition(told.definition)
        if agent.name != name:
            raise InvalidField("name", f"is {agent.name!r} in the definition and {name!r} in the path; make them agree")
        await exchange.answer(document(await moor.define_agent(told.definition, replace=True, dry_run=told.dry_run)))

    put = Described(
        name="put_agent",
        summary="Have an agent of that name, whatever was there before",
        scope=Scope.ADMIN,
        body=Definition,
        answer=dict[str, Any],
    )
    every = Described(
        name="definitions",
        summary="All definitions as they are, for launchers",
        scope=Scope.LAUNCH,
        answer=Definitions,
        query=DefinitionsRequest,
    )
    door.add("PUT", "/agents/{name}", Route(put.name, put_agent, Scope.ADMIN), put)
    door.add("GET", "/definitions", Route(every.name, partial(_definitions, door.deps), Scope.LAUNCH), every)


async def _definitions(deps: Deps, exchange: Exchange, visitor: Visitor) -> None:
    """All definitions as they are, with their variables: for launchers, which need them."""
    if visitor.session_id is not None:
        raise Forbidden(Scope.LAUNCH.value)
    await deps.registered.look()
    texts = config.open_registry().texts() if read_fields_of(exchange, DefinitionsRequest).text else {}
    items = [
        Defined(role=agent.role, definition=agent.table(), text=texts.get(agent.name))
        for agent in config.agents_of(deps).values()
    ]
    await exchange.answer(encode(Definitions(items=items)))
