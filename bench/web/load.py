"""A load of HTTP requests: many connections, each asks again as soon as it has its answer.

A process of its own, ordered by JSON lines like the other workers, so that it takes no time
from the server it measures. Requests are bytes before the clock starts. Every status is looked at:
an answer that is not a success ends the round with an error, or is counted apart where that is allowed.

    {"do": "each", "port": 8765, "requests": [["POST", "/sessions", {…}], …], "connections": 16, "field": "session_id"}
    {"do": "plan", "port": 8765, "requests": […], "connections": 64, "may_fail": false}
    {"do": "round", "operations": 5000}   answers: seconds, and how long the requests took
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import uvloop

HOST = "127.0.0.1"

Request = tuple[str, str, Any]  # verb, path, body


class Refused(Exception):
    """A server answered something else than a success."""


class Load:
    """A planned load and its execution."""

    def __init__(self) -> None:
        self._port, self._lines, self._may_fail = 0, [[b""]], False

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        """Do one order; its other fields are the arguments."""
        orders = {"each": self.each, "plan": self.plan, "round": self.round}
        return orders[order.pop("do")](**order)

    def each(self, port: int, requests: Sequence[Request], connections: int, field: str | None) -> dict[str, Any]:
        """Send each request once; that field of the answers, in the same order."""
        lines = [line for line in _dealt(requests, connections) if line]
        asked = uvloop.run(_ask(port, lines, len(requests), keep=True))
        if field is None:
            return {}
        found: list[Any] = [None] * len(requests)
        for place, one in enumerate(asked):
            found[place::connections] = [json.loads(body)[field] for body in one.bodies]
        return {"found": found}

    def plan(self, port: int, requests: Sequence[Request], connections: int, may_fail: bool) -> dict[str, Any]:
        """Return the requests of the rounds. Each belongs to one connection, so no session has two writers at once."""
        self._port, self._lines, self._may_fail = port, _dealt(requests, connections), may_fail
        return {}

    def round(self, operations: int) -> dict[str, Any]:
        """So many requests; how long they took together, and each."""
        asked = uvloop.run(_ask(self._port, self._lines, operations, may_fail=self._may_fail))
        times = sorted(time for one in asked for time in one.times)
        seconds = max(one.ended for one in asked) - min(one.began for one in asked)
        if not times:
            raise Refused(f"none of {operations} requests was answered with a success")
        return {
            "operations": len(times),
            "failed": sum(one.failed for one in asked),
            "seconds": seconds,
            "median": times[len(times) // 2],
            "p99": times[min(len(times) - 1, int(len(times) * 0.99))],
        }


class _Budget:
    """How many requests may still be sent, by all connections together."""

    def __init__(self, operations: int) -> None:
        self.left = operations


class _Asking(asyncio.Protocol):
    """One connection: the next request goes out when the last one is answered."""

    def __init__(self, line: Sequence[bytes], budget: _Budget, keep: bool, may_fail: bool) -> None:
        self._line, self._budget, self._keep, self._may_fail = line, budget, keep, may_fail
        self.failed, self._is_success = 0, True
        self._place, self._received, self._needed = 0, bytearray(), 0
        self.times: list[float] = []
        self.bodies: list[bytes] = []
        self.began = self.ended = perf_counter()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("the server closed the connection"))

    def start(self) -> None:
        self.began = self.ended = perf_counter()
        self._ask()

    def _ask(self) -> None:
        if self._budget.left <= 0 or (self._keep and self._place == len(self._line)):
            self.done.set_result(None)
            return
        self._budget.left -= 1
        self._sent = perf_counter()
        self._transport.write(self._line[self._place % len(self._line)])
        self._place += 1

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._needed:
            self._read_head()
        if self._needed and len(self._received) >= self._needed:
            self._answered()

    def _read_head(self) -> None:
        head_end = self._received.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = bytes(self._received[:head_end]).lower()
        place = head.find(b"\r\ncontent-length:")
        self._is_success = head[9:10] == b"2"
        if place < 0 or not (self._is_success or self._may_fail):
            self.done.set_exception(Refused(bytes(self._received[:500]).decode("utf-8", "replace")))
            self._transport.close()
            return
        length = head[place + 17 : (head.find(b"\r\n", place + 2) + 1 or len(head) + 1) - 1]
        self._body_at, self._needed = head_end + 4, head_end + 4 + int(length)

    def _answered(self) -> None:
        self.ended = perf_counter()
        if self._is_success:
            self.times.append(self.ended - self._sent)
        else:
            self.failed += 1
        if self._keep:
            self.bodies.append(bytes(self._received[self._body_at : self._needed]))
        del self._received[: self._needed]
        self._needed = 0
        self._ask()

    def close(self) -> None:
        self._transport.close()


async def _ask(
    port: int, lines: Sequence[Sequence[bytes]], operations: int, *, keep: bool = False, may_fail: bool = False
) -> list[_Asking]:
    loop, budget = asyncio.get_running_loop(), _Budget(operations)
    asking: list[_Asking] = []
    for line in lines:
        asking.append(_Asking(line, budget, keep, may_fail))
        await loop.create_connection(lambda: asking[-1], HOST, port)
    try:
        for one in asking:
            one.start()
        await asyncio.gather(*[one.done for one in asking])
    finally:
        for one in asking:
            one.close()
    return asking


def _dealt(requests: Sequence[Request], connections: int) -> list[list[bytes]]:
    """The requests of each connection, as bytes."""
    return [list(map(_bytes_of, requests[place::connections])) for place in range(connections)]


def _bytes_of(request: Request) -> bytes:
    verb, path, document = request
    body = b"" if document is None else json.dumps(document).encode()
    head = f"{verb} {path} HTTP/1.1\r\nHost: {HOST}\r\nAccept: application/json\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def main() -> None:
    """Obey until there are no more orders."""
    load = Load()
    for line in sys.stdin:
        try:
            answer = load.obey(json.loads(line))
        except Exception as exc:
            answer = {"error": f"{type(exc).__name__}: {' '.join(str(exc).split())[:500]}"}
        print(json.dumps(answer), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
