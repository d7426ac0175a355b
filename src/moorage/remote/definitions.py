"""Agents that a server defines, for launchers on other machines, which need no files of their own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from moorage.core.agent import AgentDefinition, AgentRole, definition_of
from moorage.core.errors import AccessError, InvalidField, MoorageError
from moorage.remote.transport import Requester

log = logging.getLogger(__name__)

LOOK_EVERY = 2.0  # seconds

Agents = dict[str, AgentDefinition]


class Defined(Struct, frozen=True, kw_only=True):
    """A definition as it travels."""

    role: AgentRole
    definition: dict[str, Any]
    text: str | None = None  # of its file, if requested


class Definitions(Struct, frozen=True, kw_only=True):
    """All definitions of a server."""

    items: list[Defined]


class ServerAgents:
    """The server's agents and those of this machine; a local definition takes precedence."""

    def __init__(self, line: Requester, local: Callable[[], Agents]) -> None:
        self._line, self._local = line, local
        self._theirs: Agents = {}

    def __call__(self) -> Agents:
        """Return all agents known now."""
        local = self._local()
        defined_here = {name: agent for name, agent in local.items() if agent.source is not None}
        return {**local, **self._theirs, **defined_here}

    async def watch(self) -> None:
        """Poll for changes until cancelled; while the server does not answer, nothing changes."""
        while True:
            try:
                await self.look()
            except AccessError:
                return  # the request for turns gets the same error, and ends
            except MoorageError as error:
                log.debug("the server's agents are not known: %s", error.message)
            await asyncio.sleep(LOOK_EVERY)

    async def look(self) -> None:
        """Request the server's definitions."""
        told = await self._line.get("/definitions", Definitions)
        self._theirs = {agent.name: agent for each in told.items if (agent := self._read(each)) is not None}

    def _read(self, defined: Defined) -> AgentDefinition | None:
        try:
            return definition_of(defined.definition, defined.role, source=self._line.url)
        except InvalidField as error:  # from a newer version, perhaps
            log.warning("an agent of %s makes no sense here: %s", self._line.url, error.message)
            return None
