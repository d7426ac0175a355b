"""Agents, workers and tools behind gRPC: any server with the services of proto/agent_platform.proto.

Each call carries the facts of the session, and each answer may carry changes to store. An agent may ignore both:
it still gets the history and the session's id.

Each endpoint has one channel, kept for as long as the event loop. Endpoints of one name take turns; one that cannot
be reached, or reports that it is unhealthy, is skipped until it recovers. A call is sent once: another endpoint is
tried only if no connection could be made, so no call is executed twice.

Variables name the files for TLS: the authority that signs the certificates of `grpcs://` endpoints, and our client
certificate. Without them, gRPC checks an endpoint's certificate with its own defaults.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from itertools import count
from time import monotonic
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from moorage.agents.interface import AGENT_FAILED, TIMED_OUT, AgentEvent, Commands, Emit, Job, Secret, completed, failed
from moorage.core.agent import AgentDefinition, AgentRole, Occasion, Refused, Tool, ToolFunction
from moorage.core.codec import as_text, encode_text
from moorage.core.entry import text_of
from moorage.core.errors import ToolUnreachable
from moorage.core.extras import provided_by

UNREACHABLE = "unreachable"  # the call was not sent
LOST = "connection_lost"  # the call was sent, and its outcome is unknown
EXECUTE = "/agentplatform.AgentService/ExecuteTask"
STREAM = "/agentplatform.AgentService/StreamTask"
PROCESS = "/agentplatform.TaskWorker/ProcessTask"
TOOL = "/agentplatform.ToolService/ExecuteTool"
TOOL_WITHIN = 60.0  # seconds
REASONS = {"DEADLINE_EXCEEDED": TIMED_OUT, "UNAVAILABLE": LOST}  # of a failure, by the status of the call
CONNECT_WITHIN = 0.5  # seconds; then the next endpoint is tried
CONNECT_AT_LAST = 3.0  # seconds for the only endpoint: a busy machine may be slow
PROBE_EVERY = 0.5
PROBE_WITHIN = 0.5
IDLE_AFTER = 60.0  # seconds without a call after which an endpoint is no longer probed
HEALTH = "/grpc.health.v1.Health/Check"
MAX_MESSAGE = 16 * 1024 * 1024
OPTIONS = [
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 2),
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.min_reconnect_backoff_ms", 3_000),  # limit of one attempt; refused attempts end at once
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.service_config_disable_resolution", 1),
]
SCHEME = "grpcs://"  # of endpoints that speak TLS
CA, CERT, KEY = "MOORAGE_GRPC_CA", "MOORAGE_GRPC_CERT", "MOORAGE_GRPC_KEY"
Metadata = tuple[tuple[str, str], ...]


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


# The router: calls to endpoints ----------------------------------------------------------------------


class RemoteCall(NamedTuple):
    """A call of a method that several endpoints offer."""

    places: tuple[str, ...]
    method: str
    request: Any
    answer: Callable[[bytes], Any]  # decodes the answer or a piece of it
    timeout: float | None = None
    metadata: Metadata = ()


class Unreachable(Exception):
    """No endpoint could be reached: nothing was sent."""


class RemoteFailure(Exception):
    """The call was sent and failed; `code` is the name of a gRPC status."""

    def __init__(self, code: str, detail: str, metadata: dict[str, str]) -> None:
        self.code, self.detail, self.metadata = code, detail, metadata
        super().__init__(f"{code}: {detail}")


class Endpoint:
    """One endpoint, its channel and its health."""

    def __init__(self, place: str, credentials: Any = None) -> None:
        """Create a channel; `credentials` are for endpoints with TLS."""
        self.place, self.channel = place, _channel(place, credentials)
        self.is_well = True
        self._used_at = monotonic()
        self._probing: asyncio.Task[None] | None = None

    async def is_ready(self, within: float = CONNECT_WITHIN) -> bool:
        """Return whether there is a connection, or one can be made in time."""
        import grpc

        self._watch()
        state = self.channel.get_state(try_to_connect=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while state is not grpc.ChannelConnectivity.READY:
                    if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                        raise TimeoutError
                    await self.channel.wait_for_state_change(state)
                    state = self.channel.get_state(try_to_connect=True)
                return True
        self.is_well = False
        return False

    def _watch(self) -> None:
        self._used_at = monotonic()
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe(), name=f"moorage-probe-{self.place}")

    async def _probe(self) -> None:
        """Check the endpoint's health repeatedly, as long as it gets calls."""
        while monotonic() - self._used_at < IDLE_AFTER:
            self.is_well = await self._says_well()
            await asyncio.sleep(PROBE_EVERY)

    async def _says_well(self) -> bool:
        """Return the answer of its health service; an endpoint without that service is healthy if it can be reached."""
        import grpc

        ask = self.channel.unary_unary(HEALTH)  # an empty message asks about the server as a whole
        try:
            answer: bytes = await ask(b"", timeout=PROBE_WITHIN)
        except grpc.aio.AioRpcError as error:
            return error.code() is grpc.StatusCode.UNIMPLEMENTED
        return answer == b"\x08\x01"  # SERVING

    async def close(self) -> None:
        """Close the channel."""
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.wait([self._probing])
        await self.channel.close()


class Router:
    """Sends calls for one event loop."""

    def __init__(self, secret: Secret | None = None) -> None:
        self._secret = secret
        self._credentials: Any = None  # set when they are first needed
        self._endpoints: dict[str, Endpoint] = {}
        self._turn = count()

    async def unary(self, call: RemoteCall) -> Any:
        """Call a method that answers once. Raises Unreachable, RemoteFailure."""
        import grpc

        sent = await self._sent(call, "unary_unary")
        try:
            return await sent  # cancelled with its caller
        except grpc.aio.AioRpcError as error:
            raise _failure(error) from error

    async def stream(self, call: RemoteCall) -> AsyncIterator[Any]:
        """Call a method that answers in pieces. Raises Unreachable, RemoteFailure."""
        import grpc

        sent = await self._sent(call, "unary_stream")
        try:
            async for piece in sent:
                yield piece
        except grpc.aio.AioRpcError as error:
            raise _failure(error) from error
        finally:
            sent.cancel()

    async def _sent(self, call: RemoteCall, kind: str) -> Any:
        """Send a call to an endpoint that can be reached; return its pending answer."""
        channel, serialize = (await self._chosen(call.places)).channel, type(call.request).SerializeToString
        method = getattr(channel, kind)(call.method, request_serializer=serialize, response_deserializer=call.answer)
        return method(call.request, timeout=call.timeout, metadata=call.metadata)

    async def _chosen(self, places: tuple[str, ...]) -> Endpoint:
        """Return the next endpoint in turn that can be reached; unhealthy ones come last."""
        if self._credentials is None and any(place.startswith(SCHEME) for place in places):
            try:
                self._credentials = await asyncio.to_thread(_credentials, self._secret)
            except OSError as error:
                raise Unreachable(f"{error.filename} cannot be read ({error.strerror})") from error
        start = next(self._turn) % max(1, len(places))
        in_turn = [self._endpoint(place) for place in (*places[start:], *places[:start])]
        in_turn.sort(key=lambda each: not each.is_well)
        for within in (CONNECT_WITHIN, CONNECT_AT_LAST):
            for endpoint in in_turn:
                if await endpoint.is_ready(within):
                    return endpoint
        raise Unreachable(f"none of {', '.join(places)} can be reached")

    async def is_reachable(self, places: tuple[str, ...]) -> bool:
        """Return whether one of these endpoints can be called now."""
        try:
            return (await self._chosen(places)).is_well
        except Unreachable:
            return False

    def _endpoint(self, place: str) -> Endpoint:
        known = self._endpoints.get(place)
        if known is None:
            known = self._endpoints[place] = Endpoint(place, self._credentials)
        return known

    async def close(self) -> None:
        """Close all channels."""
        while self._endpoints:
            await self._endpoints.popitem()[1].close()


_routers: WeakKeyDictionary[asyncio.AbstractEventLoop, Router] = WeakKeyDictionary()


def router(secret: Secret | None = None) -> Router:
    """Return the router of the running event loop: channels belong to one loop. `secret` reads variables."""
    loop = asyncio.get_running_loop()
    known = _routers.get(loop)
    if known is None:
        known = _routers[loop] = Router(secret)
    return known


async def close_router() -> None:
    """Close the channels of the running event loop, if there are any."""
    known = _routers.pop(asyncio.get_running_loop(), None)
    if known is not None:
        await known.close()


def _channel(place: str, credentials: Any) -> Any:
    grpc = load_grpc()
    scheme, separator, rest = place.partition("://")
    if place.startswith(SCHEME):
        return grpc.aio.secure_channel(rest, credentials, options=OPTIONS)
    target = rest if separator and scheme in ("grpc", "http") else place
    return grpc.aio.insecure_channel(target, options=OPTIONS)


def _credentials(secret: Secret | None) -> Any:
    """Return the credentials for channels to `grpcs://` endpoints; reads files. Raises OSError."""
    import grpc

    ca, cert, key = (_read(None if secret is None else secret(name)) for name in (CA, CERT, KEY))
    return grpc.ssl_channel_credentials(ca, key, cert)


def _read(path: str | None) -> bytes | None:
    if not path:
        return None
    with open(path, "rb") as file:
        return file.read()


def load_grpc() -> Any:
    """Return the gRPC library. Raises Unsupported if it is not installed."""
    with provided_by("grpc", "gRPC"):
        import grpc
        import grpc.aio
    return grpc


def _failure(error: Any) -> RemoteFailure:
    trailing = {str(key): str(value) for key, value in error.trailing_metadata() or () if isinstance(value, str)}
    return RemoteFailure(error.code().name, error.details() or "", trailing)
