"""Traces: one span for every request, for those who run OpenTelemetry (`pip install 'holdfast[otel]'`).

Where they go is said by OpenTelemetry's own environment variables (OTEL_EXPORTER_OTLP_ENDPOINT …). A
request that carries a `traceparent` goes on in its caller's trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.core.errors import Unsupported
from holdfast.doors.http.exchange import Exchange

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer


class Traces:
    """Spans of requests, by a tracer."""

    def __init__(self, tracer: Tracer) -> None:
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind, Status, StatusCode

        self._tracer, self._extract, self._kind = tracer, extract, SpanKind.SERVER
        self._failed = Status(StatusCode.ERROR)

    @contextmanager
    def request(self, exchange: Exchange, operation: str) -> Iterator[None]:
        """A span for as long as the block lasts."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in exchange.headers.items()}
        with self._tracer.start_as_current_span(
            f"holdfast.{operation}", context=self._extract(headers), kind=self._kind
        ) as span:
            span.set_attribute("http.request.method", exchange.verb)
            span.set_attribute("holdfast.request_id", exchange.request_id)
            if "ref" in exchange.params:
                span.set_attribute("holdfast.session", exchange.params["ref"])
            try:
                yield
            finally:
                span.set_attribute("http.response.status_code", exchange.status)
                if exchange.status >= 500:
                    span.set_status(self._failed)


def open_traces(service: str = "holdfast") -> Traces:
    """Traces that are sent where the environment says. Raises Unsupported without OpenTelemetry."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise Unsupported("traces need one more package: pip install 'holdfast[otel]'", feature="traces") from None
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Traces(provider.get_tracer("holdfast"))
