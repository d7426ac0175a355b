"""A server for whole test runs: uvicorn in a thread with its own event loop, a door for every test.

Each door has an address of its own, a path on the one server. `Server` is another one, alone on
its port, that a test may stop and start again.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import uvicorn

from moorage import config
from moorage.doors.http.app import Door
from moorage.doors.http.authorizer import Authorizer, RequestHeaders
from moorage.doors.http.exchange import AsgiApp, AsgiReceive, AsgiScope, AsgiSend
from moorage.doors.http.serve import make_door
from moorage.doors.http.visit import Visitor
from moorage.launcher.embedded import Embedded
from moorage.service.deps import Caller, Deps
from moorage.testing.faults import PATIENCE

T = TypeVar("T")
OWNER = "X-Test-Owner"


class OwnerAuthorizer(Authorizer):
    """An authorizer that believes a header which owner is asking."""

    async def admit(self, exchange: RequestHeaders) -> Visitor:
        visitor = await super().admit(exchange)
        told = visitor.caller
        owner = exchange.header(OWNER.lower().encode()) or "local"
        return Visitor(Caller(owner=owner, by=told.by, interface=told.interface, holder=told.holder))


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="server", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE)
        self.loop.close()


class Server:
    """uvicorn on a port of its own; stopping it breaks all connections off."""

    def __init__(self, app: AsgiApp, loop: Loop, port: int = 0) -> None:
        self._loop = loop
        self._socket = socket.socket(
            socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
        )  # else asyncio sets no NODELAY
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(app, lifespan="off", ws="none", log_config=None)
        self._server = uvicorn.Server(config)
        self._task = loop.run(self._start())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _start(self) -> asyncio.Task[None]:
        task = asyncio.create_task(self._server._serve([self._socket]))
        async with asyncio.timeout(PATIENCE):
            while not self._server.started:  # noqa: ASYNC110  # uvicorn has no event for it
                await asyncio.sleep(0.005)
        return task

    def stop(self) -> None:
        self._loop.run(self._stop())

    async def _stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        for listening in self._server.servers:
            listening.close()
        self._socket.close()
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()
        tasks = self._server.server_state.tasks
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=PATIENCE)


class Doors:
    """One server with a door for every test."""

    def __init__(self) -> None:
        self._loop, self._numbers = Loop(), itertools.count(1)
        self._doors: dict[str, Door] = {}
        self._launchers: dict[str, Embedded] = {}
        self._server = Server(self, self._loop)

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        _, number, _ = scope["path"].split("/", 2)
        inside = dict(scope)
        inside["path"] = scope["path"].removeprefix(f"/{number}")
        inside["raw_path"] = scope["raw_path"].removeprefix(f"/{number}".encode())
        await self._doors[number](inside, receive, send)

    def open(self, url: str, *, guarded: bool = False) -> str:
        """A door on a store; its address. If it is guarded, keys alone tell the owner."""
        return self._added(self._loop.run(a_door(url, guarded=guarded)))

    def open_on(self, make: Callable[[], Deps]) -> str:
        """A door on what is made in the server's own thread; its address."""

        async def made() -> Door:
            deps = await asyncio.to_thread(make)
            return make_door(deps, OwnerAuthorizer(deps))

        return self._added(self._loop.run(made()))

    def _added(self, door: Door) -> str:
        number = str(next(self._numbers))
        self._doors[number] = door
        return f"{self._server.url}/{number}"

    def deps(self, address: str) -> Deps:
        """Return the dependencies of a door for its owner."""
        return self._doors[address.rpartition("/")[2]].deps_of("local")

    def launching(self, address: str) -> Embedded:
        """A launcher for the agents of that door; it works until the door is shut."""
        deps = self._doors[address.rpartition("/")[2]].deps
        launcher = self._launchers[address] = Embedded(deps, config.agents)
        self._loop.run(launcher.__aenter__())
        return launcher

    def shut(self, address: str) -> None:
        """Take a door away, and its store."""
        if (launcher := self._launchers.pop(address, None)) is not None:
            self._loop.run(launcher.__aexit__())
        self._loop.run(self._doors.pop(address.rpartition("/")[2]).deps.store.close())

    def close(self) -> None:
        self._server.stop()
        self._loop.close()


async def a_door(url: str, *, guarded: bool = False) -> Door:
    """The door as it is served, on a store."""
    deps = await asyncio.to_thread(config.open_deps, url, threaded=True)
    return make_door(deps, (Authorizer if guarded else OwnerAuthorizer)(deps))
