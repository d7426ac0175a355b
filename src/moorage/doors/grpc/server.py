"""A gRPC server in the event loop of `serve`: services, reflection, health, TLS, limits, graceful shutdown.

Several processes may listen at one port (the kernel hands each connection to one of them), so `serve --workers` has the
gRPC door in every worker.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_health.v1 import health, health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckResponse
from grpc_reflection.v1alpha import reflection, reflection_pb2
from msgspec import Struct

from moorage import config
from moorage.agents.builtin import DEFINITIONS, WEATHER
from moorage.agents.grpc import close_router
from moorage.core.agent import AgentRole
from moorage.core.errors import InvalidField, StoreError, StoreUnavailable
from moorage.doors.grpc.door import GrpcDoor
from moorage.doors.grpc.platform import Platform
from moorage.doors.grpc.sessions import SessionsService
from moorage.doors.http.authorizer import Authorizer
from moorage.doors.http.monitoring import Heart, check_ready
from moorage.protobuf import agent_platform_pb2, sessions_pb2
from moorage.service.deps import Deps

FINISH_WITHIN = 10.0  # seconds for started calls after the server is told to stop
LOOK_EVERY = 1.0  # seconds between two health checks for callers of Watch
MAX_MESSAGE = 4 * 1024 * 1024
OPTIONS = [
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", 16 * 1024 * 1024),
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.keepalive_time_ms", 30_000),  # an idle client is pinged
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),  # a client that pings more often is disconnected
]


class Tls(Struct, frozen=True, kw_only=True):
    """The files of a certificate; with `client_ca`, clients must present a certificate signed by it."""

    cert: str
    key: str
    client_ca: str | None = None


class HealthService(health.aio.HealthServicer):  # type: ignore[misc]  # the library has no types
    """Checks the store with every call of Check, and every second for callers of Watch."""

    def __init__(self, deps: Deps, services: tuple[str, ...], heart: Heart | None = None) -> None:
        super().__init__()
        self._deps, self._heart, self._services = deps, heart, ("", *services)

    async def Check(self, request: Any, context: Any) -> Any:
        """Return the current status of a service."""
        await self.look()
        return await super().Check(request, context)

    async def look(self) -> None:
        """Check the store, and remember the result."""
        try:
            await check_ready(self._deps, self._heart)
            status = HealthCheckResponse.SERVING
        except StoreError:
            status = HealthCheckResponse.NOT_SERVING
        for service in self._services:
            if self._server_status.get(service) != status:
                await self.set(service, status)

    async def keep_looking(self, stop: asyncio.Event) -> None:
        """Check repeatedly until told to stop."""
        while not stop.is_set():
            await self.look()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY):
                    await stop.wait()
        await self.enter_graceful_shutdown()


class GrpcServer:
    """The gRPC side of one server process."""

    def __init__(
        self,
        deps: Deps,
        authorizer: Authorizer,
        *,
        services: tuple[str, ...] | None = None,
        shared: bool = False,
        heart: Heart | None = None,
        **options: Any,
    ) -> None:
        """Set up the server. `services` by name, if not all. `shared`: other processes use its port, too.

        The other options are those of `GrpcDoor`.
        """
        self._door = GrpcDoor(deps, authorizer, **options)
        self._server = grpc.aio.server(options=[*OPTIONS, ("grpc.so_reuseport", int(shared))])
        self._sessions, names = SessionsService(), []
        rpcs = {**Platform().rpcs(), **self._sessions.rpcs()}
        for file in (agent_platform_pb2.DESCRIPTOR, sessions_pb2.DESCRIPTOR):
            for name, service in file.services_by_name.items():
                if services is None or name in services:
                    self._server.add_generic_rpc_handlers((self._door.handlers(service, rpcs),))
                    names.append(service.full_name)
        self._health = HealthService(deps, tuple(names), heart)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        _add_reflection(self._server, (*names, health.SERVICE_NAME))
        self.port = 0

    async def start(self, host: str, port: int, tls: Tls | None = None) -> int:
        """Listen and return the port. Raise StoreUnavailable if the port is taken."""
        place = f"[{host.strip('[]')}]:{port}" if ":" in host else f"{host or '0.0.0.0'}:{port}"
        with suppress(RuntimeError):  # the port stays 0
            if tls is None:
                self.port = self._server.add_insecure_port(place)
            else:
                self.port = self._server.add_secure_port(place, await asyncio.to_thread(_credentials, tls))
        if not self.port:
            why = f"gRPC cannot listen on {host} port {port}; another server may be running: give --grpc-port"
            raise StoreUnavailable(why, store=place)
        await self._server.start()
        return self.port

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until told to stop; then finish started calls, and end the streams."""
        try:
            await self._health.keep_looking(stop)
        finally:
            await self.close()

    async def close(self, within: float = FINISH_WITHIN) -> None:
        """Accept no more calls and end the open ones."""
        self._sessions.close()
        await self._server.stop(within)


def _credentials(tls: Tls) -> Any:
    roots = None if tls.client_ca is None else _read(tls.client_ca)
    pairs = [(_read(tls.key), _read(tls.cert))]
    return grpc.ssl_server_credentials(pairs, roots, require_client_auth=roots is not None)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise InvalidField("tls", f"file {path} cannot be read ({error.strerror})") from None


# Reflection in both versions: clients use either ------------------------------------------------

# The library supports v1alpha only. The messages of v1 are the same under another package name, so one servicer answers
# both, and the file descriptor of v1 is that of v1alpha with its names changed.
V1, V1ALPHA = "grpc.reflection.v1", "grpc.reflection.v1alpha"
REFLECTION = tuple(f"{package}.ServerReflection" for package in (V1, V1ALPHA))


def _add_reflection(server: Any, services: Iterable[str]) -> None:
    servicer = reflection.aio.ReflectionServicer((*services, *REFLECTION), pool=_Pools())
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    methods = {"ServerReflectionInfo": handler}
    for name in REFLECTION:
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, methods),))


class _Pools:
    """Finds descriptors in the default pool, then in one of our own.

    The file of v1 is not added to the default pool: a library with its own copy could not be imported any more.
    """

    def __init__(self) -> None:
        self._own = descriptor_pool.DescriptorPool()
        self._own.Add(_file_of_v1())

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def find(*arguments: Any) -> Any:
            try:
                return getattr(descriptor_pool.Default(), name)(*arguments)
            except KeyError:
                return getattr(self._own, name)(*arguments)

        return find


def _file_of_v1() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(file)
    file.name, file.package = "grpc/reflection/v1/reflection.proto", V1
    file.ClearField("options")  # they mark the file as deprecated
    for message in file.message_type:
        for field in message.field:
            if field.type_name:  # of a message
                field.type_name = _renamed(field.type_name)
    for method in file.service[0].method:
        method.input_type, method.output_type = _renamed(method.input_type), _renamed(method.output_type)
    return file


def _renamed(name: str) -> str:
    return name.replace(f".{V1ALPHA}.", f".{V1}.")


# Samples ----------------------------------------------------------------------------------------

_OF_ROLE = {
    AgentRole.AGENT: ("AgentService",),
    AgentRole.WORKER: ("AgentService", "TaskWorker"),
    AgentRole.TOOL: ("ToolService",),
}


async def serve_sample(name: str, host: str, port: int) -> None:
    """Serve a sample agent or tool until SIGTERM or SIGINT: to try a router, and as a template for your own.

    It keeps sessions in memory while it runs. A router that stores sessions itself sends the facts that are needed.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    role = AgentRole.TOOL if name == WEATHER.name else DEFINITIONS[name].role
    deps = config.open_deps("memory://", threaded=True)
    server = GrpcServer(deps, Authorizer(deps, any_host=True), alone=name, services=_OF_ROLE[role])
    listening = await server.start(host, port)
    print(f"{name} answers at {host}:{listening}", flush=True)
    await server.run(stop)
    await close_router()
    await deps.store.close()
