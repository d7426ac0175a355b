"""Registrations: agents, workers and tools added at runtime, each at an endpoint, until its lease ends.

An endpoint renews its registration; without renewal it expires. Several endpoints may be registered under one name:
requests alternate between them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct, field

from moorage.core.agent import AgentDefinition, AgentKind, AgentRole, Tool, ToolOperation, check_endpoint, check_name
from moorage.core.errors import InvalidField

USUAL_LEASE = 30.0  # seconds
LONGEST_LEASE = 3600.0
MOST_REGISTRATIONS = 1000
MAX_DESCRIPTION = 4096


class Registration(Struct, frozen=True, kw_only=True):
    """One endpoint under one name, with a lease."""

    name: str
    role: AgentRole
    endpoint: str
    until: datetime
    description: str = ""
    operations: dict[str, ToolOperation] = field(default_factory=dict)  # for a tool

    @property
    def place(self) -> tuple[str, str, str]:
        """Return the key that is unique among registrations."""
        return self.role.value, self.name, self.endpoint

    def lives(self, at: datetime) -> bool:
        """Return whether its lease has not ended."""
        return at < self.until


def new_registration(
    name: str,
    role: str,
    endpoint: str,
    seconds: float,
    at: datetime,
    *,
    description: str = "",
    operations: dict[str, ToolOperation] | None = None,
) -> Registration:
    """Return a checked registration. Raises InvalidField."""
    if role not in tuple(AgentRole):
        raise InvalidField("role", f"is {role!r}; use agent or worker")
    if not 0 <= seconds <= LONGEST_LEASE:
        raise InvalidField("lease_seconds", f"is {seconds:g}; give at most {LONGEST_LEASE:g}, or 0 for {USUAL_LEASE:g}")
    return Registration(
        name=check_name(name),
        role=AgentRole(role),
        endpoint=check_endpoint(endpoint),
        until=at + timedelta(seconds=seconds or USUAL_LEASE),
        description=description[:MAX_DESCRIPTION],
        operations=operations or {},
    )


def check_room(registration: Registration, others: list[Registration]) -> None:
    """Raise InvalidField if there are too many other registrations."""
    if len(others) >= MOST_REGISTRATIONS and registration.place not in [each.place for each in others]:
        raise InvalidField(
            "agent_id", f"cannot be registered: there are {MOST_REGISTRATIONS} already; remove one first"
        )


def agents_of(registrations: Iterable[Registration]) -> dict[str, AgentDefinition]:
    """Return registered agents and workers, by name."""
    named = _by_name(each for each in registrations if each.role is not AgentRole.TOOL)
    return {
        name: AgentDefinition(
            name=name,
            kind=AgentKind.GRPC,
            role=some[0].role,
            description=some[0].description,
            endpoint=tuple(each.endpoint for each in some),
        )
        for name, some in named.items()
    }


def tools_of(registrations: Iterable[Registration]) -> dict[str, Tool]:
    """Return registered tools, by name."""
    named = _by_name(each for each in registrations if each.role is AgentRole.TOOL)
    return {
        name: Tool(
            name=name,
            description=some[0].description,
            operations=some[0].operations,
            endpoints=tuple(each.endpoint for each in some),
        )
        for name, some in named.items()
    }


def _by_name(registrations: Iterable[Registration]) -> dict[str, list[Registration]]:
    named: dict[str, list[Registration]] = {}
    for each in registrations:
        named.setdefault(each.name, []).append(each)
    return named
