"""AgentService, ToolService and TaskWorker: agents, workers and tools by name, with session ids for their memory."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from time import monotonic, time
from typing import Any

from msgspec import Struct

from moorage import __version__, config
from moorage.agents.grpc import LOST, UNREACHABLE, router, texts_of
from moorage.asking.here import SessionMemory, Task
from moorage.core.agent import AgentKind, AgentRole, Tool, ToolOperation
from moorage.core.answer import Answer
from moorage.core.codec import as_text, encode_text
from moorage.core.errors import AgentFailed, AgentNotFound, AgentUnreachable, InvalidField, TaskNotFound
from moorage.core.key import Scope
from moorage.core.registration import USUAL_LEASE, new_registration
from moorage.doors.grpc.door import Rpc, RpcCall, Rpcs
from moorage.doors.grpc.sessions import filled, json_of
from moorage.protobuf import agent_platform_pb2 as pb

log = logging.getLogger(__name__)

MOST_TASKS = 10_000  # whose states are kept; the oldest are dropped first
MAX_OPERATIONS = 100


class TaskRecord(Struct, kw_only=True):
    """The outcome of a task, as far as it is known."""

    agent_id: str
    session_id: str
    status: str = "running"
    error: str = ""
    started_at: float
    ended_at: float = 0.0
    token: str | None  # the session whose token made the call

    def end(self, status: str, error: str = "") -> None:
        """Note the outcome, unless it is known."""
        if self.status == "running":
            self.status, self.error, self.ended_at = status, error, time()


class Platform:
    """The three services of one server."""

    def __init__(self) -> None:
        self._began = monotonic()
        self._tasks: OrderedDict[tuple[str, str], TaskRecord] = OrderedDict()
        self._active: Counter[str] = Counter()
        self._completed: Counter[str] = Counter()

    def rpcs(self) -> Rpcs:
        """Return the handler of each method."""
        return {
            "ExecuteTask": Rpc(Scope.WRITE, self.execute_task),
            "StreamTask": Rpc(Scope.WRITE, self.stream_task),
            "GetStatus": Rpc(Scope.READ, self.get_status),
            "RegisterAgent": Rpc(Scope.ADMIN, self.register_agent),
            "ListAgents": Rpc(Scope.READ, self.list_agents),
            "ExecuteTool": Rpc(Scope.WRITE, self.execute_tool),
            "ListTools": Rpc(Scope.READ, self.list_tools),
            "RegisterTool": Rpc(Scope.ADMIN, self.register_tool),
            "ProcessTask": Rpc(Scope.WRITE, self.process_task),
            "GetTaskStatus": Rpc(Scope.READ, self.get_task_status),
            "ListWorkers": Rpc(Scope.READ, self.list_workers),
        }

    # Tasks --------------------------------------------------------------------------------------

    async def execute_task(self, call: RpcCall, request: pb.TaskRequest) -> pb.TaskResponse:
        """Return the agent's whole answer."""
        task = await self._task(call, request)
        with self._noted(call, task) as record:
            answer = self._judged(call, record, await call.named.execute(task))
        return _response(request, answer)

    async def process_task(self, call: RpcCall, request: pb.TaskRequest) -> pb.TaskResponse:
        """Return a worker's answer. Raise AgentNotFound if the agent is no worker."""
        if (await call.named.agent(request.agent_id)).role is not AgentRole.WORKER:
            raise AgentNotFound(request.agent_id)
        return await self.execute_task(call, request)

    async def stream_task(self, call: RpcCall, request: pb.TaskRequest) -> AsyncIterator[pb.TaskChunk]:
        """Stream the agent's answer in chunks; each has the session's id."""
        task = await self._task(call, request)
        with self._noted(call, task) as record:
            async for chunk in call.named.stream(task):
                piece = pb.TaskChunk(task_id=request.task_id, content=chunk.text, session_id=request.session_id)
                if chunk.answer is not None:
                    answer = self._judged(call, record, chunk.answer)
                    if not answer.success:
                        raise AgentFailed(task.agent, answer.failure, answer.reason or "", answer.because)
                    piece.is_final = True
                    piece.response.CopyFrom(_response(request, answer))
                yield piece

    async def _task(self, call: RpcCall, request: pb.TaskRequest) -> Task:
        session = request.session_id or None
        memory = _memory(request) if request.HasField("memory") else None
        if session is not None and memory is None:
            await call.moor.check_first_use(session)
        return Task(
            agent=request.agent_id,
            input=request.input,
            task_id=request.task_id,
            parameters=dict(request.parameters),
            tools=list(request.tool_ids),
            session=session,
            parent=call.parent,
            memory=memory,
            timeout=call.timeout,
        )

    @contextmanager
    def _noted(self, call: RpcCall, task: Task) -> Iterator[TaskRecord]:
        """Record the outcome of a task; keep it if the task has an id."""
        token = call.visitor.session_id
        record = TaskRecord(agent_id=task.agent, session_id=task.session or "", started_at=time(), token=token)
        if task.task_id:
            place = (call.visitor.caller.owner, task.task_id)
            self._tasks[place] = record
            self._tasks.move_to_end(place)
            if len(self._tasks) > MOST_TASKS:
                self._tasks.popitem(last=False)
        self._active[task.agent] += 1
        try:
            yield record
        except (asyncio.CancelledError, GeneratorExit):
            record.end("cancelled")
            raise
        except Exception as error:
            record.end("failed", str(error))
            raise
        finally:
            self._active[task.agent] -= 1
            if not self._active[task.agent]:
                del self._active[task.agent]

    def _judged(self, call: RpcCall, record: TaskRecord, answer: Answer) -> Answer:
        """Record the answer and return it. Raise AgentUnreachable if the agent could not be reached."""
        if answer.reason in (UNREACHABLE, LOST):
            raise AgentUnreachable(record.agent_id, answer.failure, is_unsure=answer.reason == LOST)
        call.tell_why(answer.because)
        record.end("completed" if answer.success else "failed", answer.failure)
        self._completed[record.agent_id] += answer.success
        return answer

    async def get_task_status(self, call: RpcCall, request: pb.TaskStatusRequest) -> pb.TaskStatusResponse:
        """Return the outcome of a task. Raise TaskNotFound if this process does not have it."""
        record = self._tasks.get((call.visitor.caller.owner, request.task_id))
        if record is None or call.visitor.session_id not in (None, record.token):
            raise TaskNotFound(request.task_id)
        return filled(pb.TaskStatusResponse(task_id=request.task_id), record)

    # Status and lists -----------------------------------------------------------------------------

    async def get_status(self, call: RpcCall, request: pb.StatusRequest) -> pb.StatusResponse:
        """Return the status of an agent, or of the server."""
        response = pb.StatusResponse(
            agent_id=request.agent_id,
            version=__version__,
            uptime_seconds=monotonic() - self._began,
            session_id=request.session_id,
        )
        if request.session_id:
            await call.moor.check_first_use(request.session_id)
            response.session_status = (await call.moor.get(request.session_id)).status
        if not request.agent_id:
            response.status, response.active_tasks = "serving", self._active.total()
            response.completed_tasks = self._completed.total()
            return response
        agent = (await call.named.agents()).get(request.agent_id)
        if agent is None:
            raise AgentNotFound(request.agent_id)
        if not agent.enabled:
            response.status = "disabled"
        elif agent.kind is AgentKind.GRPC and not await router(config.environment).is_reachable(agent.endpoint):
            response.status = "unavailable"
        else:
            response.status = "available"
        response.active_tasks, response.completed_tasks = self._active[agent.name], self._completed[agent.name]
        return response

    async def list_agents(self, call: RpcCall, request: pb.ListAgentsRequest) -> pb.ListAgentsResponse:
        """Return all agents; workers are listed by their own service."""
        return pb.ListAgentsResponse(agents=await _infos(call, AgentRole.AGENT))

    async def list_workers(self, call: RpcCall, request: pb.ListWorkersRequest) -> pb.ListWorkersResponse:
        """Return all workers."""
        return pb.ListWorkersResponse(workers=await _infos(call, AgentRole.WORKER))

    async def register_agent(self, call: RpcCall, request: pb.RegisterAgentRequest) -> pb.RegisterAgentResponse:
        """Start or renew a lease for an agent or a worker at an endpoint."""
        role = request.role or AgentRole.AGENT.value
        if role == AgentRole.TOOL.value:
            raise InvalidField("role", "is 'tool'; tools are registered at ToolService.RegisterTool")
        seconds = await _register(call, request.agent_id, role, request)
        return pb.RegisterAgentResponse(success=True, agent_id=request.agent_id, lease_seconds=seconds)

    # Tools --------------------------------------------------------------------------------------

    async def execute_tool(self, call: RpcCall, request: pb.ToolRequest) -> pb.ToolResponse:
        """Call a tool and return its result or its error."""
        session = request.session_id or None
        if session is not None:
            await call.moor.check_first_use(session)
            log.debug("tool %s in session %s", request.tool_id, session)
        answer = await call.named.call_tool(
            request.tool_id,
            request.operation or None,
            dict(request.parameters),
            session=session,
            parent=call.parent,
            timeout=call.timeout,
        )
        return pb.ToolResponse(
            success=answer.success,
            result=as_text(answer.result) if answer.success else "",
            error=answer.error or "",
            session_id=request.session_id,
        )

    async def list_tools(self, call: RpcCall, request: pb.ListToolsRequest) -> pb.ListToolsResponse:
        """Return all tools, with the parameters of each operation."""
        tools, left = await call.named.tools(), _left(call, AgentRole.TOOL)
        return pb.ListToolsResponse(tools=[_tool_info(tool, left) for tool, _ in tools.values()])

    async def register_tool(self, call: RpcCall, request: pb.RegisterToolRequest) -> pb.RegisterToolResponse:
        """Start or renew a lease for a tool at an endpoint."""
        tool = AgentRole.TOOL.value
        seconds = await _register(call, request.tool_id, tool, request, operations=_operations(request))
        return pb.RegisterToolResponse(success=True, tool_id=request.tool_id, lease_seconds=seconds)


async def _register(call: RpcCall, name: str, role: str, request: Any, **more: Any) -> float:
    """Start or renew a registration; return its lease in seconds.

    Raises:
        OutOfReach: the caller comes with a session's token.
        AgentExists: the name belongs to a permanent agent.
    """
    call.moor.check_no_token()
    told, now = request.description or request.name, call.moor.deps.clock.now()
    offer = new_registration(name, role, request.endpoint, request.lease_seconds, now, description=told, **more)
    await asyncio.to_thread(config.check_free, offer.name)
    await call.moor.deps.registered.add(offer)
    return request.lease_seconds or USUAL_LEASE


def _response(request: pb.TaskRequest, answer: Answer) -> pb.TaskResponse:
    metadata = texts_of(answer.facts)
    if request.session_id:
        metadata.setdefault("session_id", request.session_id)
    return pb.TaskResponse(
        task_id=request.task_id,
        output=answer.text,
        success=answer.success,
        error=answer.failure,
        metadata=metadata,
        session_id=request.session_id,
        context=encode_text(answer.context) if answer.context and request.HasField("memory") else "",
    )


def _memory(request: pb.TaskRequest) -> SessionMemory:
    """Return the session facts sent by a router that stores the session itself."""
    told = request.memory
    context = json_of("memory.context", told.context or "{}", dict[str, Any], "must be a JSON object")
    history = [{"role": said.role, "content": said.content} for said in told.history]
    return SessionMemory(history=history, context=context, turns=told.turns)


async def _infos(call: RpcCall, role: AgentRole) -> list[pb.AgentInfo]:
    every, left = await call.named.agents(), _left(call, role)
    return [
        filled(pb.AgentInfo(agent_id=name, endpoints=agent.endpoint, lease_seconds=left.get(name, 0.0)), agent)
        for name, agent in sorted(every.items())
        if agent.role is role and agent.enabled
    ]


def _tool_info(tool: Tool, left: dict[str, float]) -> pb.ToolInfo:
    operations = [
        pb.ToolOperation(name=name, description=each.description, parameters=encode_text(each.parameters))
        for name, each in tool.operations.items()
    ]
    return pb.ToolInfo(
        tool_id=tool.name,
        name=tool.name,
        description=tool.description,
        operations=operations,
        endpoints=tool.endpoints,
        lease_seconds=left.get(tool.name, 0.0),
    )


def _left(call: RpcCall, role: AgentRole) -> dict[str, float]:
    """Return the seconds that registrations have left, by name; of several endpoints, the longest."""
    deps, left = call.moor.deps, dict[str, float]()
    for each in deps.registered.live():
        if (each.role is AgentRole.TOOL) is (role is AgentRole.TOOL):
            seconds = (each.until - deps.clock.now()).total_seconds()
            left[each.name] = max(left.get(each.name, 0.0), seconds)
    return left


def _operations(request: pb.RegisterToolRequest) -> dict[str, ToolOperation]:
    if len(request.operations) > MAX_OPERATIONS:
        raise InvalidField("operations", f"are {len(request.operations)}, at most {MAX_OPERATIONS} are allowed")
    found = {}
    for each in request.operations:
        problem = f"{each.name[:100]!r} has parameters that are not a JSON schema"
        schema = json_of("operations", each.parameters or "{}", dict[str, Any], problem)
        found[each.name] = ToolOperation(description=each.description, parameters=schema)
    return found
