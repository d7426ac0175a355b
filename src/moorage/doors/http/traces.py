"""Traces: one span for every request and every gRPC call, with OpenTelemetry (extra `otel`).

OpenTelemetry's own environment variables name the destination; without OTEL_EXPORTER_OTLP_ENDPOINT there are no traces.
A request with a `traceparent` continues its caller's trace.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from moorage import config
from moorage.core.extras import missing
from moorage.doors.http.exchange import Exchange
from moorage.service.about import about

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

log = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


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
