"""Agents, workers and tools that were registered while everything runs, each until its lease ends.

Whoever lives at an endpoint says so again and again; whoever falls silent vanishes. Several endpoints may be
registered under one name: they take turns. Leases are files, so all processes of this machine's server know of them.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct, field

from holdfast.agents.registry import DefinitionFiles
from holdfast.core.agent import AgentDefinition, AgentKind, AgentRole, check_endpoint, check_name
from holdfast.core.errors import InvalidField
from holdfast.core.tool import Tool, ToolOperation

SUFFIX = ".json"
USUAL_LEASE = 30.0  # seconds
LONGEST_LEASE = 3600.0
MOST_LEASES = 1000
MAX_DESCRIPTION = 4096


class Lease(Struct, frozen=True, kw_only=True):
    """One endpoint under one name, until an instant (seconds since 1970)."""

    name: str
    role: AgentRole
    endpoint: str
    until: float
    description: str = ""
    operations: dict[str, ToolOperation] = field(default_factory=dict)  # of a tool


def lease_of(
    name: str,
    role: str,
    endpoint: str,
    seconds: float,
    now: float,
    *,
    description: str = "",
    operations: dict[str, ToolOperation] | None = None,
) -> Lease:
    """A lease, checked. Raises InvalidField."""
    if role not in tuple(AgentRole):
        raise InvalidField("role", f"is {role!r}; use agent or worker")
    if not 0 <= seconds <= LONGEST_LEASE:
        raise InvalidField("lease_seconds", f"is {seconds:g}; give at most {LONGEST_LEASE:g}, or 0 for {USUAL_LEASE:g}")
    return Lease(
        name=check_name(name),
        role=AgentRole(role),
        endpoint=check_endpoint(endpoint),
        until=now + (seconds or USUAL_LEASE),
        description=description[:MAX_DESCRIPTION],
        operations=operations or {},
    )


class Leases:
    """All leases there are, by what they are for."""

    def __init__(self, files: DefinitionFiles) -> None:
        self._files = files
        self._seen: dict[str, tuple[tuple[int, ...], Lease | None]] = {}

    def keep(self, lease: Lease, now: float) -> None:
        """Begin or renew a lease. Raises InvalidField if there are too many."""
        from hashlib import sha256

        live = self.live(now)
        place = sha256(f"{lease.role} {lease.name} {lease.endpoint}".encode()).hexdigest()[:32]
        if len(live) >= MOST_LEASES and not any(_is_same(lease, each) for each in live):
            raise InvalidField("agent_id", f"comes too late: {MOST_LEASES} are registered, and no more may be")
        self._files.write(f"{place}{SUFFIX}", msgspec.json.encode(lease).decode())

    def live(self, now: float) -> list[Lease]:
        """Those that have not ended, in order of their names; what ended long ago is cleared away."""
        stamps = self._files.stamps()
        if not stamps and not self._seen:
            return []
        self._seen = {path: self._looked_at(path, stamp) for path, stamp in stamps.items()}
        for path, (_, lease) in self._seen.items():
            if lease is not None and lease.until + LONGEST_LEASE < now:
                self._files.remove(path)
        found = [lease for _, lease in self._seen.values() if lease is not None and lease.until > now]
        return sorted(found, key=lambda lease: (lease.name, lease.endpoint))

    def agents(self, now: float) -> dict[str, AgentDefinition]:
        """Registered agents and workers, by name."""
        live = [lease for lease in self.live(now) if lease.role is not AgentRole.TOOL]
        return {
            name: AgentDefinition(
                name=name,
                kind=AgentKind.GRPC,
                role=some[0].role,
                description=some[0].description,
                endpoint=tuple(each.endpoint for each in some),
            )
            for name, some in _by_name(live).items()
        }

    def tools(self, now: float) -> dict[str, Tool]:
        """Registered tools, by name."""
        live = [lease for lease in self.live(now) if lease.role is AgentRole.TOOL]
        return {
            name: Tool(
                name=name,
                description=some[0].description,
                operations=some[0].operations,
                endpoints=tuple(each.endpoint for each in some),
            )
            for name, some in _by_name(live).items()
        }

    def _looked_at(self, path: str, stamp: tuple[int, ...]) -> tuple[tuple[int, ...], Lease | None]:
        if path in self._seen and self._seen[path][0] == stamp:
            return self._seen[path]
        try:
            return stamp, msgspec.json.decode(self._files.read(path), type=Lease)
        except (OSError, msgspec.MsgspecError):
            return stamp, None


def _is_same(lease: Lease, other: Lease) -> bool:
    return (lease.name, lease.role, lease.endpoint) == (other.name, other.role, other.endpoint)


def _by_name(leases: list[Lease]) -> dict[str, Any]:
    named: dict[str, list[Lease]] = {}
    for lease in leases:
        named.setdefault(lease.name, []).append(lease)
    return named
