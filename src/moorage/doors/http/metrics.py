"""Metrics for operators, in the format of Prometheus.

Requests and commits are counted as they happen; the backlog is read from the store on each scrape. Several workers at
one address count in shared files, so any of them can answer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from moorage import config
from moorage.core.key import Scope
from moorage.doors.http.app import Door
from moorage.doors.http.exchange import Exchange
from moorage.doors.http.visit import Visitor
from moorage.ports import Store

log = logging.getLogger(__name__)

FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # the folder of the workers' counts, read by prometheus_client when it is loaded
TEXT = b"text/plain; version=0.0.4; charset=utf-8"
QUICK = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
SMALL = (1, 2, 4, 8, 16, 32, 64)
LOOK_EVERY = 0.05  # seconds between two checks of the event loop's delay
LONG_STALL = 0.1  # seconds: longer than one request should block the others


class Meter:
    """Counts events of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own = self.registry
        self._requests = Counter("moorage_requests", "Requests answered", ("operation", "status"), registry=own)
        self._seconds = Histogram(
            "moorage_request_seconds", "How long answers took", ("operation",), buckets=QUICK, registry=own
        )
        # Looking both up by their labels takes as long as all the rest of the door.
        self._found: dict[tuple[str, int | str], tuple[Counter, Histogram]] = {}
        self._commit_seconds = Histogram("moorage_commit_seconds", "How long commits took", buckets=QUICK, registry=own)
        self._commit_changes = Histogram(
            "moorage_commit_changes", "Changes written by one commit", buckets=SMALL, registry=own
        )
        self._stall_seconds = Histogram(
            "moorage_loop_stall_seconds", "How late timers of the event loop were", buckets=QUICK, registry=own
        )
        self._stall_computing_seconds = Histogram(
            "moorage_loop_stall_computing_seconds",
            "How long the event loop computed while its timers were late",
            buckets=QUICK,
            registry=own,
        )
        self._streams = Gauge("moorage_streams", "Streams that are open", registry=own, multiprocess_mode="livesum")
        self._queued = self._gauge("moorage_queued_turns", "Turns that wait for a launcher")
        self._running = self._gauge("moorage_running_turns", "Turns that launchers have")
        self._oldest = self._gauge("moorage_oldest_queued_seconds", "How long the oldest of them waits")
        self._waiting = self._gauge("moorage_callbacks_waiting", "Callbacks that wait for a parent's turn")
        self._dead_letters = self._gauge("moorage_dead_letters", "Dead letters in inboxes")
        self._bytes = self._gauge("moorage_store_bytes", "Size of the store in bytes")

    def _gauge(self, name: str, told: str) -> Gauge:
        """Create a gauge for a number of the store, which is the same for all workers."""
        return Gauge(name, told, registry=self.registry, multiprocess_mode="mostrecent")

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

    def streams(self, count: int) -> None:
        """Note the number of open streams."""
        self._streams.set(count)

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
        backlog, size = totals.backlog, totals.size
        self._queued.set(backlog.queued)
        self._running.set(backlog.running)
        oldest = backlog.oldest_queued_at
        self._oldest.set(0 if oldest is None else (now - oldest).total_seconds())
        self._waiting.set(backlog.callbacks)
        self._dead_letters.set(backlog.dead_letters)
        if size is not None:
            self._bytes.set(size.bytes)


def add_to(door: Door, meter: Meter) -> None:
    """Add the route /metrics."""

    @door.route("GET", "/metrics", Scope.READ, to_token=False, kind="text/plain")
    async def metrics(exchange: Exchange, _: Visitor) -> None:
        """Return metrics for Prometheus."""
        await meter.look(door.deps.store, door.deps.clock.now())
        await exchange.answer(meter.text(), kind=TEXT)


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
