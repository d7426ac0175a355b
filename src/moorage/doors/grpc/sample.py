"""Sample agents and tools behind gRPC: to try a router, and as a template for your own.

A sample keeps sessions in memory while it runs. A router that stores sessions itself sends the facts that are needed.
"""

from __future__ import annotations

import asyncio
import signal

from moorage import config
from moorage.agents.builtin import DEFINITIONS
from moorage.agents.grpc import close_router
from moorage.agents.weather import WEATHER
from moorage.core.agent import AgentRole
from moorage.doors.grpc.server import GrpcServer
from moorage.doors.http.authorizer import Authorizer

SAMPLES = (*DEFINITIONS, WEATHER.name)


async def serve_sample(name: str, host: str, port: int) -> None:
    """Serve a sample until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    deps = config.open_deps("memory://", threaded=True)
    server = GrpcServer(deps, Authorizer(deps, any_host=True), alone=name, services=services_of(name))
    listening = await server.start(host, port)
    print(f"{name} answers at {host}:{listening}", flush=True)
    await server.run(stop)
    await close_router()
    await deps.store.close()


def services_of(name: str) -> tuple[str, ...]:
    """Return the services that fit the kind of the sample."""
    if name == WEATHER.name:
        return ("ToolService",)
    return ("AgentService", "TaskWorker") if DEFINITIONS[name].role is AgentRole.WORKER else ("AgentService",)
