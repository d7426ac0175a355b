"""Agents: as callers see them, and the registrations of agents, workers and tools in a store.

Agents are looked up all the time, also by code that cannot wait, so each process caches the registrations that it read.
Leases are judged by the store's clock at each lookup: an expired registration is absent, however old the cache is. For
an unknown name, the store is read again.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from moorage.core.brief import brief
from moorage.core.document import DocumentKind
from moorage.core.errors import StoreError
from moorage.core.redact import REDACTED
from moorage.core.registration import Registration, agents_of, check_room, tools_of
from moorage.service.documents import Collection

if TYPE_CHECKING:
    from moorage.core.agent import AgentDefinition, Tool
    from moorage.ports import Clock, Documents

AgentDocument = dict[str, Any]

LOOK_EVERY = timedelta(seconds=1)
_REGISTRATIONS = Collection(DocumentKind.REGISTRATION, Registration)


@brief("items", "problems")
class AgentList(Struct, frozen=True, kw_only=True):
    """All agents, and the errors of invalid files."""

    items: list[AgentDocument]
    problems: list[AgentDocument]
    next: str | None = None


def shown(agent: AgentDefinition) -> AgentDocument:
    """Return an agent as a document."""
    said = {"name": agent.name, "kind": agent.kind.value, "role": agent.role.value, "enabled": agent.enabled}
    return {**said, **agent.table(), "source": agent.source}


def hidden(agent: AgentDocument) -> AgentDocument:
    """Hide the values of variables and headers, for callers that may only know that the agent exists."""
    servers = {name: _without_secrets(server) for name, server in agent.get("mcp_servers", {}).items()}
    told = {**_without_secrets(agent), "source": None}
    return {**told, "mcp_servers": servers} if servers else told


def _without_secrets(table: AgentDocument) -> AgentDocument:
    secret = {key: dict.fromkeys(table[key], REDACTED) for key in ("env", "headers") if table.get(key)}
    return {**table, **secret}


class Registered:
    """The registrations of one store."""

    def __init__(self, store: Documents, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._found: list[Registration] = []
        self._looked_at: datetime | None = None

    def live(self) -> list[Registration]:
        """Return the registrations whose leases have not ended, as far as cached."""
        now = self._clock.now()
        return [each for each in self._found if each.lives(now)]

    def agents(self) -> dict[str, AgentDefinition]:
        """Return registered agents and workers, by name."""
        return agents_of(self.live())

    def tools(self) -> dict[str, Tool]:
        """Return registered tools, by name."""
        return tools_of(self.live())

    async def look(self, *, unless_younger: timedelta = timedelta(0)) -> None:
        """Read the store, unless the cache is younger than this."""
        now = self._clock.now()
        if self._looked_at is None or now - self._looked_at >= unless_younger:
            self._found = await live_registrations(self._store, now)
            self._looked_at = now

    async def add(self, registration: Registration) -> None:
        """Begin or renew a registration. Raises InvalidField if there are too many."""
        await self.look()
        check_room(registration, self._found)
        await save_registration(self._store, registration)
        await self.look()

    async def keep_looking(self) -> None:
        """Read the store repeatedly, for a launcher: it must know whose turns it may take."""
        from asyncio import sleep

        while True:
            with suppress(StoreError):  # the store is away; cached registrations end with their leases
                await self.look()
            await sleep(LOOK_EVERY.total_seconds())


async def save_registration(store: Documents, registration: Registration) -> None:
    """Begin or renew a registration: there is one for each name, role and endpoint."""
    key = f"{registration.name} {registration.role.value} {registration.endpoint}"
    await _REGISTRATIONS.put(store, key, lambda _: registration, expires_at=registration.until)


async def live_registrations(store: Documents, at: datetime) -> list[Registration]:
    """Return the registrations whose leases have not ended, by name and endpoint."""
    live = [each for each in await _REGISTRATIONS.all(store) if each.lives(at)]
    return sorted(live, key=lambda each: (each.name, each.role, each.endpoint))
