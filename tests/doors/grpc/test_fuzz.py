"""Frames that are none: whatever is sent, the server says so and goes on, and nothing of it stays behind."""

from __future__ import annotations

import asyncio
import gc
import random
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import pytest

from moorage.protobuf import agent_platform_pb2 as pb
from moorage.protobuf import sessions_pb2 as sp
from tests.doors.grpc.serving import Served, until
from tests.doors.grpc.test_platform import task
from tests.fuzz.inputs import SEED, kept, many, no_stalls, tried

ROUNDS = many(1500)
REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNAVAILABLE,  # an agent that was registered at an address without a server
}


def methods() -> list[tuple[str, Any]]:
    services = [service for file in (pb.DESCRIPTOR, sp.DESCRIPTOR) for service in file.services_by_name.values()]
    return [(f"/{service.full_name}/{method.name}", method) for service in services for method in service.methods]


def frame(chance: random.Random, kind: Any) -> bytes:
    """Bytes that may be a message: noise, a damaged message, or one with odd values."""
    from google.protobuf.message_factory import GetMessageClass

    if chance.random() < 0.3:
        return chance.randbytes(chance.randrange(200))
    message = GetMessageClass(kind)()
    for field in kind.fields:
        if chance.random() < 0.6:
            _fill(chance, message, field)
    data = bytearray(message.SerializeToString())
    if data and chance.random() < 0.4:
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


ODD = ("", "s-1", "echo-agent", "weather-tool", "../x", "\x00", "ü" * 50, "{}", "[", "x" * 3000, "localhost:1", "-1")


def _fill(chance: random.Random, message: Any, field: Any) -> None:
    if not isinstance(getattr(message, field.name), (str, int, float)):
        return  # it is repeated, or a message
    if field.type == field.TYPE_STRING:
        setattr(message, field.name, chance.choice(ODD))
    elif field.type in (field.TYPE_INT32, field.TYPE_INT64):
        setattr(message, field.name, chance.choice((-1, 0, 1, 2**31 - 1)))
    elif field.type == field.TYPE_DOUBLE:
        setattr(message, field.name, chance.choice((-1.0, 0.0, 1e300, float("nan"), float("inf"))))
    elif field.type == field.TYPE_BOOL:
        setattr(message, field.name, True)


async def call(served: Served, path: str, data: bytes) -> grpc.StatusCode:
    """Call the method with these bytes and return the status code, which is OK or one of a refusal."""
    with tried("grpc", path.encode() + b"\n" + data):
        code = await status(served, path, data)
        assert code in REFUSALS or code is grpc.StatusCode.OK
        return code


async def status(served: Served, path: str, data: bytes) -> grpc.StatusCode:
    try:
        if dict(methods())[path].server_streaming:
            stream = served.channel.unary_stream(path)(data, timeout=0.5)
            async for _ in stream:
                pass
        else:
            await served.channel.unary_unary(path)(data, timeout=30)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@pytest.mark.timeout(120 + ROUNDS // 10)
@pytest.mark.parametrize("seed", range(3))
async def test_bytes_that_are_no_messages_are_refused_and_nothing_stays(served: Served, seed: int) -> None:
    chance, every = random.Random(f"{SEED} {seed}"), methods()
    await served.agents.ExecuteTask(task("x", session_id="s-1"))
    before = len(asyncio.all_tasks())
    met: Counter[grpc.StatusCode] = Counter()
    async with no_stalls():
        for sent in kept("grpc"):
            path, _, data = sent.partition(b"\n")
            await call(served, path.decode(), data)
        for _ in range(ROUNDS // 3 // 20):
            some = [chance.choice(every) for _ in range(20)]
            met.update(
                await asyncio.gather(*(call(served, path, frame(chance, kind.input_type)) for path, kind in some))
            )
    assert met[grpc.StatusCode.INVALID_ARGUMENT] > 10
    assert (await served.agents.ExecuteTask(task("still there"))).output == "Echo Agent Response: still there"

    async def is_quiet() -> bool:
        return len(asyncio.all_tasks()) <= before + 5  # hubs and probes may stay

    await until(is_quiet)


def open_files() -> int:
    """How many this process has open; 0 where that cannot be told."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


async def test_connections_that_speak_no_http_are_closed_and_forgotten(served: Served) -> None:
    chance = random.Random(7)
    assert (await served.agents.ExecuteTask(task("there"))).success  # the store opens its files when first asked
    gc.collect()
    before = open_files()
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for number in range(100):
        with socket.create_connection(("127.0.0.1", served.port)) as connection:
            start = preface if number % 2 else b""
            connection.sendall(start + chance.randbytes(chance.randrange(1, 500)))
        if number % 20 == 0:
            assert (await served.agents.ExecuteTask(task("still there"))).success

    async def are_closed() -> bool:
        return open_files() <= before + 5

    await until(are_closed)
    assert (await served.agents.ExecuteTask(task("still there"))).success
