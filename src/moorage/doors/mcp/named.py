"""Agents, workers and tools as tools of the door, each under its own name.

An agent or a worker takes `input`, `parameters` and `session_id`; a tool takes its own arguments and `session_id`. In a
session (an unknown one is created) earlier messages are recalled and new ones are stored; without a session nothing is
stored. With a session, the text ends with lines that name it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import mcp_types as types
from msgspec import Meta, Struct, field
from msgspec.json import format as indented

from moorage.agents.grpc import LOST, UNREACHABLE
from moorage.asking.here import Task
from moorage.core.agent import NUMBERS, Tool
from moorage.core.answer import Answer
from moorage.core.codec import as_text, encode_text
from moorage.core.errors import AgentUnreachable, InvalidField, ToolNotFound
from moorage.core.key import Scope
from moorage.core.render import like, to_json
from moorage.doors.http.reading import read_fields
from moorage.doors.mcp.answers import MAX_TEXT
from moorage.doors.mcp.calls import TOOLS, Schema, ToolCall, ToolDocument, schema_of, tool_result, without_empty

SESSION = {
    "type": "string",
    "description": "The session whose conversation and memory the call uses. Optional; an unknown id creates one",
}


class AgentRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of an agent's tool."""

    input: Annotated[str, Meta(description="The prompt")]
    parameters: Annotated[dict[str, Any], Meta(description="Parameters for the agent")] = field(default_factory=dict)
    session_id: Annotated[str, Meta(description=SESSION["description"])] | None = None


class AgentAnswer(Struct, frozen=True, kw_only=True):
    """The answer of an agent."""

    output: str
    success: bool
    error: str | None = None
    reason: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    session_id: str | None = None
    next_offset: int | None = None  # where the rest of a truncated output begins


class ToolResult(Struct, frozen=True, kw_only=True):
    """The answer of a tool."""

    success: bool
    operation: str
    result: Any = None
    error: str | None = None
    session_id: str | None = None


AGENT_INPUT, AGENT_OUTPUT, TOOL_OUTPUT = schema_of(AgentRequest), schema_of(AgentAnswer), schema_of(ToolResult)
OF_AN_AGENT = types.ToolAnnotations(  # whatever it does
    read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=True
)


async def listed(call: ToolCall) -> dict[str, types.Tool]:
    """Return agents, workers and tools by name; a name of the table belongs to the table."""
    tools, agents = (await call.named.tools()).values(), (await call.named.agents()).values()
    found = {tool.name: (tool.description, tool_input(tool), TOOL_OUTPUT) for tool, _ in tools}
    for agent in filter(lambda each: each.enabled, agents):
        told = f"{agent.description or f'Ask {agent.name}'} ({agent.role.value})"
        found[agent.name] = (told, AGENT_INPUT, AGENT_OUTPUT)
    return {
        name: types.Tool(name=name, description=told, input_schema=asks, output_schema=answers, annotations=OF_AN_AGENT)
        for name, (told, asks, answers) in found.items()
        if name not in TOOLS
    }


# Agents and workers -----------------------------------------------------------------------------


async def ask_agent(call: ToolCall, name: str, arguments: ToolDocument) -> types.CallToolResult:
    """Ask an agent or a worker."""
    call.check_scope(Scope.WRITE)
    asks = read_fields(without_empty(arguments), AgentRequest)
    if asks.session_id is not None:
        await call.check_first_use(asks.session_id)
    task = Task(agent=name, input=asks.input, parameters=asks.parameters, session=asks.session_id, parent=call.parent)
    await call.start_launcher()
    answer = await _answered(call, task)
    if answer.reason in (UNREACHABLE, LOST):
        raise AgentUnreachable(name, answer.failure, is_unsure=answer.reason == LOST)
    return _told(answer, asks.session_id)


async def _answered(call: ToolCall, task: Task) -> Answer:
    """Return the answer; send it in chunks if the client wants progress."""
    if not call.is_heard:
        return await call.named.execute(task)
    async for chunk in call.named.stream(task):
        if chunk.text:
            await call.tell(chunk.text)
    assert chunk.answer is not None  # the last one has it
    return chunk.answer


def _told(answer: Answer, session: str | None) -> types.CallToolResult:
    metadata = answer.facts
    if session is not None:
        metadata = {**metadata, "session_id": metadata.get("session_id", session)}
    whole = answer.text
    cut = session is not None and len(whole) > MAX_TEXT
    told = AgentAnswer(
        output=whole[:MAX_TEXT] if cut else whole,
        success=answer.success,
        error=answer.failure or None,
        reason=answer.reason,
        metadata=metadata,
        session_id=session,
        next_offset=MAX_TEXT if cut else None,
    )
    return tool_result(to_json(told), _text(told, len(whole)), failed=not answer.success)


def _text(told: AgentAnswer, length: int) -> str:
    said = told.output if told.success else f"{told.error}\n\n{told.output}".strip()
    if told.next_offset is not None:
        said += (
            f"\n\n[cut: {told.next_offset:,} of {length:,} characters; for the rest, call get_agent_session_result "
            f"with session_id {told.session_id} and offset {told.next_offset}]"
        )
    if told.session_id is None:
        return said
    # Each in one line, so that no value can be taken for a line of its own.
    facts = ", ".join(f"{key}={' '.join(as_text(value).split())}" for key, value in told.metadata.items())
    return f"{said}\n\n**Metadata**: {facts}\n**Session ID**: {told.session_id}"


# Tools ------------------------------------------------------------------------------------------


def tool_input(tool: Tool) -> Schema:
    """Return the input schema of a tool: the operation and the arguments of all operations."""
    properties: Schema = {}
    for operation in tool.operations.values():
        for name, schema in operation.parameters.get("properties", {}).items():
            if isinstance(schema, Mapping) and schema.get("type") in NUMBERS:  # a text is accepted, too
                schema = {**schema, "type": [schema["type"], "string"]}
            properties.setdefault(name, schema)
    if len(tool.operations) > 1:
        told = "; ".join(f"{name}: {each.description}" for name, each in tool.operations.items())
        properties["operation"] = {"type": "string", "enum": list(tool.operations), "description": told}
    everywhere = [set(each.parameters.get("required", ())) for each in tool.operations.values()]
    needed = sorted(set.intersection(*everywhere)) if everywhere else []
    return {"type": "object", "properties": {**properties, "session_id": SESSION}, "required": needed}


async def call_tool(call: ToolCall, name: str, arguments: ToolDocument) -> types.CallToolResult:
    """Call a tool."""
    call.check_scope(Scope.WRITE)
    if await call.named.tool(name) is None:
        raise ToolNotFound(name)
    given = dict(arguments)
    session, operation = _taken(given, "session_id"), _taken(given, "operation")
    if session is not None:
        await call.check_first_use(session)
    answer = await call.named.call_tool(name, operation, given, session=session, parent=call.parent)
    told = like(ToolResult, answer, session_id=session)
    result = answer.result
    shown = result if isinstance(result, str) else indented(encode_text(result), indent=2)
    said = shown if answer.success else str(answer.error)
    text = said if session is None else f"{said}\n\n**Session ID**: {session}"
    return tool_result(to_json(told), text, failed=not answer.success)


def _taken(given: ToolDocument, name: str) -> str | None:
    value = given.pop(name, None)
    if value is not None and not isinstance(value, str):
        raise InvalidField(name, "must be text")
    return value or None
