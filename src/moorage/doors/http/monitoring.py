"""Observability of a server: health and readiness, metrics in the format of Prometheus, traces, and the documentation.

Requests and commits are counted as they happen; the backlog is read from the store on each scrape. Several workers at
one address count in shared files, so any of them can answer.

Every request and every gRPC call has a span, with OpenTelemetry (extra `otel`). Its own environment variables name the
destination; without OTEL_EXPORTER_OTLP_ENDPOINT there are no traces. A request with a `traceparent` continues its
caller's trace.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from moorage import __version__, config
from moorage.core.codec import encode
from moorage.core.errors import StoreUnavailable
from moorage.core.extras import missing
from moorage.core.key import Scope
from moorage.doors.http.app import Door
from moorage.doors.http.exchange import Exchange
from moorage.doors.http.openapi import POLICY, docs_page, openapi
from moorage.doors.http.visit import Visitor
from moorage.ports import Store
from moorage.service.about import about
from moorage.service.deps import Deps

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

log = logging.getLogger(__name__)

READY_WITHIN = 5.0  # seconds for the store to answer
SILENT_AFTER = 10.0  # seconds without a successful write: the server is not ready
DEAD_AFTER = 60.0  # the same: it will not recover by itself
DOCS_HEADERS = [(b"content-security-policy", POLICY), (b"referrer-policy", b"no-referrer")]

FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # the folder of the workers' counts, read by prometheus_client when it is loaded
TEXT = b"text/plain; version=0.0.4; charset=utf-8"
QUICK = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
SMALL = (1, 2, 4, 8, 16, 32, 64)
LOOK_EVERY = 0.05  # seconds between two checks of the event loop's delay
LONG_STALL = 0.1  # seconds: longer than one request should block the others

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def add_to(door: Door, meter: Meter, heart: Heart | None = None) -> None:
    """Add /healthz, /readyz, /metrics, /openapi.json, /docs; a server with a heart is healthy as long as it beats."""
    documents: dict[bool, dict[str, Any]] = {}  # the OpenAPI documents, by whether a key is needed

    async def whole() -> dict[str, Any]:
        needs_key = await door.authorizer.is_closed()
        if needs_key not in documents:
            # Making it takes a tenth of a second, so the event loop does not do it.
            documents[needs_key] = await asyncio.to_thread(openapi, door.routes, needs_key=needs_key)
        return documents[needs_key]

    @door.route("GET", "/healthz", is_open=True, answer=Health)
    async def healthz(exchange: Exchange, _: Visitor) -> None:
        """Return whether the server answers."""
        if heart is not None:
            heart.check(DEAD_AFTER)
        await exchange.answer(encode(Health(status="ok")))

    @door.route("GET", "/readyz", is_open=True, answer=Health)
    async def readyz(exchange: Exchange, _: Visitor) -> None:
        """Return whether the store answers and takes writes."""
        await check_ready(door.deps, heart)
        await exchange.answer(encode(Health(status="ready")))

    @door.route("GET", "/openapi.json", name="openapi", is_open=True, answer=dict[str, Any])
    async def document(exchange: Exchange, _: Visitor) -> None:
        """This document."""
        await exchange.answer(encode(await whole()))

    @door.route("GET", "/docs", is_open=True, kind="text/html")
    async def docs(exchange: Exchange, _: Visitor) -> None:
        """Show this document to people."""
        await exchange.answer(docs_page(await whole()).encode(), kind=b"text/html; charset=utf-8", headers=DOCS_HEADERS)

    @door.route("GET", "/metrics", Scope.READ, to_token=False, kind="text/plain")
    async def metrics(exchange: Exchange, _: Visitor) -> None:
        """Return metrics for Prometheus."""
        await meter.look(door.deps.store, door.deps.clock.now())
        await exchange.answer(meter.text(), kind=TEXT)


class Health(Struct, frozen=True, kw_only=True):
    """How a server does."""

    status: str
    version: str = __version__


class Heart:
    """The time of the last successful write: a store that can be read may have lost its disk."""

    def __init__(self) -> None:
        self._beaten_at = monotonic()

    def beat(self) -> None:
        """Note a successful write."""
        self._beaten_at = monotonic()

    def check(self, silent_after: float) -> None:
        """Raise StoreUnavailable if nothing was written for this number of seconds."""
        silent = monotonic() - self._beaten_at
        if silent > silent_after:
            raise StoreUnavailable(f"no write has succeeded for {silent:.0f} seconds", store="store")


async def check_ready(deps: Deps, heart: Heart | None = None) -> None:
    """Raise StoreError if the store does not answer, or takes no writes."""
    if heart is not None:
        heart.check(SILENT_AFTER)
    try:
        async with asyncio.timeout(READY_WITHIN):
            await deps.store.feed_end("local")
    except TimeoutError:
        raise StoreUnavailable("the store does not answer in time", store="store") from None


class Meter:
    """Counts events of one server."""

    def __init__(self) -> None:
        own = self.registry = CollectorRegistry()
        quick = partial(Histogram, registry=own, buckets=QUICK)
        stored = partial(Gauge, registry=own, multiprocess_mode="mostrecent")  # read from the store by any worker
        self._requests = Counter("moorage_requests", "Requests answered", ("operation", "status"), registry=own)
        self._seconds = quick("moorage_request_seconds", "How long answers took", ("operation",))
        # Looking both up by their labels takes as long as all the rest of the door.
        self._found: dict[tuple[str, int | str], tuple[Counter, Histogram]] = {}
        self._commit_seconds = quick("moorage_commit_seconds", "How long commits took")
        self._commit_changes = quick("moorage_commit_changes", "Changes written by one commit", buckets=SMALL)
        self._stall_seconds = quick("moorage_loop_stall_seconds", "How late timers of the event loop were")
        computing = "How long the event loop computed while its timers were late"
        self._stall_computing_seconds = quick("moorage_loop_stall_computing_seconds", computing)
        self.streams = Gauge("moorage_streams", "Streams that are open", registry=own, multiprocess_mode="livesum").set
        self._queued = stored("moorage_queued_turns", "Turns that wait for a launcher")
        self._running = stored("moorage_running_turns", "Turns that launchers have")
        self._oldest = stored("moorage_oldest_queued_seconds", "How long the oldest of them waits")
        self._waiting = stored("moorage_callbacks_waiting", "Callbacks that wait for a parent's turn")
        self._dead_letters = stored("moorage_dead_letters", "Dead letters in inboxes")
        self._bytes = stored("moorage_store_bytes", "Size of the store in bytes")

    def call(self, operation: str, status: int | str, seconds: float) -> None:
        """Count a call at any door; the status is a number or a name, depending on the door."""
        found = self._found.get((operation, status))
        if found is None:
            found = self._requests.labels(operation, str(status)), self._seconds.labels(operation)
            self._found[operation, status] = found
        answered, took = found
        answered.inc()
        took.observe(seconds)

    def commit(self, changes: int, seconds: float) -> None:
        """Count a commit; the writer's thread calls this."""
        self._commit_seconds.observe(seconds)
        self._commit_changes.observe(changes)

    def stall(self, seconds: float, computing: float) -> None:
        """Count a late timer of the event loop, with its delay and the time for which the loop computed."""
        self._stall_seconds.observe(seconds)
        self._stall_computing_seconds.observe(computing)

    def text(self) -> bytes:
        """Return all metrics, of all workers."""
        if not config.environment(FOLDER):
            return generate_latest(self.registry)
        every = CollectorRegistry()
        MultiProcessCollector(every)  # type: ignore[no-untyped-call]
        return generate_latest(every)

    async def look(self, store: Store, now: datetime) -> None:
        """Read the backlog from the store."""
        totals = await store.totals()
        backlog, oldest = totals.backlog, totals.backlog.oldest_queued_at
        self._queued.set(backlog.queued)
        self._running.set(backlog.running)
        self._oldest.set(0 if oldest is None else (now - oldest).total_seconds())
        self._waiting.set(backlog.callbacks)
        self._dead_letters.set(backlog.dead_letters)
        if totals.size is not None:
            self._bytes.set(totals.size.bytes)


async def watch_stalls(note: Callable[[float, float], None], stop: asyncio.Event) -> None:
    """Tell `note` how late each check is and how much of that the loop computed, in seconds, until `stop`.

    The rest of a stall is spent waiting: for a processor, a disk or a lock. `debug` logs the long ones.
    """
    loop = asyncio.get_running_loop()
    while not stop.is_set():
        due, used = loop.time() + LOOK_EVERY, time.thread_time()
        await asyncio.sleep(LOOK_EVERY)
        stalled = max(0.0, loop.time() - due)
        computed = min(stalled, time.thread_time() - used)
        note(stalled, computed)
        if stalled > LONG_STALL:
            log.debug("the event loop stalled for %.0f ms and computed for %.0f", stalled * 1000, computed * 1000)


class Traces:
    """Spans of requests, by a tracer."""

    def __init__(self, tracer: Tracer, close: Callable[[], None] = lambda: None) -> None:
        """Set up with a tracer. `close` sends pending spans, which may take a while."""
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind, Status, StatusCode

        self._tracer, self._extract, self._kind = tracer, extract, SpanKind.SERVER
        self._failed, self.close = Status(StatusCode.ERROR), close

    @contextmanager
    def request(self, exchange: Exchange, operation: str) -> Iterator[None]:
        """Open a span for the duration of the block."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in exchange.headers.items()}
        with self._tracer.start_as_current_span(
            f"moorage.{operation}", context=self._extract(headers), kind=self._kind
        ) as span:
            span.set_attribute("http.request.method", exchange.verb)
            try:
                yield
            finally:
                for name, value in about().items():
                    span.set_attribute(f"moorage.{name}", value)
                span.set_attribute("http.response.status_code", exchange.status)
                if exchange.status >= 500:
                    span.set_status(self._failed)

    def begin_call(self, operation: str, metadata: dict[str, str]) -> Span:
        """Return the span of a call. It is not made current, because a stream may end in another task."""
        return self._tracer.start_span(f"moorage.{operation}", context=self._extract(metadata), kind=self._kind)

    def end_call(self, span: Span | None, attributes: dict[str, str], *, is_broken: bool) -> None:
        """End the span of a call."""
        if span is not None:
            span.set_attributes(attributes)
            if is_broken:
                span.set_status(self._failed)
            span.end()


def open_traces() -> Traces | None:
    """Return traces sent where the environment says; None if it names no destination, or OpenTelemetry is missing."""
    if not any(map(config.environment, ENDPOINTS)):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        log.warning("traces are off: %s", missing("otel", "OpenTelemetry"))
        return None
    name = config.environment("OTEL_SERVICE_NAME") or "moorage"
    provider = TracerProvider(resource=Resource.create({SERVICE_NAME: name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Traces(provider.get_tracer("moorage"), provider.shutdown)
