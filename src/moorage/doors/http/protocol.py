"""HTTP/1.1 with limits: on the duration and the size of a request's head, and on the slowness of its body.

uvicorn waits without limit for a head or a body that arrives one byte at a time, and takes a head of any size. A
thousand such connections would block a server at little cost, so a head has ten seconds and 64 KiB, and a body has to
arrive at a kilobyte a second. The route limits the size of the body.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class BoundedProtocol(HttpToolsProtocol):
    """One connection with limits on the time and the size of its requests."""

    head_within = 10.0  # seconds
    max_head = 64 * 1024
    pace_every = 20.0  # seconds in which a body has to bring
    pace = 20 * 1024  # this number of bytes

    _timer: asyncio.TimerHandle | None = None  # until the head is complete
    _pacer: asyncio.TimerHandle | None = None  # until the body is complete
    _is_body_due = False
    _fed = _paced = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        self._end_body()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._fed += len(data)
        super().data_received(data)
        if self._timer is not None and self._fed > self.max_head:
            self._break_off(_TOO_LARGE)
        if self._is_body_due and self._pacer is None:  # most bodies come with their heads
            self._begin_pace()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value.strip(b" \t"))  # white space around a value is no part of it (RFC 9110, 5.5)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._timer is None:  # the next request on a kept connection
            self._begin_head()

    def on_headers_complete(self) -> None:
        self._end_head()
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.max_head:
            self._break_off(_TOO_LARGE)
            return
        self._is_body_due = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._end_body()
        if not self.transport.is_closing():
            super().on_message_complete()

    def _begin_head(self) -> None:
        self._fed = 0
        self._timer = self.loop.call_later(self.head_within, self._break_off, _TOO_SLOW)

    def _end_head(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin_pace(self) -> None:
        self._paced = self._fed
        self._pacer = self.loop.call_later(self.pace_every, self._check_pace)

    def _check_pace(self) -> None:
        """Keep waiting for a body if enough of it came; the server itself may be slow."""
        if self._fed - self._paced >= self.pace or self.flow.read_paused:
            self._begin_pace()
        else:
            self._break_off(b"" if self.cycle.response_started else _TOO_SLOW)

    def _end_body(self) -> None:
        self._is_body_due = False
        if self._pacer is not None:
            self._pacer.cancel()
            self._pacer = None

    def _break_off(self, answer: bytes) -> None:
        self._end_head()
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()
