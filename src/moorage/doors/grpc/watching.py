"""Metrics, spans and log lines of gRPC calls.

The operation is the method's name, as it is the route's name over HTTP. Calls of unknown methods are not counted, so
the number of labels is bounded by the number of methods.
"""

from __future__ import annotations

import logging
import re
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from moorage.doors.http.monitoring import Traces

log = logging.getLogger(__name__)

OK = "OK"
BROKEN = frozenset({"UNKNOWN", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNIMPLEMENTED", "DEADLINE_EXCEEDED"})
CountCall = Callable[[str, str, float], None]  # the operation, its final status, its duration in seconds


class WatchedMethod:
    """The names of a method in metrics, spans and logs."""

    def __init__(self, method: Any) -> None:
        self.service, self.method = method.containing_service.full_name, method.name
        self.name = "grpc" + re.sub(r"(?=[A-Z])", "_", method.name).lower()


class Watch:
    """Reports calls to metrics, traces and logs."""

    def __init__(self, counting: CountCall | None = None, traces: Traces | None = None) -> None:
        self._counting, self._traces = counting, traces

    @contextmanager
    def call(self, operation: WatchedMethod, context: Any, **about: str) -> Iterator[None]:
        """Observe a call during the block, however it ends; `about` are ids of its subjects."""
        began, status = perf_counter(), OK
        span = None if self._traces is None else self._traces.begin_call(operation.name, _metadata(context))
        try:
            yield
        except (CancelledError, GeneratorExit):
            status = "DEADLINE_EXCEEDED" if _is_late(context) else "CANCELLED"
            raise
        except BaseException:
            status = _status(context)
            raise
        finally:
            took = perf_counter() - began
            if self._counting is not None:
                self._counting(operation.name, status, took)
            if self._traces is not None:
                self._traces.end_call(span, _attributes(operation, status, about), is_broken=status in BROKEN)
            if log.isEnabledFor(logging.DEBUG):
                told = {"operation": operation.name, "status": status, "seconds": round(took, 6), **about}
                log.debug("%s: %s", operation.method, status, extra=told)


def _metadata(context: Any) -> dict[str, str]:
    return {str(key): value for key, value in context.invocation_metadata() or () if isinstance(value, str)}


def _status(context: Any) -> str:
    code = context.code()
    return str(getattr(code, "name", "UNKNOWN"))


def _is_late(context: Any) -> bool:
    left = context.time_remaining()
    return left is not None and left <= 0


def _attributes(operation: WatchedMethod, status: str, about: dict[str, str]) -> dict[str, str]:
    ids = {f"moorage.{name}": value for name, value in about.items()}
    told = {"rpc.system": "grpc", "rpc.service": operation.service, "rpc.method": operation.method}
    return {**told, "rpc.grpc.status": status, **ids}
