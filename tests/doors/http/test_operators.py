"""Observability of a server: health, metrics, log lines, traces."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.parser import text_string_to_metric_families

from moorage import config, sync
from moorage.doors import logs
from moorage.doors.http import authorizer, monitoring
from moorage.doors.http.app import Door
from moorage.doors.http.monitoring import Heart, Meter, watch_stalls
from moorage.doors.http.openapi import openapi
from moorage.doors.http.serve import make_door
from moorage.doors.http.visit import Visit
from moorage.protobuf.agent_platform_pb2 import TaskRequest
from moorage.protobuf.agent_platform_pb2_grpc import AgentServiceStub
from moorage.protobuf.sessions_pb2 import WatchSessionRequest
from moorage.protobuf.sessions_pb2_grpc import SessionServiceStub
from moorage.service.about import working_on
from moorage.testing.faults import PATIENCE
from tests.doors.http.listening import STREAM
from tests.doors.http.process import Process, until


@contextmanager
def opened(url: str, **options: Any) -> Iterator[tuple[Door, httpx2.AsyncClient]]:
    """The whole door on a store, and a client of it, without a port in between."""
    deps = config.open_deps(url, threaded=True)
    door = make_door(deps, **options)
    transport = httpx2.ASGITransport(door)
    yield door, httpx2.AsyncClient(transport=transport, base_url="http://localhost")


# Documentation ----------------------------------------------------------------------------------


async def test_document_is_made_once_and_not_by_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    makers: list[threading.Thread] = []

    def made(*args: Any, **options: Any) -> dict[str, Any]:
        makers.append(threading.current_thread())
        return openapi(*args, **options)

    monkeypatch.setattr(monitoring, "openapi", made)
    with opened("memory://") as (_, http):
        assert (await http.get("/openapi.json")).json() == (await http.get("/openapi.json")).json()
        assert (await http.get("/docs")).is_success
    [maker] = makers
    assert maker is not threading.current_thread()


# Health -----------------------------------------------------------------------------------------


async def test_a_server_is_not_ready_while_its_store_does_not_answer(tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path / 'x.db'}") as (door, http):
        assert (await http.get("/readyz")).json()["status"] == "ready"
        await door.deps.store.close()
        refused = await http.get("/readyz")
    assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
    assert refused.headers["retry-after"]


async def test_a_server_that_cannot_write_is_not_ready_and_later_not_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitoring, "SILENT_AFTER", 0.05)
    heart = Heart()
    with opened(f"sqlite:///{tmp_path / 'x.db'}", heart=heart) as (door, http):
        await asyncio.sleep(0.1)
        assert (await http.get("/readyz")).status_code == 503
        assert (await http.get("/healthz")).status_code == 200
        monkeypatch.setattr(monitoring, "DEAD_AFTER", 0.05)
        assert (await http.get("/healthz")).status_code == 503
        heart.beat()
        monkeypatch.setattr(monitoring, "SILENT_AFTER", PATIENCE)
        assert (await http.get("/readyz")).status_code == 200
        await door.deps.store.close()


# Numbers ----------------------------------------------------------------------------------------


def numbers(text: str) -> dict[str, float]:
    """Return the metrics by name, those with labels by name and labels."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


async def test_metrics_count_requests_and_waiting_work(tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path / 'x.db'}") as (door, http):
        asked = {"agent_name": "echo-agent", "prompt": "waits for a launcher", "mode": "async_poll"}
        assert (await http.post("/runs", json=asked)).status_code == 201
        for _ in range(3):
            await http.post("/sessions", json={})
        await http.get("/sessions/nobody")
        told = numbers((await http.get("/metrics")).text)
        await door.deps.store.close()
    assert told["moorage_requests_total{operation=create,status=201}"] == 3
    assert told["moorage_requests_total{operation=get,status=404}"] == 1
    assert told["moorage_request_seconds_count{operation=create}"] == 3
    assert told["moorage_commit_seconds_count"] >= 1
    assert told["moorage_commit_changes_sum"] >= 3
    assert told["moorage_queued_turns"] == 1
    assert 0 < told["moorage_oldest_queued_seconds"] < timedelta(hours=1).total_seconds()
    assert told["moorage_running_turns"] == told["moorage_streams"] == 0
    assert told["moorage_callbacks_waiting"] == told["moorage_dead_letters"] == 0
    assert told["moorage_store_bytes"] > 10_000


async def test_stall_of_the_event_loop_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "moorage.doors.http.monitoring")
    meter, stop = Meter(), asyncio.Event()
    watching = asyncio.create_task(watch_stalls(meter.stall, stop))
    async with asyncio.timeout(PATIENCE):
        while not numbers(meter.text().decode())["moorage_loop_stall_seconds_count"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        time.sleep(0.4)  # noqa: ASYNC251  it blocks the loop
        stop.set()
        await watching
    told = numbers(meter.text().decode())
    assert told["moorage_loop_stall_seconds_sum"] > 0.3
    assert told["moorage_loop_stall_computing_seconds_sum"] < 0.3, "it slept and computed nothing"
    assert "the event loop stalled for" in caplog.text


def test_every_number_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "server.md").read_text()
    for family in Meter().registry.collect():
        assert f"`{family.name}" in page, family.name


def test_whichever_worker_is_asked_it_tells_the_numbers_of_all(start: Callable[..., Process]) -> None:
    url = start("--workers", "2", "--no-launcher").url
    for _ in range(40):  # each on a connection of its own, so that both workers get some
        httpx2.post(f"{url}/sessions", json={}).raise_for_status()
    with httpx2.stream("GET", f"{url}/events", headers=STREAM, timeout=PATIENCE) as stream:
        lines = stream.iter_lines()
        next(lines)
        for _ in range(10):
            told = numbers(httpx2.get(f"{url}/metrics").text)
            assert told["moorage_requests_total{operation=create,status=201}"] == 40
            assert told["moorage_commit_changes_sum"] >= 40
            assert told["moorage_streams"] == 1


# The log ----------------------------------------------------------------------------------------

IDS = {"session", "task", "run", "request_id"}


def test_every_log_line_is_json_with_ids(start: Callable[..., Process]) -> None:
    server = start("--log-level", "debug")
    with sync.connect(server.url) as moor:
        session = moor.create(agent="echo-agent", task_id="T-1")
        run = moor.run(None, "hello", session=session.id).run
        moor.append(session.id, {"role": "assistant", "content": "and on"})
    answer = httpx2.get(f"{server.url}/sessions/{session.id}", headers={"X-Request-Id": "mine"})
    assert answer.status_code == 200
    assert server.end() == 0
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    assert all(line.keys() >= {"at", "level", "logger", "message", *IDS} for line in lines)
    [asked] = [line for line in lines if line["request_id"] == "mine"]
    assert (asked["session"], asked["task"], asked["operation"], asked["status"]) == (session.id, "T-1", "get", 200)
    [said] = [line for line in lines if line.get("operation") == "post_messages"]
    assert (said["session"], said["task"]) == (session.id, "T-1")
    turns = [line for line in lines if line["message"].startswith("echo-agent ")]
    assert [line["message"] for line in turns] == ["echo-agent begins a turn", "echo-agent ended its turn: completed"]
    assert {(line["session"], line["task"], line["run"]) for line in turns} == {(session.id, "T-1", run.run_id)}


def test_no_secret_is_in_the_log(start: Callable[..., Process], tmp_path: Path) -> None:
    with sync.connect(f"sqlite:///{tmp_path / 'home' / 'moorage.db'}", by="ann") as store:
        key = store.create_key(scopes=["read", "write"]).text
    server = start("--log-level", "debug")
    with sync.connect(server.url, key=key) as moor:
        session = moor.create(agent="echo-agent", metadata={"password": "hunter-two"})
        moor.context.put(session.id, "api_key", "hunter-three")
        hold = moor.resume(session.id).hold
        moor.release(session.id, token=str(hold.token))
        assert moor.run("echo-agent", "hunter-four").status == "completed"
    wrong = key[:-4] + "0000"
    assert httpx2.get(f"{server.url}/sessions?token={key}", headers={"X-Api-Key": wrong}).status_code == 401
    assert server.end() == 0
    log = server.log.read_text()
    for secret in (key, key.rpartition("_")[2][:12], "hunter", str(hold.token)):
        assert secret not in log, secret


@pytest.mark.parametrize("lines", [logs.JsonLines(), logs.TextLines(), logs.TerminalLines()])
def test_keys_and_tokens_are_taken_out_of_any_text(lines: logging.Formatter) -> None:
    text = "Authorization: Bearer abc.def; moor_k1_0123456789abcdef0123; moors_eyJ.c2ln at postgresql://ann:pw@db/x"
    try:
        raise ValueError(text)
    except ValueError as error:
        record = logging.getLogger("x").makeRecord(
            "x", logging.ERROR, "f", 1, text, (), (ValueError, error, None), extra={"token": "abc.def"}
        )
    told = lines.format(record)
    for secret in ("abc.def", "0123456789abcdef", "c2ln", "ann:pw"):
        assert secret not in told
    assert "@db/x" in told
    assert "moor_session" in lines.format(logging.makeLogRecord({"msg": "moor_session is a name like any other"}))


@pytest.mark.parametrize(
    ("message", "name", "shown"),
    [
        ("asker begins a turn", "dep", "asker begins a turn  session dep"),
        ("asker begins a turn", None, "asker begins a turn  session 01a1f1de-a750"),
        ("ann deleted session %s", None, "ann deleted session 01a1f1de-a750"),
    ],
)
def test_line_at_a_terminal_names_its_session_once(message: str, name: str | None, shown: str) -> None:
    session_id = "01a1f1de-a750-714b-943e-899d5b090b10"
    with working_on(session=session_id, session_name=name):
        line = logs.TerminalLines().format(logging.makeLogRecord({"msg": message.replace("%s", session_id)}))
    assert re.sub(r"\x1b\[[\d;]*m", "", line).endswith(f"  {shown}")


async def test_failure_is_logged_with_its_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[dict[str, Any]] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(json.loads(logs.JsonLines().format(record)))  # type: ignore[method-assign]
    monkeypatch.setattr(logging.getLogger("moorage.doors.http.app"), "handlers", [handler])
    monkeypatch.setattr(
        authorizer, "LOOK_FOR_KEYS", timedelta(hours=1)
    )  # once it has looked, the authorizer needs no store
    with opened(f"sqlite:///{tmp_path / 'x.db'}") as (door, http):
        assert (await http.get("/agents")).status_code == 200
        await door.deps.store.close()
        await http.get("/sessions/s-1", headers={"X-Request-Id": "away"})
        monkeypatch.setattr(Visit, "get", None)
        await http.get("/sessions/s-2", headers={"X-Request-Id": "broken"})
    assert [(line["level"], line["request_id"], line["session"]) for line in lines] == [
        ("error", "away", "s-1"),
        ("error", "broken", "s-2"),
    ]
    assert "trace" in lines[1]


# Traces -----------------------------------------------------------------------------------------


class Collector:
    """Takes spans over HTTP, as OpenTelemetry sends them."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Any]] = []
        spans = self.spans

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                told = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["content-length"])))
                for resource in told.resource_spans:
                    [service] = [a.value.string_value for a in resource.resource.attributes if a.key == "service.name"]
                    spans.extend((service, span) for scope in resource.scope_spans for span in scope.spans)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    opened = Collector()
    yield opened
    opened.close()


def test_requests_are_spans_in_the_trace_of_the_caller(
    start: Callable[..., Process], collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    server = start("--no-launcher")
    trace = "0af7651916cd43dd8448eb211c80319c"
    httpx2.post(
        f"{server.url}/sessions",
        json={"session_id": "s-1", "task_id": "T-1"},
        headers={"traceparent": f"00-{trace}-b7ad6b7169203331-01"},
    ).raise_for_status()
    assert server.end() == 0, "what was not sent yet is sent at the end"
    [(service, span)] = until(lambda: [each for each in collector.spans if each[1].name == "moorage.create"])
    told = {a.key: a.value.string_value or a.value.int_value for a in span.attributes}
    assert (service, span.trace_id.hex()) == ("moorage", trace)
    assert {"moorage.session": "s-1", "moorage.task": "T-1", "http.response.status_code": 201}.items() <= told.items()
    assert told["moorage.request_id"]


def test_calls_by_grpc_are_counted_traced_and_logged_as_requests_are(
    start: Callable[..., Process], collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    server = start("--no-launcher", "--grpc-port", "0", "--log-level", "debug")
    url, trace = server.url, "0af7651916cd43dd8448eb211c80319c"
    found = until(lambda: re.search(r"gRPC at 127.0.0.1 port (\d+)", server.log.read_text()))
    with grpc.insecure_channel(f"127.0.0.1:{found[1]}") as channel:
        agents, sessions = AgentServiceStub(channel), SessionServiceStub(channel)
        metadata = (("traceparent", f"00-{trace}-b7ad6b7169203331-01"),)
        asked = TaskRequest(agent_id="echo-agent", input="hi", session_id="s-1", task_id="T-1")
        agents.ExecuteTask(asked, metadata=metadata)
        with pytest.raises(grpc.RpcError):
            agents.ExecuteTask(TaskRequest(agent_id="nobody", session_id="s-1"))
        watch = sessions.WatchSession(WatchSessionRequest(session="s-1"))
        next(watch)
        assert numbers(httpx2.get(f"{url}/metrics").text)["moorage_streams"] == 1
        watch.cancel()
        cancelled = "moorage_requests_total{operation=grpc_watch_session,status=CANCELLED}"
        until(lambda: cancelled in numbers(httpx2.get(f"{url}/metrics").text))
        told = numbers(httpx2.get(f"{url}/metrics").text)
    assert told["moorage_requests_total{operation=grpc_execute_task,status=OK}"] == 1
    assert told["moorage_requests_total{operation=grpc_execute_task,status=NOT_FOUND}"] == 1
    assert told["moorage_request_seconds_count{operation=grpc_execute_task}"] == 2
    assert server.end() == 0
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    [line] = [line for line in lines if line.get("operation") == "grpc_execute_task" and line["status"] == "OK"]
    assert (line["session"], line["task"], line["message"]) == ("s-1", "T-1", "ExecuteTask: OK")
    until(lambda: len([each for each in collector.spans if each[1].name == "moorage.grpc_execute_task"]) == 2)
    [span] = [span for _, span in collector.spans if span.trace_id.hex() == trace]
    about = {a.key: a.value.string_value for a in span.attributes}
    assert {"moorage.session": "s-1", "rpc.method": "ExecuteTask", "rpc.grpc.status": "OK"}.items() <= about.items()
