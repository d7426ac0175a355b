"""Agents as callers see them: documents with an agent's definition, kind and state."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from moorage.core.agent import AgentDefinition
from moorage.core.brief import brief
from moorage.core.redact import REDACTED

AgentDocument = dict[str, Any]


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
