"""gRPC servers for tests: the door in the test's own loop, or `serve` and `sample` as processes to be killed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc

from moorage import config
from moorage.agents.grpc import close_router
from moorage.client import LocalMoorage, OpenStore
from moorage.doors.grpc.server import GrpcServer
from moorage.doors.http.app import Door
from moorage.doors.http.authorizer import Authorizer
from moorage.protobuf import agent_platform_pb2_grpc, sessions_pb2_grpc
from moorage.service.deps import Caller, Deps

PATIENCE = 60.0
ENDS_WITHIN = 15.0


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Poll until a condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not await is_so():  # noqa: ASYNC110  there is no event to wait for
            await asyncio.sleep(0.02)


class Stubs:
    """Real stubs on one channel."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.agents: Any = agent_platform_pb2_grpc.AgentServiceStub(channel)
        self.tools: Any = agent_platform_pb2_grpc.ToolServiceStub(channel)
        self.workers: Any = agent_platform_pb2_grpc.TaskWorkerStub(channel)
        self.sessions: Any = sessions_pb2_grpc.SessionServiceStub(channel)


class Served(Stubs):
    """A server in this process, and a client of it."""

    def __init__(self, channel: Any, deps: Deps, port: int) -> None:
        super().__init__(channel)
        self.deps, self.port, self.place = deps, port, f"127.0.0.1:{port}"

    def moorage(self, owner: str = "local") -> LocalMoorage:
        """The same store without the door in between."""
        return LocalMoorage(
            OpenStore(lambda: self.deps), Caller(owner=owner, by="test", interface="test", holder="test")
        )


@asynccontextmanager
async def serving(url: str, **options: Any) -> AsyncIterator[Served]:
    """The gRPC door on a store, on a free port, with a client."""
    deps = config.open_deps(url, threaded=True)
    authorizer = options.pop("authorizer", None) or Authorizer(deps)
    server = GrpcServer(deps, authorizer, deps_of=Door(deps, authorizer).deps_of, **options)
    port = await server.start("127.0.0.1", 0)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield Served(channel, deps, port)
    finally:
        await server.close(0)
        await close_router()
        await deps.store.close()


class Process:
    """A program of ours that serves gRPC."""

    def __init__(self, process: subprocess.Popen[str], port: int, said: list[str]) -> None:
        self.process, self.port, self.place = process, port, f"127.0.0.1:{port}"
        self.said = said  # all its lines so far

    def kill(self) -> None:
        """As `kill -9` does."""
        self.process.kill()
        self.process.wait(PATIENCE)


@contextmanager
def server_process(store: str, home: Path, *arguments: str) -> Iterator[Process]:
    """`moorage serve` as a process of its own, listening."""
    command = ["serve", "--store", store, "--port", "0", "--log-format", "text", *arguments]
    if "--grpc-port" not in arguments:
        command += ["--grpc-port", "0"]
    with _program(command, home, "gRPC at", "gRPC (TLS) at", ready="Started server process") as started:
        yield started


@contextmanager
def sample_process(name: str, home: Path, port: int = 0) -> Iterator[Process]:
    """`moorage sample` as a process of its own, listening."""
    with _program(["sample", name, "--port", str(port)], home, "answers at") as started:
        yield started


@contextmanager
def _program(command: list[str], home: Path, *signs: str, ready: str = "") -> Iterator[Process]:
    environment = {**os.environ, "MOORAGE_HOME": str(home)}
    process = subprocess.Popen(
        [sys.executable, "-m", "moorage", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        text=True,
    )
    try:
        said: list[str] = []
        yield Process(process, _port(process, signs, ready, said), said)
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """Tell a program to end, and its workers with it; one that does not in time is killed."""
    process.terminate()
    try:
        process.wait(ENDS_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(PATIENCE)


def _port(process: subprocess.Popen[str], signs: tuple[str, ...], ready: str, said: list[str]) -> int:
    """The port that a program says it listens at, once it hears signals; what it says later is added to `said`."""
    assert process.stdout is not None
    port = 0
    for line in process.stdout:
        said.append(line)
        if any(sign in line for sign in signs):
            port = int(line.split("[")[0].strip().replace(":", " ").split()[-1])
        if port and ready in line:
            threading.Thread(target=_drain, args=(process.stdout, said), daemon=True).start()
            return port
    raise AssertionError(f"it ended: {''.join(said)}")


def _drain(stream: Any, said: list[str]) -> None:
    with stream:
        said.extend(stream)
