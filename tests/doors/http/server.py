"""Servers for tests: the HTTP door under uvicorn, in the test's own loop, or as a process that can be killed."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import httpx2
import uvicorn
from msgspec.structs import replace

from moorage import config
from moorage.client import LocalMoorage, OpenStore
from moorage.doors.graphql import door as graphql
from moorage.doors.graphql.door import Graphql
from moorage.doors.http import agent_sessions, messages, streams
from moorage.doors.http.app import Door
from moorage.doors.http.authorizer import Authorizer
from moorage.doors.http.exchange import AsgiApp
from moorage.doors.http.streams import LiveStreams, StreamSettings
from moorage.doors.http.visit import Visitor
from moorage.launcher.embedded import Embedded
from moorage.service.deps import Caller, Deps, ServerSettings
from moorage.testing.faults import PATIENCE, Worker


class Served:
    """A server at work."""

    def __init__(self, server: uvicorn.Server, door: Door, live: LiveStreams, graphql: Graphql) -> None:
        self.url = address_of(server)
        self.door, self.live, self.deps, self.graphql, self._server = door, live, door.deps, graphql, server

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._server.server_state.connections)

    def moorage(self, owner: str = "local") -> LocalMoorage:
        """The same store without the door in between."""
        return LocalMoorage(
            OpenStore(lambda: self.deps), Caller(owner=owner, by="test", interface="test", holder="test")
        )

    def client(self, **options: Any) -> httpx2.AsyncClient:
        """A client of it; close it after use."""
        return httpx2.AsyncClient(base_url=self.url, timeout=PATIENCE, **options)


@asynccontextmanager
async def launching(served: Served) -> AsyncIterator[None]:
    """Run a launcher for the agents that come with Moorage; requests in this block never get `no_launcher`."""
    async with Embedded(served.deps, config.agents):
        async with asyncio.timeout(PATIENCE):
            while not (await served.moorage().launchers()).items:  # noqa: ASYNC110  there is no event to wait for
                await asyncio.sleep(0.01)
        yield


class OwnerAuthorizer(Authorizer):
    """An authorizer that believes a header which owner is asking; `local` without one."""

    async def admit(self, exchange: Any) -> Visitor:
        self._check_local(exchange)
        owner = exchange.header(b"x-owner") or "local"
        return Visitor(Caller(owner=owner, by=owner, interface="rest", holder=owner))


@asynccontextmanager
async def serving(
    where: Deps | str,
    *,
    authorizer: Callable[[Deps], Authorizer] = Authorizer,
    settings: StreamSettings | None = None,
    limits: ServerSettings | None = None,
) -> AsyncIterator[Served]:
    """The door on a store (by its URL, closed afterwards) or on what a test has made, on a free port."""
    deps = config.open_deps(where, threaded=True) if isinstance(where, str) else where
    if limits is not None:
        deps.settings = replace(deps.settings, server=limits)
    door = Door(deps, authorizer(deps))
    live = streams.add_to(door, settings)
    messages.add_to(door, live)
    agent_sessions.add_to(door, live)
    queries = graphql.add_to(door, live)
    try:
        async with running(door) as server:
            yield Served(server, door, live, queries)
    finally:
        if isinstance(where, str):
            await deps.store.close()


@asynccontextmanager
async def running(door: Door, app: AsgiApp | None = None, **options: Any) -> AsyncIterator[uvicorn.Server]:
    """A door under uvicorn, on a free port; behind `app`, if there is one."""
    usual = {"port": 0, "lifespan": "off", "log_config": None}
    usual |= {"ws": "websockets-sansio", "ws_per_message_deflate": False}
    server = uvicorn.Server(uvicorn.Config(app or door, **{**usual, **options}))
    task = asyncio.create_task(server._serve())  # `serve` would take the test run's signals
    try:
        async with asyncio.timeout(PATIENCE):
            while not server.started:  # noqa: ASYNC110  uvicorn has no event for it
                await asyncio.sleep(0.005)
        yield server
    finally:
        await door.close()
        await _stop(server, task)


def address_of(server: uvicorn.Server) -> str:
    """Where it listens."""
    return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"


async def _stop(server: uvicorn.Server, task: asyncio.Task[None]) -> None:
    """End a server at once: its own way takes a fifth of a second, and there are hundreds of tests."""
    task.cancel()
    await asyncio.wait([task])
    for listening in server.servers:
        listening.close()
    for connection in list(server.server_state.connections):
        connection.transport.close()
    if server.server_state.tasks:
        await asyncio.wait(server.server_state.tasks, timeout=PATIENCE)


SERVE = """
import sys
from moorage.doors.cli.main import main
from moorage.doors.http import monitoring
monitoring.LOOK_EVERY = 0.005  # short, so that little of what was computed before a stall counts as part of it
sys.argv = ["moorage", "serve", "--no-launcher", "--no-grpc", "--store", sys.argv[1], "--port", sys.argv[2]]
main()
"""


def free_port() -> int:
    """Return a free port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@contextmanager
def serving_process(url: str, port: int) -> Iterator[Worker]:
    """`moorage serve` as a process of its own, for `kill -9`, once it answers."""
    with Worker(SERVE, url, port) as worker:
        deadline = time.monotonic() + PATIENCE
        while True:
            with suppress(httpx2.TransportError):
                httpx2.get(f"http://127.0.0.1:{port}/readyz").raise_for_status()
                break
            assert time.monotonic() < deadline, "it does not answer"
            time.sleep(0.05)
        yield worker
