"""Agents, workers and tools behind gRPC: any server with the services of proto/agent_platform.proto.

Each call carries the facts of the session, and each answer may carry changes to store. An agent may ignore both:
it still gets the history and the session's id.
"""

from __future__ import annotations

from typing import Any

import msgspec

from moorage.agents.interface import AGENT_FAILED, TIMED_OUT, AgentEvent, Commands, Emit, Job, Secret, completed, failed
from moorage.agents.router import Metadata, RemoteCall, RemoteFailure, Unreachable, load_grpc, router
from moorage.core.agent import AgentDefinition, AgentRole, Occasion, Refused, Tool, ToolFunction
from moorage.core.codec import as_text, encode_text
from moorage.core.entry import text_of
from moorage.core.errors import ToolUnreachable

UNREACHABLE = "unreachable"  # the call was not sent
LOST = "connection_lost"  # the call was sent, and its outcome is unknown
EXECUTE = "/agentplatform.AgentService/ExecuteTask"
STREAM = "/agentplatform.AgentService/StreamTask"
PROCESS = "/agentplatform.TaskWorker/ProcessTask"
TOOL = "/agentplatform.ToolService/ExecuteTool"
TOOL_WITHIN = 60.0  # seconds
REASONS = {"DEADLINE_EXCEEDED": TIMED_OUT, "UNAVAILABLE": LOST}  # of a failure, by the status of the call


class Remote:
    """Calls an agent or a worker at one of its endpoints."""

    def __init__(self, secret: Secret | None = None) -> None:
        self._secret = secret

    async def run(self, job: Job, emit: Emit, commands: Commands) -> None:
        """Call the agent, and emit its answer."""
        load_grpc()
        try:
            await emit(await self._asked(job, emit))
        except Unreachable as error:
            await emit(failed(UNREACHABLE, str(error)))
        except RemoteFailure as error:
            reason = REASONS.get(error.code, AGENT_FAILED)
            await emit(failed(reason, f"{job.agent.name} answered with {error.code}: {error.detail}"))

    async def _asked(self, job: Job, emit: Emit) -> AgentEvent:
        from moorage.protobuf import agent_platform_pb2 as pb

        request, is_worker = task_request(job), job.agent.role is AgentRole.WORKER
        name = job.agent.api_key_env
        key = None if name is None or self._secret is None else self._secret(name)
        options: dict[str, Any] = {"timeout": job.limits.timeout, "metadata": _authorized(key or None)}
        if job.streams and not is_worker and (ending := await self._streamed(job, request, emit, options)) is not None:
            return ending
        method = PROCESS if is_worker else EXECUTE
        call = RemoteCall(job.agent.endpoint, method, request, pb.TaskResponse.FromString, **options)
        return await _ending(await router(self._secret).unary(call), emit)

    async def _streamed(self, job: Job, request: Any, emit: Emit, options: dict[str, Any]) -> AgentEvent | None:
        """Stream the answer and return its end; return None if the agent cannot stream."""
        from moorage.protobuf import agent_platform_pb2 as pb

        said: list[str] = []
        response = None
        try:
            call = RemoteCall(job.agent.endpoint, STREAM, request, pb.TaskChunk.FromString, **options)
            async for chunk in router(self._secret).stream(call):
                if chunk.content:
                    said.append(chunk.content)
                    await emit({"type": "chunk", "text": chunk.content})
                if chunk.HasField("response"):
                    response = chunk.response
        except RemoteFailure as error:
            if error.code == "UNIMPLEMENTED" and not said:
                return None
            raise
        return completed("".join(said)) if response is None else await _ending(response, emit)


def task_request(job: Job) -> Any:
    """Return a job as a request message."""
    from moorage.protobuf import agent_platform_pb2 as pb

    history = [pb.Said(role=each["role"] or "system", content=text_of(each["content"])) for each in job.history]
    if job.system_prompt is not None:
        history.insert(0, pb.Said(role="system", content=job.system_prompt))
    return pb.TaskRequest(
        task_id=job.task_id or job.turn_id,
        agent_id=job.agent.name,
        input=job.prompt,
        parameters=texts_of(job.parameters),
        tool_ids=job.tools,
        session_id=job.session_id,
        memory=pb.Memory(history=history, context=encode_text(job.context) if job.context else "", turns=job.turns),
    )


def _authorized(key: str | None) -> Metadata:
    return () if key is None else (("authorization", f"Bearer {key}"),)


def texts_of(values: dict[str, Any]) -> dict[str, str]:
    """Return values as a map of texts; other values become JSON."""
    return {name: as_text(value) for name, value in values.items()}


async def _ending(response: Any, emit: Emit) -> AgentEvent:
    metadata = dict(response.metadata)
    if response.context:
        try:
            values = msgspec.json.decode(response.context, type=dict[str, Any])
        except msgspec.MsgspecError:
            values = {}  # the context changes are invalid, but the answer is valid
        await emit({"type": "context", "values": values})
    if response.success:
        return completed(response.output, metadata=metadata)
    return failed(AGENT_FAILED, response.error or "it reported a failure", text=response.output, metadata=metadata)


# Tools ------------------------------------------------------------------------------------------


def tool_of(agent: AgentDefinition) -> Tool:
    """Return a tool that a file defines. Only the tool itself knows its operations."""
    return Tool(name=agent.name, description=agent.description, operations={}, endpoints=agent.endpoint)


def calling(tool: Tool, key: str | None = None, secret: Secret | None = None) -> ToolFunction:
    """Return the async function that calls a tool at one of its endpoints."""

    async def call(operation: str, parameters: dict[str, Any], occasion: Occasion) -> Any:
        load_grpc()
        from moorage.protobuf import agent_platform_pb2 as pb

        told, session_id = texts_of(parameters), occasion.session_id or ""
        request = pb.ToolRequest(tool_id=tool.name, operation=operation, parameters=told, session_id=session_id)
        timeout, metadata = TOOL_WITHIN if occasion.timeout is None else occasion.timeout, _authorized(key)
        ask = RemoteCall(tool.endpoints, TOOL, request, pb.ToolResponse.FromString, timeout, metadata)
        try:
            response = await router(secret).unary(ask)
        except Unreachable as error:
            raise ToolUnreachable(tool.name, str(error)) from error
        except RemoteFailure as error:
            if error.code == "UNAVAILABLE":
                raise ToolUnreachable(tool.name, error.detail, is_unsure=True) from error
            raise Refused(f"{tool.name} answered with {error}") from error
        if not response.success:
            raise Refused(response.error or f"{tool.name} failed")
        return _value(response.result)

    return call


def _value(text: str) -> Any:
    """Return a result: decoded JSON, or else the text itself."""
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return text
