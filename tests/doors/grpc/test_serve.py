"""`moorage serve` with its gRPC door, as a process: clients of others' making, TLS, workers, ends good and bad."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from moorage.core.errors import StoreUnavailable
from moorage.protobuf import agent_platform_pb2 as pb
from moorage.protobuf import sessions_pb2 as sp
from tests.docs.page import ROOT
from tests.doors.grpc.serving import PATIENCE, Served, Stubs, sample_process, server_process, until
from tests.doors.grpc.test_platform import refused, task
from tests.npm import buf

Code = grpc.StatusCode
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
NAMES = {
    "agentplatform.AgentService",
    "agentplatform.TaskWorker",
    "agentplatform.ToolService",
    "moorage.v1.SessionService",
}


def test_the_script_of_the_session_id_guide_works_as_it_is_written(home: Path) -> None:
    """Its text is unchanged but for the port: tests run side by side."""
    compiled = subprocess.run(
        ["bash", str(ROOT / "scripts" / "compile_proto.sh"), str(home / "proto")],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert compiled.returncode == 0, compiled.stderr
    script = (ROOT / "tests" / "data" / "grpc" / "session_id_script.txt").read_text()
    with server_process(f"sqlite:///{home}/store.db", home) as server:
        (home / "test_session_id.py").write_text(script.replace("localhost:50051", f"localhost:{server.port}"))
        ran = subprocess.run(
            [sys.executable, "test_session_id.py"], cwd=home, capture_output=True, text=True, timeout=PATIENCE
        )
    assert ran.returncode == 0, ran.stderr
    assert "✓ Session IDs match across requests!" in ran.stdout
    assert "Echo Agent Response: Second message in same session" in ran.stdout
    assert "'session_turns': '2'" in ran.stdout


async def test_messages_survive_kill_9_during_a_stream(home: Path) -> None:
    store, words = f"sqlite:///{home}/store.db", " ".join(["word"] * 100_000)
    with server_process(store, home) as server:
        async with grpc.aio.insecure_channel(server.place) as channel:
            await Stubs(channel).agents.ExecuteTask(task("before the end", session_id="s-1"))
            stream = Stubs(channel).agents.StreamTask(task(words, session_id="s-1"))
            assert not (await stream.read()).is_final
            server.kill()
            assert (await refused(to_the_end(stream))).code() is Code.UNAVAILABLE
    with server_process(store, home) as server:
        async with grpc.aio.insecure_channel(server.place) as channel:
            answer = await Stubs(channel).agents.ExecuteTask(task("what did I say?", session_id="s-1"))
            assert answer.output.endswith(f"Remembered: before the end; {words}")
            assert answer.metadata["session_turns"] == "3"


async def to_the_end(stream: Any) -> None:
    while await stream.read() is not grpc.aio.EOF:
        pass


async def test_shutdown_finishes_calls_and_ends_streams(home: Path) -> None:
    with server_process(f"sqlite:///{home}/store.db", home) as server:
        async with grpc.aio.insecure_channel(server.place) as channel:
            stubs = Stubs(channel)
            await stubs.agents.ExecuteTask(task("x", session_id="s-1"))
            watch = stubs.sessions.WatchSession(sp.WatchSessionRequest(session="s-1"))
            assert (await watch.read()).event.id == 1
            server.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(PATIENCE):
                await to_the_end(watch)
            assert await asyncio.to_thread(server.process.wait, PATIENCE) == 0


# For operators ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_lists_the_services(served: Served, version: str) -> None:
    reflect = Reflecting(served.channel, version)
    [listed] = await reflect.ask(list_services="")
    assert {service.name for service in listed.list_services_response.service} == NAMES | {
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    for service in listed.list_services_response.service:
        [told] = await reflect.ask(file_containing_symbol=service.name)
        pool = descriptor_pool.DescriptorPool()
        for file in reversed(told.file_descriptor_response.file_descriptor_proto):  # what is imported comes last
            pool.AddSerializedFile(file)
        assert pool.FindServiceByName(service.name).methods
        for method in pool.FindServiceByName(service.name).methods:
            assert method.input_type.full_name.startswith(service.name.rpartition(".")[0])


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_answers_every_question(served: Served, version: str) -> None:
    reflect = Reflecting(served.channel, version)
    request = f"grpc.reflection.{version}.ServerReflectionRequest"
    extension = {"containing_type": request, "extension_number": 5}
    [by_name] = await reflect.ask(file_by_filename="moorage/v1/sessions.proto")
    assert b"WatchSessionResponse" in by_name.file_descriptor_response.file_descriptor_proto[0]
    [numbers] = await reflect.ask(all_extension_numbers_of_type=request)
    assert (numbers.all_extension_numbers_response.base_type_name, numbers.error_response.error_code) == (request, 0)
    wrong = [
        *(await reflect.ask(file_containing_extension=extension)),
        *(await reflect.ask(file_containing_symbol="moorage.v1.Nobody")),
        *(await reflect.ask(file_by_filename="nobody.proto")),
        *(await reflect.ask(all_extension_numbers_of_type="moorage.v1.Nobody")),
        *(await reflect.ask()),
    ]
    assert [each.error_response.error_code for each in wrong] == [5, 5, 5, 5, 3]


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_a_client_without_our_files_calls_by_reflection(served: Served, version: str) -> None:
    arguments = ["curl", "--protocol", "grpc", "--http2-prior-knowledge", "--reflect"]
    method = f"http://{served.place}/moorage.v1.SessionService/CreateSession"
    process = await asyncio.create_subprocess_exec(
        *(await asyncio.to_thread(buf), *arguments, "--reflect-protocol", f"grpc-{version}"),
        *("--data", '{"session_id": "s-1"}', method),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    told, wrong = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert (process.returncode, wrong) == (0, b"")
    assert json.loads(told)["session"]["sessionId"] == "s-1"


class Reflecting:
    """A client of reflection in one of its versions, which differ in the path only."""

    def __init__(self, channel: Any, version: str) -> None:
        path = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
        self._call = channel.stream_stream(
            path,
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )

    async def ask(self, **question: Any) -> list[Any]:
        asked = [reflection_pb2.ServerReflectionRequest(**question)]
        return [answer async for answer in self._call(iter(asked))]


async def test_health_is_that_of_the_store(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    health: Any = health_pb2_grpc.HealthStub(served.channel)
    for name in ("", *NAMES):
        assert (await health.Check(health_pb2.HealthCheckRequest(service=name))).status == SERVING
    assert (await refused(health.Check(health_pb2.HealthCheckRequest(service="nothing")))).code() is Code.NOT_FOUND

    async def away(owner: str) -> int:
        raise StoreUnavailable("away", store="store")

    monkeypatch.setattr(served.deps.store, "feed_end", away)
    assert (await health.Check(health_pb2.HealthCheckRequest())).status == NOT_SERVING
    monkeypatch.undo()
    assert (await health.Check(health_pb2.HealthCheckRequest())).status == SERVING


async def test_health_can_be_watched_until_the_server_stops(home: Path) -> None:
    with server_process(f"sqlite:///{home}/store.db", home) as server:
        async with grpc.aio.insecure_channel(server.place) as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            async with asyncio.timeout(PATIENCE):
                assert (await watch.read()).status == SERVING
                server.process.send_signal(signal.SIGTERM)
                assert (await watch.read()).status == NOT_SERVING


async def test_oversized_message_is_refused(served: Served) -> None:
    error = await refused(served.agents.ExecuteTask(task("x" * 5_000_000, session_id="s-1")))
    assert error.code() is Code.RESOURCE_EXHAUSTED
    whole = await served.agents.ExecuteTask(task("x" * 900_000, session_id="s-1"))
    assert len(whole.output) > 900_000


# Where it listens -------------------------------------------------------------------------------


async def test_tls_with_certificates_on_both_sides(home: Path, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    options = ["--grpc-cert", str(cert), "--grpc-key", str(key), "--grpc-client-ca", str(cert)]
    with server_process(f"sqlite:///{home}/store.db", home, *options) as server:
        both = grpc.ssl_channel_credentials(cert.read_bytes(), key.read_bytes(), cert.read_bytes())
        async with grpc.aio.secure_channel(f"localhost:{server.port}", both) as channel:
            assert (await Stubs(channel).agents.ExecuteTask(task("x"), timeout=20)).success
        for channel in (
            grpc.aio.insecure_channel(server.place),
            grpc.aio.secure_channel(f"localhost:{server.port}", grpc.ssl_channel_credentials(cert.read_bytes())),
        ):
            async with channel:
                error = await refused(Stubs(channel).agents.ExecuteTask(task("x"), timeout=5))
                assert error.code() in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)


def _run(home: Path, *arguments: str, code: str = "") -> subprocess.CompletedProcess[str]:
    """`moorage` with these arguments, to its end."""
    program = f"import sys\n{code}\nfrom moorage.doors.cli.main import main\nsys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "MOORAGE_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def test_half_a_certificate_is_refused(home: Path) -> None:
    ended = _run(home, "serve", "--store", "memory://", "--port", "0", "--grpc-port", "0", "--grpc-cert", "x.pem")
    assert (ended.returncode, "--grpc-key" in ended.stderr) == (2, True)


def test_where_others_can_reach_it_it_does_not_start_without_a_key(home: Path) -> None:
    ended = _run(home, "serve", "--store", "memory://", "--port", "0", "--grpc-port", "0", "--host", "0.0.0.0")
    assert (ended.returncode, "keys create" in ended.stderr) == (2, True)


def test_a_port_that_is_taken_is_an_error_if_it_was_asked_for(home: Path) -> None:
    with sample_process("echo-agent", home) as sample:
        arguments = ["serve", "--store", "memory://", "--port", "0", "--grpc-port", str(sample.port)]
        ended = _run(home, *arguments)
        assert (ended.returncode, "--grpc-port" in ended.stderr) == (5, True)


WITHOUT = "for name in ('grpc', 'grpc_health', 'grpc_reflection', 'google.protobuf'): sys.modules[name] = None"


def test_server_without_the_extra_names_the_package_to_install(home: Path) -> None:
    program = f"import sys\n{WITHOUT}\nfrom moorage.doors.cli.main import main\nsys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "serve", "--store", "memory://", "--port", "0", "--log-format", "text"],
        env={**os.environ, "MOORAGE_HOME": str(home)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        watchdog = threading.Timer(PATIENCE, process.kill)
        watchdog.start()
        lines = [next(process.stderr) for _ in range(3)]
        watchdog.cancel()
        assert "gRPC is off" in lines[0]
        assert "pip install 'moorage[grpc]'" in lines[0]
        assert "Moorage serves" in lines[1]
        assert "Started server process" in lines[2]  # from here on it hears signals
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    for command in (["sample", "echo-agent"], ["serve", "--port", "0", "--grpc-port", "0"]):
        refused = _run(home, *command, code=WITHOUT)
        assert (refused.returncode, "pip install 'moorage[grpc]'" in refused.stderr) == (2, True)


async def test_several_workers_listen_at_one_port(home: Path) -> None:
    """Each connection goes to one of them, and each remembers its own tasks; they share the sessions."""
    with server_process(f"sqlite:///{home}/store.db", home, "--workers", "2") as server:
        first = task("I like tea", session_id="s-1")
        async with _fresh_channel(server.place) as channel:
            await Stubs(channel).agents.ExecuteTask(first)
        await until(lambda: _is_recalled_by_another(server.place, first.task_id))
        server.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(server.process.wait, PATIENCE) == 0


def _fresh_channel(place: str) -> Any:
    """A channel with a connection of its own."""
    return grpc.aio.insecure_channel(place, options=[("grpc.use_local_subchannel_pool", 1)])


async def _is_recalled_by_another(place: str, task_id: str) -> bool:
    async with _fresh_channel(place) as channel:
        stubs = Stubs(channel)
        try:
            await stubs.workers.GetTaskStatus(pb.TaskStatusRequest(task_id=task_id))
        except grpc.aio.AioRpcError:
            answer = await stubs.agents.ExecuteTask(task("what did I say?", session_id="s-1"))
            return str(answer.output).endswith("Remembered: I like tea")
    return False
