"""Agents as callers see them: documents that say what a definition says, what it is, and where it stands."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from moorage.core.agent import AgentDefinition
from moorage.core.brief import brief
from moorage.core.redact import REDACTED

AgentDocument = dict[str, Any]


@brief("items", "problems")
class AgentList(Struct, frozen=True, kw_only=True):
    """All agents, and what is wrong with the files of others."""

    items: list[AgentDocument]
    problems: list[AgentDocument]
    next: str | None = None


def shown(agent: AgentDefinition) -> AgentDocument:
    """An agent as a document."""
    said = {"name": agent.name, "kind": agent.kind.value, "role": agent.role.value, "enabled": agent.enabled}
    return {**said, **agent.table(), "source": agent.source}


def hidden(agent: AgentDocument) -> AgentDocument:
    """The same for those who may only know that it is there: the values of variables and headers are left out."""
    servers = {name: _without_secrets(server) for name, server in agent.get("mcp_servers", {}).items()}
    told = {**_without_secrets(agent), "source": None}
    return {**told, "mcp_servers": servers} if servers else told


def _without_secrets(table: AgentDocument) -> AgentDocument:
    secret = {key: dict.fromkeys(table[key], REDACTED) for key in ("env", "headers") if table.get(key)}
    return {**table, **secret}
