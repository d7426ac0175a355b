"""Servers for launchers: the HTTP door in the test's own loop, or as a process that can be killed."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn

from moorage.core.key import Scope
from moorage.doors.http.authorizer import Authorizer, RequestHeaders
from moorage.doors.http.serve import make_door
from moorage.doors.http.visit import Visitor
from moorage.service.deps import Caller, Deps

PATIENCE = 60.0
TOKEN = "token/"  # how the token of a session begins here; its owner and id follow


class KeyAuthorizer(Authorizer):
    """An authorizer that trusts keys such as `local,other:launch,read` (owners:scopes). Without a key it allows all."""

    async def admit(self, exchange: RequestHeaders) -> Visitor:
        key = (exchange.header(b"authorization") or "").removeprefix("Bearer ")
        if not key:
            return await super().admit(exchange)
        if key.startswith(TOKEN):
            owner, _, session_id = key.removeprefix(TOKEN).partition("/")
            caller = Caller(owner=owner, by="agent", interface="rest", holder=session_id)
            return Visitor(caller, frozenset({Scope.READ, Scope.WRITE}), session_id=session_id)
        owners, _, scopes = key.partition(":")
        names = tuple(owners.split(","))
        caller = Caller(owner=names[0], by="key", interface="rest", holder="key")
        return Visitor(caller, frozenset(Scope(name) for name in scopes.split(",")), owners=names)


@asynccontextmanager
async def serving(deps: Deps) -> AsyncIterator[str]:
    """A server in this process; its URL."""
    stop = asyncio.Event()
    door = make_door(deps, KeyAuthorizer(deps), stop=stop)
    server = uvicorn.Server(
        uvicorn.Config(door, port=0, lifespan="off", ws="none", log_config=None, timeout_graceful_shutdown=5)
    )
    task = asyncio.create_task(server._serve())  # `serve` would take the test run's signals
    try:
        async with asyncio.timeout(PATIENCE):
            while not server.started:  # noqa: ASYNC110  uvicorn has no event for it
                await asyncio.sleep(0.005)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        stop.set()
        server.should_exit = True
        await asyncio.wait_for(task, PATIENCE)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def server_process(store: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A server as a process of its own, ready for requests; killed in the end."""
    command = [sys.executable, "-m", "moorage", "serve", "--store", store, "--port", str(port)]
    process = subprocess.Popen([*command, "--no-launcher", "--no-grpc"], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + PATIENCE
    try:
        while not _answers(port):
            assert process.poll() is None, "the server has ended"
            assert time.monotonic() < deadline, "the server never came"
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
